package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// roleArg as the first argument makes a program play the role that the second
// one names.
const roleArg = "__pid1check"

// self is where the program finds itself in a box.
const self = "/run/pid1check"

// scratch is a directory of a box that every uid may write to.
const scratch = "/run/scratch"

// The outer process reports on one descriptor, and reads what to do from the
// other.
const (
	controlFD = 3
	specFD    = 4
)

// forgetIgnored catches what was ignored when the program was started, under nohup(1) or
// in the background of a script: execve(2) hands on what is ignored, and not what is caught.
func forgetIgnored() {
	caught := make(chan os.Signal, 1) // and never read
	for sig := syscall.Signal(1); sig < 32; sig++ {
		if signal.Ignored(sig) {
			signal.Notify(caught, sig)
		}
	}
}

// Role plays a role in a box and never returns, if the program was started for
// that; else it sees to it that what is started here ignores no signal.
func Role() {
	if len(os.Args) < 3 || os.Args[1] != roleArg {
		forgetIgnored()
		return
	}
	var err error
	switch role := os.Args[2]; role {
	case "outer":
		err = outer()
	case "record":
		err = record()
	case "count":
		err = count()
	case "family":
		err = family()
	case "member":
		err = member()
	default:
		err = fmt.Errorf("no role %q", role)
	}
	fmt.Fprintln(os.Stderr, "pid1check:", err)
	os.Exit(99)
}

// outerSpec is what the first process of a box does.
type outerSpec struct {
	Mode       Mode
	Argv       []string
	Env        [][]byte
	Terminal   bool
	Background bool             // Below: leave the terminal's foreground to the outer process
	Block      []syscall.Signal // in the init
}

// outer makes the box's mounts. Then it becomes the init, or starts it as its
// child, reaps what comes, and reports what the init leaves behind.
func outer() error {
	var s outerSpec
	text := os.NewFile(specFD, "spec")
	if err := json.NewDecoder(text).Decode(&s); err != nil {
		return err
	}
	text.Close()
	runtime.LockOSThread() // the signal mask is a thread's
	control := os.NewFile(controlFD, "control")
	// Of ours, and of whoever started the program that we are of.
	if err := unix.CloseRange(3, 1<<32-1, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return err
	}
	if err := furnish(); err != nil {
		return err
	}
	env := make([]string, len(s.Env))
	for i, v := range s.Env {
		env[i] = string(v)
	}
	var set unix.Sigset_t
	for _, sig := range s.Block {
		set.Val[(sig-1)/64] |= 1 << ((sig - 1) % 64)
	}
	path, err := find(s.Argv[0])
	if err != nil {
		return err
	}
	if s.Mode == PID1 {
		if err := unix.PthreadSigmask(unix.SIG_BLOCK, &set, nil); err != nil {
			return err
		}
		return syscall.Exec(path, s.Argv, env)
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTTOU)
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	attr := &syscall.ProcAttr{Env: env, Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setpgid: true}}
	if s.Terminal && !s.Background {
		attr.Sys.Foreground, attr.Sys.Ctty = true, 1
	}
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &set, nil); err != nil {
		return err
	}
	pid, err := syscall.ForkExec(path, s.Argv, attr)
	if err != nil {
		return err
	}
	fmt.Fprintln(control, "init", pid)
	go func() { // as any init does
		for range hangup {
			_ = syscall.Kill(pid, syscall.SIGHUP)
		}
	}()
	for {
		var w syscall.WaitStatus
		got, err := syscall.Wait4(-1, &w, 0, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		if got != pid {
			continue
		}
		fmt.Fprintln(control, "left", left())
		if s.Terminal {
			pgrp, err := unix.IoctlGetInt(1, unix.TIOCGPGRP)
			fmt.Fprintln(control, "foreground", err == nil && pgrp == pid)
		}
		if w.Signaled() {
			os.Exit(128 + int(w.Signal()))
		}
		os.Exit(w.ExitStatus())
	}
}

