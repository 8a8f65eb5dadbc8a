package main

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"
)

func exitChecks() []Check {
	exits := func(want int, command ...string) func(*trial) {
		return func(t *trial) { t.start(options{}, command...).wantExit(want) }
	}
	return []Check{
		{Name: "exit-codes", Text: "every exit code, 0 to 255, is passed on", Only: Below, run: allCodes},
		{Name: "exit-code", Text: "an exit code is passed on", run: exits(213, sh("exit 213")...)},
		{Name: "death-by-signal", Text: "a command that signal n ended is reported as 128+n", run: func(t *trial) {
			for _, sig := range []int{1, 2, 3, 4, 6, 8, 9, 11, 13, 14, 15, 31, 35, 64} {
				t.start(options{}, sh(fmt.Sprintf("ulimit -c 0; kill -%d $$", sig))...).wantExit(128 + sig)
			}
		}},
		{Name: "not-found", Text: "127 if the command is not found", run: exits(127, "no-such-command")},
		{Name: "not-found-path", Text: "127 if the command's path leads through a file", run: exits(127, "/etc/passwd/x")},
		{Name: "not-executable", Text: "126 if the command may not be executed", run: exits(126, "/etc/passwd")},
		{Name: "directory", Text: "126 if the command is a directory", run: exits(126, "/etc")},
		{Name: "exec-format", Text: "126 if the kernel cannot execute the command", run: func(t *trial) {
			t.start(options{wrap: sh(`printf '\177ELF\0\0nothing' >/run/scratch/x; chmod 755 /run/scratch/x; exec "$0" "$@"`)}, "/run/scratch/x").wantExit(126)
		}},
		{Name: "no-interpreter", Text: "a script without #! runs, as from a shell", run: func(t *trial) {
			t.start(options{wrap: sh(`echo exit 33 >/run/scratch/x; chmod 755 /run/scratch/x; exec "$0" "$@"`)}, "/run/scratch/x").wantExit(33)
		}},
		{Name: "path-search", Text: "what may not be executed is passed over on PATH", run: func(t *trial) {
			b := t.start(options{env: []string{"PATH=/run/first:/usr/bin:/bin"}, wrap: []string{"/bin/sh", "-c", `mkdir /run/first; echo >/run/first/true; exec "$0" "$@"`}}, "true")
			b.wantExit(0)
		}},
		{Name: "failure-is-told", Text: "a command that cannot be started is named on stderr", run: func(t *trial) {
			b := t.start(options{}, "no-such-command")
			b.exit()
			if text := strings.Join(b.drain(b.err), "\n"); !strings.Contains(text, "no-such-command") {
				t.failf("it says %q", text)
			}
		}},
		{Name: "quiet", Text: "nothing of the init's own comes on stdout", run: func(t *trial) {
			b := t.start(options{}, sh("echo one")...)
			b.wantExit(0)
			if got := b.drain(b.out); !slices.Equal(got, []string{"one"}) {
				t.failf("stdout has %q", got)
			}
		}},
		{Name: "early-term", Text: "a TERM that comes while the command is being started ends it", run: func(t *trial) {
			b := t.start(options{}, "sleep", "1000")
			// The init is there once it has a child, whatever that is yet.
			t.until("the init has a child", func() bool {
				return slices.ContainsFunc(processes(), func(p process) bool { return p.ppid == b.init })
			})
			b.signal(syscall.SIGTERM)
			b.wantExit(143)
		}},
	}
}

func allCodes(t *trial) {
	b := t.start(options{wrap: sh(`i=0; while [ $i -lt 256 ]; do "$0" "$@" $i; got=$?; [ $got = $i ] || echo $i became $got; i=$((i+1)); done 2>/dev/null`)},
		sh(`exit "$0"`)...)
	b.subject.Patience = max(b.subject.Patience, 10*time.Minute) // 256 starts are not one init's end
	b.wantExit(0)
	if got := b.drain(b.out); len(got) > 0 {
		t.failf("%q", got)
	}
}
