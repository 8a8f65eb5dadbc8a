package rig

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
)

// What a test has to look at inside of a box, from the outside: its processes
// and the kernel's rules.

// Inmate is a process of a box.
type Inmate struct {
	Pid   int // in the box
	Host  int // on the machine
	Uid   uint32
	Gid   uint32
	State string // of proc_pid_stat(5): "T" is stopped
	Args  string
}

// Inmates returns the processes in the box of init, its PID 1.
func Inmates(t *testing.T, init *lab.Process) []Inmate {
	t.Helper()
	space := fmt.Sprintf("/proc/%d/ns/pid", init.Pid())
	want, err := os.Readlink(space)
	if err != nil {
		t.Fatalf("pid namespace of the box: %v", err)
	}
	entries, err := os.ReadDir("/proc")
	Must(t, err)
	var out []Inmate
	for _, e := range entries {
		host, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if ns, err := os.Readlink(filepath.Join("/proc", e.Name(), "ns/pid")); err != nil || ns != want {
			continue
		}
		if p, ok := ReadInmate(host); ok {
			out = append(out, p)
		}
	}
	return out
}

func ReadInmate(host int) (Inmate, bool) {
	p := Inmate{Host: host}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", host))
	if err != nil {
		return p, false
	}
	for line := range strings.Lines(string(status)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		switch f[0] {
		case "NSpid:":
			p.Pid, _ = strconv.Atoi(f[len(f)-1])
		case "Uid:":
			uid, _ := strconv.ParseUint(f[1], 10, 32)
			p.Uid = uint32(uid)
		case "Gid:":
			gid, _ := strconv.ParseUint(f[1], 10, 32)
			p.Gid = uint32(gid)
		case "State:":
			p.State = f[1]
		}
	}
	args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", host))
	p.Args = strings.TrimSpace(strings.ReplaceAll(string(args), "\x00", " "))
	return p, p.State != "Z" && p.Pid != 0
}

// Guards are the live guards of a box, which should be one.
func Guards(t *testing.T, init *lab.Process) []Inmate {
	t.Helper()
	return slices.DeleteFunc(Inmates(t, init), func(p Inmate) bool { return !strings.HasSuffix(p.Args, " guard") && p.Args != "agent-init guard" })
}

// Guard waits for the one guard that there should be.
func (w *World) Guard() Inmate {
	w.Helper()
	var g []Inmate
	if !Eventually(20*time.Second, func() bool { g = Guards(w.T, w.Agent); return len(g) == 1 }) {
		w.Fatalf("there are %d guards: %v", len(g), g)
	}
	return g[0]
}

// Signal sends a signal to one process of the box, as its engine could.
func (p Inmate) Signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := unix.Kill(p.Host, sig); err != nil && !errors.Is(err, unix.ESRCH) {
		t.Fatalf("signal %d: %v", p.Host, err)
	}
}

// Stop stops the process, and returns once all of its threads stand still: until the
// one that gets the signal has a processor, the others go on.
func (p Inmate) Stop(t *testing.T) {
	t.Helper()
	p.Signal(t, unix.SIGSTOP)
	still := func() bool {
		threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", p.Host))
		for _, thread := range threads {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/stat", p.Host, thread.Name()))
			if _, after, _ := strings.Cut(string(stat), ") "); err != nil || !strings.HasPrefix(after, "T") {
				return false
			}
		}
		return err == nil && len(threads) > 0
	}
	if !Eventually(10*time.Second, still) {
		t.Fatalf("%d does not stop", p.Host)
	}
}

// agent runs a script as the agent.
func (w *World) Script(text string, args ...string) lab.Result {
	w.Helper()
	return w.Launch(append([]string{"sh", "-c", text, "sh"}, args...)...).Wait(0)
}

// Rules is everything that nf_tables, or iptables with ipset, holds in the box's network namespace, less
// counters and what comes and goes: leases and the meters of the log.
func Rules(t *testing.T, box *lab.Box) string {
	t.Helper()
	var out string
	Must(t, box.Net.Do(func() (err error) { out, err = Ruleset(); return }))
	return out
}

