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
	"syscall"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

const (
	keystrokes   = 300
	keystrokeGap = 8 * time.Millisecond
	catSize      = 100 << 20
	catRounds    = 3
	sessionCols  = 200
	sessionRows  = 50
	lastLine     = "the-very-last-line"
	sessionGoal  = 40 << 20
)

// multiplexer is a way to run a command on a terminal.
type multiplexer struct {
	name string
	argv func(b *bench, command string) []string
}

// container makes a command PID 1 of namespaces of its own, as an engine does,
// without a network: the firewall is not what is measured here.
const container = `mount --make-rprivate / && mount -t proc proc /proc && mount -t tmpfs tmpfs /run && mkdir -p /var/log/agent-init &&
mount -t tmpfs tmpfs /var/log/agent-init && mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts /dev/pts &&
mount --bind /dev/pts/ptmx /dev/ptmx && exec "$@"`

func (b *bench) sessionArgv(command string) []string {
	return []string{"unshare", "-npfm", "--kill-child", "sh", "-c", container, "sh", b.binary, "run", "--unsafe-no-firewall", "--user", "65534:65534",
		"--config", "/run/none", "--session", "always", "--", "sh", "-c", command}
}

func multiplexers(socket string) []multiplexer {
	tmux := []string{"tmux", "-L", socket, "-f", "/dev/null"}
	return []multiplexer{
		{"direct", func(_ *bench, command string) []string { return []string{"sh", "-c", command} }},
		{"tmux", func(_ *bench, command string) []string { return append(slices.Clone(tmux), "new-session", command) }},
		{"agent-init", (*bench).sessionArgv},
	}
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

// until reads until the text has come, and returns how much that was.
func (t *terminal) until(text string) (n int) {
	var last []byte
	for deadline := time.Now().Add(2 * time.Minute); ; {
		got := t.read(deadline)
		if got == nil {
			t.b.Fatalf("%v: %q did not come; at last %q", t.cmd.Args, text, last[max(0, len(last)-300):])
		}
		n += len(got)
		if last = append(last, got...); bytes.Contains(last, []byte(text)) {
			return n
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

func measureSession(b *bench) {
	b.report.heading("A session: a terminal of %d×%d", sessionCols, sessionRows)
	dir, err := os.MkdirTemp("", "agent-init-session-")
	if err != nil {
		b.Fatalf("%v", err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		b.Fatalf("%v", err)
	}
	socket := "agent-init-bench-" + strconv.Itoa(os.Getpid())
	b.Cleanup(func() { _ = exec.Command("tmux", "-L", socket, "kill-server").Run() })
	subjects := multiplexers(socket)
	b.measureEcho(subjects)
	file := b.textFile(dir)
	attached := b.measureCat(subjects, file, dir)
	b.measureDetached(file, dir, socket, attached)
	b.measureFull(file, dir)
}

func (b *bench) measureEcho(subjects []multiplexer) {
	found := map[string][]float64{}
	for range catRounds { // in turns, so that a busy moment hits all
		for _, s := range subjects {
			t := b.open(s.argv(b, "stty raw -echo; printf rea; printf dy; exec cat"))
			t.until("ready")
			t.quiet()
			found[s.name] = append(found[s.name], t.echo()...)
			t.close()
		}
	}
	for _, s := range subjects {
		slices.Sort(found[s.name])
		v := found[s.name]
		f := b.report.figure("keystroke to echo, "+s.name+", median", fmt.Sprintf("%.3f ms", percentile(v, 0.5)), "")
		f.note("p90 %.3f ms, p99 %.3f ms", percentile(v, 0.9), percentile(v, 0.99))
	}
	r := ratio(percentile(found["agent-init"], 0.5), percentile(found["tmux"], 0.5))
	b.report.figure("  agent-init to tmux", times(r), "≤ 1×").met(r <= 1)
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

// measureCat reports how fast a program can print while somebody looks.
func (b *bench) measureCat(subjects []multiplexer, file, dir string) float64 {
	rates := map[string][]float64{}
	reached := map[string]int{}
	for i := range catRounds {
		for _, s := range subjects {
			out := filepath.Join(dir, fmt.Sprintf("attached-%s-%d", s.name, i))
			t := b.open(s.argv(b, catting(file, out)))
			reached[s.name] = t.until(lastLine)
			rates[s.name] = append(rates[s.name], b.rate(out))
			t.close()
		}
	}
	for _, s := range subjects {
		b.report.figure("cat of 100 MB, "+s.name, fmt.Sprintf("%.0f MB/s", median(rates[s.name])), "").
			note("%.1f MB reached the terminal", float64(reached[s.name])/1e6)
	}
	own := median(rates["agent-init"])
	r := ratio(own, median(rates["tmux"]))
	b.report.figure("  agent-init to tmux", times(r), "≥ 1.2×").met(r >= 1.2)
	r = ratio(own, median(rates["direct"]))
	b.report.figure("  agent-init to direct", times(r), "≥ 0.75×").met(r >= 0.75)
	return own
}

// measureDetached reports how fast a program can print while nobody looks.
func (b *bench) measureDetached(file, dir, socket string, attached float64) {
	var own, other []float64
	for i := range catRounds {
		out := filepath.Join(dir, fmt.Sprintf("detached-tmux-%d", i))
		if err := exec.Command("tmux", "-L", socket, "-f", "/dev/null", "new-session", "-d", "-x", strconv.Itoa(sessionCols), "-y", strconv.Itoa(sessionRows), catting(file, out)).Run(); err != nil {
			b.Fatalf("tmux: %v", err)
		}
		other = append(other, b.rate(out))
		_ = exec.Command("tmux", "-L", socket, "kill-server").Run()
		out = filepath.Join(dir, fmt.Sprintf("detached-own-%d", i))
		cmd := b.detached(catting(file, out))
		own = append(own, b.rate(out))
		b.end(cmd)
	}
	b.report.figure("cat of 100 MB, nobody attached", fmt.Sprintf("%.0f MB/s", median(own)), "≥ attached").met(median(own) >= attached).
		note("tmux %.0f MB/s", median(other))
}

func (b *bench) detached(command string) *exec.Cmd {
	argv := b.sessionArgv(command)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = plainEnvironment()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		b.Fatalf("%v", err)
	}
	return cmd
}

// measureFull reports the memory with one window whose scrollback is full.
func (b *bench) measureFull(file, dir string) {
	out := filepath.Join(dir, "full")
	cmd := b.detached(catting(file, out))
	defer b.end(cmd)
	b.rate(out)
	time.Sleep(idleTime)
	keeper := b.children(cmd.Process.Pid)
	if len(keeper) != 1 {
		b.Fatalf("no PID 1: %v", keeper)
	}
	pid1, server := b.usage(keeper[0]), usage{}
	for _, pid := range b.children(keeper[0]) {
		args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if strings.Contains(string(args), "__sessions") {
			server = b.usage(pid)
		}
	}
	if server.rss == 0 {
		b.Fatalf("PID 1 has no session server")
	}
	sum := pid1.rss + server.rss
	b.report.figure("resident, one window of 200×50 and 10,000 lines of scrollback", mib(sum), "≤ 40 MiB").met(sum <= sessionGoal).
		note("PID 1 %s, session server %s (of it private and dirty %s)", mib(pid1.rss), mib(server.rss), mib(server.private))
}
