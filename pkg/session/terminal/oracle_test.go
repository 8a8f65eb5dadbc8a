package terminal

import (
	"encoding/base64"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/mustrun"
)

// Real terminals as judges of what the filter lets through: tmux always, and xterm in an
// X server of its own (Xvfb) with "make oracle", which tries a million.
var (
	mutations = flag.Int("mutations", 3000, "sequences that real terminals are given")
	withXterm = flag.Bool("xterm", false, "ask xterm too")
)

const secret = "MY-SECRET-CLIPBOARD"

// leaked is how much has come out of the clipboard, in what a terminal typed.
func leaked(typed []byte) int {
	b64 := base64.StdEncoding.EncodeToString([]byte(secret))
	return strings.Count(string(typed), b64)*len(secret) + strings.Count(string(typed), secret)*len(secret)
}

// judgeScript is run on the terminal: it gives it a file, and keeps what it types. The
// answers to two questions are the end: xterm gets the clipboard from another program,
// and may answer later than it was asked.
const judgeScript = `stty raw -echo; exec 3<&0; cat <&3 >%[1]s/typed & cat %[1]s/bytes; printf '\033[6n'; sleep %[2]d; printf '\033[6n'; sleep 1000`

// inTmux gives bytes to a pane of tmux that has a secret in its clipboard, and returns
// what the pane typed.
func inTmux(t *testing.T, data []byte) []byte {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, data)
	run := func(args ...string) {
		cmd := exec.Command(mustrun.Tool(t, "tmux"), append([]string{"-S", filepath.Join(dir, "socket"), "-f", "/dev/null"}, args...)...)
		cmd.Env = []string{"LC_ALL=C.UTF-8", "TERM=xterm-256color", "PATH=" + os.Getenv("PATH"), "SHELL=/bin/sh"}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("tmux %q: %v: %s", args, err, out)
		}
	}
	run("new-session", "-d", "-x", "80", "-y", "24", "while [ ! -e "+dir+"/go ]; do sleep 0.05; done; "+fmt.Sprintf(judgeScript, dir, 0))
	defer run("kill-server")
	run("set", "-s", "set-clipboard", "on")
	run("set", "-g", "allow-passthrough", "on")
	run("set-buffer", secret)
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return typed(t, dir)
}

// inXterm does the same with an xterm that allows all that it can, in UTF-8.
func inXterm(t *testing.T, data []byte) []byte {
	t.Helper()
	dir := t.TempDir()
	write(t, dir, data)
	display := fmt.Sprintf(":%d", 200+os.Getpid()%20000)
	env := append(os.Environ(), "DISPLAY="+display, "LC_ALL=C.UTF-8", "XAUTHORITY="+dir+"/none")
	start := func(name string, args ...string) *exec.Cmd {
		cmd := exec.Command(mustrun.Tool(t, name), args...)
		cmd.Env = env
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		return cmd
	}
	start("Xvfb", display, "-screen", "0", "800x600x24", "-nolisten", "tcp")
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat("/tmp/.X11-unix/X" + display[1:]); err == nil {
			break
		} else if time.Now().After(deadline) {
			t.Fatal("Xvfb does not start")
		}
	}
	for _, selection := range []string{"primary", "clipboard"} {
		cmd := exec.Command(mustrun.Tool(t, "xclip"), "-selection", selection)
		cmd.Env, cmd.Stdin = env, strings.NewReader(secret)
		if err := cmd.Run(); err != nil { // it stays behind, until the server ends
			t.Fatalf("xclip: %v", err)
		}
	}
	start("xterm", "-u8", "-xrm", "XTerm*allowWindowOps: true", "-xrm", "XTerm*disallowedWindowOps:", "-xrm", "XTerm*allowFontOps: true",
		"-xrm", "XTerm*allowTitleOps: true", "-xrm", "XTerm*allowTcapOps: true", "-xrm", "XTerm*allowC1Printable: false", "-e", "sh", "-c", fmt.Sprintf(judgeScript, dir, 3))
	return typed(t, dir)
}

