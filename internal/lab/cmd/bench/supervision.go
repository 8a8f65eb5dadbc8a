package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
)

const (
	spawnRounds = 40
	spawnGoal   = 5 * time.Millisecond
	spawnMemory = 6 << 20
)

// inits are the command lines that a command is started through. The first is
// none.
func inits() [][]string {
	all := [][]string{
		{},
		{"agent-init", "run", "--unsafe-no-firewall", "--selftest", "off", "--"},
		{"tini", "-s", "--"},
		{"dumb-init", "--"},
		{"catatonit", "--"},
	}
	return slices.DeleteFunc(all, func(argv []string) bool {
		if len(argv) == 0 {
			return false
		}
		_, err := exec.LookPath(argv[0])
		return err != nil && argv[0] != "agent-init"
	})
}

// spawned is what the client says of one of them.
type spawned struct {
	Name  string
	Times []time.Duration // of starting /bin/true, and waiting for its end
	Pid   int             // of one that supervises a sleep, still running
}

// measureSupervision takes the firewall away: what is left is the work of an
// init, and the drop of privileges.
func measureSupervision(b *bench) {
	self, err := os.Executable()
	if err != nil {
		b.Fatalf("%v", err)
	}
	box := b.lab.NewBox(lab.BoxOptions{Binary: b.binary, Binds: []lab.Bind{{Source: self, Target: clientPath}}})
	p := box.Start(lab.Cmd{Args: []string{clientPath, "-client", "spawn", "-n", fmt.Sprint(spawnRounds)}, Timeout: 3 * time.Minute})
	defer box.Kill()
	if !p.WaitOutput("\n", 3*time.Minute) {
		b.Fatalf("starting inits: %s", p.Wait(time.Second))
	}
	var all []spawned
	if err := json.Unmarshal([]byte(p.Stdout()), &all); err != nil {
		b.Fatalf("starting inits: %v: %s", err, p.Wait(time.Second))
	}
	r := b.report
	r.heading("Supervision alone, without the firewall: a command through an init, not PID 1")
	bare := median(all[0].Times)
	for _, s := range all[1:] {
		added := median(s.Times) - bare
		f := r.figure(s.Name+": start and end of /bin/true, more than without it", ms(added), "").
			note("at least %s; without it %s", ms(slices.Min(s.Times)-slices.Min(all[0].Times)), ms(bare))
		if s.Name == "agent-init" {
			f.goal = "≤ " + ms(spawnGoal)
			f.met(added <= spawnGoal)
		}
	}
	pids := b.inside(p.Pid())
	for _, s := range all[1:] {
		u := b.usage(pids[s.Pid])
		f := r.figure(s.Name+": resident while its command runs", mib(u.rss), "").note("proportional %s, private and dirty %s", mib(u.pss), mib(u.private))
		if s.Name == "agent-init" {
			f.goal = "≤ " + mib(spawnMemory)
			f.met(u.rss <= spawnMemory)
		}
	}
}

// spawn is the client's side: it starts a command through each of the inits,
// in turns.
func spawn(rounds int) ([]spawned, error) {
	all := make([]spawned, len(inits()))
	start := func(argv ...string) (*exec.Cmd, error) {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		return cmd, cmd.Start()
	}
	for round := range rounds + 1 { // the first one warms up
		for i, argv := range inits() {
			begun := time.Now()
			cmd, err := start(append(slices.Clone(argv), "/bin/true")...)
			if err == nil {
				err = cmd.Wait()
			}
			if err != nil {
				return nil, fmt.Errorf("%v: %w", argv, err)
			}
			if round > 0 {
				all[i].Times = append(all[i].Times, time.Since(begun))
			}
		}
	}
	for i, argv := range inits() {
		if len(argv) == 0 {
			continue
		}
		cmd, err := start(append(slices.Clone(argv), "/bin/sleep", "1000")...)
		if err != nil {
			return nil, err
		}
		all[i].Name, all[i].Pid = argv[0], cmd.Process.Pid
	}
	time.Sleep(idleTime) // what is measured is an init that has nothing to do
	return all, nil
}

// inside maps the pids of a box to those of the machine.
func (b *bench) inside(pid1 int) map[int]int {
	pids := map[int]int{}
	for _, pid := range b.children(pid1) {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(status)) {
			var outer, inner int
			if n, _ := fmt.Sscanf(line, "NSpid: %d %d", &outer, &inner); n == 2 {
				pids[inner] = outer
			}
		}
	}
	return pids
}
