package main

import (
	"flag"
	"strings"
	"testing"
	"time"
)

func TestParseTime(t *testing.T) {
	for s, want := range map[string]time.Duration{"10m": 10 * time.Minute, "3d": 72 * time.Hour, "0": 0, "1h30m": 90 * time.Minute, "250ms": 250 * time.Millisecond} {
		var got, again duration
		if err := got.Set(s); err != nil || got != duration(want) {
			t.Errorf("%s: %v, %v", s, &got, err)
		}
		if err := again.Set(got.String()); err != nil || again != got {
			t.Errorf("%s is written as %s", s, &got)
		}
	}
	for _, s := range []string{"", "d", "-1s", "-1d", "1.5d", "soon", "10", "3 d", "99999d"} {
		var d duration
		if err := d.Set(s); err == nil {
			t.Errorf("%q is taken for %v", s, &d)
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
