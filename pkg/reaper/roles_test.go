package reaper

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/privdrop"
	"github.com/agent-init/agent-init/pkg/reaper/early"
)

// The test binary plays the processes under test: it executes itself with a
// role in the environment.
const roleVariable = "REAPER_TEST_ROLE"

func TestMain(m *testing.M) {
	switch role := os.Getenv(roleVariable); role {
	case "":
		early.Release()
		// What is started here is to ignore nothing, also if this was started by
		// nohup(1): execve(2) hands on what is ignored, and not what is caught.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
		os.Exit(m.Run())
	case "init":
		os.Exit(initRole())
	case "record":
		os.Exit(recordRole())
	case "orphans":
		os.Exit(orphansRole())
	case "storm":
		os.Exit(stormRole())
	default:
		fmt.Fprintln(os.Stderr, "no such role:", role)
		os.Exit(99)
	}
}

// initSpec is what the role "init" does.
type initSpec struct {
	Argv       []string // the main child
	Role       string   // the main child is the test binary in this role, and Argv its arguments
	Grace      time.Duration
	Foreground bool
	UID        uint32   // the main child's, by a helper of the test (0: ours)
	Fallback   bool     // with a SignalAs
	Helper     []string // a helper, which has to outlive the tree
	Count      int      // short-lived children, whose statuses are checked
	Forwarded  bool     // report on stderr how main has ended by the time that it was sent a signal
	Left       bool     // report on stderr how many processes are left at the end
}

// initRole is a small init: what cmd/agent-init does with this package.
func initRole() int {
	var spec initSpec
	if err := json.Unmarshal([]byte(os.Getenv("REAPER_TEST_SPEC")), &spec); err != nil {
		return fail(err)
	}
	if os.Getpid() == 1 {
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return fail(err)
		}
		if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
			return fail(err)
		}
	}
	signals := early.Signals() // before anything is started that may be signalled
	as := func([]int, syscall.Signal) error { return syscall.EPERM }
	if spec.Fallback {
		as = privdrop.SignalAs
	}
	r, err := New(slog.New(slog.NewTextHandler(os.Stderr, nil)), as)
	if err != nil {
		return fail(err)
	}
	for i := range spec.Count {
		code := i % 256
		p, err := r.Start(Command{Path: "/bin/sh", Args: []string{"sh", "-c", "exit " + strconv.Itoa(code)}})
		if err != nil {
			return fail(err)
		}
		if got := p.Status().Code(); got != code {
			return fail(fmt.Errorf("child %d: exit %d", i, got))
		}
	}
	stdio := []*os.File{os.Stdin, os.Stdout, os.Stderr}
	var helper *Process
	if len(spec.Helper) > 0 {
		if helper, err = r.Start(Command{Path: spec.Helper[0], Args: spec.Helper, Files: stdio, Helper: true}); err != nil {
			return fail(err)
		}
	}

	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, roleVariable) })
	command := Command{Files: stdio, Env: env, Foreground: spec.Foreground}
	if spec.Role != "" {
		command.Path, command.Args = "/proc/self/exe", append([]string{"test"}, spec.Argv...)
		command.Env = append(command.Env, roleVariable+"="+spec.Role)
	} else {
		command.Path, command.Args = spec.Argv[0], spec.Argv
	}
	if spec.UID != 0 {
		command.Args = append([]string{"setpriv", "--reuid", strconv.Itoa(int(spec.UID)), "--clear-groups", "--", command.Path}, command.Args[1:]...)
		command.Path = "/usr/bin/setpriv"
	}
	main, err := r.Start(command)
	if err != nil {
		return fail(err)
	}
	fmt.Fprintf(os.Stderr, "main %d\n", main.Pid())

	options := Options{Signals: signals, Grace: spec.Grace}
	if spec.Forwarded {
		options.Forwarded = func(sig syscall.Signal) {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
			defer cancel()
			st, err := main.Wait(ctx)
			fmt.Fprintf(os.Stderr, "forwarded %d: %v, %v\n", sig, st, err)
		}
	}
	status := r.Supervise(main, options)
	if spec.Left {
		n := 0
		for _, p := range processes() {
			if p.pid != os.Getpid() && (helper == nil || p.pid != helper.Pid()) && !p.kernel && !p.dead() {
				n++
			}
		}
		fmt.Fprintf(os.Stderr, "left %d\n", n)
	}
	if helper != nil {
		select {
		case <-helper.Done():
			return fail(fmt.Errorf("the helper ended before the tree: %v", helper.Status()))
		default:
			fmt.Fprintln(os.Stderr, "helper alive")
		}
		_ = helper.Signal(syscall.SIGKILL)
		<-helper.Done()
	}
	return status.Code()
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, "FAILED:", err)
	return 99
}

