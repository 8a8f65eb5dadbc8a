package inspect

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/allowlist.d"
	"github.com/agent-init/agent-init/internal/lab/golden"
	"github.com/agent-init/agent-init/internal/lease"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
)

func suggested(t *testing.T, list string, log ...audit.Event) Suggestions {
	t.Helper()
	s := newProposals(publishedWith(t, list, nil))
	for i, e := range log {
		if e.Time.IsZero() {
			e.Time = noon.Add(time.Duration(i) * time.Second)
		}
		s.Add(e)
	}
	return s.Since(time.Time{})
}

func linesOf(r Suggestions) (out []string) {
	for _, g := range r.Lines {
		out = append(out, fmt.Sprintf("%s %d", g.Line, g.Count))
	}
	return out
}

func dnsDenied(name string) audit.Event {
	return audit.Event{Kind: audit.DNS, Verdict: audit.Deny, Name: name, Reason: "not in the allowlist"}
}

func TestSuggest(t *testing.T) {
	uid := uint32(1000)
	let := func(e audit.Event) audit.Event { e.Verdict, e.Enforce = audit.Allow, audit.Deny; return e }
	for name, tc := range map[string]struct {
		log  []audit.Event
		want []string
	}{
		"nothing":     {nil, nil},
		"counts":      {[]audit.Event{dnsDenied("a.new.example"), {Kind: audit.DNS, Verdict: audit.Deny, Name: "a.new.example", Suppressed: 4}}, []string{"a.new.example 6"}},
		"allowed now": {[]audit.Event{dnsDenied("ok.example")}, nil},
		"by domain":   {[]audit.Event{dnsDenied("z.b.example"), dnsDenied("x.a.example"), dnsDenied("y.b.example")}, []string{"x.a.example 1", "y.b.example 1", "z.b.example 1"}},
		"services first, addresses last": {[]audit.Event{{Kind: audit.Drop, Verdict: audit.Deny, IP: "45.30.0.1", Port: 8443, Proto: "tcp"}, dnsDenied("a.example"), dnsDenied("pypi.org")},
			[]string{"pypi.org 1", "a.example 1", "45.30.0.1:8443 1"}},
		"a port of an allowed name": {[]audit.Event{{Kind: audit.DNS, Verdict: audit.Allow, Name: "ok.example", IP: "45.30.0.9"}, {Kind: audit.Drop, Verdict: audit.Deny, IP: "45.30.0.9", Port: 22, Proto: "tcp"}},
			[]string{"ok.example:22 1"}},
		"over udp":            {[]audit.Event{{Kind: audit.Drop, Verdict: audit.Deny, IP: "2a0f:30::1", Port: 54, Proto: "udp"}}, []string{"[2a0f:30::1]:54/udp 1"}},
		"private answers":     {[]audit.Event{{Kind: audit.DNS, Verdict: audit.Deny, Name: "ok.example", IP: "10.0.0.1"}}, []string{"ok.example private 1"}},
		"rebinding":           {[]audit.Event{{Kind: audit.DNS, Verdict: audit.Deny, Name: "ok.example", IP: "127.0.0.1"}}, nil},
		"pings and metadata":  {[]audit.Event{{Kind: audit.Drop, Verdict: audit.Deny, IP: "45.30.0.1", Proto: "icmp"}, {Kind: audit.Drop, Verdict: audit.Deny, IP: "169.254.169.254", Port: 80, Proto: "tcp"}}, nil},
		"no names":            {[]audit.Event{dnsDenied("a b.example"), dnsDenied("\x1b[2J.example"), dnsDenied("1.2.3.4"), dnsDenied("")}, nil},
		"a wrong server name": {[]audit.Event{{Kind: audit.Connect, Verdict: audit.Deny, Name: "new.example", IP: "45.30.0.9", Port: 443, Proto: "tcp"}}, []string{"new.example 1"}},
		"grants and guards":   {[]audit.Event{{Kind: audit.Grant, Verdict: audit.Deny, Name: "x.example"}, {Kind: audit.Guard, Verdict: audit.Deny, Name: "y.example"}}, nil},
		"monitor": {[]audit.Event{
			let(audit.Event{Kind: audit.DNS, Name: "git.example", IP: "45.30.0.7"}),
			let(audit.Event{Kind: audit.Drop, IP: "45.30.0.7", Port: 22, Proto: "tcp", UID: &uid}),
			let(audit.Event{Kind: audit.DNS, Name: "typo.example"}),
			let(audit.Event{Kind: audit.DNS, Name: "web.example", IP: "45.30.0.8"}),
			let(audit.Event{Kind: audit.Connect, Name: "web.example", IP: "45.30.0.8", Port: 443, Proto: "tcp"}),
			let(audit.Event{Kind: audit.Drop, IP: "45.30.0.8", Port: 8443, Proto: "tcp"}),
			{Kind: audit.DNS, Verdict: audit.Allow, Name: "ok.example", IP: "45.30.0.9"},
		}, []string{"git.example:22 1", "web.example 2", "web.example:8443 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := suggested(t, "ok.example\n!bad.example\n", tc.log...)
			if got := linesOf(r); !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			var b strings.Builder
			if err := r.Write(&b, false); err != nil {
				t.Fatal(err)
			}
			p, err := policy.Parse(&policy.Bundle{Files: []policy.File{{Name: "allowlist.txt", Data: []byte(b.String())}}}, allowlist.Files)
			if err != nil || len(p.Warnings) > 0 {
				t.Errorf("can't be appended as it is: %v, %v\n%s", err, p, b.String())
			}
		})
	}
	r := suggested(t, "!bad.example\n", dnsDenied("bad.example"), dnsDenied("bad.example"))
	if len(r.Lines) != 0 || len(r.Denied) != 1 || r.Denied[0].Count != 2 {
		t.Errorf("got %+v", r)
	}
}