// furnish gives the box its own /proc, and directories of its own where the
// init may write.
func furnish() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	exe, err := os.Readlink("/proc/self/exe") // before /proc is another
	if err != nil {
		return err
	}
	for _, m := range []struct{ kind, target string }{{"proc", "/proc"}, {"tmpfs", "/run"}, {"tmpfs", "/var/log"}, {"tmpfs", "/dev/shm"}} {
		if err := unix.Mount(m.kind, m.target, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	if err := os.WriteFile(self, nil, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(exe, self, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s: %w", self, err)
	}
	if err := os.Mkdir(scratch, 0o777); err != nil {
		return err
	}
	return os.Chmod(scratch, 0o777)
}

func find(name string) (string, error) {
	for _, dir := range []string{"", "/usr/local/bin/", "/usr/bin/", "/bin/", "/usr/sbin/"} {
		if st, err := os.Stat(dir + name); err == nil && st.Mode().IsRegular() {
			return dir + name, nil
		}
	}
	return "", fmt.Errorf("no %s", name)
}

// left counts the processes of the namespace besides this one.
func left() int {
	n := 0
	for _, p := range processes() {
		if p.pid != os.Getpid() && p.state != 'Z' && p.state != 'X' {
			n++
		}
	}
	return n
}

// record prints the signals that it gets, one to a line, until USR2.
func record() error {
	got := make(chan os.Signal, 10000)
	list := []os.Signal{syscall.SIGCHLD} // it has no children
	for n := syscall.Signal(1); n <= 64; n++ {
		if n != syscall.SIGURG { // the Go runtime sends itself those
			list = append(list, n)
		}
	}
	signal.Notify(got, list...)
	fmt.Println("ready")
	for sig := range got {
		fmt.Println(int(sig.(syscall.Signal)))
		if sig == syscall.SIGUSR2 {
			os.Exit(7)
		}
	}
	return nil
}

// count makes the number of orphans that the argument says, in batches, and
// ends with 42 once all have been born.
func count() error {
	total, err := strconv.Atoi(os.Args[3])
	if err != nil {
		return err
	}
	signal.Ignore(syscall.SIGUSR1)
	fmt.Println("ready")
	const batch = 50
	script := `i=0; while [ $i -lt 50 ]; do (sleep 0.0$i; exit $i) & i=$((i+1)); done`
	for range total / batch {
		pid, err := syscall.ForkExec("/bin/sh", []string{"sh", "-c", script}, &syscall.ProcAttr{Files: []uintptr{0, 1, 2}})
		if err != nil {
			return err
		}
		var w syscall.WaitStatus
		for {
			if _, err = syscall.Wait4(pid, &w, 0, nil); !errors.Is(err, syscall.EINTR) {
				break
			}
		}
		if err != nil {
			return err
		}
	}
	fmt.Println("born")
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGUSR2)
	<-stop
	os.Exit(42)
	return nil
}

const (
	familyEnd = syscall.Signal(41) // to the parent
	memberEnd = syscall.Signal(40) // from it to the child: higher than what is under test, so that it comes last
)

// family is a process and its child, in one group, which say what they get.
func family() error {
	got := make(chan os.Signal, 100)
	signal.Notify(got)
	child, err := syscall.ForkExec(self, []string{self, roleArg, "member"}, &syscall.ProcAttr{Files: []uintptr{0, 1, 2}})
	if err != nil {
		return err
	}
	for sig := range got {
		switch sig {
		case syscall.SIGURG, syscall.SIGCHLD:
		case familyEnd:
			if err := syscall.Kill(child, memberEnd); err != nil {
				return err
			}
			for {
				if _, err := syscall.Wait4(child, nil, 0, nil); !errors.Is(err, syscall.EINTR) {
					break
				}
			}
			fmt.Println("end")
			os.Exit(0)
		default:
			fmt.Println("parent " + nameOf(sig))
		}
	}
	return nil
}

func member() error {
	got := make(chan os.Signal, 100)
	signal.Notify(got)
	fmt.Println("ready")
	for sig := range got {
		switch sig {
		case syscall.SIGURG, familyEnd:
		case memberEnd:
			os.Exit(0)
		default:
			fmt.Println("child " + nameOf(sig))
		}
	}
	return nil
}

func nameOf(sig os.Signal) string {
	for name, s := range signals {
		if s == sig {
			return name
		}
	}
	return sig.String()
}
