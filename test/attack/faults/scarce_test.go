package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

var _ = rig.Also(TestFaultMemory, rig.UnderStress)

// TestFaultMemory: an agent that wants more memory than the container has is
// who pays for that, again and again; and if it is the guard that the kernel
// takes, another one serves.
func TestFaultMemory(t *testing.T) {
	lab.Require(t)
	l := rig.NewLab(t)
	rig.EvilZone(l)
	w := rig.StartIn(t, l, rig.Allowlist, lab.BoxOptions{}, rig.OnDemand("tail /dev/zero; echo >>/tmp/eaten")...)
	w.Ready()
	w.Box.ForgetPackets()
	l.DNS.Forget()
	w.Limit("memory", 96<<20)
	w.Demand(true)
	eaten := func() int { data, _ := w.Box.ReadFile("/tmp/eaten"); return len(data) }
	times := rig.Often(3, 30)
	if !rig.Eventually(time.Duration(times)*20*time.Second, func() bool { return eaten() >= times }) {
		t.Errorf("the agent met its limit %d times, want %d", eaten(), times)
	}
	t.Logf("%d times out of memory; the guard was restarted %d times", eaten(), w.Restarts())
	w.Blocked("tcp", "-timeout", "1s", "1.1.1.1:443")
	w.Guard().Signal(t, unix.SIGKILL) // its successor starts where there is no memory
	w.Demand(false)
	w.Recovers("there was no memory")
	w.Closed()
}

var _ = rig.Also(TestFaultProcesses, rig.UnderStress)

// TestFaultProcesses: where no process can be started, because the agent has
// started too many, there is no guard, and nothing is open; and when there is
// room the guard comes back.
func TestFaultProcesses(t *testing.T) {
	lab.Require(t)
	l := rig.NewLab(t)
	rig.EvilZone(l)
	w := rig.ConfineIn(t, l, rig.Allowlist, lab.BoxOptions{})
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("agent-init said: %s", w.Agent.Stderr())
		}
	})
	const one = "sleep 1000"
	storm := func() {
		t.Helper()
		w.Box.ExecStart(rig.LabCmd("agent-init", "exec", "--", "sh", "-c", "until [ -e /tmp/go ]; do sleep 0.1; done; while "+one+" & do :; done"))
	}
	calm := func() {
		t.Helper()
		if !rig.Eventually(20*time.Second, func() bool {
			left := 0
			for _, p := range rig.Inmates(t, w.Agent) {
				if strings.HasPrefix(p.Args, one) || strings.Contains(p.Args, "while "+one) {
					left++
					p.Signal(t, unix.SIGKILL)
				}
			}
			return left == 0
		}) {
			t.Fatal("the storm does not end")
		}
	}
	storm()
	group := w.Limit("pids", 100) // threads are counted
	for range rig.Often(2, 10) {
		w.Demand(true)
		many := func() (n int) {
			for _, p := range rig.Inmates(t, w.Agent) {
				if strings.HasPrefix(p.Args, one) {
					n++
				}
			}
			return n
		}
		if !rig.Eventually(20*time.Second, func() bool { return many() > 20 }) {
			t.Fatalf("no storm: %d processes", many())
		}
		// An agent that is quick takes the places of the guard's own threads.
		rig.Must(t, os.WriteFile(filepath.Join(group, "pids.max"), []byte("1"), 0))
		before := w.Restarts()
		w.Guard().Signal(t, unix.SIGKILL)
		if !rig.Eventually(20*time.Second, func() bool { return w.Restarts() > before+1 }) {
			t.Error("there is room for a guard")
		}
		if _, code := w.Status(); code == 0 {
			t.Error("healthy without a guard")
		}
		w.Blocked("tcp", "-timeout", "1s", "1.1.1.1:443")
		w.Blocked("dns", "-timeout", "500ms", "8.8.8.8:53", "evil.test", "A")
		w.Demand(false)
		rig.Must(t, os.WriteFile(filepath.Join(group, "pids.max"), []byte("100"), 0))
		calm()
		w.Recovers("there was no room for a process")
		w.Closed()
		storm()
		w.Take(group)
	}
}

var _ = rig.Also(TestFaultDescriptors, rig.UnderStress)

// TestFaultDescriptors: with few descriptors fewer connections pass at once,
// and names are answered all the same.
func TestFaultDescriptors(t *testing.T) {
	lab.Require(t)
	for _, n := range []int{128, 256, 1024} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			l := rig.NewLab(t)
			rig.EvilZone(l)
			s := rig.NewStreams()
			l.Web.Handle("ok2.test", s)
			w := rig.StartIn(t, l, rig.Allowlist+"\nok2.test\n", lab.BoxOptions{}, "sh", "-c", fmt.Sprintf("ulimit -n %d; exec agent-init run -- sleep infinity", n))
			w.Ready()
			w.Works("resolve", "ok.test")
			w.Box.ForgetPackets()
			l.DNS.Forget()
			guard := w.Guard()
			ok4, _ := rig.Named("ok.test")
			begin := footprints(w)
			held := []*lab.Process{
				w.AsAgent(w.Box, "tls", "-n", "1", "-c", "600", "-sni", "ok.test", rig.At(ok4, 443)),
				w.AsAgent(w.Box, "idle", "-n", "600", "-hold", "5s", rig.At(ok4, 443)),
				w.AsAgent(w.Box, "idle", "-n", "600", "-hold", "5s", rig.At(lab.Upstream4, 53)),
				w.AsAgent(w.Box, "idle", "-n", "300", "-hold", "5s", rig.At(ok4, 80)),
			}
			full := 0
			for until := time.Now().Add(5 * time.Second); time.Now().Before(until); {
				full = max(full, footprintOf(w, "guard", guard.Host).files)
				w.Works("dns", rig.At(lab.Upstream4, 53), "ok.test", "A")
			}
			w.Blocked("tcp", "-timeout", "1s", "1.1.1.1:443")
			for _, p := range held {
				p.Wait(time.Minute)
			}
			t.Logf("the guard had %d of %d descriptors", full, n)
			w.Recovers("there were no descriptors")
			if now := w.Guard(); now.Host != guard.Host || w.Restarts() != 0 {
				t.Errorf("the guard did not live on: %d restarts", w.Restarts())
			}
			flat(w, begin, 24<<10, 4)
			w.Closed("ok2.test")
		})
	}
}
