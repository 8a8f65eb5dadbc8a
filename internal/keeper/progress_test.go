package keeper

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/creack/pty"

	"github.com/agent-init/agent-init/internal/text"
)

// TestProgress: at most eight lines, each with its time, for the steps as they
// are.
func TestProgress(t *testing.T) {
	var b strings.Builder
	p := &progress{Say: func(s string) { b.WriteString(s) }}
	for _, s := range stepsOf(t) {
		p.enter(s[2])
	}
	p.done("confined")
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	if len(lines) > 8 || len(lines) < 5 {
		t.Errorf("%d lines:\n%s", len(lines), b.String())
	}
	form := regexp.MustCompile(`^agent-init: [a-z].{23} +[0-9.]+ m?s$`)
	for _, l := range lines {
		if !form.MatchString(l) {
			t.Errorf("%q", l)
		}
	}
	b.Reset()
	p = &progress{Say: func(s string) { b.WriteString(s) }}
	p.enter("seal the network")
	p.failed()
	if !strings.HasSuffix(b.String(), "failed\n") {
		t.Errorf("%q", b.String())
	}
}

// TestProgressIsForPeople: nothing without a terminal, nothing if it is quiet.
func TestProgressIsForPeople(t *testing.T) {
	master, terminal, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	defer terminal.Close()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, tc := range []struct {
		c    Config
		w    *os.File
		show bool
	}{
		{Config{LogLevel: "warn"}, terminal, true},
		{Config{LogLevel: "warn"}, null, false},
		{Config{LogLevel: "warn", Quiet: true}, terminal, false},
		{Config{LogLevel: "info"}, terminal, false},
	} {
		p := NewProgress(tc.c, tc.w)
		if (p != nil) != tc.show {
			t.Errorf("%+v on %s: %v", tc.c.LogLevel, tc.w.Name(), p)
		}
		p.enter("a part") // a nil one takes all of it
		p.failed()
		p.done("confined")
	}
}

// TestKeysHint: a start on a terminal says how the session is left.
func TestKeysHint(t *testing.T) {
	var b strings.Builder
	p := &progress{Say: func(s string) { b.WriteString(s) }, keys: "   Ctrl-] ? shows the keys"}
	p.enter("seal the network")
	p.done("confined, in all")
	if lines := strings.Split(b.String(), "\n"); !strings.HasSuffix(lines[1], "Ctrl-] ? shows the keys") || text.Columns(lines[1]) > 80 {
		t.Errorf("%q", lines)
	}
}
