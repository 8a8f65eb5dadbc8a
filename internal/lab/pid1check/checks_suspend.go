package main

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

func suspendChecks() []Check {
	return []Check{
		{Name: "stopped-then-term", Text: "a TERM ends a command that somebody has stopped", run: func(t *trial) {
			b := t.start(options{}, sh("echo ready; exec sleep 1000")...)
			b.expect(b.out, "ready")
			b.stop(b.command())
			b.signal(syscall.SIGTERM)
			b.wantExit(143)
		}},
		{Name: "stopped-member", Text: "a TERM ends a stopped process of the command's group", run: func(t *trial) {
			b := t.start(options{flags: Flags{Target: "group"}}, sh(`
				trap 'wait $c; exit $?' TERM
				sh -c 'trap "exit 9" TERM; echo ready; kill -STOP $$; while :; do sleep 0.02; done' & c=$!; echo ready
				while :; do sleep 0.02; done`)...)
			b.expect(b.out, "ready") // the one,
			b.expect(b.out, "ready") // and the other
			command := b.command()
			t.until("the process has stopped", func() bool {
				return slices.ContainsFunc(processes(), func(p process) bool { return p.ppid == command && p.state == 'T' })
			})
			b.signal(syscall.SIGTERM)
			b.wantExit(9)
		}},
		{Name: "no-cont", Text: "no CONT comes with a TERM if nothing was stopped", run: func(t *trial) {
			b := t.start(options{}, recorder()...)
			b.expect(b.out, "ready")
			b.signal(syscall.SIGTERM)
			b.expect(b.out, "15")
			b.nothingMore()
		}},
		{Name: "cont", Text: "a CONT that the init gets resumes the command", run: func(t *trial) {
			b := t.start(options{}, sh("trap 'exit 4' USR1; sleep 1000 & echo ready; wait")...)
			b.expect(b.out, "ready")
			b.stop(b.command())
			b.signal(syscall.SIGCONT)
			b.signal(syscall.SIGUSR1)
			b.wantExit(4)
		}},
		{Name: "tstp-to-init", Text: "a TSTP that the init gets does not wedge it", run: func(t *trial) {
			b := t.start(options{}, sh("trap 'exit 4' USR1; echo ready; while :; do sleep 0.02; done")...)
			b.expect(b.out, "ready")
			b.signal(syscall.SIGTSTP)
			b.signal(syscall.SIGUSR1)
			b.wantExit(4)
		}},
		{Name: "ttin-ttou", Text: "a TTIN or a TTOU does not stop the init", run: func(t *trial) {
			b := t.start(options{}, sh("trap 'exit 4' USR1; echo ready; while :; do sleep 0.02; done")...)
			b.expect(b.out, "ready")
			b.signal(syscall.SIGTTIN)
			b.signal(syscall.SIGTTOU)
			b.signal(syscall.SIGUSR1)
			b.wantExit(4)
		}},
	}
}

func jobChecks() []Check {
	return []Check{
		{Name: "stops-itself", Text: "a command that stops itself goes on, as nobody else could resume it", run: func(t *trial) {
			b := t.start(options{}, sh(`kill -STOP $$; echo resumed; exit 4`)...)
			b.expect(b.out, "resumed")
			b.wantExit(4)
		}},
		{Name: "suspends-itself", Text: "an agent in raw mode that suspends itself on ^Z goes on", run: func(t *trial) {
			for _, who := range []string{"$$", "0"} {
				b := t.start(options{terminal: true}, sh(`stty raw -echo; printf 'ready\n'; dd bs=1 count=1 2>/dev/null | od -An -c | tr -d ' '; stty sane
					kill -TSTP `+who+`; stty raw -echo; printf 'resumed\n'; exit 4`)...)
				b.expect(b.out, "ready")
				b.write("\x1a")
				b.expect(b.out, "resumed")
				b.wantExit(4)
			}
		}},
		{Name: "ctrl-z", Text: "^Z with no shell above does not wedge the terminal", run: func(t *trial) {
			b := t.start(options{terminal: true}, sh(`stty -echo; echo ready; exec cat`)...)
			b.expect(b.out, "ready")
			b.write("\x1a")
			b.write("hello\n")
			b.expect(b.out, "hello")
		}},
		{Name: "job-control", Text: "a shell as the command has job control: ^Z, fg, ^C", run: func(t *trial) {
			b := t.start(options{terminal: true, env: []string{"PS1=", "TERM=dumb"}}, "bash", "--norc", "--noprofile", "--noediting", "-i")
			// agent-init says in the prompt that there is no firewall.
			b.write("PS1= PROMPT_COMMAND=; stty -echo; echo begin $((1+1))\n")
			b.contains("begin 2")
			jobs(b, "sh -c 'echo the job; exec sleep 1000'", "the job")
			b.write("echo code $?\n")
			b.contains("code 130")
			b.write("exit 11\n")
			b.wantExit(11)
		}},
		{Name: "shell-above", Text: "below an interactive shell, ^Z gives its prompt back, and fg resumes", Only: Below, run: func(t *trial) {
			// It starts no processes: a ^Z between vfork and exec would leave the
			// shell waiting in the kernel, not stopped.
			b := t.start(options{terminal: true, shell: true}, sh(`trap 'echo agent int; exit 12' INT; echo agent ready; while :; do read -r _; done`)...)
			b.write("stty -echo; echo begin $((1+1))\n")
			b.contains("begin 2")
			quoted := make([]string, len(b.argv))
			for i, a := range b.argv {
				quoted[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
			}
			jobs(b, strings.Join(quoted, " "), "agent ready")
			b.expect(b.out, "agent int")
			b.write("echo code $?\n")
			b.contains("code 12")
		}},
	}
}

// jobs starts a job in the shell of the terminal, which says something once it
// runs, suspends it, resumes it, and interrupts it.
func jobs(b *box, job, says string) {
	shell := b.foreground()
	b.write(job + "\n")
	b.expect(b.out, says)
	b.until("the job is in the foreground", func() bool { return b.foreground() != shell })
	inner := b.foreground()
	b.write("\x1a")
	b.contains("Stopped")
	b.write("fg\n")
	b.until("the job is in the foreground again", func() bool { return b.foreground() == inner })
	b.write("\x03")
	b.until("the shell is in the foreground", func() bool { return b.foreground() == shell })
}

// stop stops a process that does nothing, and returns when it has been stopped:
// it may have been resumed since.
func (b *box) stop(pid int) {
	before := switches(pid)
	b.must(syscall.Kill(pid, syscall.SIGSTOP))
	b.until("the command was stopped", func() bool { return state(pid) == 'T' || switches(pid) != before })
}

// switches is how often a process has got and lost the processor.
func switches(pid int) string {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return ""
	}
	_, counts, _ := strings.Cut(string(status), "voluntary_ctxt_switches:")
	return counts
}
