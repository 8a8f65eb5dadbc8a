package attack

import (
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
)

// labCmd is a command of root's in a box.
func labCmd(args ...string) lab.Cmd { return lab.Cmd{Args: args} }

var _ = also(TestFaultKilledAtRandom, underStress)

// TestFaultKilledAtRandom: guards are killed at any moment, of their start as
// of their work, again and again, while the agent tries what it may and what it
// may not. Nothing else than the policy's ever leaves, no guard is missing for
// long, and nothing is left behind.
func TestFaultKilledAtRandom(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	evilZone(l)
	boxes, kills := often(5, 20), often(10, 50)
	ok4, ok6 := named("ok.test")
	var worlds []*world
	for range boxes {
		worlds = append(worlds, startIn(t, l, allowlist, lab.BoxOptions{}, "agent-init", "run", "--", "sleep", "infinity"))
	}
	for _, w := range worlds {
		w.ready()
		w.box.ForgetPackets()
	}
	l.DNS.Forget()
	var all sync.WaitGroup
	for i, w := range worlds {
		all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), uint64(kills)))
			before := w.footprints()
			stop := quietly(t, w, `poke tcp -timeout 100ms 1.1.1.1:443; poke udp -noreply 1.1.1.1:9; poke dns -timeout 200ms -n 10 -c 2 8.8.8.8:53 x{n}.evil.test A;
				poke loop -timeout 300ms -n 5 -c 2 -name ok.test :443; sleep 0.3`)
			defer stop()
			for kill := range kills {
				// Anything from before it runs to well after it serves.
				time.Sleep(time.Duration(random.IntN(1000)) * time.Millisecond)
				g := w.guard()
				g.signal(t, unix.SIGKILL)
				next := func() bool {
					now := guards(t, w.agent)
					return len(now) == 1 && now[0].host != g.host
				}
				if !eventually(60*time.Second, next) {
					w.Errorf("kill %d: there is no next guard: %v", kill+1, guards(t, w.agent))
					return
				}
				if kill%10 == 9 {
					w.upstreamOnlyOr("ok.test")
					w.within(ok4, ok6)
					w.box.ForgetPackets()
				}
			}
			stop()
			w.recovers("the last kill")
			w.closed()
			if n := w.restarts(); n < kills {
				w.Errorf("%d restarts after %d kills", n, kills)
			}
			w.flat(before, 8<<10, 2)
		})
	}
	all.Wait()
	t.Logf("%d kills in %d boxes", boxes*kills, boxes)
}

var _ = also(TestFaultSuspended, underStress)

// TestFaultSuspended: what is stopped for longer than anybody waits, and goes
// on, as in a container that is paused or on a laptop that was closed, is not
// taken for broken.
func TestFaultSuspended(t *testing.T) {
	lab.Require(t)
	long := often(8*time.Second, 75*time.Second) // than a hung guard is given; than a lease of TTL 1 lasts
	for what, stopped := range map[string]func(w *world) []inmate{
		"keeper": func(w *world) []inmate { return []inmate{w.keeper()} },
		"both":   func(w *world) []inmate { return []inmate{w.keeper(), w.guard()} },
		"all":    func(w *world) []inmate { return inmates(w.T, w.agent) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			l := newLab(t)
			s := newStreams()
			l.Web.Handle("ok.test", s)
			evilZone(l)
			ok4, ok6 := named("ok.test")
			l.DNS.Set("ok.test", lab.Answer{Addrs: []netip.Addr{ok4, ok6}, TTL: 1})
			w := confineIn(t, l, allowlist, lab.BoxOptions{})
			running := w.follow(s, "https://ok.test")["https://ok.test"]
			guard := w.guard()
			list := stopped(w)
			for _, p := range list {
				p.signal(t, unix.SIGSTOP)
			}
			time.Sleep(long)
			if p := w.box.Poke(lab.AgentUID, "tcp", "-timeout", "1s", "1.1.1.1:443"); p.OK {
				t.Errorf("got through: %s", p)
			}
			if p := w.box.Poke(lab.AgentUID, "dns", "-timeout", "6s", "8.8.8.8:53", "new.cdn.test", "A"); p.OK {
				t.Errorf("leased by nobody: %s", p)
			}
			for _, p := range list {
				p.signal(t, unix.SIGCONT)
			}
			w.recovers("being stopped")
			if now := w.guard(); now.host != guard.host || w.restarts() != 0 {
				t.Errorf("the guard was replaced: %v, %d restarts", now, w.restarts())
			}
			w.lives(s, "https://ok.test", running)
			must(t, running.Signal(unix.SIGKILL))
			w.within(ok4, ok6)
			w.closed()
			w.box.Kill()
		})
	}
}