// TestSuggestIsBounded: the agent can make up names without end.
func TestSuggestIsBounded(t *testing.T) {
	var log []audit.Event
	for i := range maxSuggestions + 50 {
		log = append(log, dnsDenied(fmt.Sprintf("n%d.example", i)))
	}
	if r := suggested(t, "", log...); len(r.Lines) != maxSuggestions || r.More != 50 {
		t.Errorf("%d lines, %d more", len(r.Lines), r.More)
	}
}

func TestSuggestWrite(t *testing.T) {
	r := suggested(t, "", dnsDenied("a.example"), dnsDenied("b.example"))
	file := filepath.Join(t.TempDir(), "list.txt")
	if err := os.WriteFile(file, []byte("a.example # mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		var out, err strings.Builder
		if e := r.Append(file, &out, &err); e != nil {
			t.Fatal(e)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(got)), "\n")
	if len(lines) != 2 || lines[0] != "a.example # mine" || !strings.HasPrefix(lines[1], "b.example ") {
		t.Errorf("the file is\n%s", got)
	}
}

// TestEventLine: what the agent chooses can't make a line look like another.
func TestEventLine(t *testing.T) {
	got := eventLine(audit.Event{Time: noon, Kind: audit.DNS, Verdict: audit.Deny, Name: "a\n12:00:00 allow\x1b[2J\u202e\u009b.example", Reason: "x\r", Comm: "c\x07"}, noon, whatWidth(0), false)
	if strings.ContainsAny(got, "\n\r\x1b\x07\u202e\u009b") {
		t.Errorf("%q", got)
	}
	got = eventLine(audit.Event{Time: noon, Kind: audit.Connect, Verdict: audit.Allow, Name: "ok.example", Reason: "closed", Out: 517, In: 1234, Millis: 1500}, noon, whatWidth(0), false)
	if !strings.HasSuffix(got, "closed: 517 bytes out, 1234 in, 1.5s") {
		t.Errorf("%q", got)
	}
}

// TestSuggestBounds: the agent chooses names, and what it can make suggest keep of
// them has an end.
func TestSuggestBounds(t *testing.T) {
	s := newProposals(publishedWith(t, "ok.example", nil))
	for i := range maxSuggestions + maxLeftOut + 10 {
		s.put(s.lines, fmt.Sprintf("n%d.example", i), "", audit.Event{})
	}
	if r := s.Since(time.Time{}); len(r.Lines) != maxSuggestions || r.More != maxLeftOut {
		t.Errorf("%d lines, and %d more", len(r.Lines), r.More)
	}
}

// TestSuggestNamesTheService: of services that share names, it is the one that has
// most of what was denied, and then the one that the domain is called after.
func TestSuggestNamesTheService(t *testing.T) {
	for names, want := range map[string]string{
		"github.com":                                     "github",
		"github.com api.github.com":                      "github github",
		"codeload.github.com github.com":                 "github github",
		"raw.githubusercontent.com":                      "github",
		"github.com api.githubcopilot.com":               "copilot copilot",
		"copilot-proxy.githubusercontent.com github.com": "copilot copilot",
		"api.githubcopilot.com":                          "copilot",
		"pypi.org github.com":                            "github pypi",
		"lonely.example":                                 "",
	} {
		var log []audit.Event
		for _, name := range strings.Fields(names) {
			log = append(log, dnsDenied(name))
		}
		var got []string
		for _, g := range suggested(t, "", log...).Lines {
			got = append(got, g.Preset)
		}
		slices.Sort(got)
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %q", names, got, want)
		}
	}
}

