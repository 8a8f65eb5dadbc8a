package attack

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
)

// limit puts all of a box into a control group of its own, of either version
// (cgroups(7)), and sets a limit of it: "memory", "pids" or "cpu"
// (microseconds of each 100 milliseconds). What is started in the
// box later has to be put there too.
func (w *world) limit(controller string, value int) (group string) {
	w.Helper()
	// The root of version 2 says which controllers it has.
	const top = "/sys/fs/cgroup"
	dir, file := filepath.Join(top, controller), map[string]string{"memory": "memory.limit_in_bytes", "pids": "pids.max", "cpu": "cpu.cfs_quota_us"}[controller]
	if _, err := os.Stat(filepath.Join(top, "cgroup.controllers")); err == nil {
		dir, file = top, controller+".max"
		must(w.T, os.WriteFile(filepath.Join(top, "cgroup.subtree_control"), []byte("+"+controller), 0))
	}
	dir, err := os.MkdirTemp(dir, "agent-init-lab-")
	must(w.T, err)
	w.Cleanup(func() {
		w.box.Kill()
		if !eventually(10*time.Second, func() bool { return unix.Rmdir(dir) == nil }) {
			w.Errorf("%s can't be removed", dir)
		}
	})
	must(w.T, os.WriteFile(filepath.Join(dir, file), []byte(strconv.Itoa(value)), 0))
	w.take(dir)
	return dir
}

// take puts all processes of a box into a control group: twice, for what was
// started meanwhile.
func (w *world) take(dir string) {
	w.Helper()
	for range 2 {
		for _, p := range inmates(w.T, w.agent) {
			err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(p.host)), 0)
			if err != nil && !errors.Is(err, unix.ESRCH) {
				w.Fatal(err)
			}
		}
	}
}

// onDemand is an agent that runs a script for as long as a file says so, as a child
// of the container's, within its limits.
func onDemand(script string) []string {
	return []string{"agent-init", "run", "--", "sh", "-c", "while :; do if [ -e /tmp/go ]; then " + script + "; fi; sleep 0.1; done >/dev/null 2>&1"}
}

func (w *world) demand(on bool) {
	w.Helper()
	if on {
		must(w.T, w.box.WriteFile("/tmp/go", nil, 0o644))
	} else if r := w.root("rm", "-f", "/tmp/go"); r.Code != 0 {
		w.Fatal(r)
	}
}

var _ = also(TestFaultMemory, underStress)

// TestFaultMemory: an agent that wants more memory than the container has is
// who pays for that, again and again; and if it is the guard that the kernel
// takes, another one serves.
func TestFaultMemory(t *testing.T) {
	lab.Require(t)
	l := newLab(t)
	evilZone(l)
	w := startIn(t, l, allowlist, lab.BoxOptions{}, onDemand("tail /dev/zero; echo >>/tmp/eaten")...)
	w.ready()
	w.box.ForgetPackets()
	l.DNS.Forget()
	w.limit("memory", 96<<20)
	w.demand(true)
	eaten := func() int { data, _ := w.box.ReadFile("/tmp/eaten"); return len(data) }
	times := often(3, 30)
	if !eventually(time.Duration(times)*20*time.Second, func() bool { return eaten() >= times }) {
		t.Errorf("the agent met its limit %d times, want %d", eaten(), times)
	}
	t.Logf("%d times out of memory; the guard was restarted %d times", eaten(), w.restarts())
	w.blocked("tcp", "-timeout", "1s", "1.1.1.1:443")
	w.guard().signal(t, unix.SIGKILL) // its successor starts where there is no memory
	w.demand(false)
	w.recovers("there was no memory")
	w.closed()
}

var _ = also(TestFaultProcesses, underStress)

