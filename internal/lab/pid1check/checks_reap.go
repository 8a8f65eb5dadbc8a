package main

import (
	"slices"
	"strconv"
	"syscall"
	"time"
)

var signals = map[string]syscall.Signal{
	"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "HUP": syscall.SIGHUP, "QUIT": syscall.SIGQUIT,
	"USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2, "WINCH": syscall.SIGWINCH,
}

func sorted(list []string) []string { return slices.Sorted(slices.Values(list)) }

// children counts the init's children, and those of them that are zombies.
func (b *box) children() (all, zombies int) {
	for _, p := range processes() {
		if p.ppid == b.init {
			all++
			if p.state == 'Z' {
				zombies++
			}
		}
	}
	return all, zombies
}

func reapChecks() []Check {
	return []Check{
		{Name: "adopts", Text: "the init adopts what loses its parent, also after setsid", run: func(t *trial) {
			b := t.start(options{}, sh(`(setsid sh -c 'echo $$; exec sleep 1000' &); trap 'exit 0' USR2; while :; do sleep 0.02; done`)...)
			b.expect(b.out, "")
			t.until("the orphan is the init's child", func() bool { all, _ := b.children(); return all == 2+t.subject.Helpers })
		}},
		{Name: "orphans", Text: "1,000 orphans are reaped, and the command's exit code is kept", run: func(t *trial) { orphans(t, 1000, false) }},
		{Name: "orphans-signalled", Text: "2,000 orphans are reaped, with a signal every millisecond meanwhile", run: func(t *trial) { orphans(t, 2000, true) }},
		{Name: "burst", Text: "300 orphans that die in the same moment as the command do not cost its exit code", run: func(t *trial) {
			for range 3 {
				t.start(options{}, sh(`mkfifo /run/scratch/f; i=0; while [ $i -lt 300 ]; do (read -r _ </run/scratch/f &) ; i=$((i+1)); done
					exec 3<>/run/scratch/f; kill -9 0`)...).wantExit(137)
			}
		}},
		{Name: "burst-code", Text: "orphans that die just before the command do not cost its exit code", run: func(t *trial) {
			for range 3 {
				t.start(options{}, sh(`i=0; while [ $i -lt 300 ]; do (sleep 0.1 &); i=$((i+1)); done; sleep 0.1; exit 42`)...).wantExit(42)
			}
		}},
	}
}

func orphans(t *trial, n int, signalled bool) {
	b := t.start(options{}, self, roleArg, "count", strconv.Itoa(n))
	b.expect(b.out, "ready")
	if signalled {
		stop, stopped := make(chan struct{}), make(chan struct{})
		t.cleanup(func() { close(stop); <-stopped })
		init := b.init
		go func() {
			defer close(stopped)
			for {
				select {
				case <-stop:
					return
				case <-b.exited: // the pid may be another's
					return
				case <-time.After(time.Millisecond):
					_ = syscall.Kill(init, syscall.SIGUSR1)
				}
			}
		}()
	}
	b.subject.Patience = max(b.subject.Patience, 10*time.Minute) // their birth is not the init's work
	b.expect(b.out, "born")
	t.until("all orphans are reaped", func() bool { all, zombies := b.children(); return all == 1+t.subject.Helpers && zombies == 0 })
	b.signal(syscall.SIGUSR2)
	b.wantExit(42)
}
