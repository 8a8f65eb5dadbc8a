package reaper

import (
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/mustrun"
)

// terminal opens a pseudo-terminal whose output is read.
func terminal(t *testing.T) (master, slave *os.File, out *lines) {
	t.Helper()
	mustrun.Root(t)
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close(); slave.Close() })
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer w.Close()
		_, _ = io.Copy(w, master)
	}()
	return master, slave, readLines(r)
}

// With a terminal, the child's group is in the foreground and ^C reaches it,
// once.
func TestKernelTerminal(t *testing.T) {
	for _, k := range kinds {
		t.Run(string(k), func(t *testing.T) {
			master, slave, out := terminal(t)
			b := start(t, boxOptions{kind: k, stdin: slave}, initSpec{Role: "record", Foreground: true})
			out.until(t, "ready")
			pgrp, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPGRP)
			if err != nil {
				t.Fatal(err)
			}
			if pgrp == b.cmd.Process.Pid {
				t.Error("the init itself is in the foreground")
			}
			if _, err := master.Write([]byte{3}); err != nil {
				t.Fatal(err)
			}
			out.until(t, "^C2")
			b.signal(syscall.SIGUSR2)
			if got := out.until(t, "12"); len(got) != 1 {
				t.Errorf("the child got %q after ^C", got)
			}
			if got := b.exit(); got != 7 {
				t.Errorf("exit %d", got)
			}
		})
	}
}

// ^Z with no shell above must not wedge the session, nor a terminal that
// stops background writers the init.
func TestKernelTerminalSuspend(t *testing.T) {
	for _, k := range kinds {
		master, slave, out := terminal(t)
		b := start(t, boxOptions{kind: k, stdin: slave}, initSpec{Foreground: true, Argv: sh(
			`stty tostop; echo ready; exec cat`)})
		out.until(t, "ready")
		if _, err := master.Write([]byte{26}); err != nil {
			t.Fatal(err)
		}
		b.err.until(t, `time=`) // it says that it resumes
		if _, err := master.Write([]byte{3}); err != nil {
			t.Fatal(err)
		}
		if got := b.exit(); got != 130 {
			t.Errorf("%s: exit %d", k, got)
		}
	}
}

// Under a shell with job control, ^Z gives the shell its prompt, and fg
// resumes the agent in the foreground.
func TestKernelSuspendUnderAShell(t *testing.T) {
	master, slave, out := terminal(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// It starts no processes: a ^Z that hits one between vfork and exec leaves
	// its parent waiting in the kernel, not stopped.
	text, err := json.Marshal(initSpec{Foreground: true, Argv: sh(
		`trap 'echo agent int; exit 12' INT; echo agent ready; while :; do read -r _; done`)})
	if err != nil {
		t.Fatal(err)
	}
	shell := exec.Command("/bin/bash", "--norc", "--noprofile", "-i")
	shell.Env = append(os.Environ(), roleVariable+"=init", "REAPER_TEST_SPEC="+string(text), "PS1=", "TERM=dumb")
	shell.Stdin, shell.Stdout, shell.Stderr = slave, slave, slave
	shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = shell.Process.Kill(); _ = shell.Wait() })
	write := func(text string) {
		t.Helper()
		if _, err := master.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	contains := func(text string) {
		t.Helper()
		for {
			if got := out.until(t, ""); strings.Contains(got[0], text) {
				return
			}
		}
	}
	write("stty -echo\n" + exe + "\n")
	contains("agent ready")
	foreground := func() int {
		t.Helper()
		pgrp, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPGRP)
		if err != nil || t.Context().Err() != nil {
			t.Fatal(err)
		}
		return pgrp
	}
	agent := foreground()
	write("\x1a")
	contains("Stopped")
	write("fg\n")
	for foreground() != agent {
		time.Sleep(time.Millisecond)
	}
	write("\x03")
	contains("agent int")
	write("echo code $?\n")
	contains("code 12")
}
