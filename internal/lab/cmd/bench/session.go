package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

const (
	keystrokes   = 300
	keystrokeGap = 8 * time.Millisecond
	catSize      = 100 << 20
	sessionCols  = 200
	sessionRows  = 50
	lastLine     = "the-very-last-line"
)

// multiplexer gives the command line of a command on a terminal of its own.
type multiplexer func(b *bench, command string) []string

func direct(_ *bench, command string) []string { return []string{"sh", "-c", command} }

// tmux has a server of its own, without a configuration.
func tmux(b *bench, command string) []string {
	server := []string{"tmux", "-L", "agent-init-bench-" + strconv.Itoa(os.Getpid()), "-f", "/dev/null"}
	b.Cleanup(func() { _ = exec.Command(server[0], append(server[1:3:3], "kill-server")...).Run() })
	return append(server, "new-session", command)
}

// container makes a command PID 1 of namespaces of its own, as an engine does,
// without a network: the firewall is not what is measured here.
const container = `mount --make-rprivate / && mount -t proc proc /proc && mount -t tmpfs tmpfs /run && mkdir -p /var/log/agent-init &&
mount -t tmpfs tmpfs /var/log/agent-init && mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts /dev/pts &&
mount --bind /dev/pts/ptmx /dev/ptmx && exec "$@"`

func ownSession(b *bench, command string) []string {
	return []string{"unshare", "-npfm", "--kill-child", "sh", "-c", container, "sh", b.binary, "run", "--unsafe-no-firewall", "--user", "65534:65534",
		"--config", "/run/none", "--session", "always", "--", "sh", "-c", command}
}

// terminal is the near end of one, with what runs on it.
type terminal struct {
	b   *bench
	cmd *exec.Cmd
	fd  int
	buf []byte
}

// plainEnvironment is without the settings of agent-init and of its tests that may be around.
func plainEnvironment() []string {
	return []string{"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "TERM=xterm-256color", "HOME=/", "LANG=C.UTF-8", "TMUX_TMPDIR=" + os.TempDir()}
}

// open starts argv on a terminal.
func (b *bench) open(argv []string) *terminal {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = plainEnvironment()
	f, err := pty.StartWithSize(cmd, &pty.Winsize{Cols: sessionCols, Rows: sessionRows})
	if err != nil {
		b.Fatalf("start %v: %v", argv, err)
	}
	t := &terminal{b: b, cmd: cmd, buf: make([]byte, 64<<10)}
	if t.fd, err = unix.Dup(int(f.Fd())); err != nil {
		b.Fatalf("%v", err)
	}
	f.Close()
	if err := unix.SetNonblock(t.fd, true); err != nil {
		b.Fatalf("%v", err)
	}
	return t
}

func (t *terminal) close() {
	unix.Close(t.fd)
	t.b.end(t.cmd)
}

// end kills a command and its children. PID 1 of a box among them takes the
// whole of it along; a session would survive the loss of its terminal.
func (b *bench) end(cmd *exec.Cmd) {
	for _, pid := range b.children(cmd.Process.Pid) {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// read waits for output. It returns nothing when the time is over, and at the
// end of the terminal.
func (t *terminal) read(deadline time.Time) []byte {
	for {
		n, err := unix.Read(t.fd, t.buf)
		if n > 0 {
			return t.buf[:n]
		}
		if err != unix.EAGAIN && err != unix.EINTR {
			return nil
		}
		left := time.Until(deadline)
		if left <= 0 {
			return nil
		}
		_, _ = unix.Poll([]unix.PollFd{{Fd: int32(t.fd), Events: unix.POLLIN}}, int(left/time.Millisecond)+1)
	}
}

// until reads until the text has come.
func (t *terminal) until(text string) {
	var last []byte
	for deadline := time.Now().Add(2 * time.Minute); ; {
		got := t.read(deadline)
		if got == nil {
			t.b.Fatalf("%v: %q did not come; at last %q", t.cmd.Args, text, last[max(0, len(last)-300):])
		}
		if last = append(last, got...); bytes.Contains(last, []byte(text)) {
			return
		}
		last = slices.Clone(last[max(0, len(last)-1000):])
	}
}

// quiet reads until nothing has come for a while.
func (t *terminal) quiet() {
	for t.read(time.Now().Add(300*time.Millisecond)) != nil {
	}
}

// echo measures from a keystroke to its echo, in milliseconds.
func (t *terminal) echo() []float64 {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all []float64
	for i := range keystrokes {
		key := byte('a' + i%26)
		time.Sleep(keystrokeGap)
		begun := time.Now()
		if _, err := unix.Write(t.fd, []byte{key}); err != nil {
			t.b.Fatalf("type: %v", err)
		}
		for {
			got := t.read(time.Now().Add(10 * time.Second))
			if got == nil {
				t.b.Fatalf("%v: no echo", t.cmd.Args)
			}
			if bytes.IndexByte(got, key) >= 0 {
				break
			}
		}
		all = append(all, float64(time.Since(begun).Microseconds())/1000)
	}
	slices.Sort(all)
	return all
}

// echoOf is the median of the time from a keystroke to its echo, by a cat on a terminal in raw mode.
func echoOf(m multiplexer) func(*bench) float64 {
	return func(b *bench) float64 {
		t := b.open(m(b, "stty raw -echo; printf rea; printf dy; exec cat"))
		defer t.close()
		t.until("ready")
		t.quiet()
		return percentile(t.echo(), 0.5)
	}
}

// catIn is how fast a program can print while somebody looks, in MB a second.
func catIn(m multiplexer) func(*bench) float64 {
	return func(b *bench) float64 {
		dir, err := os.MkdirTemp("", "agent-init-session-")
		if err != nil {
			b.Fatalf("%v", err)
		}
		b.Cleanup(func() { _ = os.RemoveAll(dir) })
		if err := os.Chmod(dir, 0o777); err != nil {
			b.Fatalf("%v", err)
		}
		out := filepath.Join(dir, "took")
		t := b.open(m(b, catting(b.textFile(dir), out)))
		defer t.close()
		t.until(lastLine)
		return b.rate(out)
	}
}

// textFile writes lines of text of different lengths.
func (b *bench) textFile(dir string) string {
	var page bytes.Buffer
	for i := 0; page.Len() < 1<<20; i++ {
		fmt.Fprintf(&page, "%d %s\n", i, strings.Repeat("the quick brown fox ", i%9))
	}
	path := filepath.Join(dir, "text")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		b.Fatalf("%v", err)
	}
	for n := 0; n < catSize; n += page.Len() {
		if _, err := f.Write(page.Bytes()); err != nil {
			b.Fatalf("%v", err)
		}
	}
	if err := f.Close(); err != nil {
		b.Fatalf("%v", err)
	}
	return path
}

// catting is a command that says how long a cat took, in nanoseconds, in a file.
func catting(file, out string) string {
	return fmt.Sprintf(`b=$(date +%%s%%N); cat %s; e=$(date +%%s%%N); echo $((e-b)) >%s.new; mv %[2]s.new %[2]s; echo; echo %s; exec sleep 1000`, file, out, lastLine)
}

func (b *bench) rate(out string) float64 {
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		data, err := os.ReadFile(out)
		if err != nil {
			continue
		}
		ns, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
		if err != nil {
			b.Fatalf("%v", err)
		}
		return catSize / (float64(ns) / 1e9) / 1e6
	}
	b.Fatalf("%s was not written", out)
	return 0
}
