package faults

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/internal/lab/soak"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// soakList is what the agent of a soak may reach, besides names that move and names of connections that stay.
const soakList = "ok.test\nok2.test\n*.cdn.test\ndirect.test direct\n"

// soaked is a confined box that works for long, and what is known of it.
type soaked struct {
	*rig.World
	begin  time.Time
	lasts  time.Duration
	dir    string
	series *soak.Series
	orders *os.File // of the agent, see poke obey
	told   *bufio.Reader

	list          string
	movers        []mover
	flip, granted netip.Addr
	made          int                 // addresses
	open          map[netip.Addr]bool // where packets may arrive now
	left          []*leftover
	log           os.FileInfo   // the current file
	hurry         chan struct{} // a guard was killed

	mu     sync.Mutex
	random *rand.Rand
	kills  int
	killed time.Time // the last guard
	down   time.Time // since when nothing allowed has worked; zero: it does
	took   []time.Duration
	done   map[string]float64
}

// mover is a name whose address changes.
type mover struct {
	name string
	addr netip.Addr
	used bool
	at   time.Time // when it took that address
}

// leftover is an address that a name has left.
type leftover struct {
	name  string
	addr  netip.Addr
	used  bool // a connection was made to it
	since time.Time
}

// duty is something that is done again and again.
type duty struct {
	first, every time.Duration
	do           func(n int)
}

// duties are what a run does, and how often: as little as shows something, so that a machine can do other things beside it.
func (s *soaked) duties() []duty {
	second := time.Second
	return []duty{
		{1 * second, 6 * second, s.allows},
		{2 * second, 8 * second, s.denies},
		{3 * second, 10 * second, s.passes},
		{4 * second, 15 * second, s.moves},
		{11 * second, 15 * second, s.arrives},
		{5 * second, s.pace(45*second, 7*second), s.reloads},
		{6 * second, s.pace(24*second, 11*second), s.grants},
		{9 * second, 120 * second, s.window},
		{2 * second, s.pace(10*second, 2*second), func(int) { s.look(); s.sample() }},
		{60 * second, 60 * second, func(int) { s.save() }},
	}
}

// pace is how often something is done that is to be done a few times in a short run, too.
func (s *soaked) pace(usually, short time.Duration) time.Duration {
	if s.lasts < soakJudged {
		return short
	}
	return usually
}

// work does the duties, each in its time, until the end. What is allowed is tried at once when a guard was killed.
func (s *soaked) work(ctx context.Context, list []duty) {
	s.Helper()
	begin := time.Now()
	next, count := make([]time.Duration, len(list)), make([]int, len(list))
	for i, d := range list {
		next[i] = d.first
	}
	for {
		first := 0
		for i := range list {
			if next[i] < next[first] {
				first = i
			}
		}
		t := time.NewTimer(next[first] - time.Since(begin))
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-s.hurry:
			t.Stop()
			s.allowed("http", "-timeout", "10s", "https://ok.test/")
			continue
		case <-t.C:
		}
		list[first].do(count[first])
		count[first]++
		next[first] = max(next[first]+list[first].every, time.Since(begin))
	}
}

// employ starts the agent's program that does what it is told.
func (s *soaked) employ() {
	s.Helper()
	const home = "/home/agent/"
	s.Launch("sh", "-c", "cd && mkfifo orders answers && exec poke obey <orders >answers")
	inside := fmt.Sprintf("/proc/%d/root%s", s.Agent.Pid(), home)
	if !rig.Eventually(lab.Patience, func() bool {
		_, err := os.Stat(inside + "answers")
		return err == nil
	}) {
		s.Fatal("the agent does not work")
	}
	open := func(name string) *os.File {
		f, err := os.OpenFile(inside+name, os.O_RDWR, 0) // of a FIFO, this waits for nobody
		rig.Must(s.T, err)
		s.Cleanup(func() { f.Close() })
		return f
	}
	s.orders, s.told = open("orders"), bufio.NewReader(open("answers"))
}

// ask has the agent try one thing.
func (s *soaked) ask(args ...string) lab.Poke {
	s.Helper()
	order, err := json.Marshal(args)
	rig.Must(s.T, err)
	_, err = s.orders.Write(append(order, '\n'))
	rig.Must(s.T, err)
	line, err := s.told.ReadString('\n')
	rig.Must(s.T, err)
	p, err := lab.ParsePoke(line)
	rig.Must(s.T, err)
	return p
}

// allowed tries something that has to work: at once, or when there is a guard again. A machine that does not come to it
// is given the time.
func (s *soaked) allowed(args ...string) {
	s.Helper()
	for first := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		begun := time.Now()
		p := s.ask(args...)
		since, works := s.tried(begun, p.OK)
		switch {
		case works:
			return
		case since.IsZero() && !outOfTime(p):
			s.Errorf("does not work, and no guard has ended: %v: %s", args, p)
			return
		case time.Since(first) > lab.Patience:
			s.Errorf("does not work after %v, and a guard ended at %v: %v: %s", time.Since(first), since, args, p)
			return
		}
	}
}

