package faults

import (
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

var _ = rig.Also(TestFaultKilledAtRandom, rig.UnderStress)

// TestFaultKilledAtRandom: guards are killed at any moment, of their start as
// of their work, again and again, while the agent tries what it may and what it
// may not. Nothing else than the policy's ever leaves, no guard is missing for
// long, and nothing is left behind.
func TestFaultKilledAtRandom(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	rig.EvilZone(l)
	boxes, kills := rig.Often(5, 20), rig.Often(10, 50)
	ok4, ok6 := rig.Named("ok.test")
	var worlds []*rig.World
	for range boxes {
		worlds = append(worlds, rig.StartIn(t, l, rig.Allowlist, lab.BoxOptions{}, "agent-init", "run", "--", "sleep", "infinity"))
	}
	for _, w := range worlds {
		w.Ready()
		w.Box.ForgetPackets()
	}
	l.DNS.Forget()
	var all sync.WaitGroup
	for i, w := range worlds {
		all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), uint64(kills)))
			before := footprints(w)
			stop := quietly(t, w, `poke tcp -timeout 100ms 1.1.1.1:443; poke udp -noreply 1.1.1.1:9; poke dns -timeout 200ms -n 10 -c 2 8.8.8.8:53 x{n}.evil.test A;
				poke loop -timeout 300ms -n 5 -c 2 -name ok.test :443; sleep 0.3`)
			defer stop()
			for kill := range kills {
				// Anything from before it runs to well after it serves.
				time.Sleep(time.Duration(random.IntN(1000)) * time.Millisecond)
				g := w.Guard()
				g.Signal(t, unix.SIGKILL)
				next := func() bool {
					now := rig.Guards(t, w.Agent)
					return len(now) == 1 && now[0].Host != g.Host
				}
				if !rig.Eventually(60*time.Second, next) {
					w.Errorf("kill %d: there is no next guard: %v", kill+1, rig.Guards(t, w.Agent))
					return
				}
				if kill%10 == 9 {
					w.UpstreamOnlyOr("ok.test")
					within(w, ok4, ok6)
					w.Box.ForgetPackets()
				}
			}
			stop()
			w.Recovers("the last kill")
			w.Closed()
			if n := w.Restarts(); n < kills {
				w.Errorf("%d restarts after %d kills", n, kills)
			}
			flat(w, before, 8<<10, 2)
		})
	}
	all.Wait()
	t.Logf("%d kills in %d boxes", boxes*kills, boxes)
}

var _ = rig.Also(TestFaultSuspended, rig.UnderStress)

// TestFaultSuspended: what is stopped for longer than anybody waits, and goes
// on, as in a container that is paused or on a laptop that was closed, is not
// taken for broken.
func TestFaultSuspended(t *testing.T) {
	lab.Require(t)
	long := rig.Often(8*time.Second, 75*time.Second) // than a hung guard is given; than a lease of TTL 1 lasts
	for what, stopped := range map[string]func(w *rig.World) []rig.Inmate{
		"keeper": func(w *rig.World) []rig.Inmate { return []rig.Inmate{w.Keeper()} },
		"both":   func(w *rig.World) []rig.Inmate { return []rig.Inmate{w.Keeper(), w.Guard()} },
		"all":    func(w *rig.World) []rig.Inmate { return rig.Inmates(w.T, w.Agent) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			l := rig.NewLab(t)
			s := rig.NewStreams()
			l.Web.Handle("ok.test", s)
			rig.EvilZone(l)
			ok4, ok6 := rig.Named("ok.test")
			l.DNS.Set("ok.test", lab.Answer{Addrs: []netip.Addr{ok4, ok6}, TTL: 1})
			w := rig.ConfineIn(t, l, rig.Allowlist, lab.BoxOptions{})
			running := w.Follow(s, "https://ok.test")["https://ok.test"]
			guard := w.Guard()
			list := stopped(w)
			for _, p := range list {
				p.Signal(t, unix.SIGSTOP)
			}
			time.Sleep(long)
			if p := w.Box.Poke(lab.AgentUID, "tcp", "-timeout", "1s", "1.1.1.1:443"); p.OK {
				t.Errorf("got through: %s", p)
			}
			if p := w.Box.Poke(lab.AgentUID, "dns", "-timeout", "6s", "8.8.8.8:53", "new.cdn.test", "A"); p.OK {
				t.Errorf("leased by nobody: %s", p)
			}
			for _, p := range list {
				p.Signal(t, unix.SIGCONT)
			}
			w.Recovers("being stopped")
			if now := w.Guard(); now.Host != guard.Host || w.Restarts() != 0 {
				t.Errorf("the guard was replaced: %v, %d restarts", now, w.Restarts())
			}
			w.Lives(s, "https://ok.test", running)
			rig.Must(t, running.Signal(unix.SIGKILL))
			within(w, ok4, ok6)
			w.Closed()
			w.Box.Kill()
		})
	}
}