func write(t *testing.T, dir string, data []byte) {
	t.Helper()
	for name, b := range map[string][]byte{"bytes": data, "typed": nil} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

var cursorIs = regexp.MustCompile(`(?:\x1b\[|\x9b)[0-9;]*R`)

// typed waits for the answers to both questions, or for a part of the clipboard.
func typed(t *testing.T, dir string) []byte {
	t.Helper()
	for deadline := time.Now().Add(time.Minute + time.Duration(*mutations)*time.Millisecond); ; time.Sleep(20 * time.Millisecond) {
		b, err := os.ReadFile(filepath.Join(dir, "typed"))
		if err == nil && (leaked(b) > 0 || len(cursorIs.FindAll(b, 3)) >= 2) {
			return b
		}
		if time.Now().After(deadline) {
			t.Fatalf("the terminal does not come to the end of the bytes; it typed %.200q", b)
		}
	}
}

// mutate makes something near to a question for the clipboard.
func mutate(r *rand.Rand) []byte {
	seeds := []string{"\x1b]52;c;?\x07", "\x1b]52;p;?\x1b\\", "\x1b]52;;?\x07", "\x1b]4294967348;c;?\x07", "\x1b\x07]52;c;?\x07", "\xc2\x9d52;c;?\xc2\x9c", "\x9d52;c;?\x9c",
		"\x1bPtmux;\x1b\x1b]52;c;?\x07\x1b\\", "\x1bP\x1b]52;c;?\x07\x1b\\", "\x1b%@\x9d52;c;?\x9c\x1b%G", "\x1b]0;\x1b]52;c;?\x07", "\x1bk\x1b]52;c;?\x07", "\x1b[\x1b]52;c;?\x07",
		"\x1b_\x1b]52;c;?\x07", "\x1bPq~\x1b]52;c;?\x07", "\x1b]00052;c;?\x07", "\x1b]5\x002;c;?\x07", "\xc3\x1b]52;c;?\x07", "\x1b]52;c\x1b\\;?\x07"}
	parts := []string{"\x00", "\x05", "\x07", "\n", "\x0e", "\x18", "\x1a", "\x1b", "\x1b\x1b", "\x1b\\", "\x7f", "\x84", "\x90", "\x9b", "\x9c", "\x9d", "\xc2", "\xc2\x9d", "\xc3", "\xe2\x82", "\xf0",
		"0", "5", "2", "52", ";", "c", "?", "]", "P", "_", "^", "X", "k", "[", "%@", "%G", " G", " F", "?2l", "q", "$q", "+q", "tmux;", "\x1bPtmux;", "\x1b]", "\x1b]52;c;?", "4294967296", "18446744073709551668", "é", "ü\x9d"}
	b := []byte(seeds[r.IntN(len(seeds))])
	for range 1 + r.IntN(4) {
		at := r.IntN(len(b) + 1)
		switch part := parts[r.IntN(len(parts))]; r.IntN(4) {
		case 0, 1:
			b = slices.Concat(b[:at], []byte(part), b[at:])
		case 2:
			b = slices.Concat(b[:at], []byte(part), b[min(at+1, len(b)):])
		case 3:
			b = slices.Concat(b[:at], b[min(at+1+r.IntN(2), len(b)):])
		}
	}
	return b
}

// TestPeerOracle counts how much of a clipboard real terminals give to who prints mutations of
// the question for it: as they are some, so that the judges are awake, and filtered nothing.
func TestPeerOracle(t *testing.T) {
	r := rand.New(rand.NewPCG(3000, 52)) // the first 3000 are also what the judges are tried with
	var raw, filtered []byte
	for i := range *mutations {
		b := mutate(r)
		if i < 3000 {
			raw = append(append(raw, b...), "\x18\x1b\\\x1b%G\x1b[m\r"...)
		}
		f := all
		filtered = f.Close(f.Write(filtered, b))
	}
	whole := all // and as one stream
	filtered = whole.Close(whole.Write(filtered, raw))
	filtered = append(filtered, '\r')
	judges := map[string]func(*testing.T, []byte) []byte{"tmux": inTmux}
	if *withXterm {
		judges["xterm"] = inXterm
	}
	for name, judge := range judges {
		t.Run(name, func(t *testing.T) {
			if n := leaked(judge(t, raw)); n == 0 {
				t.Error("without the filter it gives nothing: this proves nothing")
			} else {
				t.Logf("without the filter, %d bytes of the clipboard and more", n)
			}
			begun := time.Now()
			n := leaked(judge(t, filtered))
			t.Logf("filtered, %d bytes of the clipboard by %d mutations (%d bytes) in %v", n, *mutations, len(filtered), time.Since(begun).Round(time.Second))
			if n > 0 {
				t.Errorf("%d bytes of the clipboard came", n)
			}
		})
	}
}
