package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
)

const typing = "stty raw -echo; printf rea; printf dy; exec cat"

// scaleWindows tells what the windows of a session cost, until there may be no more.
func scaleWindows(b *bench) {
	b.report.heading("Scale: windows of a session")
	one, echo := grows("time of one more", inTime), grows("keystroke to echo, in one of them", inTime)
	memory := grows("memory of keeper and session server, private and dirty", inMemory)
	box := b.lab.NewBox(lab.BoxOptions{Binary: b.binary, Files: allowlist(1)})
	defer box.Kill()
	p := box.Start(lab.Cmd{Args: []string{"agent-init", "run", "--session", "always", "--", "sh", "-c", typing}})
	if r := box.Exec(lab.Cmd{Args: []string{"agent-init", "wait"}}); r.Code != 0 {
		b.Fatalf("%s: %s", r, p.Stderr())
	}
	for deadline := time.Now().Add(lab.Patience); box.Exec(lab.Cmd{Args: []string{"agent-init", "sessions"}}).Code != 0; {
		if time.Now().After(deadline) {
			b.Fatalf("there is no session: %s", p.Stderr())
		}
	}
	more := func() (time.Duration, lab.Result) {
		begun := time.Now()
		r := box.Exec(lab.Cmd{Args: []string{"agent-init", "new", "--", "cat"}})
		return time.Since(begun), r
	}
	open := 1
	for _, n := range []int{1, 2, 4, 8, 15} {
		for open < n {
			if _, r := more(); r.Code != 0 {
				b.Fatalf("window %d: %s", open+1, r)
			}
			open++
		}
		echo.add(n, b.echoIn(box))
		time.Sleep(2 * time.Second)
		memory.add(n, float64(b.usage(p.Pid()).private+b.usage(b.childPID(p.Pid(), "__sessions")).private))
		took, r := more()
		if r.Code != 0 {
			b.Fatalf("window %d: %s", open+1, r)
		}
		open++
		one.took(n, took-b.command(box, "version"))
	}
	for _, g := range []*growth{one, echo, memory} {
		b.report.row(g)
	}
	_, r := more()
	if r.Code == 0 {
		b.Errorf("there are more than %d windows", open)
	}
	b.report.limit("windows", fmt.Sprint(open), r.Stderr)
}

// echoIn attaches to the first window of a box, and measures from a keystroke to its echo.
func (b *bench) echoIn(box *lab.Box) float64 {
	master, tty, err := pty.Open()
	if err == nil {
		err = pty.Setsize(master, &pty.Winsize{Cols: sessionCols, Rows: sessionRows})
	}
	if err != nil {
		b.Fatalf("%v", err)
	}
	p := box.ExecStart(lab.Cmd{Args: []string{"agent-init", "attach", "0"}, Env: []string{"TERM=xterm-256color", "LANG=C.UTF-8"}, TTY: tty})
	tty.Close()
	t := &terminal{b: b, cmd: exec.Command("agent-init", "attach"), buf: make([]byte, 64<<10)}
	if t.fd, err = unix.Dup(int(master.Fd())); err == nil {
		err = unix.SetNonblock(t.fd, true)
	}
	if err != nil {
		b.Fatalf("%v", err)
	}
	master.Close()
	t.until("ready")
	t.quiet()
	all := t.echo()
	unix.Close(t.fd) // it hangs up
	p.Wait(10 * time.Second)
	return percentile(all, 0.5) * float64(time.Millisecond)
}

// scaleSessions tells what sessions cost a machine, each the PID 1 of namespaces of its own.
func scaleSessions(b *bench) {
	b.report.heading("Scale: sessions of a machine")
	one, echo := grows("time of one more", inTime), grows("keystroke to echo, in one of them", inTime)
	memory, cpu := grows("memory of all keepers and session servers, private and dirty", inMemory), grows("their processor time at rest", aSecond)
	var all []*exec.Cmd
	defer func() {
		for _, cmd := range all {
			b.end(cmd)
		}
	}()
	for _, n := range []int{1, 5, 20, 100, 200} {
		for len(all) < n-1 {
			all = append(all, b.detached("sleep 1000"))
		}
		b.everySession(all)
		begun := time.Now()
		t := b.open(b.sessionArgv(typing))
		t.until("ready")
		one.took(n, time.Since(begun))
		t.quiet()
		v := t.echo()
		echo.add(n, percentile(v, 0.5)*float64(time.Millisecond))
		var pids []int
		for _, cmd := range append(all, t.cmd) {
			pids = append(pids, b.ofSession(cmd)...)
		}
		before, at := b.spentBy(pids), time.Now()
		time.Sleep(5 * time.Second)
		cpu.add(n, float64(b.spentBy(pids)-before)/time.Since(at).Seconds())
		var sum int64
		for _, pid := range pids {
			sum += b.usage(pid).private
		}
		memory.add(n, float64(sum))
		t.close()
	}
	for _, g := range []*growth{one, echo, memory, cpu} {
		b.report.row(g)
	}
}

func (b *bench) spentBy(pids []int) (sum time.Duration) {
	for _, pid := range pids {
		sum += b.spent(pid)
	}
	return sum
}

// everySession waits until each has its server.
func (b *bench) everySession(all []*exec.Cmd) {
	for deadline := time.Now().Add(lab.Patience); ; time.Sleep(100 * time.Millisecond) {
		up := 0
		for _, cmd := range all {
			if len(b.ofSession(cmd)) == 2 {
				up++
			}
		}
		if up == len(all) {
			time.Sleep(time.Second)
			return
		}
		if time.Now().After(deadline) {
			b.Fatalf("%d of %d sessions have begun", up, len(all))
		}
	}
}

// ofSession are the keeper and the session server of what unshare(1) has started.
func (b *bench) ofSession(cmd *exec.Cmd) (pids []int) {
	keeper := b.children(cmd.Process.Pid)
	if len(keeper) != 1 {
		return nil
	}
	for _, pid := range b.children(keeper[0]) {
		args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // it may have gone
		if strings.Contains(string(args), "__sessions") {
			return []int{keeper[0], pid}
		}
	}
	return nil
}
