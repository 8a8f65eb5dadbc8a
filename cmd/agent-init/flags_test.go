package main

import (
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/text"
)

func TestParseTime(t *testing.T) {
	var got time.Duration
	fs := flag.NewFlagSet("", flag.ContinueOnError)
	timeFlag(fs, &got, "time", time.Minute, "")
	for s, want := range map[string]time.Duration{"10m": 10 * time.Minute, "3d": 72 * time.Hour, "0": 0, "1h30m": 90 * time.Minute, "250ms": 250 * time.Millisecond} {
		if err := fs.Set("time", s); err != nil || got != want {
			t.Errorf("%s: %v, %v", s, got, err)
		}
		if err := fs.Set("time", text.Trimmed(want)); err != nil || got != want {
			t.Errorf("%s is written as %s", s, text.Trimmed(want))
		}
	}
	for _, s := range []string{"", "d", "-1s", "-1d", "1.5d", "soon", "10", "3 d", "99999d"} {
		if err := fs.Set("time", s); err == nil {
			t.Errorf("%q is taken for %v", s, got)
		}
	}
}

// TestFlagsSayWhatTheyTake: no flag of any command answers a wrong value by "parse
// error" alone.
func TestFlagsSayWhatTheyTake(t *testing.T) {
	for _, c := range commands() {
		fs := c.flagSet(new(environment))
		fs.VisitAll(func(f *flag.Flag) {
			if b, ok := f.Value.(interface{ IsBoolFlag() bool }); ok && b.IsBoolFlag() {
				return
			}
			for _, wrong := range []string{"soon", "-1", "1e99"} {
				if err := fs.Set(f.Name, wrong); err != nil && !strings.HasPrefix(err.Error(), "give a ") {
					t.Errorf("agent-init %s --%s %s: %v", c.name, f.Name, wrong, err)
				}
			}
		})
	}
}
