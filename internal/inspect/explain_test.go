package inspect

import (
	"cmp"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/allowlist.d"
	"github.com/agent-init/agent-init/internal/lease"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
)

// publishedWith is what a keeper with this allowlist, log and leases publishes.
func publishedWith(t *testing.T, list string, log []audit.Event, leases ...lease.Name) published {
	t.Helper()
	file := filepath.Join(t.TempDir(), audit.FileName)
	var text []byte
	for _, e := range log {
		text = append(append(text, audit.Encode(e)...), '\n')
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := policy.Parse(&policy.Bundle{Files: []policy.File{{Name: "allowlist.txt", Data: []byte(list)}}, Hosts: []byte("10.0.0.9 db.example")}, allowlist.Files)
	if err != nil {
		t.Fatal(err)
	}
	return published{policy: p, dir: "/etc/agent-init", state: &state.State{Audit: state.Audit{File: file}}, leases: lease.Report{Names: leases}}
}

func explained(t *testing.T, p published, target string) (explanation, string) {
	t.Helper()
	s, err := parseSubject(target)
	if err != nil {
		t.Fatal(err)
	}
	x := explainSubject(p, s, noon)
	var b strings.Builder
	if err := x.Write(&b, false); err != nil {
		t.Fatal(err)
	}
	return x, b.String()
}

func TestExplain(t *testing.T) {
	uid := uint32(1000)
	at := func(m int) time.Time { return noon.Add(time.Duration(m) * time.Minute) }
	p := publishedWith(t, "ok.example\n*.wild.example:8443\n!bad.example\n@github\n10.1.0.0/16:5432\nin.example\ndb.example:5432\nssh.example:22", []audit.Event{
		{Seq: 1, Time: at(-9), Kind: audit.DNS, Verdict: audit.Deny, Name: "new.example", Reason: "not in the allowlist"},
		{Seq: 2, Time: at(-8), Kind: audit.DNS, Verdict: audit.Deny, Name: "new.example", Reason: "not in the allowlist", Suppressed: 4},
		{Seq: 3, Time: at(-7), Kind: audit.Drop, Verdict: audit.Deny, IP: "45.30.0.1", Port: 8443, Proto: "tcp", UID: &uid, PID: 42, Comm: "cu\x1brl"},
		{Seq: 4, Time: at(-6), Kind: audit.DNS, Verdict: audit.Deny, Name: "in.example", IP: "10.9.9.9", Reason: "stripped from the answer: private"},
		{Seq: 5, Time: at(-5), Kind: audit.DNS, Verdict: audit.Allow, Name: "ok.example"},
	}, lease.Name{Name: "ok.example", Addrs: []lease.Address{
		{Addr: netip.MustParseAddr("45.30.0.10"), On: "80/tcp 443/tcp", Since: at(-3), Expires: at(1)},
		{Addr: netip.MustParseAddr("45.30.0.11"), On: "80/tcp 443/tcp", Since: at(-30), Expires: at(-1)},
	}})
	for target, want := range map[string][]string{
		"https://OK.example/v1?x=1": {"ok.example 443/tcp: allowed\n", "allowlist.txt:1  ok.example", "server name in the TLS handshake", "45.30.0.10 on 80/tcp 443/tcp", "for 1m more", "!45.30.0.11", "!to allow"},
		"ok.example":                {"ok.example 80/tcp: allowed", "ok.example 443/tcp: allowed", "the host of each request"},
		"ok.example:22":             {"22/tcp: denied, the policy allows it on other ports only", "add this line to /etc/agent-init/allowlist.txt:\n  ok.example:22\n", "agent-init allow ok.example:22 --for 10m"},
		"new.example":               {"443/tcp: denied, not in the allowlist", "denied       6 times since", "\n  new.example\n", "(and 4 before it)"},
		"http://new.example":        {"80/tcp: denied", "!443/tcp", "\n  new.example\n"},
		"bad.example":               {"denied by the policy", "allowlist.txt:3  !bad.example", "take out what denies it, at allowlist.txt:3"},
		"github.com:443":            {"allowed", "(@github)"},
		"a.wild.example":            {"a.wild.example 8443/tcp: allowed", "a leased address passes as it is", "none: its addresses open when it is looked up"},
		"in.example":                {"allowed", "\n  in.example private\n", "agent-init allow 'in.example private'"},
		"db.example":                {"10.0.0.9, from the hosts file", "its address in the hosts file passes"},
		"10.1.2.3:5432":             {"10.1.2.3 5432/tcp: allowed", "passes by address and port"},
		"45.30.0.1:8443":            {"denied", "once since", "\n  45.30.0.1:8443\n", "by cu?rl (42)"},
		"[2a0f:30::1]:54/udp":       {"2a0f:30::1 54/udp: denied", "\n  [2a0f:30::1]:54/udp\n"},
		"[2a0f:30::1]:53/udp":       {"2a0f:30::1 53/udp: denied", "nothing does: it is never allowed"}, // the guard has that port
		"2a0f:30::1":                {"2a0f:30::1 443/tcp: denied", "2a0f:30::1 80/tcp: denied"},
		"169.254.169.254":           {"never allowed", "nothing does: it is never allowed"},
		"ssh://git@ssh.example/x":   {"ssh.example 22/tcp: allowed"},
		"münchen.example":           {"xn--mnchen-3ya.example 443/tcp: denied", "\n  xn--mnchen-3ya.example\n"},
		"localhost":                 {"allowed, the container's own loopback is free"},
		"127.0.0.1:5432":            {"allowed, the container's own loopback is free"},
		"::1":                       {"allowed, the container's own loopback is free"},
	} {
		_, got := explained(t, p, target)
		for _, text := range want {
			if not, ok := strings.CutPrefix(text, "!"); ok && strings.Contains(got, not) || !ok && !strings.Contains(got, text) {
				t.Errorf("%s: want %q in\n%s", target, text, got)
			}
		}
		if strings.ContainsAny(got, "\x1b\x00") {
			t.Errorf("%s: a control character in %q", target, got)
		}
	}
	for _, target := range []string{"a.example:0", "a.example:99999", "a.example:53/sctp", "https://", "https://[::1"} {
		if s, err := parseSubject(target); err == nil {
			t.Errorf("%q is %+v", target, s)
		}
	}
}

// TestExplainState: what is published is not told as what holds where it does not.
func TestExplainState(t *testing.T) {
	p := publishedWith(t, "ok.example\n", nil)
	gone := state.Self()
	gone.PID = 1 << 30
	for word, s := range map[string]*state.State{
		"not running":  nil,
		"not confined": {Phase: state.PhaseOpen},
		"keeper gone":  {Phase: state.PhaseReady, Keeper: gone},
		"not ready":    {Phase: state.PhaseFailed},
		"confined":     {Phase: state.PhaseReady, Keeper: state.Self()},
	} {
		p.state = s
		x, text := explained(t, p, "evil.example")
		first, _, _ := strings.Cut(text, "\n")
		if x.State != word || first != cmp.Or(x.unless, first) || (word == "confined") != strings.HasPrefix(first, "evil.example") {
			t.Errorf("%s: %s\n%s", word, x.State, text)
		}
	}
}

// TestExplainShortName: explain says how a short name is looked for, and whether any server knows it.
func TestExplainShortName(t *testing.T) {
	absent := audit.Event{Time: noon, Kind: audit.DNS, Verdict: audit.Allow, Name: "db", Reason: "A, " + audit.NoSuchName}
	found := audit.Event{Time: noon, Kind: audit.DNS, Verdict: audit.Allow, Name: "db", IP: "10.0.0.1", Reason: "A, 1 of 1 addresses"}
	for _, tc := range []struct {
		log  []audit.Event
		says bool
	}{{nil, false}, {[]audit.Event{absent}, true}, {[]audit.Event{absent, found}, false}, {[]audit.Event{found, absent}, true}} {
		p := publishedWith(t, "", tc.log)
		var err error
		p.policy, err = policy.Parse(&policy.Bundle{Files: []policy.File{{Name: "allowlist.txt", Data: []byte("db:5432\nfull.svc.lab:80 private\n")}},
			Resolv: policy.Resolv{Search: []string{"svc.lab"}, Ndots: 5}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, got := explained(t, p, "db")
		if !strings.Contains(got, "asked as     db.svc.lab, db: the first that exists\n") || strings.Contains(got, "no server knows the name") != tc.says {
			t.Errorf("%+v: %s", tc.log, got)
		}
		if _, got := explained(t, p, "full:80"); !strings.HasPrefix(strings.TrimPrefix(got, "agent-init has not started: everything is refused. See agent-init status.\n"), "full.svc.lab 80/tcp: allowed") {
			t.Error(got)
		}
	}
}
