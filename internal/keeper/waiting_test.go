package keeper

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/selftest"
)

// TestWaiting: a step that takes its time is shown with what it waits for and how long at most, on a terminal in its own
// line, else once in the diagnostics; the status has it meanwhile, and no longer.
func TestWaiting(t *testing.T) {
	for name, terminal := range map[string]bool{"on a terminal": true, "without one": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var said, logged strings.Builder
				b := &base{publisher: &publisher{log: slog.New(slog.NewTextHandler(&logged, nil)), record: audit.Discard, state: state.State{Phase: state.PhaseStarting}}}
				if terminal {
					b.progress = &progress{Say: func(s string) { said.WriteString(s) }}
				}
				s := &starting{base: b, ctx: t.Context()}
				then(s, "quick", "seal the network", func(context.Context, int) (int, error) { return 1, nil }, 0)
				plan := selftest.Plan{Required: []selftest.Target{{Name: "slow.example", Port: 443}}, Reach: []selftest.Target{{Name: "\x1b]0;x\a.example", Port: 1}}}
				then(s, "prove the confinement", "prove the confinement", func(context.Context, int) (int, error) {
					b.waitFor(reachedFor(plan), selftest.Time)
					time.Sleep(7500 * time.Millisecond)
					synctest.Wait()
					w := b.status().Waiting
					if w == nil || w.Step != "prove the confinement" || !strings.Contains(w.For, "slow.example:443") || w.Until.Sub(w.Since) != time.Minute {
						t.Errorf("the status has %+v", w)
					}
					now := b.status()
					if _, why := now.Healthy(time.Now()); !strings.Contains(strings.Join(why, " "), "waits for slow.example:443") {
						t.Errorf("it is not healthy, since %q", why)
					}
					return 0, errors.New("slow.example is down")
				}, 0)
				time.Sleep(time.Minute)
				if b.status().Waiting != nil {
					t.Error("it is waited for still")
				}
				if lines := strings.Count(logged.String(), "takes its time"); lines != map[bool]int{true: 0, false: 1}[terminal] {
					t.Errorf("%d lines of diagnostics: %s", lines, logged.String())
				}
				if !terminal {
					return
				}
				last, shown := "", 0
				for _, line := range strings.Split(said.String(), "\r\x1b[K") {
					if strings.Contains(line, "for slow.example:443") {
						shown++
					}
					if text.Columns(strings.TrimSpace(line)) > 80 && !strings.Contains(line, "\n") || strings.ContainsAny(line, "\x1b\a") {
						t.Errorf("%q", line)
					}
					last = line
				}
				if shown != 7 || !strings.HasSuffix(last, "failed\n") {
					t.Errorf("shown %d times: %q", shown, said.String())
				}
			})
		})
	}
}
