package main

import (
	"bytes"
	"fmt"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
)

const policyFile = "/etc/agent-init/allowlist.txt"

// manyNames are lines for n names, the first of which is required. No other has an address: what leases cost is told by itself.
func manyNames(n int) []byte {
	var w bytes.Buffer
	fmt.Fprintf(&w, "%s required\n", nameOf(0))
	for i := range n - 1 {
		fmt.Fprintf(&w, "n%d.many.test\n", i)
	}
	return w.Bytes()
}

// scaleNames tells what the length of the policy costs, up to what it may have.
func scaleNames(b *bench) {
	b.report.heading("Scale: names of the policy")
	read, start, reload := grows("read it", inTime), grows("start, self-test included", inTime), grows("reload of one changed line", inTime)
	keeper, guard := grows("memory of the keeper, private and dirty", inMemory), grows("memory of the guard, private and dirty", inMemory)
	for _, n := range []int{10, 1000, 10_000, 100_000, 1_000_000} {
		rounds := scaleRounds
		if n >= 100_000 {
			rounds = 1
		}
		list := manyNames(n)
		fresh := func() *lab.Box {
			return b.lab.NewBox(lab.BoxOptions{Binary: b.binary, Files: []lab.File{{Path: policyFile, Data: list}}})
		}
		bare, kind := &starts{}, &starts{}
		for range rounds {
			bare.add(b.timed(fresh()))
			kind.add(b.timed(fresh(), "agent-init", "run", "--log-level", "info", "--"))
		}
		read.took(n, kind.steps["read the policy"]...)
		start.add(n, float64(median(kind.took)-median(bare.took)))

		box := fresh()
		p := b.runConfined(box)
		time.Sleep(idleTime)
		keeper.add(n, float64(b.usage(p.Pid()).private))
		guard.add(n, float64(b.usage(b.childPID(p.Pid(), "guard")).private))
		var took []time.Duration
		for i := range rounds {
			changed := append(bytes.Clone(list), fmt.Sprintf("changed%d.many.test\n", i)...)
			took = append(took, b.reloads(box, changed))
		}
		reload.took(n, took...)
		box.Kill()
	}
	for _, g := range []*growth{read, start, reload, keeper, guard} {
		b.report.row(g)
	}
	box := b.lab.NewBox(lab.BoxOptions{Binary: b.binary})
	defer box.Kill()
	b.runConfined(box)
	long := bytes.Repeat([]byte("# a line of 64 bytes, which the policy has a million and more of\n"), 1<<20)
	if err := box.WriteFile(policyFile, long, 0o644); err != nil {
		b.Fatalf("%v", err)
	}
	r := box.Exec(lab.Cmd{Args: []string{"agent-init", "reload"}})
	if r.Code == 0 {
		b.Errorf("%d bytes of policy are taken", len(long))
	}
	b.report.limit("bytes of one file", "64 MiB", r.Stderr)
}

// reloads has the box's policy be list, and says how long a reload takes, less what a command takes by itself.
func (b *bench) reloads(box *lab.Box, list []byte) time.Duration {
	if err := box.WriteFile(policyFile, list, 0o644); err != nil {
		b.Fatalf("%v", err)
	}
	return b.command(box, "reload") - b.command(box, "version")
}

// command says how long one of agent-init's takes, as root in the box.
func (b *bench) command(box *lab.Box, args ...string) time.Duration {
	begun := time.Now()
	if r := box.Exec(lab.Cmd{Args: append([]string{"agent-init"}, args...)}); r.Code != 0 {
		b.Fatalf("agent-init %v: %s", args, r)
	}
	return time.Since(begun)
}
