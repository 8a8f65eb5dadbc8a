package session

import (
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/creack/pty"
)

// A command that prints a line and ends prints just that on the container's
// terminal, and its exit status is the container's.
func TestLabSessionShortCommand(t *testing.T) {
	for name, size := range map[string]*pty.Winsize{"sized": {Cols: 100, Rows: 30}, "without a size": {}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			cmd := exec.Command("sh", "-c", r.runLine("--quiet --log-level error", `sh -c 'echo hello; exit 43'`))
			cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/", "TERM=xterm-256color"}
			tty, err := pty.StartWithSize(cmd, size)
			must(t, err)
			defer tty.Close()
			out, _ := io.ReadAll(tty) // EIO, when all have closed the far side
			err = cmd.Wait()
			if cmd.ProcessState.ExitCode() != 43 {
				t.Errorf("ended with %v, want 43", err)
			}
			if _, printed, ok := strings.Cut(string(out), "hello\r\n"); !ok || printed != "" {
				t.Errorf("printed %q, want hello alone at the end", out)
			}
			if banner, _, _ := strings.Cut(string(out), "hello"); strings.Contains(banner, "\x1b[H") || strings.Contains(banner, "\x1b[2J") {
				t.Errorf("the screen was cleared: %q", banner)
			}
		})
	}
}
