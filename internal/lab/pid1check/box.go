package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// options say what a box is like. The zero value has /dev/null as standard
// input, pipes as output, and a clean environment.
type options struct {
	flags      Flags
	wrap       []string // starts the init: it is appended
	env        []string
	stdin      io.Reader
	terminal   bool
	redirected bool // with a terminal, but not as standard input
	background bool
	block      []syscall.Signal
	drop       bool // the command shall have another uid
	shell      bool // Below: the init is started by hand in an interactive shell
}

// box is a PID namespace in which the init runs a command.
type box struct {
	*trial
	cmd     *exec.Cmd
	init    int // its pid, as seen from here
	out     *lines
	err     *lines
	control *lines
	master  *os.File // the terminal's other end
	tty     int      // its descriptor: Fd would make reading it a thing that closing does not end
	argv    []string
	exited  chan struct{}
}

func (t *trial) start(o options, command ...string) *box {
	argv := t.subject.Argv(t.mode, o.flags)
	if argv == nil {
		t.must(ErrNotOffered)
	}
	if o.drop {
		argv = append(argv, t.subject.Drop...)
	}
	argv = append(append(append([]string{}, o.wrap...), argv...), command...)
	b := &box{trial: t, argv: argv, exited: make(chan struct{})}
	spec := outerSpec{Mode: t.mode, Argv: argv, Terminal: o.terminal, Background: o.background, Block: o.block}
	if o.shell {
		spec.Argv = []string{"bash", "--norc", "--noprofile", "--noediting", "-i"}
		o.env = append(o.env, "PS1=", "TERM=dumb")
	}
	for _, v := range append([]string{"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "NO_COLOR=1"}, o.env...) {
		spec.Env = append(spec.Env, []byte(v))
	}
	exe, err := os.Executable()
	t.must(err)
	b.cmd = exec.Command(exe, roleArg, "outer")
	b.cmd.Env = []string{}
	b.cmd.Stdin = o.stdin
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC}
	var theirs []*os.File
	pipe := func() (*os.File, *lines) {
		r, w, err := os.Pipe()
		t.must(err)
		theirs = append(theirs, w)
		t.cleanup(func() { r.Close() })
		return w, readLines(r)
	}
	var stdout, stderr, control *os.File
	stderr, b.err = pipe()
	control, b.control = pipe()
	if o.terminal {
		master, slave, err := pty.Open()
		t.must(err)
		theirs = append(theirs, slave, master)
		b.tty, err = unix.FcntlInt(master.Fd(), unix.F_DUPFD_CLOEXEC, 3)
		t.must(err)
		t.must(unix.SetNonblock(b.tty, true))
		b.master = os.NewFile(uintptr(b.tty), "terminal")
		t.cleanup(func() { b.master.Close() })
		b.out, stdout, stderr = readLines(b.master), slave, slave
		b.cmd.SysProcAttr.Setctty, b.cmd.SysProcAttr.Ctty = true, 1
		if !o.redirected {
			b.cmd.Stdin = slave
		}
	} else {
		stdout, b.out = pipe()
	}
	text := t.file(spec)
	theirs = append(theirs, text)
	b.cmd.Stdout, b.cmd.Stderr, b.cmd.ExtraFiles = stdout, stderr, []*os.File{control, text}
	err = b.cmd.Start()
	for _, f := range theirs {
		f.Close()
	}
	t.must(err)
	go func() { _ = b.cmd.Wait(); close(b.exited) }()
	t.cleanup(func() { _ = b.cmd.Process.Kill(); <-b.exited })
	b.init = b.cmd.Process.Pid
	if t.mode == Below {
		b.expect(b.control, "init ")
		b.init = 0
		for _, p := range processes() {
			if p.ppid == b.cmd.Process.Pid {
				b.init = p.pid
			}
		}
	} else {
		b.drain(b.control) // until the exec closes it
	}
	return b
}

// file is an open file without a name, with a value in JSON.
func (t *trial) file(value any) *os.File {
	f, err := os.CreateTemp("", "pid1check")
	t.must(err)
	t.must(os.Remove(f.Name()))
	t.must(json.NewEncoder(f).Encode(value))
	_, err = f.Seek(0, io.SeekStart)
	t.must(err)
	return f
}

