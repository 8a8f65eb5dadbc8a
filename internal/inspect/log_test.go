package inspect

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/audit"
)

// TestLogLast: -n shows the end of what would be shown, whatever else the log holds.
func TestLogLast(t *testing.T) {
	var log []audit.Event
	for i := range 30 {
		e := dnsDenied(fmt.Sprintf("n%d.example", i))
		e.Seq, e.Time = uint64(i+1), noon.Add(time.Duration(i)*time.Second)
		if i%2 == 1 {
			e.Verdict = audit.Allow
		}
		log = append(log, e)
	}
	file, _ := auditOf(publishedWith(t, "", log).state)
	for what, tc := range map[string]struct {
		view logView
		want []string
	}{
		"the last":        {logView{LogOptions: LogOptions{Last: 3}}, []string{"n27.", "n28.", "n29."}},
		"of the denied":   {logView{LogOptions: LogOptions{Last: 2, Denied: true}}, []string{"n26.", "n28."}},
		"more than there": {logView{since: noon.Add(28 * time.Second), LogOptions: LogOptions{Last: 99}}, []string{"n28.", "n29."}},
		"all":             {logView{since: noon.Add(28 * time.Second)}, []string{"n28.", "n29."}},
		"as JSON":         {logView{LogOptions: LogOptions{Last: 1, JSON: true}}, []string{"n29."}},
	} {
		tc.view.file = file
		var b strings.Builder
		if err := showLog(t.Context(), &b, tc.view); err != nil {
			t.Fatal(what, err)
		}
		lines := slices.Collect(strings.Lines(b.String()))
		if len(lines) != len(tc.want) {
			t.Errorf("%s: %q", what, lines)
			continue
		}
		for i, want := range tc.want {
			if !strings.Contains(lines[i], want) || strings.Contains(lines[i], "\x1b") {
				t.Errorf("%s: %q is not about %s", what, lines[i], want)
			}
		}
	}
	for since, want := range map[string]int{"": 0, "start": len(log)} { // what follows shows the past only if it is asked for
		n := 0
		v := logView{file: file, LogOptions: LogOptions{Follow: true, Since: since}}
		seq, err := v.past(func([]byte, audit.Event) bool { n++; return true })
		if err != nil || n != want || seq != uint64(len(log)) {
			t.Errorf("-f --since %q: %d lines up to %d, %v", since, n, seq, err)
		}
	}
}

// TestEventLineForATerminal: the verdict has a colour, the columns stay where they
// are, and a line of another day has its date.
func TestEventLineForATerminal(t *testing.T) {
	e := dnsDenied("a.example")
	e.Time = noon
	plain, coloured := eventLine(e, noon, whatWidth(0), false), eventLine(e, noon, whatWidth(0), true)
	if !strings.Contains(coloured, "\x1b[31mdeny   \x1b[0m") || text.Columns(plain) != text.Columns(coloured) {
		t.Errorf("%q and %q", plain, coloured)
	}
	if want := noon.Local().Format(time.TimeOnly) + "  deny"; !strings.HasPrefix(plain, want) {
		t.Errorf("%q does not begin with %q", plain, want)
	}
	if got, want := eventLine(e, noon.AddDate(0, 0, 2), whatWidth(0), false), noon.Local().Format("Jan _2 15:04:05  deny"); !strings.HasPrefix(got, want) {
		t.Errorf("%q does not begin with %q", got, want)
	}
}

// TestEventLineOfTheBroker: a request is shown by what was asked, and what came of it.
func TestEventLineOfTheBroker(t *testing.T) {
	uid := uint32(1000)
	e := audit.Event{Time: noon, Kind: audit.Broker, Verdict: audit.Allow, Name: "api.anthropic.com", Port: 443, UID: &uid,
		Route: "anthropic", Method: "POST", Path: "/v1/messages", Model: "claude-opus-5-5", Status: 200,
		Out: 20314, In: 4096, TokensIn: 5123, TokensOut: 207, Millis: 2931}
	want := "allow   broker   anthropic POST /v1/messages      200, claude-opus-5-5, 5123 tokens in, 207 out: 20314 bytes out, 4096 in, 2.9s by uid 1000"
	if got := eventLine(e, noon, whatWidth(0), false); !strings.HasSuffix(got, want) {
		t.Errorf("got %q", got)
	}
	e = audit.Event{Time: noon, Kind: audit.Broker, Verdict: audit.Deny, Route: "openai", Method: "POST", Path: "/v1/alpha/search", Status: 400, Reason: "not on the list"}
	if got := eventLine(e, noon, whatWidth(0), false); !strings.HasSuffix(got, "deny    broker   openai POST /v1/alpha/search     not on the list: 400") {
		t.Errorf("got %q", got)
	}
}

func TestSinceDays(t *testing.T) {
	if got, err := Since("1d", noon, noon); err != nil || !got.Equal(noon.AddDate(0, 0, -1)) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := Since("-1d", noon, noon); err == nil {
		t.Error("a negative time is taken")
	}
}

// TestLostEventsCountedOnce: the line that tells of lost events says how many, once.
func TestLostEventsCountedOnce(t *testing.T) {
	e := audit.Event{Kind: audit.Guard, Verdict: audit.Fault, Suppressed: 108, Reason: audit.Unwritten + ": no space left on device"}
	if line := eventLine(e, time.Now(), whatWidth(0), false); strings.Count(line, "108") != 1 || !strings.HasSuffix(line, " (108 of them)") {
		t.Error(line)
	}
}
