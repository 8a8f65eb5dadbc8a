package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/internal/lab/soak"
	"github.com/agent-init/agent-init/test/attack/rig"
)

const (
	soakUsual  = 20 * time.Second // of which nearly all is waiting
	soakJudged = 10 * time.Minute // a shorter run says nothing of what grows
	soakLog    = 64 << 10         // of a file of the audit log
	soakFiles  = 3
	shutUnused = 3 * time.Minute  // a lease lasts for the TTL and a minute
	shutUsed   = 16 * time.Minute // and for ten minutes and two after the last answer, where something has connected
)

var _ = rig.Also(TestSoak, rig.Soaking)

// TestSoak: time itself. A confined container works for as long as AGENT_INIT_SOAK says (2h), while its guard is killed
// every minute, leases end, and names move. What is allowed works again soon after each kill. What is denied never
// arrives. An address that a name has left is shut once its lease is over. And the keeper does not grow: the line that
// fits its samples of the second half rises by less than soak.Bounds. The samples and their picture go to the directory
// AGENT_INIT_SOAK_DIR. Without AGENT_INIT_SOAK, the run takes seconds, and shows that all of this is at work.
func TestSoak(t *testing.T) {
	lasts := soakUsual
	if text := os.Getenv("AGENT_INIT_SOAK"); text != "" {
		var err error
		if lasts, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	s := newSoak(t, lasts)
	ctx, end := context.WithTimeout(context.Background(), lasts)
	defer end()
	var beside sync.WaitGroup
	beside.Go(func() { s.kill(ctx) })
	for i := range 3 {
		beside.Go(func() { s.hold(ctx, fmt.Sprintf("https://hold%d.test", i)) })
	}
	direct := s.Launch("poke", "stream", fmt.Sprintf("https://direct.test/slow?for=%d", int(lasts.Seconds())-3))
	s.work(ctx, s.duties())
	beside.Wait()

	if p := rig.Verdict(t, direct); !p.OK {
		t.Errorf("the connection past the gate was cut: %s", p)
	} else {
		t.Logf("the connection past the gate: %s", p)
	}
	s.Recovers("the soak")
	s.look()
	s.sample()
	s.save()
	if n := s.Restarts(); n < s.kills || s.kills == 0 {
		t.Errorf("%d restarts after %d kills", n, s.kills)
	}
	if n := repairs(s.World); n != 0 {
		t.Errorf("the rules were repaired %d times", n)
	}
	t.Logf("%v; from a kill to the next allowed connection: %v\n%s", lasts, s.took, s.series.Table())
	if lasts >= soakJudged {
		for _, fault := range s.series.Judge() {
			t.Error(fault)
		}
		if s.done["shut"] == 0 {
			t.Error("proves nothing: no address that a name has left was shut")
		}
	}
}

// newSoak confines a container of many needs, and waits until an agent works in it.
func newSoak(t *testing.T, lasts time.Duration) *soaked {
	t.Helper()
	l := rig.NewLab(t)
	rig.EvilZone(l)
	seed := uint64(time.Now().UnixNano())
	t.Logf("the seed of its chance is %d", seed)
	s := &soaked{begin: time.Now(), lasts: lasts, open: map[netip.Addr]bool{}, done: map[string]float64{},
		random: rand.New(rand.NewPCG(seed, 0)), dir: os.Getenv("AGENT_INIT_SOAK_DIR"),
		hurry: make(chan struct{}, 1)}
	s.series = soak.New(soakColumns()...)
	for _, a := range slices.Concat(lab.Names()["ok.test"], lab.Names()["ok2.test"]) {
		s.open[a] = true
	}
	list := soakList
	for i := range 4 {
		s.movers = append(s.movers, mover{name: fmt.Sprintf("move%d.test", i)})
		list += s.movers[i].name + "\n"
	}
	for i := range 3 {
		name := fmt.Sprintf("hold%d.test", i)
		list += name + "\n"
		s.serve(l, name, s.fresh())
		l.Web.Handle(name, slow{})
	}
	s.serve(l, "direct.test", s.fresh())
	l.Web.Handle("direct.test", slow{})
	s.flip, s.granted = s.fresh(), s.fresh()
	l.DNS.Set("flip.test", lab.Answer{Addrs: []netip.Addr{s.flip}, TTL: 1})
	l.DNS.Set("granted.test", lab.Answer{Addrs: []netip.Addr{s.granted}, TTL: 1})
	for i := range s.movers {
		m := &s.movers[i]
		m.addr = s.fresh()
		s.serve(l, m.name, m.addr)
	}
	s.list = list
	conf := fmt.Sprintf("log: {max_size: %d, files: %d}\ndns: {max_ttl: 5s}\n", soakLog, soakFiles)
	s.World = rig.StartIn(t, l, list, lab.BoxOptions{Files: []lab.File{rig.Settings(conf)}},
		"agent-init", "run", "--session", "always", "--", "sh", "-c", "while :; do date; sleep 5; done")
	s.InSession()
	s.employ()
	s.Box.ForgetPackets()
	l.DNS.Forget()
	return s
}

// kill ends the guard once a minute, at any moment of it; of a short run, three times.
func (s *soaked) kill(ctx context.Context) {
	every := min(time.Minute, s.lasts/3)
	for {
		at := time.Duration(s.number(int(every)))
		if !rest(ctx, at) || s.lasts-time.Since(s.begin) < every/4 {
			return
		}
		g := rig.Guards(s.T, s.Agent)
		if len(g) == 1 { // else it is still on its way: back-off
			s.mu.Lock()
			s.kills++
			s.killed = time.Now()
			if s.down.IsZero() {
				s.down = s.killed
			}
			s.mu.Unlock()
			g[0].Signal(s.T, unix.SIGKILL)
			select {
			case s.hurry <- struct{}{}:
			default:
			}
		}
		if !rest(ctx, every-at) {
			return
		}
	}
}

// hold keeps a connection through the gate open, which its server ends after a while, and begins another. Nothing but
// the end of a guard cuts it.
func (s *soaked) hold(ctx context.Context, origin string) {
	for ctx.Err() == nil {
		begun := time.Now()
		s.mu.Lock()
		down := !s.down.IsZero()
		s.mu.Unlock()
		if down { // nothing can begin yet
			rest(ctx, 100*time.Millisecond)
			continue
		}
		p := s.Launch("poke", "stream", fmt.Sprintf("%s/slow?for=%d", origin, 30+s.number(300)))
		select {
		case <-ctx.Done():
			_ = p.Signal(unix.SIGKILL)
			return
		case <-p.Done():
		}
		r := p.Wait(0)
		v, err := lab.ParsePoke(r.Stdout)
		s.mu.Lock()
		s.done["held"]++
		cut := s.killed.After(begun)
		s.mu.Unlock()
		if (err != nil || !v.OK) && !cut && !outOfTime(v) {
			s.Errorf("%s was cut, and no guard has ended: %s", origin, r)
		}
	}
}

// save writes what is known so far.
func (s *soaked) save() {
	if s.dir == "" {
		return
	}
	rig.Must(s.T, os.MkdirAll(s.dir, 0o755))
	for name, write := range map[string]func(f *os.File) error{
		"soak.csv": func(f *os.File) error { return s.series.Write(f) },
		"soak.svg": func(f *os.File) error { return s.series.Picture(f) },
	} {
		f, err := os.Create(filepath.Join(s.dir, name))
		rig.Must(s.T, err)
		rig.Must(s.T, write(f))
		rig.Must(s.T, f.Close())
	}
}

// rest waits, and says whether the run goes on after that.
func rest(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