// tried notes how something allowed went, and returns since when nothing had worked; zero: it did.
func (s *soaked) tried(begun time.Time, ok bool) (since time.Time, works bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	since = s.down
	if !ok {
		return since, false
	}
	s.done["allowed"]++
	if since.Before(begun) {
		if !since.IsZero() {
			s.took = append(s.took, time.Since(since).Round(time.Millisecond))
			s.done["slowest_ms"] = max(s.done["slowest_ms"], float64(time.Since(since).Milliseconds()))
		}
		s.down = time.Time{}
	}
	return since, true
}

// outOfTime says whether nothing was refused: a machine may be busy.
func outOfTime(p lab.Poke) bool {
	return strings.Contains(p.Err, "timeout") || strings.Contains(p.Err, "deadline exceeded")
}

// denied tries something that must not.
func (s *soaked) denied(args ...string) {
	s.Helper()
	if p := s.ask(args...); p.OK {
		s.Errorf("got through: %v: %s", args, p)
	}
	s.count("denied")
}

func (s *soaked) count(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done[what]++
}

// number is a random one below n.
func (s *soaked) number(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.random.IntN(n)
}

// fresh is an address that nothing has had before: of IPv6, every third.
func (s *soaked) fresh() netip.Addr {
	s.made++
	hi, lo := byte(s.made>>8), byte(s.made)
	if s.made%3 == 0 {
		return netip.MustParseAddr(fmt.Sprintf("2a0f:40::%x:%x", hi, lo))
	}
	return netip.AddrFrom4([4]byte{45, 40, hi, lo})
}

// serve has a name answered by an address from now on, which may be reached.
func (s *soaked) serve(l *lab.Lab, name string, a netip.Addr) {
	s.open[a] = true
	l.DNS.Set(name, lab.Answer{Addrs: []netip.Addr{a}, TTL: 1})
}

// allows asks for what stays, over TLS and without, and for its addresses.
func (s *soaked) allows(n int) {
	switch n % 3 {
	case 0:
		s.allowed("http", "-timeout", "10s", "https://ok.test/")
	case 1:
		s.allowed("http", "-timeout", "10s", "http://ok2.test/")
	case 2:
		s.allowed("dns", "-timeout", "10s", rig.At(lab.Upstream4, 53), "ok2.test", "AAAA")
	}
}

// denies tries what nothing allows.
func (s *soaked) denies(n int) {
	ok4, ok6 := rig.Named("ok.test")
	switch n % 6 {
	case 0:
		s.denied("tcp", "-timeout", "1s", "1.1.1.1:443")
	case 1:
		s.denied("dns", "-timeout", "1s", rig.At(lab.Upstream4, 53), fmt.Sprintf("x%d.evil.test", n), "A")
	case 2:
		s.denied("tls", "-insecure", "-sni", "evil.test", rig.At(ok4, 443))
	case 3:
		s.denied("udp", "-timeout", "300ms", "1.1.1.1:443")
	case 4:
		s.denied("http", "-timeout", "10s", "-addr", rig.At(ok6, 80), "http://evil.test/")
	case 5:
		s.denied("tcp", "-timeout", "1s", "-send", "x", rig.At(ok4, 22))
	}
}

// passes asks for a name below a wildcard that is never asked for again: its lease ends. One in three is visited.
func (s *soaked) passes(n int) {
	name, a := fmt.Sprintf("n%d.cdn.test", n), s.fresh()
	s.serve(s.Lab, name, a)
	if n%3 == 0 {
		s.allowed("http", "-timeout", "10s", "https://"+name+"/")
	} else {
		s.resolved(name, a)
	}
	s.leave(name, a, n%3 == 0)
}

// resolved asks for the address of a name.
func (s *soaked) resolved(name string, a netip.Addr) {
	kind := "A"
	if a.Is6() {
		kind = "AAAA"
	}
	s.allowed("dns", "-timeout", "10s", rig.At(lab.Upstream4, 53), name, kind)
}

// leave notes that nothing names an address any longer.
func (s *soaked) leave(name string, a netip.Addr, used bool) {
	s.left = append(s.left, &leftover{name, a, used, time.Now()})
	s.count("given")
}

// moves gives a name another address.
func (s *soaked) moves(n int) {
	m := &s.movers[n%len(s.movers)]
	s.leave(m.name, m.addr, m.used)
	m.addr, m.used, m.at = s.fresh(), false, time.Now()
	s.serve(s.Lab, m.name, m.addr)
}

// arrives visits every other name that has moved, some seconds later, where it is now.
func (s *soaked) arrives(n int) {
	m := &s.movers[n%len(s.movers)]
	if n/len(s.movers)%2 == 1 || time.Since(m.at) < 5*time.Second { // the old answer may still be known
		return
	}
	m.used = true
	begun := time.Now()
	s.allowed("http", "-timeout", "10s", "https://"+m.name+"/")
	found := s.Lab.Web.Requests(m.name)
	if len(found) == 0 || found[len(found)-1].Time.Before(begun) || found[len(found)-1].Dst.Addr() != m.addr {
		s.Errorf("%s moved to %s, and is visited at %+v", m.name, m.addr, found)
	}
}

