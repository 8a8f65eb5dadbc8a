package keeper

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/budget"
	"github.com/agent-init/agent-init/pkg/policy"
)

// TestErrandsAreFew: however often something becomes of requests, as many are told as there is room and time for. The
// book waits for none of them, and the log has one line of it.
func TestErrandsAreFew(t *testing.T) {
	lines := 0
	b := &base{publisher: &publisher{record: func(audit.Event) { lines++ }}}
	p, err := policy.Parse(&policy.Bundle{Files: []policy.File{{Name: "policy.yaml", Data: []byte("notify: {command: [/bin/true]}\n")}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	e := &errands{base: b, book: newBook(b, p), queue: make(chan notification, errandsWait), pace: budget.Pace{Burst: errandBurst, Every: errandEvery}}
	for range 10_000 {
		e.put(notification{})
	}
	if n, missed := len(e.queue), e.missed.Load(); n < errandBurst || n > errandBurst+1 || int64(n)+missed != 10_000 || lines != 1 {
		t.Errorf("%d wait, %d were left out, %d lines", n, missed, lines)
	}
	e.pace = budget.Pace{Burst: 10_000, Every: errandEvery}
	for range 100 {
		e.put(notification{})
	}
	if len(e.queue) != errandsWait {
		t.Errorf("%d wait, of %d", len(e.queue), errandsWait)
	}
}

// FuzzNotices: what a guard that was taken over may have booked can be shown on a line, and draws and rings nothing.
func FuzzNotices(f *testing.F) {
	f.Add("a.test", "to build")
	f.Add("api.test GET,HEAD /v1/**", `say "hello" \x1b`)
	f.Add("[2001:db8::1]:53/udp", strings.Repeat("'", wire.MaxText))
	f.Fuzz(func(t *testing.T, target, reason string) {
		if len(target) > wire.MaxName || wire.CheckRequest(wire.Message{Name: target, Text: reason}) != nil {
			return
		}
		g := grant.Grant{Number: 7, Kind: grant.Request, Target: target, Reason: reason}
		decided := g
		decided.Outcome, decided.Decided = grant.WasTurnedDown, &grant.Decision{}
		for _, line := range []string{noticeOf([]grant.Grant{g, g}), requestNews{g, false}.notification(1).Text, requestNews{decided, true}.notification(1).Text} {
			if len(line) > 2*(wire.MaxText+wire.MaxName) || strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Errorf("%q", line)
			}
		}
	})
}

// TestEnded: a process that nobody has reaped is none that is left.
func TestEnded(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if ended(cmd.Process.Pid) {
		t.Error("a process that runs has ended")
	}
	_ = cmd.Process.Kill()
	for deadline := time.Now().Add(time.Minute); !ended(cmd.Process.Pid); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a process that was killed has not ended")
		}
	}
	_ = cmd.Wait()
	if !ended(cmd.Process.Pid) {
		t.Error("a process that was reaped has not ended")
	}
}
