package faults

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// poison is an address that no answer for an allowed name may lead to.
const poison = "45.30.66.66"

// lie is the reply that a server would give, with an address of the attacker's,
// after edit.
func lie(edit func(*dns.Msg)) func(lab.Query) *dns.Msg {
	return func(q lab.Query) *dns.Msg {
		m := new(dns.Msg).SetReply(q.Msg)
		m.Answer = []dns.RR{rig.Record(q.Name + ". 300 IN A " + poison), rig.Record(q.Name + ". 300 IN AAAA 2a0f:30:66::66")}
		edit(m)
		return m
	}
}

var _ = rig.Also(TestFaultUpstream, rig.UnderStress)

// TestFaultUpstream: whatever the servers do, the agent gets an answer or an
// error in time, nothing is opened that isn't the name's, denied names are denied
// as ever, and when the servers are well so is everything.
func TestFaultUpstream(t *testing.T) {
	lab.Require(t)
	var asked atomic.Int64
	faults := map[string]lab.Answer{
		"dead":           {Silent: true},
		"slow":           {Latency: 4 * time.Second, Addrs: lab.Names()["ok.test"]},
		"wrong id":       {Func: lie(func(m *dns.Msg) { m.Id++ })},
		"wrong question": {Func: lie(func(m *dns.Msg) { m.Question[0].Name = "evil.test." })},
		"no question":    {Func: lie(func(m *dns.Msg) { m.Question = nil })},
		"not a response": {Func: lie(func(m *dns.Msg) { m.Response = false })},
		"answers about others": {Func: lie(func(m *dns.Msg) {
			m.Answer = []dns.RR{rig.Record("ok2.test. 300 IN A " + poison)}
			m.Ns, m.Extra = []dns.RR{rig.Record("test. 300 IN NS ns.evil.test.")}, []dns.RR{rig.Record("ns.evil.test. 300 IN A " + poison), rig.Record("ok.test. 300 IN A " + poison)}
		})},
		"refuses": {Rcode: dns.RcodeRefused},
		"fails":   {Rcode: dns.RcodeServerFailure},
		"truncated, and TCP is dead": {Func: func(q lab.Query) *dns.Msg {
			if q.Network == "tcp" {
				return nil
			}
			m := new(dns.Msg).SetReply(q.Msg)
			m.Truncated = true
			return m
		}},
		"garbage":  {Raw: func(q lab.Query) []byte { return append(bytes.Clone(q.Raw[:2]), bytes.Repeat([]byte{0xff}, 500)...) }},
		"oversize": {Raw: func(q lab.Query) []byte { return append(bytes.Clone(q.Raw), make([]byte, 60000)...) }},
		"empty":    {Raw: func(lab.Query) []byte { return []byte{} }},
	}
	flapping := lab.Answer{Func: func(q lab.Query) *dns.Msg {
		if asked.Add(1)%2 == 0 {
			return nil
		}
		m := new(dns.Msg).SetReply(q.Msg)
		if q.Type == dns.TypeA {
			m.Answer = []dns.RR{rig.Record(q.Name + ". 300 IN A 45.30.0.10")}
		}
		return m
	}}
	l := rig.NewLab(t)
	rig.EvilZone(l)
	list := []string{"ok.test", "flapping.test"}
	l.DNS.Set("flapping.test", flapping)
	hosts := map[string]string{}
	for what, a := range faults {
		host := "n" + strings.NewReplacer(" ", "", ",", "").Replace(strings.ToLower(what)) + ".test"
		hosts[what] = host
		list = append(list, host)
		l.DNS.Set(host, a)
	}
	w := rig.ConfineIn(t, l, strings.Join(list, "\n"), lab.BoxOptions{})
	ok4, ok6 := rig.Named("ok.test")
	running := map[string]*lab.Process{}
	for what, host := range hosts {
		running[what] = w.AsAgent(w.Box, "dns", "-timeout", "20s", rig.At(rig.Google4, 53), host, "A")
	}
	if p := w.Poke("dns", "8.8.8.8:53", "evil.test", "A"); p.Detail["rcode"] != "NXDOMAIN" {
		t.Errorf("a denied name meanwhile: %s", p)
	}
	w.Works("http", "https://ok.test/")
	for what, p := range running {
		v := rig.Verdict(t, p)
		if v.OK && what != "slow" || fmt.Sprint(v.Detail["rcode"]) == "<nil>" {
			t.Errorf("%s: %s", what, v)
		}
	}
	if !rig.Eventually(20*time.Second, func() bool { return w.Poke("dns", rig.At(rig.Google4, 53), "flapping.test", "A").OK }) {
		t.Error("no answer of servers that answer every second time")
	}
	within(w, ok4, ok6)
	w.Blocked("tcp", "-timeout", "1s", poison+":443")

	// All servers are dead, then they are not.
	for _, host := range hosts {
		l.DNS.Set(host, lab.Answer{Silent: true})
	}
	l.DNS.Set("*", lab.Answer{Silent: true})
	for _, host := range hosts {
		w.Blocked("dns", "-timeout", "20s", rig.At(rig.Google4, 53), host, "A")
		break
	}
	for what, host := range hosts {
		l.DNS.Set(host, lab.Answer{Addrs: []netip.Addr{ok4, ok6}})
		var last lab.Poke
		if !rig.Eventually(30*time.Second, func() bool { last = w.Poke("http", "https://"+host+"/"); return last.OK }) {
			t.Errorf("%s: still broken: %s", what, last)
		}
	}
	w.Recovers("the servers were")
	within(w, ok4, ok6)
	w.Closed()
	if w.Restarts() != 0 {
		t.Errorf("%d restarts", w.Restarts())
	}
	for _, q := range l.Queries() {
		if !slices.Contains(list, strings.ToLower(q.Name)) {
			t.Errorf("a server was asked for %s", q.Name)
		}
	}
}
