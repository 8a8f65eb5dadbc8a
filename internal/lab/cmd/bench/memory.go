package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/internal/state"
)

const (
	memoryGoal = 24 << 20 // with 100 names
	binaryGoal = 15 << 20
	idleTime   = 5 * time.Second
	resolveAll = 3 * time.Minute
)

func measureMemory(b *bench) {
	r := b.report
	r.heading("Memory: PID 1 and guard together")
	unix.Sync() // else the pages of a binary that was just built count as dirty
	for _, n := range []int{100, maxNames} {
		box := b.confined(n)
		p := b.runConfined(box)
		leases := b.resolved(box, n)
		time.Sleep(state.AttestEvery + idleTime) // nothing happens but what always does
		var sum, keeper, guard usage
		keeper = b.usage(p.Pid())
		guard = b.usage(b.childPID(p.Pid(), "guard"))
		sum.add(keeper)
		sum.add(guard)
		box.Kill()
		f := r.figure(fmt.Sprintf("resident, %s names resolved", thousands(n)), mib(sum.rss), "").
			note("PID 1 %s, guard %s; %s leases", mib(keeper.rss), mib(guard.rss), thousands(leases))
		if n == 100 {
			f.goal = "≤ 24 MiB"
			f.met(sum.rss <= memoryGoal)
		}
		r.figure("  of it private and dirty", mib(sum.private), "").note("PID 1 %s, guard %s", mib(keeper.private), mib(guard.private))
		r.figure("  proportional (shared pages counted once)", mib(sum.pss), "").note("PID 1 %s, guard %s", mib(keeper.pss), mib(guard.pss))
	}
	st, err := os.Stat(b.binary)
	if err != nil {
		b.Fatalf("%v", err)
	}
	bare, err := stripped(b.binary)
	if err != nil {
		b.Fatalf("%v", err)
	}
	f := r.figure("the binary, stripped", mib(st.Size()), "≤ 15 MiB").met(st.Size() <= binaryGoal)
	if !bare {
		f.note("not stripped: build it by make build")
	}
}

// resolved waits until the guard has resolved n names ahead and the keeper has
// leased their addresses; it returns how many elements that makes.
func (b *bench) resolved(box *lab.Box, n int) int {
	deadline := time.Now().Add(resolveAll)
	var s struct {
		Leases struct{ Names, Elements int }
	}
	for time.Now().Before(deadline) {
		data, err := box.ReadFile("/run/agent-init/status.json")
		if err == nil {
			err = json.Unmarshal(data, &s)
		}
		if err != nil {
			b.Fatalf("read the status: %v", err)
		}
		if s.Leases.Names >= n {
			return s.Leases.Elements
		}
		time.Sleep(200 * time.Millisecond)
	}
	b.Fatalf("only %d of %d names were resolved in %v", s.Leases.Names, n, resolveAll)
	return 0
}

// usage is what a process occupies, in bytes (proc(5), smaps_rollup).
type usage struct{ rss, pss, private int64 }

func (u *usage) add(v usage) {
	u.rss += v.rss
	u.pss += v.pss
	u.private += v.private
}

func (b *bench) usage(pid int) (u usage) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		b.Fatalf("read the memory of a process: %v", err)
	}
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) != 3 || f[2] != "kB" {
			continue
		}
		kib, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil {
			b.Fatalf("read the memory of a process: %v", err)
		}
		switch f[0] {
		case "Rss:":
			u.rss = kib << 10
		case "Pss:":
			u.pss = kib << 10
		case "Private_Dirty:":
			u.private = kib << 10
		}
	}
	return u
}

// cpuTime is what a process has used so far (proc(5), stat, fields 14 and 15, in
// ticks of which there are always 100 a second).
func (b *bench) cpuTime(pid int) time.Duration {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatalf("read the CPU time of a process: %v", err)
	}
	stat := string(data)
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	ticks := 0
	for _, s := range fields[11:13] {
		n, err := strconv.Atoi(s)
		if err != nil {
			b.Fatalf("read the CPU time of a process: %v", err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// childPID is a child of PID 1, by its name in the table of commands.
func (b *bench) childPID(pid1 int, name string) int {
	for _, pid := range b.children(pid1) {
		args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // it may have gone
		if f := strings.Split(string(args), "\x00"); len(f) > 1 && f[1] == name {
			return pid
		}
	}
	b.Fatalf("PID 1 has no %s", name)
	return 0
}

// children are the direct ones, whatever thread started them, zombies included.
func (b *bench) children(pid int) []int {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		b.Fatalf("read the children of a process: %v", err)
	}
	var out []int
	for _, t := range threads {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, t.Name()))
		if err != nil {
			continue // a thread that has ended
		}
		for _, s := range strings.Fields(string(data)) {
			child, err := strconv.Atoi(s)
			if err != nil {
				b.Fatalf("read the children of a process: %v", err)
			}
			out = append(out, child)
		}
	}
	return out
}
