package inspect

import (
	"io"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab/golden"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/audit"
)

// TestScreens: what people see, by the width of their terminal.
func TestScreens(t *testing.T) {
	uid := uint32(1000)
	at := time.Date(2026, 3, 2, 12, 0, 0, 0, time.Local)
	events := []audit.Event{
		{Time: at, Kind: audit.DNS, Verdict: audit.Deny, Name: "registry.example.com", UID: &uid, PID: 4711, Comm: "npm", Reason: "not in the allowlist"},
		{Time: at, Kind: audit.Connect, Verdict: audit.Allow, Name: "a-name-that-is-rather-long.of-a-service.corp.example", IP: "192.0.2.10", Port: 443, Reason: "closed", Rule: "/etc/agent-init/allowlist.txt:3", Out: 517, In: 123456, Millis: 90500, UID: &uid, PID: 5, Comm: "curl"},
		{Time: at, Kind: audit.Broker, Verdict: audit.Allow, Route: "anthropic", Method: "POST", Path: "/v1/messages", Status: 200, Model: "claude-opus-5-5", TokensIn: 5123, TokensOut: 207},
	}
	golden.Screens(t, "log.screens.txt", "          ", func(w io.Writer) error {
		s := &text.Screen{W: w}
		logHead(s)
		for _, e := range events {
			s.Line("%s", eventLine(e, at, whatWidth(text.WidthOf(w)), false))
		}
		return s.Err
	})
	p := publishedWith(t, "ok.example\n", events[:1])
	target, err := parseSubject("registry.example.com:443")
	if err != nil {
		t.Fatal(err)
	}
	x := explainSubject(p, target, at)
	golden.Screens(t, "explain.screens.txt", "               ", func(w io.Writer) error { return x.Write(w, false) })
	ill := wellPatient(t)
	ill.bounding |= 1 << 13
	ill.noNewPrivs = false
	d := examine(ill)
	golden.Screens(t, "doctor.screens.txt", "             ", func(w io.Writer) error { return d.Write(w, false) })
	r := suggested(t, "!never.example\n", events[0], dnsDenied("never.example"))
	golden.Screens(t, "suggest.screens.txt", "    # ", func(w io.Writer) error { return r.Write(w, false) })
}
