package main

import (
	_ "embed"
	"strings"
	"syscall"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
)

const (
	orphans     = 10_000
	orphansCode = 37 // what the agent ends with
)

// orphansAgent is the agent that leaves so many orphans: see its head.
//
//go:embed orphans.sh
var orphansAgent []byte

// measureOrphans counts the orphans that PID 1 says it has reaped, looks for
// those that it has not, and signals it all the while.
func measureOrphans(b *bench) {
	box := b.confined(1, lab.File{Path: "/usr/local/bin/orphans.sh", Data: orphansAgent, Mode: 0o755})
	p := box.Start(lab.Cmd{Args: []string{"agent-init", "run", "--log-level", "debug", "--", "orphans.sh"}})
	defer box.Kill()
	if !p.WaitOutput("begin", 30*time.Second) {
		b.Fatalf("the agent did not start: %s", p.Wait(time.Second))
	}
	begun := time.Now()
	stop, sent := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		for tick := time.Tick(time.Millisecond); ; n++ {
			select {
			case <-stop:
				sent <- n
				return
			case <-tick:
				_ = p.Signal(syscall.SIGUSR1) // PID 1 lives until the end, below
			}
		}
	}()
	ok := p.WaitOutput("all born", 2*time.Minute)
	born := time.Now()
	left := b.awaitNone(p.Pid())
	gone := time.Now()
	close(stop)
	signals := <-sent
	if err := p.Signal(syscall.SIGUSR2); err != nil { // the agent's to end
		b.Errorf("signal PID 1: %v", err)
	}
	res := p.Wait(30 * time.Second)
	if !ok || res.Code != orphansCode {
		b.Errorf("the orphans' agent ended with %d, not %d: %s", res.Code, orphansCode, tail(res.Stderr))
	}
	reaped := strings.Count(res.Stderr, "reaped an orphan")
	heard := strings.TrimSpace(res.Stdout[strings.LastIndex(res.Stdout, "heard")+len("heard"):])

	r := b.report
	r.heading("Reaping: %s orphans while PID 1 is signalled every millisecond", thousands(orphans))
	r.figure("orphans reaped", thousands(reaped), "10,000").met(reaped == orphans)
	r.figure("left, when the last was due", thousands(left), "0").met(left == 0)
	r.figure("exit code of the agent", thousands(res.Code), "37").met(res.Code == orphansCode)
	r.figure("time, births included", ms(gone.Sub(begun)), "").note("%s signals sent meanwhile; the agent, a shell that looks once per batch, noticed %s", thousands(signals), heard)
	r.figure("from the last birth to none left", ms(gone.Sub(born)), "").note("each orphan lives 300 ms")
	if reaped != orphans || left != 0 {
		b.Errorf("%d orphans were reaped and %d are left", reaped, left)
	}
}

// awaitNone waits until PID 1 has no children but the guard and the agent, and
// returns how many more there are if that doesn't come.
func (b *bench) awaitNone(pid1 int) int {
	n := 0
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if n = len(b.children(pid1)) - 2; n == 0 {
			return 0
		}
	}
	return n
}

func tail(s string) string { return s[max(0, len(s)-1000):] }