func Ruleset() (string, error) {
	if Xtables() {
		return xtRuleset()
	}
	c, err := nftables.New()
	if err != nil {
		return "", err
	}
	tables, err := c.ListTables()
	if err != nil {
		return "", err
	}
	chains, err := c.ListChains()
	if err != nil {
		return "", err
	}
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	for _, t := range tables {
		add("table %d %s %x", t.Family, t.Name, t.Flags)
		sets, err := c.GetSets(t)
		if err != nil {
			return "", err
		}
		for _, s := range sets {
			add("set %s %s", t.Name, s.Name)
			if s.HasTimeout || s.Anonymous {
				continue
			}
			elements, err := c.GetSetElements(s)
			if err != nil {
				return "", err
			}
			for _, e := range elements {
				add("element %s %x %x %t", s.Name, e.Key, e.KeyEnd, e.IntervalEnd)
			}
		}
	}
	slices.Sort(lines)
	for _, ch := range chains {
		hook, priority, policy := -1, 0, -1
		if ch.Hooknum != nil && ch.Priority != nil && ch.Policy != nil {
			hook, priority, policy = int(*ch.Hooknum), int(*ch.Priority), int(*ch.Policy)
		}
		add("chain %s %s hook %d %d policy %d", ch.Table.Name, ch.Name, hook, priority, policy)
		rs, err := c.GetRules(ch.Table, ch)
		if err != nil {
			return "", err
		}
		for _, r := range rs {
			text, err := ruleText(r)
			if err != nil {
				return "", err
			}
			lines = append(lines, text)
		}
	}
	return strings.Join(lines, "\n"), nil
}

// SameRules fails the test if the rules aren't those of before, and shows what
// differs.
func SameRules(t *testing.T, what, before, now string) {
	t.Helper()
	if now == before {
		return
	}
	old, new := strings.Split(before, "\n"), strings.Split(now, "\n")
	for _, line := range old {
		if !slices.Contains(new, line) {
			t.Errorf("%s: the rules lack %s", what, line)
		}
	}
	for _, line := range new {
		if !slices.Contains(old, line) {
			t.Errorf("%s: the rules have %s", what, line)
		}
	}
	t.Errorf("%s: the rules changed, from %d lines to %d", what, len(old), len(new))
}

func ruleText(r *nftables.Rule) (string, error) {
	text := "rule"
	for _, e := range r.Exprs {
		if _, ok := e.(*expr.Counter); ok {
			e = &expr.Counter{}
		}
		j, err := json.Marshal(e)
		if err != nil {
			return "", err
		}
		text += fmt.Sprintf(" %T%s", e, j)
	}
	return text, nil
}

// Leased returns the elements that the lease sets hold.
func Leased(t *testing.T, box *lab.Box) []netip.AddrPort {
	t.Helper()
	var out []netip.AddrPort
	Must(t, box.Net.Do(func() error {
		if Xtables() {
			open, err := xtLeases()
			for ap := range open {
				out = append(out, ap)
			}
			return err
		}
		c, err := nftables.New()
		if err != nil {
			return err
		}
		table := &nftables.Table{Family: nftables.TableFamilyINet, Name: "agent-init"}
		for _, name := range []string{"lease4", "lease6", "gated-lease4", "gated-lease6", "inspected-lease4", "inspected-lease6"} {
			s, err := c.GetSetByName(table, name)
			if err != nil {
				return err
			}
			elements, err := c.GetSetElements(s)
			if err != nil {
				return err
			}
			for _, e := range elements {
				n := len(e.Key) - 8 // protocol and port follow the address, padded
				a, ok := netip.AddrFromSlice(e.Key[:n])
				if !ok {
					return fmt.Errorf("an element of %s has the key %x", name, e.Key)
				}
				out = append(out, netip.AddrPortFrom(a, uint16(e.Key[n+4])<<8|uint16(e.Key[n+5])))
			}
		}
		return nil
	}))
	return out
}
