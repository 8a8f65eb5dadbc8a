package main

import (
	"slices"
	"syscall"
	"time"
)

// A shell that leaves a process behind ends when that has begun: begin is what the process does, begun waits for it.
const (
	begin = `echo $$ >` + scratch + `/begun`
	begun = `until test -s ` + scratch + `/begun; do sleep 0.02; done`
)

func endChecks() []Check {
	// Two generations, the second in a session of its own.
	tree := stubborn + `(setsid sh -c "` + stubborn + ` echo ready; while :; do sleep 1; done") & while :; do sleep 1; done`
	return []Check{
		{Name: "term", Text: "a TERM ends the command, and its status is reported", run: func(t *trial) {
			b := t.start(options{}, listening("")...)
			b.expect(b.out, "ready")
			b.signal(syscall.SIGTERM)
			b.wantExit(143)
		}},
		{Name: "grace", Text: "a tree that ignores TERM is killed after the grace period, sessions of its own included", run: func(t *trial) {
			b := t.start(options{flags: Flags{Grace: 300 * time.Millisecond}}, sh(tree)...)
			b.expect(b.out, "ready")
			b.signal(syscall.SIGTERM)
			b.wantExit(137)
			b.drain(b.out)
		}},
		{Name: "impatient", Text: "a second TERM shortens the grace, a third ends it", run: func(t *trial) {
			b := t.start(options{flags: Flags{Grace: time.Hour}}, sh(tree)...)
			b.expect(b.out, "ready")
			for range 3 {
				b.signal(syscall.SIGTERM)
				time.Sleep(20 * time.Millisecond) // or the kernel would merge them
			}
			b.wantExit(137)
		}},
		{Name: "grace-0", Text: "--grace 0: a command that ignores TERM is waited for", run: func(t *trial) {
			b := t.start(options{flags: Flags{Grace: Forever}}, listening(`trap '' TERM; trap 'exit 5' USR1;`)...)
			b.expect(b.out, "ready")
			b.signal(syscall.SIGTERM)
			b.signal(syscall.SIGTERM)
			time.Sleep(100 * time.Millisecond) // what kills it would do so by now
			b.signal(syscall.SIGUSR1)
			b.wantExit(5)
		}},
		{Name: "rest-asked", Text: "what the command leaves behind gets a TERM, and time to act on it", run: func(t *trial) { rest(t, Flags{}) }},
		{Name: "rest-asked-grace-0", Text: "with --grace 0, what the command leaves behind gets a TERM and time too", run: func(t *trial) { rest(t, Flags{Grace: Forever}) }},
		{Name: "rest-killed", Text: "what ignores that TERM is killed, and the command's exit code is kept", run: func(t *trial) {
			b := t.start(options{}, sh(`setsid sh -c "`+stubborn+`echo ready; `+begin+`; while :; do sleep 1; done" & `+begun+`; exit 6`)...)
			b.expect(b.out, "ready")
			b.wantExit(6)
			b.drain(b.out)
		}},
		{Name: "rest-stopped", Text: "a stopped process that the command leaves behind is resumed for its TERM", run: func(t *trial) {
			b := t.start(options{}, sh(`setsid sh -c 'trap "echo polite end; exit" TERM; echo ready; `+begin+`; kill -STOP $$; while :; do sleep 0.02; done' &
				`+begun+`; until grep -q "^State:.T" /proc/$(cat `+scratch+`/begun)/status; do sleep 0.02; done; exit 6`)...)
			b.expect(b.out, "ready")
			b.wantExit(6)
			if got := b.drain(b.out); !slices.Contains(got, "polite end") {
				t.failf("it was not asked: %q", got)
			}
		}},
		{Name: "cleans-up", Text: "an init that is not PID 1 leaves nothing running", Only: Below, run: func(t *trial) {
			b := t.start(options{}, sh(`(setsid sleep 1000 &); sleep 0.2; exit 6`)...)
			if left := b.left(); left != "0" {
				t.failf("it left %s", left)
			}
			b.wantExit(6)
		}},
		{Name: "dies-with-init", Text: "if an init that is not PID 1 is killed, its command is too", Only: Below, run: func(t *trial) {
			b := t.start(options{}, sh("echo ready; exec sleep 1000")...)
			b.expect(b.out, "ready")
			command := b.command()
			// The end of the box's first process would be the end of all.
			b.must(syscall.Kill(b.cmd.Process.Pid, syscall.SIGSTOP))
			b.signal(syscall.SIGKILL)
			t.until("the command has ended", func() bool { s := state(command); return s == 0 || s == 'Z' })
		}},
		{Name: "not-delayed", Text: "an exit is not delayed by somebody who holds stdout open", run: func(t *trial) {
			b := t.start(options{}, sh("(sleep 1000 &) ; exit 2")...)
			b.wantExit(2)
		}},
	}
}

func rest(t *trial, f Flags) {
	b := t.start(options{flags: f}, sh(`
		setsid sh -c 'trap "sleep 0.2; echo polite end; exit" TERM; echo ready; `+begin+`; while :; do sleep 0.02; done' &
		`+begun+`; exit 6`)...)
	b.expect(b.out, "ready")
	b.wantExit(6)
	if got := b.drain(b.out); !slices.Contains(got, "polite end") {
		t.failf("it was not asked: %q", got)
	}
}
