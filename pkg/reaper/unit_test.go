package reaper

import (
	"errors"
	"os"
	"slices"
	"syscall"
	"testing"
)

func TestStatus(t *testing.T) {
	for _, c := range []struct {
		wait syscall.WaitStatus
		code int
		text string
	}{
		{0, 0, "exit 0"},
		{3 << 8, 3, "exit 3"},
		{255 << 8, 255, "exit 255"},
		{9, 137, "signal 9 (killed)"},
		{11 | 0x80, 139, "signal 11 (segmentation fault)"}, // with a core
		{64, 192, "signal 64 (signal 64)"},
	} {
		s := Status(c.wait)
		if s.Code() != c.code || s.String() != c.text {
			t.Errorf("%#x: %d %q, want %d %q", uint32(c.wait), s.Code(), s, c.code, c.text)
		}
	}
}

func TestParseStat(t *testing.T) {
	for _, c := range []struct {
		stat string
		want proc
		ok   bool
	}{
		{"12 (sh) S 1 10 9 34816 12 4194560 1 2", proc{pid: 12, ppid: 1, pgrp: 10, session: 9, state: 'S'}, true},
		{"12 (a) R 7 (b) T 1 10 9 0 -1 0", proc{pid: 12, ppid: 1, pgrp: 10, session: 9, state: 'T'}, true},
		{"2 (kthreadd) S 0 0 0 0 -1 2129984 0", proc{pid: 2, state: 'S', kernel: true}, true},
		{"12 (a\n) Z 1 10 9 0 -1 0\n", proc{pid: 12, ppid: 1, pgrp: 10, session: 9, state: 'Z'}, true},
		{"", proc{}, false},
		{"12 (sh", proc{}, false},
		{"12 ) S ( 1", proc{}, false},
		{"x (sh) S 1 10 9 0 12 0", proc{}, false},
		{"12 (sh) S x 10 9 0 12 0", proc{}, false},
		{"12 (sh) S 1 10 9 0 12", proc{}, false},
	} {
		got, ok := parseStat([]byte(c.stat))
		if ok != c.ok || ok && got != c.want {
			t.Errorf("%q: %+v %v, want %+v %v", c.stat, got, ok, c.want, c.ok)
		}
	}
}

func TestBelongs(t *testing.T) {
	table := byPid(
		proc{pid: 1, ppid: 0},
		proc{pid: 2, ppid: 1},  // main child
		proc{pid: 3, ppid: 2},  // its child
		proc{pid: 4, ppid: 1},  // helper
		proc{pid: 5, ppid: 4},  // the helper's child
		proc{pid: 6, ppid: 0},  // came from outside
		proc{pid: 7, ppid: 6},  // its child
		proc{pid: 8, ppid: 99}, // whose parent ended while we looked
		proc{pid: 9, ppid: 2, state: 'Z'},
		proc{pid: 10, ppid: 2, kernel: true},
		proc{pid: 11, ppid: 12}, proc{pid: 12, ppid: 11}, // a cycle, from two moments
	)
	helpers := map[int]bool{4: true}
	for self, want := range map[int][]int{
		1: {2, 3, 6, 7, 8},
		2: {3},
		6: {7},
	} {
		var got []int
		for _, p := range belongs(table, self, helpers) {
			got = append(got, p.pid)
		}
		if !slices.Equal(got, want) {
			t.Errorf("of %d: %v, want %v", self, got, want)
		}
	}
}

func TestOrphaned(t *testing.T) {
	self := proc{pid: 20, ppid: 10, pgrp: 20, session: 10}
	for _, c := range []struct {
		name   string
		parent proc
		want   bool
	}{
		{"a shell with job control", proc{pid: 10, ppid: 5, pgrp: 10, session: 10}, false},
		{"a script without", proc{pid: 10, ppid: 5, pgrp: 20, session: 10}, true},
		{"another session", proc{pid: 10, ppid: 5, pgrp: 5, session: 5}, true},
		{"no parent in sight", proc{pid: 11, ppid: 5, pgrp: 10, session: 10}, true},
	} {
		if got := orphaned(byPid(c.parent, self), self); got != c.want {
			t.Errorf("under %s: %v", c.name, got)
		}
	}
	init := proc{pid: 1, pgrp: 1, session: 10}
	self.ppid = 1
	if !orphaned(byPid(init, self), self) {
		t.Error("an init passed for a shell")
	}
}

func TestSignalAfterTheEnd(t *testing.T) {
	p := &Process{reaper: &Reaper{}, pid: os.Getpid(), done: make(chan struct{})}
	close(p.done)
	for _, err := range []error{p.Signal(syscall.SIGKILL), p.SignalGroup(syscall.SIGKILL)} {
		if !errors.Is(err, os.ErrProcessDone) {
			t.Error(err)
		}
	}
}

func byPid(list ...proc) map[int]proc {
	all := map[int]proc{}
	for _, p := range list {
		all[p.pid] = p
	}
	return all
}
