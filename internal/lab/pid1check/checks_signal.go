package main

import (
	"slices"
	"strconv"
	"syscall"
)

// stubborn ignores every polite request to end.
const stubborn = `trap '' TERM INT HUP QUIT; `

// listening is a command that gets a signal at once, and says so.
func listening(traps string) []string {
	return sh(traps + ` echo ready; while :; do sleep 0.02; done`)
}

// faults are the signals that the kernel sends for an error of the program.
var faults = []syscall.Signal{syscall.SIGILL, syscall.SIGTRAP, syscall.SIGABRT, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGSEGV, syscall.SIGSYS}

func signalChecks() []Check {
	return []Check{
		{Name: "each-once", Text: "every signal is forwarded, exactly once", run: func(t *trial) {
			forwarded(t, []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGALRM,
				syscall.SIGTERM, syscall.SIGSTKFLT, syscall.SIGCONT, syscall.SIGXCPU, syscall.SIGXFSZ, syscall.SIGVTALRM, syscall.SIGWINCH,
				syscall.SIGIO, syscall.SIGPWR})
		}},
		{Name: "realtime", Text: "the realtime signals are forwarded", run: func(t *trial) {
			var list []syscall.Signal
			for n := syscall.Signal(35); n <= 64; n++ {
				list = append(list, n)
			}
			forwarded(t, list)
		}},
		{Name: "chld", Text: "CHLD is not forwarded", run: func(t *trial) { notForwarded(t, syscall.SIGCHLD) }},
		{Name: "urg-prof", Text: "URG, PROF and 34 are forwarded", run: func(t *trial) {
			b := t.start(options{}, listening("trap 'echo urg' URG; trap 'echo prof' PROF; trap 'echo 34' 34;")...)
			b.expect(b.out, "ready")
			for sig, name := range map[syscall.Signal]string{syscall.SIGURG: "urg", syscall.SIGPROF: "prof", 34: "34"} {
				b.signal(sig)
				b.expect(b.out, name)
			}
		}, Differs: "the Go runtime interrupts its own threads with URG, hundreds of times a second. It hands PROF and 34 to nobody. No agent listens for these signals"},
		{Name: "faults", Text: "SEGV, ILL, BUS, FPE, ABRT, TRAP and SYS that somebody sends do not end the init", run: func(t *trial) {
			b := t.start(options{}, listening("trap : SEGV ILL BUS FPE ABRT TRAP SYS; trap 'exit 9' USR2;")...)
			b.expect(b.out, "ready")
			for _, sig := range faults {
				b.signal(sig)
			}
			b.signal(syscall.SIGUSR2)
			b.wantExit(9)
		}},
		{Name: "faults-forwarded", Text: "these signals are forwarded like any other", run: func(t *trial) { forwarded(t, faults) }},
		{Name: "storm", Text: "thousands of signals in a row neither end nor stop the init", run: func(t *trial) {
			b := t.start(options{}, recorder()...)
			b.expect(b.out, "ready")
			for range 3000 {
				b.signal(syscall.SIGUSR1)
			}
			b.signal(syscall.SIGUSR2)
			b.wantExit(7)
		}},
		{Name: "other-uid", Text: "a command of another uid is signalled by an init without CAP_KILL", run: func(t *trial) {
			b := t.start(options{drop: true, wrap: []string{"setpriv", "--bounding-set=-kill", "--inh-caps=-all", "--"}},
				listening("trap 'exit 8' TERM;")...)
			b.expect(b.out, "ready")
			b.signal(syscall.SIGTERM)
			b.wantExit(8)
		}},
		{Name: "safe-from-command", Text: "the command cannot kill, stop or end the init", run: func(t *trial) {
			// KILL last: it is the one that would win.
			b := t.start(options{}, sh(`trap '' TERM INT HUP QUIT; for s in TERM INT HUP QUIT STOP KILL; do kill -$s $PPID 2>/dev/null; done; echo tried; exit 3`)...)
			b.expect(b.out, "tried")
			b.wantExit(3)
		}},
	}
}

// forwarded sends signals one at a time, since the order of pending ones is the
// kernel's.
func forwarded(t *trial, list []syscall.Signal) {
	b := t.start(options{}, recorder()...)
	b.expect(b.out, "ready")
	for _, sig := range append(slices.Clone(list), syscall.SIGUSR2) {
		b.signal(sig)
		if got := b.expect(b.out, strconv.Itoa(int(sig))); len(got) != 1 || got[0] != strconv.Itoa(int(sig)) {
			t.failf("on signal %d the command got %q", int(sig), got)
		}
	}
	b.wantExit(7)
}

func notForwarded(t *trial, sig syscall.Signal) {
	b := t.start(options{}, recorder()...)
	b.expect(b.out, "ready")
	b.signal(sig)
	b.nothingMore()
}

// nothingMore wants the recorder to get no other signal before it ends. What
// asks for that has a high number, since of several the lowest is served first.
func (b *box) nothingMore() {
	b.signal(40)
	if got := b.expect(b.out, "40"); len(got) != 1 {
		b.failf("the command also got %q", got[:len(got)-1])
	}
	b.signal(syscall.SIGUSR2)
	b.wantExit(7)
}

func targetChecks() []Check {
	return []Check{
		{Name: "term-to-group", Text: "by default, TERM, INT, HUP and QUIT reach the whole process group", run: func(t *trial) {
			for _, sig := range []string{"TERM", "INT", "HUP", "QUIT"} {
				target(t, Flags{}, sig, "child "+sig, "parent "+sig)
			}
		}},
		{Name: "usr1-to-child", Text: "by default, USR1, USR2 and WINCH reach the command alone", run: func(t *trial) {
			for _, sig := range []string{"USR1", "USR2", "WINCH"} {
				target(t, Flags{}, sig, "parent "+sig)
			}
		}},
		{Name: "target-group", Text: "--signal-target group: all signals reach the group", run: func(t *trial) {
			target(t, Flags{Target: "group"}, "USR1", "child USR1", "parent USR1")
			target(t, Flags{Target: "group"}, "TERM", "child TERM", "parent TERM")
		}},
		{Name: "target-child", Text: "--signal-target child: no signal reaches the group", run: func(t *trial) {
			target(t, Flags{Target: "child"}, "USR1", "parent USR1")
			target(t, Flags{Target: "child"}, "INT", "parent INT")
		}},
	}
}

// target sends a signal to a command and its child, which are one group, and
// wants these lines, in some order.
func target(t *trial, f Flags, sig string, want ...string) {
	b := t.start(options{flags: f}, self, roleArg, "family")
	b.expect(b.out, "ready")
	b.signal(signals[sig])
	var got []string
	for len(got) < len(want) {
		got = append(got, b.expect(b.out, "")...)
	}
	b.signal(familyEnd)
	got = append(got, b.expect(b.out, "end")...)
	b.wantExit(0)
	if got = sorted(got[:len(got)-1]); !slices.Equal(got, want) {
		t.failf("%q, want %q", got, want)
	}
}
