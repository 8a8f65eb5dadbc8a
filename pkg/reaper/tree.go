package reaper

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"syscall"
)

// proc is one process as /proc/PID/stat shows it.
type proc struct {
	pid, ppid, pgrp, session int
	state                    byte
	kernel                   bool // a kernel thread
}

func (p proc) dead() bool    { return p.state == 'Z' || p.state == 'X' }
func (p proc) stopped() bool { return p.state == 'T' }

// kernelThread is PF_KTHREAD of the kernel's include/linux/sched.h.
const kernelThread = 0x00200000

// processes reads the process table. Those that end meanwhile are left out.
func processes() []proc {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil
	}
	var all []proc
	for _, name := range names {
		if name[0] < '0' || name[0] > '9' {
			continue
		}
		stat, err := os.ReadFile("/proc/" + name + "/stat")
		if err != nil {
			continue
		}
		if p, ok := parseStat(stat); ok {
			all = append(all, p)
		}
	}
	return all
}

// parseStat reads the first fields of proc_pid_stat(5). The second is a name
// that the process chose, so it may hold anything: the last parenthesis ends it.
func parseStat(stat []byte) (proc, bool) {
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 1 || end < open {
		return proc{}, false
	}
	f := bytes.Fields(stat[end+1:])
	if len(f) < 7 || len(f[0]) != 1 {
		return proc{}, false
	}
	p := proc{state: f[0][0]}
	for _, field := range []struct {
		to   *int
		text []byte
	}{
		{&p.pid, bytes.TrimSpace(stat[:open])},
		{&p.ppid, f[1]},
		{&p.pgrp, f[2]},
		{&p.session, f[3]},
	} {
		n, err := strconv.Atoi(string(field.text))
		if err != nil {
			return proc{}, false
		}
		*field.to = n
	}
	flags, err := strconv.ParseUint(string(f[6]), 10, 64)
	if err != nil {
		return proc{}, false
	}
	p.kernel = flags&kernelThread != 0
	return p, true
}

// belongs selects from all what Supervise has to end: every process that
// descends from self, and if self is PID 1 also those that came into the
// namespace from outside. Helpers, with what descends from them, are left out.
func belongs(all []proc, self int, helpers map[int]bool) []proc {
	parent := make(map[int]int, len(all))
	for _, p := range all {
		parent[p.pid] = p.ppid
	}
	var tree []proc
	for _, p := range all {
		if p.pid == self || p.kernel || p.dead() {
			continue
		}
		pid, steps := p.pid, 0
		// The table was not read at one instant, so it may hold a cycle.
		for pid > 0 && pid != self && !helpers[pid] && steps < len(all) {
			pid = parent[pid]
			steps++
		}
		if pid == self || pid == 0 && self == 1 {
			tree = append(tree, p)
		}
	}
	return tree
}

// signalSome sends sig to each process of the tree that want selects (nil: to
// all), and returns how many those are. With sig 0 it only counts.
func (r *Reaper) signalSome(sig syscall.Signal, want func(proc) bool) (n int) {
	// Nothing is reaped meanwhile, so that no pid of a child is reused
	// between the look and the kill, and no helper starts unseen.
	r.mu.Lock()
	defer r.mu.Unlock()
	var denied []int
	helpers := make(map[int]bool)
	for pid, p := range r.procs {
		if p.helper {
			helpers[pid] = true
		}
	}
	for _, p := range belongs(processes(), os.Getpid(), helpers) {
		if want != nil && !want(p) {
			continue
		}
		n++
		if sig != 0 && errors.Is(syscall.Kill(p.pid, sig), syscall.EPERM) {
			denied = append(denied, p.pid)
		}
	}
	if len(denied) > 0 {
		if err := r.as(denied, sig); err != nil {
			r.log.Warn("cannot signal the agent", "signal", sig, "pids", denied, "error", err)
		}
	}
	return n
}

// orphaned reports whether nobody above us would continue our process group
// if it were stopped. An init does no job control, so PID 1 does not count.
func orphaned(all []proc, self proc) bool {
	byPid := make(map[int]proc, len(all))
	for _, p := range all {
		byPid[p.pid] = p
	}
	for _, p := range all {
		if p.pgrp != self.pgrp {
			continue
		}
		above, ok := byPid[p.ppid]
		if ok && above.pid != 1 && above.session == p.session && above.pgrp != p.pgrp {
			return false
		}
	}
	return true
}