// recordRole prints the signals that it gets, one to a line, until USR2.
func recordRole() int {
	got := make(chan os.Signal, 10000)
	list := []os.Signal{}
	for n := syscall.Signal(1); n <= 64; n++ {
		if n != syscall.SIGURG && n != syscall.SIGCHLD {
			list = append(list, n)
		}
	}
	signal.Notify(got, list...)
	fmt.Println("ready")
	for sig := range got {
		fmt.Println(int(sig.(syscall.Signal)))
		if sig == syscall.SIGUSR2 {
			return 7
		}
	}
	return 1
}

// stormRole counts down USR1 until a TERM comes.
func stormRole() int {
	got := make(chan os.Signal, 10000)
	signal.Notify(got, syscall.SIGUSR1, syscall.SIGTERM)
	fmt.Println("ready")
	for sig := range got {
		if sig == syscall.SIGTERM {
			return 33
		}
	}
	return 1
}

// orphansRole makes processes that outlive their parents, and ends when they
// all have been born.
func orphansRole() int {
	total, err := strconv.Atoi(os.Args[1])
	if err != nil {
		return fail(err)
	}
	signal.Ignore(syscall.SIGUSR1)
	fmt.Println("ready")
	// Each shell leaves 50 behind, which end by themselves at various times.
	script := `i=0; while [ $i -lt 50 ]; do sleep 0.0$i & i=$((i+1)); done`
	var children []int
	for range total / 50 {
		pid, err := syscall.ForkExec("/bin/sh", []string{"sh", "-c", script}, &syscall.ProcAttr{Files: []uintptr{0, 1, 2}})
		if err != nil {
			return fail(err)
		}
		children = append(children, pid)
		if len(children) == 8 {
			if err := waitAll(children); err != nil {
				return fail(err)
			}
			children = nil
		}
	}
	if err := waitAll(children); err != nil {
		return fail(err)
	}
	return 42
}

func waitAll(pids []int) error {
	for _, pid := range pids {
		var w syscall.WaitStatus
		for {
			_, err := syscall.Wait4(pid, &w, 0, nil)
			if err == syscall.EINTR {
				continue
			}
			if err != nil {
				return err
			}
			break
		}
	}
	return nil
}

// lines reads a process's output in the background.
type lines struct {
	c chan string
}

func readLines(f *os.File) *lines {
	l := &lines{c: make(chan string, 100000)}
	go func() {
		defer close(l.c)
		s := bufio.NewScanner(f)
		for s.Scan() {
			l.c <- s.Text()
		}
	}()
	return l
}

// until returns the lines up to the first that starts with prefix, that
// included.
func (l *lines) until(t *testing.T, prefix string) []string {
	t.Helper()
	var got []string
	timeout := time.After(10 * time.Minute)
	for {
		select {
		case line, ok := <-l.c:
			if !ok {
				t.Fatalf("no line %q, but %q", prefix, got)
			}
			got = append(got, line)
			if strings.HasPrefix(line, prefix) {
				return got
			}
		case <-timeout:
			t.Fatalf("no line %q within 30 s, but %q", prefix, got)
		}
	}
}
