package text

import (
	"strings"
	"testing"
	"time"
)

// TestTable: what fits stands in columns; the last one is broken where it does not, and goes below where it must.
func TestTable(t *testing.T) {
	table := NewTable(" NO", "NAME", "WHY")
	table.Row("1", "registry.example.com", "a reason of several words")
	table.Note("because \"of something\"")
	table.Row("10", "例え.jp", "")
	for width, want := range map[int]string{
		0: "NO  NAME                  WHY\n 1  registry.example.com  a reason of several words\n      because \"of something\"\n10  例え.jp\n",
		48: "NO  NAME                  WHY\n 1  registry.example.com  a reason of several\n                          words\n" +
			"      because \"of something\"\n10  例え.jp\n",
		30: "NO  NAME\n      WHY\n 1  registry.example.com\n      a reason of several\n      words\n      because \"of something\"\n10  例え.jp\n",
	} {
		var b strings.Builder
		if err := table.Write(FoldedAt(&b, width, "")); err != nil {
			t.Fatal(err)
		}
		if b.String() != want {
			t.Errorf("%d columns:\n%s\nwant\n%s", width, b.String(), want)
		}
	}
}

// TestFoldCommand: a command that is set off stays in one piece, whatever the width: it is there to be copied.
func TestFoldCommand(t *testing.T) {
	for line, want := range map[string]string{
		"to grant it:   agent-init allow a.example --for 10m": "to grant it:\n  agent-init allow a.example --for 10m",
		"agent-init allow a.example --for 10m":                "agent-init allow a.example --for 10m",
		"see what agent-init allow does to it":                "see what agent-init\n  allow does to it",
		"  agent-init allow a.example    (root)":              "  agent-init allow a.example\n  (root)",
	} {
		if got := Fold(line, 20, "  "); got != want {
			t.Errorf("%q is\n%q, want\n%q", line, got, want)
		}
	}
}

// TestShortly: two units at most.
func TestShortly(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 340 * time.Microsecond: "0ms", 40 * time.Millisecond: "40ms", 1500 * time.Millisecond: "1.5s", 12345 * time.Millisecond: "12s",
		90 * time.Second: "1m30s", 10 * time.Minute: "10m", 90*time.Minute + 29*time.Second: "1h30m", 24 * time.Hour: "24h",
		51 * time.Hour: "2d3h", 72*time.Hour + time.Minute: "3d", -time.Minute: "-1m",
	} {
		if got := Shortly(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}

// TestParseMoment: people write dates as they are used to.
func TestParseMoment(t *testing.T) {
	now := time.Date(2026, 3, 2, 15, 0, 0, 0, time.Local)
	for said, want := range map[string]time.Time{
		"2026-01-31":           time.Date(2026, 1, 31, 0, 0, 0, 0, time.Local),
		"2026-01-31 12:30":     time.Date(2026, 1, 31, 12, 30, 0, 0, time.Local),
		"2026-01-31T12:30:15":  time.Date(2026, 1, 31, 12, 30, 15, 0, time.Local),
		"2026-01-31T12:30:15Z": time.Date(2026, 1, 31, 12, 30, 15, 0, time.UTC),
		"09:15":                time.Date(2026, 3, 2, 9, 15, 0, 0, time.Local),
		"09:15:10":             time.Date(2026, 3, 2, 9, 15, 10, 0, time.Local),
	} {
		if got, err := ParseMoment(said, now); err != nil || !got.Equal(want) {
			t.Errorf("%s is %v (%v), want %v", said, got, err, want)
		}
	}
	for _, said := range []string{"", "31.1.2026", "soon", "25:00", "2026-13-01"} {
		if got, err := ParseMoment(said, now); err == nil {
			t.Errorf("%q is %v", said, got)
		}
	}
}