// TestSuggestNamesNoServiceThatFallsShort: a service is named for a port that it allows.
func TestSuggestNamesNoServiceThatFallsShort(t *testing.T) {
	for port, want := range map[uint16]string{443: "claude", 8443: ""} {
		asked := audit.Event{Kind: audit.DNS, Verdict: audit.Allow, Name: "api.anthropic.com", IP: "45.30.0.9"}
		refused := audit.Event{Kind: audit.Drop, Verdict: audit.Deny, IP: "45.30.0.9", Port: port, Proto: "tcp"}
		lines := suggested(t, "", asked, refused).Lines
		if len(lines) != 1 || lines[0].Preset != want {
			t.Errorf("port %d: %+v, want the service %q", port, lines, want)
		}
	}
}

// TestSuggestWhoseAddress: of the names of one address, it is the one that the agent
// asked for last. What the guard asks ahead is not the agent's choice.
func TestSuggestWhoseAddress(t *testing.T) {
	asks := func(name string, by audit.Asker) audit.Event {
		return audit.Event{Kind: audit.DNS, Verdict: audit.Allow, Name: name, IP: "45.30.0.9", Asker: by}
	}
	ssh := audit.Event{Kind: audit.Drop, Verdict: audit.Deny, IP: "45.30.0.9", Port: 22, Proto: "tcp"}
	for what, tc := range map[string]struct {
		log  []audit.Event
		line string
		or   []string
	}{
		"the agent's":    {[]audit.Event{asks("a.example", audit.Agent), asks("b.example", audit.ByGuard), ssh}, "a.example:22", nil},
		"the last":       {[]audit.Event{asks("b.example", audit.Agent), asks("a.example", audit.Agent), ssh}, "a.example:22", []string{"b.example"}},
		"asked again":    {[]audit.Event{asks("a.example", audit.Agent), asks("b.example", audit.Agent), asks("a.example", audit.Agent), ssh}, "a.example:22", []string{"b.example"}},
		"nobody's":       {[]audit.Event{asks("b.example", audit.ByGuard), asks("a.example", audit.ByGuard), ssh}, "a.example:22", []string{"b.example"}},
		"no other there": {[]audit.Event{asks("b.example", audit.Agent), ssh}, "b.example:22", nil},
	} {
		r := suggested(t, "a.example\nb.example\n", tc.log...)
		if len(r.Lines) != 1 || r.Lines[0].Line != tc.line || !slices.Equal(r.Lines[0].Or, tc.or) {
			t.Errorf("%s: %+v, want %s or %s", what, r.Lines, tc.line, tc.or)
		}
	}
	leased := newProposals(publishedWith(t, "a.example\nb.example\n", nil,
		lease.Name{Name: "a.example", Addrs: []lease.Address{{Addr: netip.MustParseAddr("45.30.0.9")}}},
		lease.Name{Name: "b.example", Addrs: []lease.Address{{Addr: netip.MustParseAddr("45.30.0.9")}}}))
	e := asks("a.example", audit.Agent)
	e.IP = "45.30.0.8" // the first of its addresses, and the log has no other
	leased.Add(e)
	leased.Add(ssh)
	if r := leased.Since(noon); len(r.Lines) != 1 || r.Lines[0].Line != "a.example:22" || r.Lines[0].Or != nil {
		t.Errorf("by leases: %+v", r.Lines)
	}
}

// TestSuggestOneLineEach: a name in the log is what the guard has written there, who may
// be somebody else by now. It adds no line of its own to a policy.
func TestSuggestOneLineEach(t *testing.T) {
	const forged = "b.example\n*.evil.example\n#"
	var log []audit.Event
	for _, name := range []string{"a.example", forged, "B.example", "a.example"} {
		log = append(log, audit.Event{Kind: audit.DNS, Verdict: audit.Allow, Name: name, IP: "45.30.0.9", Comm: "sh\n*.evil.example"})
	}
	log = append(log, audit.Event{Kind: audit.Drop, Verdict: audit.Deny, IP: "45.30.0.9", Port: 22, Proto: "tcp", PID: 7, Comm: "sh\n*.evil.example"})
	r := suggested(t, "a.example\nb.example\n", log...)
	if len(r.Lines) != 1 || r.Lines[0].Line != "a.example:22" || len(r.Lines[0].Or) > 0 {
		t.Fatalf("%+v", r.Lines)
	}
	r.Lines[0].Or = []string{forged} // as if it had come so far
	if got := r.Lines[0].text(noon); strings.Contains(got, "\n") {
		t.Errorf("%q", got)
	}
}

func TestSuggestGolden(t *testing.T) {
	uid := uint32(1000)
	golden.JSON(t, "suggest.golden.json", suggested(t, "!never.example\n", dnsDenied("a.new.example"), dnsDenied("never.example"),
		audit.Event{Kind: audit.DNS, Verdict: audit.Deny, Name: "pypi.org", UID: &uid, PID: 7, Comm: "pip"}))
}