// sh is a command.
func sh(script string) []string { return []string{"/bin/sh", "-c", script} }

func recorder() []string { return []string{self, roleArg, "record"} }

func (b *box) signal(sig syscall.Signal) { b.must(syscall.Kill(b.init, sig)) }

// command is the pid of the init's child.
func (b *box) command() int {
	for _, p := range processes() {
		if p.ppid == b.init {
			return p.pid
		}
	}
	b.failf("the init has no child")
	return 0
}

// exit waits for the init to end.
func (b *box) exit() int {
	select {
	case <-b.exited:
	case <-time.After(b.subject.Patience):
		b.failf("the init does not end: %s", strings.Join(b.err.now(), "; "))
	}
	w := b.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if w.Signaled() {
		return 128 + int(w.Signal())
	}
	return w.ExitStatus()
}

func (b *box) wantExit(want int) {
	if got := b.exit(); got != want {
		b.failf("exit %d, want %d: %s", got, want, strings.Join(b.err.now(), "; "))
	}
}

// left is how many processes the init has left behind in its namespace.
func (b *box) left() string { return strings.TrimPrefix(b.last(b.control, "left "), "left ") }

func (b *box) last(l *lines, prefix string) string {
	got := b.expect(l, prefix)
	return got[len(got)-1]
}

func (b *box) write(text string) {
	_, err := b.master.WriteString(text)
	b.must(err)
}

// foreground is the terminal's foreground group.
func (b *box) foreground() int {
	pgrp, err := unix.IoctlGetInt(b.tty, unix.TIOCGPGRP)
	b.must(err)
	return pgrp
}

// expect returns the lines up to the first that starts with prefix.
func (b *box) expect(l *lines, prefix string) []string {
	return b.await(l, strconv.Quote(prefix), func(line string) bool { return strings.HasPrefix(line, prefix) })
}

func (b *box) contains(text string) {
	b.await(b.out, text, func(line string) bool { return strings.Contains(line, text) })
}

func (b *box) await(l *lines, what string, ok func(string) bool) []string {
	var got []string
	timeout := time.After(b.subject.Patience)
	for {
		select {
		case line, open := <-l.c:
			if !open {
				b.failf("no line %s, but %q; %s", what, got, strings.Join(b.err.now(), "; "))
			}
			if got = append(got, line); ok(line) {
				return got
			}
		case <-timeout:
			b.failf("no line %s within %v, but %q", what, b.subject.Patience, got)
		}
	}
}

// drain returns all lines up to the end of the output: when the last process
// that holds it is gone.
func (b *box) drain(l *lines) []string {
	var got []string
	timeout := time.After(b.subject.Patience)
	for {
		select {
		case line, open := <-l.c:
			if !open {
				return got
			}
			got = append(got, line)
		case <-timeout:
			b.failf("something holds the output open, after %q", got)
		}
	}
}

// lines reads a process's output in the background.
type lines struct{ c chan string }

func readLines(r io.Reader) *lines {
	l := &lines{c: make(chan string, 100000)}
	go func() {
		defer close(l.c)
		s := bufio.NewScanner(r)
		s.Buffer(nil, 8<<20)
		for s.Scan() {
			l.c <- s.Text()
		}
	}()
	return l
}

// now returns the lines that are there already.
func (l *lines) now() []string {
	var got []string
	for {
		select {
		case line, open := <-l.c:
			if !open {
				return got
			}
			got = append(got, line)
		default:
			return got
		}
	}
}

// process is a line of the process table.
type process struct {
	pid, ppid, pgrp int
	state           byte
}

// processes reads the process table as this process sees it.
func processes() []process {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var all []process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if err != nil || len(f) < 3 {
			continue
		}
		p := process{pid: pid, state: f[0][0]}
		p.ppid, _ = strconv.Atoi(string(f[1]))
		p.pgrp, _ = strconv.Atoi(string(f[2]))
		all = append(all, p)
	}
	return all
}

// state is a process's, or 0.
func state(pid int) byte {
	for _, p := range processes() {
		if p.pid == pid {
			return p.state
		}
	}
	return 0
}
