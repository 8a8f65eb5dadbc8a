package report

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab/golden"
	"github.com/agent-init/agent-init/pkg/audit"
)

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// aRun is a log of two files whose last line is torn, with what was published beside it.
const aRun = "testdata/run"

func TestMain(m *testing.M) {
	time.Local = time.UTC // in which the golden files are
	os.Exit(m.Run())
}

func made(t *testing.T, o Options) *Report {
	t.Helper()
	o.Now, o.Version = noon, "test"
	r, err := Make(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// logOf writes a log of its own.
func logOf(t *testing.T, events ...audit.Event) (dir string) {
	t.Helper()
	dir = t.TempDir()
	var b bytes.Buffer
	for i, e := range events {
		if e.Seq == 0 {
			e.Seq = uint64(i + 1)
		}
		if e.Time.IsZero() {
			e.Time = noon.Add(time.Duration(i) * time.Second)
		}
		b.Write(append(audit.Encode(e), '\n'))
	}
	if err := os.WriteFile(filepath.Join(dir, audit.FileName), b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestGolden holds the data, which programs read.
func TestGolden(t *testing.T) {
	prices := filepath.Join(t.TempDir(), "prices")
	if err := os.WriteFile(prices, []byte("# USD\nclaude-opus-* 5 25\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	golden.JSON(t, "report.golden.json", made(t, Options{Dir: aRun, Prices: prices}))
}

// TestScreens holds what people read, by the width of their terminal.
func TestScreens(t *testing.T) {
	r := made(t, Options{Dir: aRun})
	golden.Screens(t, "report.screens.txt", "    ", func(w io.Writer) error { return r.Write(w, false) })
}

// TestLogAlone: without what agent-init publishes there is less to tell, and it is said.
func TestLogAlone(t *testing.T) {
	dir := logOf(t, audit.Event{Kind: audit.DNS, Verdict: audit.Deny, Name: "evil.test", Reason: "not in the allowlist", Comm: "curl"})
	r := made(t, Options{Dir: dir})
	if len(r.Refusals) != 1 || r.Refusals[0].Line != "evil.test" || r.Policy != nil || r.Now != nil || r.Findings[0].Level != Mind {
		t.Errorf("%+v, %+v", r.Refusals, r.Findings)
	}
}

// TestNoLog: a directory without a log is named.
func TestNoLog(t *testing.T) {
	if _, err := Make(Options{Dir: t.TempDir(), Now: noon}); err == nil || !strings.Contains(err.Error(), audit.FileName) {
		t.Error(err)
	}
}

// TestBrokenLog: lines that are none are counted, numbers that are missing as well, and what agent-init could not write.
func TestBrokenLog(t *testing.T) {
	dir := logOf(t, audit.Event{Seq: 1, Kind: audit.DNS, Verdict: audit.Allow}, audit.Event{Seq: 5, Kind: audit.DNS, Verdict: audit.Allow},
		audit.Event{Seq: 6, Kind: audit.Guard, Verdict: audit.Fault, Reason: audit.Unwritten + ": disk full", Suppressed: 7})
	f, err := os.OpenFile(filepath.Join(dir, audit.FileName), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(f, "not json\n{}{}\nnull\n%s\n{\"seq\":7", strings.Repeat("x", 100_000))
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	r := made(t, Options{Dir: dir})
	want := Log{File: filepath.Join(dir, audit.FileName), Events: 3, Missing: 3, Unwritten: 7, Unreadable: 3, Torn: true}
	if r.Log != want {
		t.Errorf("%+v, want %+v", r.Log, want)
	}
}

// TestSince: what is older is in no list and in no sum.
func TestSince(t *testing.T) {
	dir := logOf(t, audit.Event{Kind: audit.Connect, Verdict: audit.Allow, Name: "old.test", Out: 5, Time: noon.Add(-time.Hour)},
		audit.Event{Seq: 9, Kind: audit.Connect, Verdict: audit.Allow, Name: "new.test", Out: 7, Time: noon.Add(-time.Minute)})
	r := made(t, Options{Dir: dir, Since: "10m"})
	if len(r.Contacts) != 1 || r.Contacts[0].Name != "new.test" || r.Totals.Out != 7 || r.Log.Events != 1 || r.Log.Missing != 0 {
		t.Errorf("%+v, %+v", r.Contacts, r.Log)
	}
	if _, err := Make(Options{Dir: dir, Since: "yesterday", Now: noon}); err == nil {
		t.Error("yesterday is a time")
	}
}

// TestMonitor: what was let out is a contact, a refusal, and the first thing that is said.
func TestMonitor(t *testing.T) {
	r := made(t, Options{Dir: logOf(t, audit.Event{Kind: audit.Connect, Verdict: audit.Allow, Enforce: audit.Deny, Name: "evil.test", Port: 443, Out: 9, Suppressed: 2})})
	if r.Totals.LetOut != 3 || len(r.Contacts) != 1 || len(r.Refusals) != 1 || r.Refusals[0].LetOut != 3 || r.Findings[0].Level != Bad {
		t.Errorf("%+v, %+v, %+v", r.Contacts, r.Refusals, r.Findings)
	}
}

// TestOthers: what others than the agent asked is none of its contacts.
func TestOthers(t *testing.T) {
	r := made(t, Options{Dir: logOf(t,
		audit.Event{Kind: audit.DNS, Verdict: audit.Allow, Name: "a.test", IP: "192.0.2.1", Asker: audit.ByGuard},
		audit.Event{Kind: audit.DNS, Verdict: audit.Deny, Name: "b.test", Asker: audit.BySelfTest},
		audit.Event{Kind: audit.Drop, Verdict: audit.Deny, IP: "198.51.100.7", Port: 22, Asker: audit.ByOutside, Suppressed: 4},
		audit.Event{Kind: audit.DNS, Verdict: audit.Allow, Name: "missing.test"}, // there is no such name
	)})
	if len(r.Contacts) != 0 || len(r.Refusals) != 0 || len(r.Inbound) != 1 || r.Inbound[0].Refused != 5 {
		t.Errorf("%+v, %+v, %+v", r.Contacts, r.Refusals, r.Inbound)
	}
}

// TestTimelineHasAll: what people decide and what breaks has its place on the timeline, though the agent does nothing then.
func TestTimelineHasAll(t *testing.T) {
	r := made(t, Options{Dir: logOf(t,
		audit.Event{Time: noon, Kind: audit.Session, Verdict: audit.Info},
		audit.Event{Time: noon.Add(time.Minute), Kind: audit.DNS, Verdict: audit.Deny, Name: "a.test"},
		audit.Event{Time: noon.Add(time.Hour), Kind: audit.Grant, Verdict: audit.Allow, Name: "a.test"},
	)})
	l := r.Timeline
	if end := l.Start.Add(time.Duration(float64(len(l.Bins))*l.Step) * time.Second); !l.Start.Equal(noon) || end.Before(noon.Add(time.Hour)) || l.Bins[int(60/l.Step)].Refused != 1 {
		t.Errorf("from %v to %v: %+v", l.Start, end, l)
	}
}

// TestBounded: of a log in which the agent has made up a name for each line, no more is held however long it is. What had
// weight is kept, and no count is lost.
func TestBounded(t *testing.T) {
	r := &Report{}
	all := newTally(&source{}, r)
	heavy := uint64(0)
	feed := func(from, to int) (held int64) {
		for i := from; i < to; i++ {
			e := madeUp(i)
			if i%1000 == 0 {
				e, heavy = audit.Event{Kind: audit.DNS, Verdict: audit.Deny, Name: "heavy.test"}, heavy+1
			}
			e.Seq, e.Time = uint64(i+1), noon.Add(time.Duration(i)*time.Second)
			all.line(append(audit.Encode(e), '\n'))
		}
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	first := feed(0, 25_000)
	if grown := feed(25_000, 50_000) - first; grown > 1<<20 {
		t.Errorf("%d bytes more are held for 25,000 events more", grown)
	}
	all.finish(&source{}, nil)
	if r.Refusals[0].What != "heavy.test" || r.Refusals[0].Count != heavy || len(r.Refusals) != maxListed || len(r.Contacts) != maxListed || len(r.Grants) != maxStories || len(r.Timeline.Bins) > maxBins {
		t.Errorf("%d refusals, the first %+v; %d contacts, %d grants", len(r.Refusals), r.Refusals[0], len(r.Contacts), len(r.Grants))
	}
	sum := uint64(0)
	for _, b := range r.Timeline.Bins {
		sum += b.Allowed + b.Refused
	}
	if want := r.Log.Events * 8 / 10; r.Log.Events != 50_000 || sum != want {
		t.Errorf("the timeline has %d events, and should have %d", sum, want)
	}
}

// madeUp is an event of which nothing but the kind was there before. Each second one is an answer with a new address.
func madeUp(i int) audit.Event {
	name := fmt.Sprintf("x%d.%s.example.test", i, strings.Repeat("y", 60))
	e := audit.Event{Kind: audit.DNS, Verdict: audit.Allow, Name: name, IP: fmt.Sprintf("10.%d.%d.%d", i>>16&255, i>>8&255, i&255), Reason: name, Comm: name[:12], Rule: name}
	switch i % 10 {
	case 1:
		e.Kind, e.Out, e.Port = audit.Connect, 1, 443
	case 3:
		e.Kind, e.Route, e.Model, e.TokensIn, e.IP = audit.Broker, name, name, 1, ""
	case 5:
		e.Kind, e.Rule = audit.Grant, fmt.Sprintf("grant-%d:1", i)
	case 7:
		e.Kind = audit.Session
	case 9:
		e.Verdict, e.IP = audit.Deny, ""
	}
	return e
}

// TestPrices: the first line that fits counts, and what has no price is told.
func TestPrices(t *testing.T) {
	list, err := parsePrices("p", "big-* 10 20 # dollars\n\n* 1 2\n")
	if err != nil {
		t.Fatal(err)
	}
	routes := []Route{{TokensIn: 3e6, TokensOut: 1e6, Models: []Model{{Name: "big-1", TokensIn: 1e6, TokensOut: 1e6}, {Name: "small", TokensIn: 1e6}}}}
	charge(routes, list)
	if c := routes[0].Cost; c == nil || c.Sum != 31 || c.Unpriced != 1e6 || c.String() != "31.00+" {
		t.Errorf("%+v", c)
	}
	for _, bad := range []string{"a 1", "a 1 2 3", "a -1 2", "a NaN 1", "a 1 Inf", "[ 1 2"} {
		if list, err := parsePrices("p", bad); err == nil {
			t.Errorf("%q is %+v", bad, list)
		}
	}
}

func TestNumbers(t *testing.T) {
	for n, want := range map[uint64]string{0: "0 B", 999: "999 B", 1000: "1.00 kB", 12_345: "12.3 kB", 999_499: "999 kB", 999_500: "1.00 MB", 1 << 63: "9.22 EB"} {
		if got := Bytes(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
	for n, want := range map[uint64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := Grouped(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}
