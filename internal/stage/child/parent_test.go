package child

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/creack/pty"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/stage"
)

// TestMain is the stage, too, and the parent of a program on a terminal, for what is started as Self.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == stage.Name || os.Args[1] == stage.ParentName) {
		var err error
		if os.Args[1] == stage.Name {
			err = Run()
		} else {
			err = Parent(os.Args[7:], os.Args[3], os.Args[5])
		}
		if silent, is := errors.AsType[fault.Status](err); is {
			os.Exit(int(silent))
		}
		os.Exit(fault.Report(os.Stderr, err))
	}
	os.Exit(m.Run())
}

// below starts a command with a parent of its own, and one without.
func below(target string, argv ...string) (with, without *exec.Cmd) {
	all := stage.WithParent(argv, target)
	return exec.Command(all[0], all[1:]...), exec.Command(argv[0], argv[1:]...)
}

// TestParentStatus: who waits for the parent sees how the program has ended.
func TestParentStatus(t *testing.T) {
	ends := []string{"exit 0", "exit 1", "exit 77", "exit 126", "exit 127", "exit 143", "exit 255"}
	for n := 1; n <= 64; n++ {
		switch sig := syscall.Signal(n); sig {
		case syscall.SIGCHLD, syscall.SIGCONT, syscall.SIGURG, syscall.SIGWINCH: // end nobody
		case syscall.SIGSTOP, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU:
		case 32, 33: // libc's own
		default:
			ends = append(ends, fmt.Sprintf("kill -%d $$", n))
		}
	}
	for _, end := range ends {
		with, without := below("auto", "sh", "-c", end)
		_ = with.Run()
		_ = without.Run()
		got, want := with.ProcessState.Sys().(syscall.WaitStatus), without.ProcessState.Sys().(syscall.WaitStatus)
		if got != want {
			t.Errorf("%s: ended with %#x, want %#x", end, got, want)
		}
	}
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("echo \"$@\"; exit 9\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		argv   []string
		code   int
		stdout string
	}{
		{[]string{"/nonexistent/program"}, 127, ""}, {[]string{"no-such-program"}, 127, ""}, {[]string{"/etc/passwd"}, 126, ""}, {[]string{"/"}, 126, ""},
		{[]string{script, "a script", "without #!"}, 9, "a script without #!\n"},
	} {
		with, _ := below("auto", c.argv...)
		out, _ := with.Output()
		if code := with.ProcessState.ExitCode(); code != c.code || string(out) != c.stdout {
			t.Errorf("%q: exit %d, printed %q", c.argv, code, out)
		}
	}
}

// TestParentSignals: each signal reaches the program once, and its group as --signal-target says.
func TestParentSignals(t *testing.T) {
	const script = `sh -c "trap 'echo member usr1' USR1; trap 'echo member term' TERM; trap over=1 USR2; echo ready; until [ \"\$over\" ]; do sleep 0.02; done" &
		trap 'echo program usr1' USR1; trap 'echo program term; kill -USR2 $!; wait $!; exit 3' TERM; echo ready; while :; do sleep 0.02; done`
	for target, want := range map[string][]string{
		"auto":  {"member term", "program term", "program usr1"},
		"group": {"member term", "member usr1", "program term", "program usr1"},
		"child": {"program term", "program usr1"},
	} {
		cmd, _ := below(target, "sh", "-c", script)
		lines := started(t, cmd)
		expect := func(line string) (before []string) {
			for lines.Scan() {
				if lines.Text() == line {
					return before
				}
				before = append(before, lines.Text())
			}
			t.Fatalf("%s: printed %q, and no %q", target, before, line)
			return nil
		}
		send := func(sig syscall.Signal) {
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
		}
		expect("ready")
		expect("ready")
		send(syscall.SIGUSR1)
		got := append(expect("program usr1"), "program usr1")
		send(syscall.SIGTERM)
		for lines.Scan() {
			got = append(got, lines.Text())
		}
		_ = cmd.Wait()
		slices.Sort(got)
		if code := cmd.ProcessState.ExitCode(); !slices.Equal(got, want) || code != 3 {
			t.Errorf("%s: got %q, want %q; exit %d", target, got, want, code)
		}
	}
}

// started starts cmd, and reads what it prints.
func started(t *testing.T, cmd *exec.Cmd) *bufio.Scanner {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	return bufio.NewScanner(out)
}

// TestParentKilled: the program does not outlive its parent.
func TestParentKilled(t *testing.T) {
	cmd, _ := below("auto", "sh", "-c", "trap '' HUP TERM; echo ready; exec sleep 1000000")
	lines := started(t, cmd)
	if !lines.Scan() || lines.Text() != "ready" {
		t.Fatalf("printed %q", lines.Text())
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if lines.Scan() { // until nobody has the pipe
		t.Errorf("printed %q", lines.Text())
	}
	_ = cmd.Wait()
}

// TestParentResumes: what stops goes on, also if a member of the group stops after all else was resumed; and a TSTP to the
// group stops it, which the kernel would discard if the parent were not in its session.
func TestParentResumes(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, script := range map[string]string{
		"itself":        `kill -STOP $$; exit 5`,
		"its group":     `trap back=1 CONT; kill -TSTP 0; until [ "$back" ]; do sleep 0.02; done; exit 5`,
		"a late member": `sh -c 'read -r line <"$0"; kill -STOP $$' "$0" & kill -STOP $$; echo go >"$0"; wait; exit 5`,
	} {
		t.Run(name, func(t *testing.T) {
			cmd, _ := below("auto", "sh", "-c", script, fifo)
			tty, err := pty.Start(cmd)
			if err != nil {
				t.Fatal(err)
			}
			defer tty.Close()
			printed, _ := io.ReadAll(tty) // EIO, when all have closed the far side
			_ = cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); code != 5 {
				t.Errorf("exit %d, printed %q", code, printed)
			}
		})
	}
}
