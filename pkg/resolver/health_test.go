package resolver

import (
	"testing"
	"time"

	"github.com/miekg/dns"
)

// TestHealth: that no server answers is known by two questions, and that one does again is known without anybody asking.
// One name that no server answers for says nothing about the servers.
func TestHealth(t *testing.T) {
	r := newRig(t, "good.test", "other.test")
	look := func() Answering { return r.config.Health.Look(time.Now()) }
	comes := func(what string, is func(Answering) bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !is(look()); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: %+v", what, look())
			}
		}
	}
	mute := func(dns.ResponseWriter, *dns.Msg) *dns.Msg { return nil }
	r.up.set(t, "good.test.", "A", "good.test. 60 IN A 192.0.2.1")
	r.ask("good.test.", dns.TypeA)
	if a := look(); a.By != r.up.addr || a.Answered.IsZero() || !a.Silent.IsZero() || a.Asked != 1 || a.Failed != 0 {
		t.Fatalf("after an answer: %+v", a)
	}
	first := look().Answered
	r.up.script("other.test.", "A", mute)
	r.ask("other.test.", dns.TypeA)
	comes("the good name is asked for again", func(a Answering) bool { return a.Answered.After(first) })
	if a := look(); !a.Silent.IsZero() || a.Asked != 2 || a.Failed != 1 {
		t.Errorf("one name is silent: %+v", a)
	}
	r.up.script("good.test.", "A", mute)
	r.up.script("other.test.", "AAAA", mute)
	begun := time.Now()
	r.ask("other.test.", dns.TypeAAAA)
	comes("the silence shows", func(a Answering) bool { return !a.Silent.IsZero() })
	if a := look(); a.Silent.Before(begun) || a.Answered.After(begun) || a.Failed != 2 {
		t.Errorf("all is silent: %+v", a)
	}
	r.up.set(t, "good.test.", "A", "good.test. 60 IN A 192.0.2.1")
	comes("an answer shows", func(a Answering) bool { return a.Silent.IsZero() && a.Answered.After(begun) })
	if a := r.config.Health.Look(time.Now().Add(Window)); a.Asked != 0 || a.Failed != 0 {
		t.Errorf("beyond the window: %+v", a)
	}
}