// reloads has flip.test allowed by every other policy.
func (s *soaked) reloads(n int) {
	list := s.list
	if n%2 == 0 {
		list += "flip.test\n"
		s.open[s.flip] = true
	}
	if r := s.SetPolicy(list); r.Code != 0 {
		s.Errorf("reload: %s", r)
	}
	s.count("reloads")
	if n%2 == 0 {
		s.allowed("http", "-timeout", "10s", "https://flip.test/")
		return
	}
	s.shut("flip.test", s.flip)
}

// grants allows a name for a while, looks whether that has ended, and another time denies it before it does.
func (s *soaked) grants(n int) {
	switch n % 3 {
	case 0:
		s.open[s.granted] = true
		s.Did("allow", "granted.test", "--for", "10s")
		s.resolved("granted.test", s.granted)
		s.count("grants")
		return
	case 1:
		if !rig.Eventually(lab.Patience, func() bool { return len(s.World.Grants()) == 0 }) {
			s.Error("a grant does not end")
		}
	case 2:
		s.open[s.granted] = true
		s.Did("allow", "granted.test", "--for", "10m")
		s.allowed("http", "-timeout", "10s", "https://granted.test/")
		s.Did("deny", "granted.test")
		s.count("grants")
	}
	s.shut("granted.test", s.granted)
}

// window begins another window of the session, which ends.
func (s *soaked) window(n int) {
	if r := s.Root("agent-init", "new", fmt.Sprintf("w%d", n), "--", "sh", "-c", "seq 200; sleep 10"); r.Code != 0 {
		s.Errorf("a window of the session: %s", r)
	}
	s.count("windows")
}

// shut fails the test unless an address can't be reached by the name that had it. What had left before belongs to the
// time before.
func (s *soaked) shut(name string, a netip.Addr) {
	s.Helper()
	s.judge()
	delete(s.open, a)
	s.denied("tls", "-insecure", "-sni", name, rig.At(a, 443))
	s.denied("http", "-timeout", "10s", "-addr", rig.At(a, 80), "http://"+name+"/")
}

// judge looks at all that has left the box since the last time: nothing may have, but to where it may.
func (s *soaked) judge() {
	s.Helper()
	first := map[netip.Addr]lab.Packet{}
	for _, p := range s.Box.TakePackets(lab.Routed, rig.NotToUpstreams) {
		const reset = 4 // the only thing that goes to an address which was shut
		if s.open[p.Dst] || p.Proto == unix.IPPROTO_TCP && p.TCPFlags&reset != 0 {
			continue
		}
		s.count("arrived")
		if _, ok := first[p.Dst]; !ok {
			first[p.Dst] = p
		}
	}
	for _, p := range first {
		s.Errorf("left the box: %s", p)
	}
}

// unheard fails the test if a server heard of evil.test since the last time, at an address that is another's, too.
func (s *soaked) unheard() {
	s.Helper()
	for _, r := range s.Lab.Web.Requests("evil.test") {
		s.count("arrived")
		s.Errorf("arrived: %+v", r)
	}
	for _, h := range s.Lab.Web.Hellos() {
		if h.SNI == "evil.test" {
			s.count("arrived")
			s.Errorf("arrived: %+v", h)
		}
	}
	for _, q := range s.Lab.Queries("evil.test") {
		s.count("arrived")
		s.Errorf("a server was asked for %s", q.Name)
	}
	s.Lab.Web.Forget()
	s.Lab.DNS.Forget()
	s.Lab.ForgetConns()
}

// look judges what has left and arrived, and tries the addresses whose leases are over.
func (s *soaked) look() {
	s.Helper()
	s.judge()
	s.unheard()
	leases := s.Leases()
	var still []*leftover
	for _, l := range s.left {
		if leases[l.addr] == 0 {
			s.shut(l.name, l.addr)
			s.count("shut")
			if strings.HasSuffix(l.name, ".cdn.test") {
				s.Lab.DNS.Unset(l.name)
			}
			continue
		}
		still = append(still, l)
		limit := shutUnused
		if l.used {
			limit = shutUsed
		}
		if time.Since(l.since) > limit {
			s.Errorf("%s has left %s %v ago, and it is leased for %v more", l.name, l.addr, time.Since(l.since), leases[l.addr])
			l.since = time.Now() // is said once
		}
	}
	s.left = still
}

// slow is a server whose answer is a line every other second, for as long as is asked for.
type slow struct{}

func (slow) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var end <-chan time.Time
	if n, err := strconv.Atoi(r.FormValue("for")); err == nil {
		t := time.NewTimer(time.Duration(n) * time.Second)
		defer t.Stop()
		end = t.C
	}
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for {
		if _, err := fmt.Fprintln(w, "data"); err != nil || http.NewResponseController(w).Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-end:
			return
		case <-tick.C:
		}
	}
}
