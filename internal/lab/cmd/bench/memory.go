package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/state"
)

const idleTime = 5 * time.Second

// memoryOf measures PID 1 and guard once n names are resolved, and nothing happens but what always does.
func memoryOf(n int) func(*bench) float64 {
	return func(b *bench) float64 {
		unix.Sync() // else the pages of a binary that was just built count as dirty
		box := b.confined(n)
		p := b.runConfined(box)
		b.leased(box, n)
		time.Sleep(state.AttestEvery + idleTime)
		return b.private(p.Pid(), b.childPID(p.Pid(), "guard"))
	}
}

func haproxyMemory(b *bench) float64 {
	_, p := b.serve(haproxy())
	time.Sleep(idleTime)
	return b.private(append(b.children(p.Pid()), p.Pid())...)
}

// private is what processes occupy by themselves and have written to, in MiB (proc(5), smaps_rollup).
func (b *bench) private(pids ...int) (mib float64) {
	for _, pid := range pids {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		_, rest, _ := strings.Cut(string(data), "\nPrivate_Dirty:")
		var kib float64
		if _, scanned := fmt.Sscan(rest, &kib); err != nil || scanned != nil {
			b.Fatalf("read the memory of a process: %v, %v", err, scanned)
		}
		mib += kib / 1024
	}
	return mib
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
