package container

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// screens is a tmux server: what is run in its panes is looked at as a person would, on a terminal that isn't agent-init's.
type screens struct {
	*testing.T
	dir   string
	panes int
}

// patience is how long a screen is waited for. Some agents take their time, and the machine may be busy.
const patience = 10 * time.Minute

func newScreens(t *testing.T) *screens {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Fatalf("%v: see test/prepare.sh", err)
	}
	s := &screens{T: t, dir: t.TempDir()}
	t.Cleanup(func() {
		if t.Failed() {
			for n := range s.panes {
				t.Logf("pane %d:\n%s", n, s.screen(n))
			}
		}
		_ = exec.Command("tmux", s.args("kill-server")...).Run()
	})
	return s
}

func (s *screens) args(args ...string) []string {
	return append([]string{"-u", "-S", filepath.Join(s.dir, "tmux"), "-f", "/dev/null"}, args...)
}

func (s *screens) tmux(args ...string) string {
	s.Helper()
	cmd := exec.Command("tmux", s.args(args...)...)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/", "LANG=C.UTF-8", "TERM=xterm-256color",
		"DOCKER_HOST=" + os.Getenv("DOCKER_HOST")}
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.Fatalf("tmux %q: %v: %s", args, err, out)
	}
	return string(out)
}

func pane(n int) string { return "p" + strconv.Itoa(n) }

// docker runs the engine's client in a pane of its own, of a size, and returns its number. How it ended is shown below its output.
func (s *screens) docker(cols, rows int, args ...string) int {
	s.Helper()
	n := s.panes
	s.panes++
	script := filepath.Join(s.dir, "script"+pane(n))
	text := "#!/bin/sh\ndocker"
	for _, a := range args {
		text += " '" + strings.ReplaceAll(a, "'", `'\''`) + "'"
	}
	if err := os.WriteFile(script, []byte(text+"\necho \"[exit $?]\"\nexec sleep 1000000\n"), 0o755); err != nil {
		s.Fatal(err)
	}
	s.tmux("new-session", "-d", "-s", pane(n), "-x", strconv.Itoa(cols), "-y", strconv.Itoa(rows), script)
	s.tmux("set-option", "-t", pane(n), "status", "off")
	return n
}

func (s *screens) screen(n int) string {
	out, err := exec.Command("tmux", s.args("capture-pane", "-p", "-t", pane(n))...).CombinedOutput()
	if err != nil {
		return err.Error()
	}
	return strings.TrimRight(string(out), "\n ")
}

func (s *screens) keys(n int, keys ...string) {
	s.Helper()
	s.tmux(append([]string{"send-keys", "-t", pane(n)}, keys...)...)
}

// types a text without Enter.
func (s *screens) types(n int, text string) {
	s.Helper()
	s.tmux("send-keys", "-t", pane(n), "-l", text)
}

func (s *screens) resize(n, cols, rows int) {
	s.Helper()
	s.tmux("resize-window", "-t", pane(n), "-x", strconv.Itoa(cols), "-y", strconv.Itoa(rows))
}

// shows waits until a pane shows a text.
func (s *screens) shows(n int, text string) {
	s.Helper()
	ended := false
	s.eventually(fmt.Sprintf("pane %d does not show %q", n, text), func() bool {
		screen := s.screen(n)
		ended = strings.Contains(screen, "[exit ")
		return ended || strings.Contains(screen, text)
	})
	if ended && !strings.Contains(s.screen(n), text) {
		s.Fatalf("pane %d has ended, and does not show %q", n, text)
	}
}

// answers waits for a text, and presses a key until it has gone: some draw before they read.
func (s *screens) answers(n int, text, key string) {
	s.Helper()
	s.shows(n, text)
	// A program that has drawn its question may still ask the terminal, and lose the keys that come before the answer.
	last, still := "", time.Now()
	s.eventually(fmt.Sprintf("pane %d is still for no time", n), func() bool {
		if now := s.screen(n); now != last {
			last, still = now, time.Now()
		}
		return time.Since(still) > 3*time.Second
	})
	s.presses(n, key, fmt.Sprintf("pane %d still shows %q", n, text), func(screen string) bool { return !strings.Contains(screen, text) })
}

// enters types a line, and presses Enter until a text is shown: some take an Enter that they read in one moment with the
// line for a new line of what was pasted.
func (s *screens) enters(n int, line, text string) {
	s.Helper()
	s.types(n, line)
	s.shows(n, line)
	s.presses(n, "Enter", fmt.Sprintf("pane %d does not show %q", n, text), func(screen string) bool { return strings.Contains(screen, text) })
}

// presses presses a key until what is shown is what is wanted: now, and every 20 s.
func (s *screens) presses(n int, key, failure string, wanted func(screen string) bool) {
	s.Helper()
	pressed := time.Time{}
	s.eventually(failure, func() bool {
		if wanted(s.screen(n)) {
			return true
		}
		if time.Since(pressed) > 20*time.Second {
			s.Logf("pane %d: %s", n, key)
			s.keys(n, key)
			pressed = time.Now()
		}
		return false
	})
}

func (s *screens) hides(n int, text string) {
	s.Helper()
	s.eventually(fmt.Sprintf("pane %d still shows %q", n, text), func() bool { return !strings.Contains(s.screen(n), text) })
}

func (s *screens) eventually(what string, ok func() bool) {
	s.Helper()
	if !s.comes(ok) {
		s.Fatal(what)
	}
}

// comes waits for ok, and reports whether it came.
func (s *screens) comes(ok func() bool) bool { return comesWithin(patience, ok) }

func comesWithin(limit time.Duration, ok func() bool) bool {
	for deadline := time.Now().Add(limit); !ok(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}
