package inspect

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
)

// TestHintWants: what a shell is told of was refused to what it has started, since the command began.
func TestHintWants(t *testing.T) {
	own, other := uint32(os.Getuid()), uint32(os.Getuid())+1
	base := audit.Event{Time: noon, Kind: audit.DNS, Verdict: audit.Deny, Name: "a.example", UID: &own, PID: 101, Comm: "curl"}
	for what, c := range map[string]struct {
		change func(*audit.Event)
		hint   Hint
		want   bool
	}{
		"its own":                       {func(*audit.Event) {}, Hint{noon, 100, true, false}, true},
		"its own, of a fetcher":         {func(*audit.Event) {}, Hint{noon, 100, false, false}, true},
		"git's":                         {func(e *audit.Event) { e.Comm = "git-remote-http" }, Hint{noon, 100, false, false}, true},
		"telemetry where all went well": {func(e *audit.Event) { e.Comm = "next-server" }, Hint{noon, 100, false, false}, false},
		"of an unknown process":         {func(e *audit.Event) { e.UID, e.PID, e.Comm = nil, 0, "" }, Hint{noon, 100, true, false}, true},
		"the same where all went well":  {func(e *audit.Event) { e.UID, e.PID, e.Comm = nil, 0, "" }, Hint{noon, 100, false, false}, false},
		"where one was named":           {func(e *audit.Event) { e.PID, e.Comm = 0, "" }, Hint{noon, 100, false, true}, true},
		"another's where one was named": {func(e *audit.Event) { e.Comm = "next-server" }, Hint{noon, 100, false, true}, false},
		"the agent's":                   {func(e *audit.Event) { e.PID = 99 }, Hint{noon, 100, true, false}, false},
		"the shell's own":               {func(e *audit.Event) { e.PID = 100 }, Hint{noon, 100, true, false}, false},
		"another user's":                {func(e *audit.Event) { e.UID = &other }, Hint{noon, 100, true, false}, false},
		"from before":                   {func(*audit.Event) {}, Hint{noon.Add(time.Second), 100, true, false}, false},
		"allowed":                       {func(e *audit.Event) { e.Verdict = audit.Allow }, Hint{noon, 100, true, false}, false},
		"let out":                       {func(e *audit.Event) { e.Verdict, e.Enforce = audit.Allow, audit.Deny }, Hint{noon, 100, true, false}, false},
		"the guard's":                   {func(e *audit.Event) { e.Asker = audit.ByGuard }, Hint{noon, 100, true, false}, false},
		"the broker's answer":           {func(e *audit.Event) { e.Kind = audit.Broker }, Hint{noon, 100, true, false}, false},
		"a request that was denied":     {func(e *audit.Event) { e.Kind = audit.Grant }, Hint{noon, 100, true, false}, false},
	} {
		e := base
		c.change(&e)
		if got := c.hint.wants(e); got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
}

// TestHintRefused: only the end of the log is read, and what is no event is passed over.
func TestHintRefused(t *testing.T) {
	var log []audit.Event
	for i := range 3000 {
		e := dnsDenied("old.example")
		e.Seq, e.Time = uint64(i+1), noon
		log = append(log, e)
	}
	file, _ := auditOf(publishedWith(t, "", log).state)
	all := Hint{noon, 0, true, false}.refused(file)
	if len(all) == 0 || len(all) == len(log) || all[len(all)-1].Seq != 3000 {
		t.Errorf("%d of %d are read", len(all), len(log))
	}
	if got := (Hint{noon, 0, true, false}).refused(file + ".missing"); got != nil {
		t.Errorf("%d in a log that is not there", len(got))
	}
}

func TestHintLines(t *testing.T) {
	p := publishedWith(t, "ok.example\n!bad.example\n", nil)
	p.grants = []grant.Grant{{Kind: grant.Request, Number: 4, Target: "asked.example"}}
	denied := func(name string) audit.Event {
		return audit.Event{Kind: audit.DNS, Verdict: audit.Deny, Name: name, Reason: "not in the allowlist"}
	}
	for what, c := range map[string]struct {
		log  []audit.Event
		want []string // of each line
	}{
		"twice": {[]audit.Event{denied("new.example"), denied("new.example")}, []string{
			"agent-init: the policy refused new.example: not in the allowlist. Trying again does not help. " +
				"To ask a person: agent-init request new.example --reason TEXT --wait 10m\n"}},
		"by a rule":       {[]audit.Event{denied("bad.example")}, []string{". Why: agent-init explain bad.example\n"}},
		"allowed by now":  {[]audit.Event{denied("ok.example")}, []string{". Why: agent-init explain ok.example\n"}},
		"asked for":       {[]audit.Event{denied("asked.example")}, []string{"A person has been asked, and has not decided: agent-init grants\n"}},
		"an address":      {[]audit.Event{{Kind: audit.Drop, IP: "45.30.0.1", Port: 5432, Proto: "tcp"}}, []string{"agent-init request 45.30.0.1:5432 --"}},
		"an address, UDP": {[]audit.Event{{Kind: audit.Drop, IP: "45.30.0.1", Port: 54, Proto: "udp"}}, []string{"agent-init request 45.30.0.1:54/udp --"}},
		"another port":    {[]audit.Event{{Kind: audit.Connect, Name: "ok.example", Port: 8443}}, []string{"agent-init request ok.example:8443 --"}},
		"what is no name": {[]audit.Event{denied("\x1b]0;x\a"), denied("$(reboot)"), denied("a b"), denied(""), denied("443"), denied("--wait")}, nil},
		"many": {[]audit.Event{denied("a.example"), denied("b.example"), denied("c.example"), denied("d.example"), denied("e.example")},
			[]string{"a.example", "b.example", "c.example", "agent-init: the policy refused 2 others: agent-init log --denied -n 5\n"}},
	} {
		var b strings.Builder
		if err := p.hints(&b, c.log); err != nil {
			t.Fatal(err)
		}
		lines := strings.SplitAfter(b.String(), "\n")
		lines = lines[:len(lines)-1]
		if len(lines) != len(c.want) {
			t.Errorf("%s: %q", what, lines)
			continue
		}
		for i, want := range c.want {
			if !strings.Contains(lines[i], want) {
				t.Errorf("%s: %q has no %q", what, lines[i], want)
			}
		}
	}
}

// FuzzHint: whatever the agent asks for, a hint is text that does nothing to a terminal, and its commands are of words that
// a shell takes as they are.
func FuzzHint(f *testing.F) {
	f.Add("new.example", "10.0.0.1", "not in the allowlist", uint16(443))
	f.Add("\x1b]0;x\a", "", "x\ny", uint16(0))
	f.Add("$(reboot).example", "::1", "`id`", uint16(1))
	list, err := policy.Parse(&policy.Bundle{Files: []policy.File{{Name: "allowlist.txt", Data: []byte("ok.example\n*.cdn.example\n")}}}, nil)
	if err != nil {
		f.Fatal(err)
	}
	p := published{policy: list}
	f.Fuzz(func(t *testing.T, name, ip, reason string, port uint16) {
		var b strings.Builder
		for _, kind := range []audit.Kind{audit.DNS, audit.Connect, audit.Drop} {
			if err := p.hints(&b, []audit.Event{{Kind: kind, Name: name, IP: ip, Reason: reason, Port: port, Proto: "udp"}}); err != nil {
				t.Fatal(err)
			}
		}
		for line := range strings.Lines(b.String()) {
			command := line[max(0, strings.LastIndex(line, "agent-init ")):]
			if !strings.HasPrefix(line, "agent-init: ") || strings.ContainsFunc(line, func(r rune) bool { return r < ' ' && r != '\n' || r == 0x7f }) || strings.ContainsAny(command, "$`;|&<>\\\"") {
				t.Errorf("%q of %q %q", line, name, ip)
			}
		}
	})
}

// TestReadHint: what a shell says, and what none does.
func TestReadHint(t *testing.T) {
	h, err := ReadHint([]string{"1795427896,25", "41", "6", "other"})
	if err != nil || h.Since.UnixMicro() != 1795427896_250000 || h.Beyond != 41 || !h.Failed || h.Fetches {
		t.Errorf("%+v, %v", h, err)
	}
	if h, err = ReadHint([]string{"1795427896", "41", "0", "fetches"}); err != nil || h.Since.Unix() != 1795427896 || h.Failed || !h.Fetches {
		t.Errorf("%+v, %v", h, err)
	}
	for _, args := range [][]string{{"", "2", "0", "x"}, {"-1", "2", "0", "x"}, {"1.x", "2", "0", "x"}, {"1", "x", "0", "x"}, {"99999999999999", "2", "0", "x"}} {
		if _, err := ReadHint(args); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
}
