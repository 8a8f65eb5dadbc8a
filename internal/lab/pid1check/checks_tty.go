package main

import (
	"golang.org/x/sys/unix"
)

func terminalChecks() []Check {
	tty := options{terminal: true}
	return []Check{
		{Name: "tty-foreground", Text: "the command's group has the terminal, and reads what is typed", run: func(t *trial) {
			b := t.start(tty, sh(`stty -echo; echo ready; read -r x; echo "got $x"`)...)
			b.expect(b.out, "ready")
			if f := b.foreground(); f != b.command() {
				t.failf("the foreground group is %d, the command %d", f, b.command())
			}
			b.write("line\n")
			b.expect(b.out, "got line")
			b.wantExit(0)
		}},
		{Name: "tty-redirected", Text: "the group has the terminal also if standard input is not the terminal", run: func(t *trial) {
			b := t.start(options{terminal: true, redirected: true}, sh(`exec </dev/tty; stty -echo; echo ready; read -r x; echo "got $x"`)...)
			b.expect(b.out, "ready")
			b.write("line\n")
			b.expect(b.out, "got line")
			b.wantExit(0)
		}},
		{Name: "tty-by-name", Text: "an unprivileged command can open its terminal by name", run: func(t *trial) {
			b := t.start(options{terminal: true, drop: true}, sh(`stty -echo; (echo ready >"$(readlink /proc/self/fd/0)") && echo ready >/dev/stdout`)...)
			b.expect(b.out, "ready")
			b.expect(b.out, "ready")
			b.wantExit(0)
		}},
		{Name: "ctrl-c-once", Text: "^C arrives once", run: func(t *trial) {
			b := t.start(tty, recorder()...)
			b.expect(b.out, "ready")
			b.write("\x03")
			b.expect(b.out, "^C2")
			b.nothingMore()
		}},
		{Name: "ctrl-c", Text: "^C ends a command with 130, ^\\ with 131", run: func(t *trial) {
			for key, code := range map[string]int{"\x03": 130, "\x1c": 131} {
				b := t.start(tty, sh(`ulimit -c 0; echo ready; exec sleep 1000`)...)
				b.expect(b.out, "ready")
				b.write(key)
				b.wantExit(code)
			}
		}},
		{Name: "resize", Text: "a new size of the terminal arrives once, as a WINCH", run: func(t *trial) {
			b := t.start(tty, recorder()...)
			b.expect(b.out, "ready")
			b.must(unix.IoctlSetWinsize(b.tty, unix.TIOCSWINSZ, &unix.Winsize{Row: 20, Col: 5}))
			b.expect(b.out, "28")
			b.nothingMore()
		}},
	}
}

func terminalEndChecks() []Check {
	tty := options{terminal: true}
	return []Check{
		{Name: "hang-up", Text: "the end of the terminal is a HUP for the command: 129, and nothing is left", run: func(t *trial) {
			b := t.start(tty, sh(`echo ready; while :; do sleep 1; done`)...)
			b.expect(b.out, "ready")
			b.must(b.master.Close())
			b.wantExit(129)
			if t.mode == Below {
				if left := b.left(); left != "0" {
					t.failf("it left %s", left)
				}
			}
		}},
		{Name: "modes", Text: "the terminal's modes are left as they were found", run: func(t *trial) {
			b := t.start(tty, sh(`echo ready; exec sleep 1000`)...)
			before, err := unix.IoctlGetTermios(b.tty, unix.TCGETS)
			b.must(err)
			b.expect(b.out, "ready")
			after, err := unix.IoctlGetTermios(b.tty, unix.TCGETS)
			b.must(err)
			if *before != *after {
				t.failf("%+v became %+v", before, after)
			}
		}},
		{Name: "not-stolen", Text: "an init that was started in the background does not take the terminal", Only: Below, run: func(t *trial) {
			b := t.start(options{terminal: true, background: true}, sh(`echo ready; exec sleep 1000`)...)
			b.expect(b.out, "ready")
			if f := b.foreground(); f != b.cmd.Process.Pid {
				t.failf("the foreground group is %d", f)
			}
		}},
		{Name: "given-back", Text: "an init that is not PID 1 gives the terminal back at the end", Only: Below, run: func(t *trial) {
			b := t.start(tty, sh(`exit 0`)...)
			b.wantExit(0)
			if got := b.last(b.control, "foreground"); got != "foreground true" {
				t.failf("it is another group's")
			}
		}},
	}
}