// TestFaultProcesses: where no process can be started, because the agent has
// started too many, there is no guard, and nothing is open; and when there is
// room the guard comes back.
func TestFaultProcesses(t *testing.T) {
	lab.Require(t)
	l := newLab(t)
	evilZone(l)
	w := confineIn(t, l, allowlist, lab.BoxOptions{})
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("agent-init said: %s", w.agent.Stderr())
		}
	})
	const one = "sleep 1000"
	storm := func() {
		t.Helper()
		w.box.ExecStart(labCmd("agent-init", "exec", "--", "sh", "-c", "until [ -e /tmp/go ]; do sleep 0.1; done; while "+one+" & do :; done"))
	}
	calm := func() {
		t.Helper()
		if !eventually(20*time.Second, func() bool {
			left := 0
			for _, p := range inmates(t, w.agent) {
				if strings.HasPrefix(p.args, one) || strings.Contains(p.args, "while "+one) {
					left++
					p.signal(t, unix.SIGKILL)
				}
			}
			return left == 0
		}) {
			t.Fatal("the storm does not end")
		}
	}
	storm()
	group := w.limit("pids", 100) // threads are counted
	for range often(2, 10) {
		w.demand(true)
		many := func() (n int) {
			for _, p := range inmates(t, w.agent) {
				if strings.HasPrefix(p.args, one) {
					n++
				}
			}
			return n
		}
		if !eventually(20*time.Second, func() bool { return many() > 20 }) {
			t.Fatalf("no storm: %d processes", many())
		}
		// An agent that is quick takes the places of the guard's own threads.
		must(t, os.WriteFile(filepath.Join(group, "pids.max"), []byte("1"), 0))
		before := w.restarts()
		w.guard().signal(t, unix.SIGKILL)
		if !eventually(20*time.Second, func() bool { return w.restarts() > before+1 }) {
			t.Error("there is room for a guard")
		}
		if _, code := w.status(); code == 0 {
			t.Error("healthy without a guard")
		}
		w.blocked("tcp", "-timeout", "1s", "1.1.1.1:443")
		w.blocked("dns", "-timeout", "500ms", "8.8.8.8:53", "evil.test", "A")
		w.demand(false)
		must(t, os.WriteFile(filepath.Join(group, "pids.max"), []byte("100"), 0))
		calm()
		w.recovers("there was no room for a process")
		w.closed()
		storm()
		w.take(group)
	}
}

var _ = also(TestFaultDescriptors, underStress)

// TestFaultDescriptors: with few descriptors fewer connections pass at once,
// and names are answered all the same.
func TestFaultDescriptors(t *testing.T) {
	lab.Require(t)
	for _, n := range []int{128, 256, 1024} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			evilZone(l)
			s := newStreams()
			l.Web.Handle("ok2.test", s)
			w := startIn(t, l, allowlist+"\nok2.test\n", lab.BoxOptions{}, "sh", "-c", fmt.Sprintf("ulimit -n %d; exec agent-init run -- sleep infinity", n))
			w.ready()
			w.works("resolve", "ok.test")
			w.box.ForgetPackets()
			l.DNS.Forget()
			guard := w.guard()
			ok4, _ := named("ok.test")
			begin := w.footprints()
			held := []*lab.Process{
				w.asAgent(w.box, "tls", "-n", "1", "-c", "600", "-sni", "ok.test", at(ok4, 443)),
				w.asAgent(w.box, "idle", "-n", "600", "-hold", "5s", at(ok4, 443)),
				w.asAgent(w.box, "idle", "-n", "600", "-hold", "5s", at(lab.Upstream4, 53)),
				w.asAgent(w.box, "idle", "-n", "300", "-hold", "5s", at(ok4, 80)),
			}
			full := 0
			for until := time.Now().Add(5 * time.Second); time.Now().Before(until); {
				full = max(full, w.footprint("guard", guard.host).files)
				w.works("dns", at(lab.Upstream4, 53), "ok.test", "A")
			}
			w.blocked("tcp", "-timeout", "1s", "1.1.1.1:443")
			for _, p := range held {
				p.Wait(time.Minute)
			}
			t.Logf("the guard had %d of %d descriptors", full, n)
			w.recovers("there were no descriptors")
			if now := w.guard(); now.host != guard.host || w.restarts() != 0 {
				t.Errorf("the guard did not live on: %d restarts", w.restarts())
			}
			w.flat(begin, 24<<10, 4)
			w.closed("ok2.test")
		})
	}
}
