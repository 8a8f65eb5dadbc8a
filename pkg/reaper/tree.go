package reaper

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
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

// processes reads the process table, by pid. Those that end meanwhile are left out.
func processes() map[int]proc {
	all := make(map[int]proc)
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if c := e.Name()[0]; c < '0' || c > '9' {
			continue
		}
		stat, _ := os.ReadFile("/proc/" + e.Name() + "/stat")
		if p, ok := parseStat(stat); ok {
			all[p.pid] = p
		}
	}
	return all
}

// parseStat reads the first fields of proc_pid_stat(5). The second is a name
// that the process chose, so it may hold anything: the last parenthesis ends it.
func parseStat(stat []byte) (p proc, ok bool) {
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 1 || end < open {
		return proc{}, false
	}
	var state string
	var tty, foreground int
	var flags uint64
	pid, err := strconv.Atoi(string(bytes.TrimSpace(stat[:open])))
	if _, e := fmt.Sscan(string(stat[end+1:]), &state, &p.ppid, &p.pgrp, &p.session, &tty, &foreground, &flags); err != nil || e != nil || len(state) != 1 {
		return proc{}, false
	}
	p.pid, p.state, p.kernel = pid, state[0], flags&kernelThread != 0
	return p, true
}

// belongs selects what Supervise has to end: what descends from self, and if self is PID 1 also
// what came into the namespace from outside. Helpers and their descendants are left out.
func belongs(all map[int]proc, self int, helpers map[int]bool) (tree []proc) {
	for _, pid := range slices.Sorted(maps.Keys(all)) {
		p, steps := all[pid], 0
		if p.pid == self || p.kernel || p.dead() {
			continue
		}
		// The table was not read at one instant, so it may hold a cycle.
		for pid > 0 && pid != self && !helpers[pid] && steps < len(all) {
			pid = all[pid].ppid
			steps++
		}
		if pid == self || pid == 0 && self == 1 {
			tree = append(tree, p)
		}
	}
	return tree
}

// session selects the living processes of leader's session but leader.
func session(all map[int]proc, leader proc) (rest []proc) {
	for _, p := range all {
		if p.session == leader.session && p.pid != leader.pid && !p.dead() {
			rest = append(rest, p)
		}
	}
	return rest
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
		helpers[pid] = p.helper
	}
	all := processes()
	tree := belongs(all, os.Getpid(), helpers)
	if !r.adopts { // members of the command's group may have lost their parent
		tree = session(all, all[os.Getpid()])
	}
	for _, p := range tree {
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
func orphaned(all map[int]proc, self proc) bool {
	for _, p := range all {
		above, ok := all[p.ppid]
		if ok && p.pgrp == self.pgrp && above.pid != 1 && above.session == p.session && above.pgrp != p.pgrp {
			return false
		}
	}
	return true
}
