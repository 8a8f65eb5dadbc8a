package resolver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"

	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/budget"
	"github.com/agent-init/agent-init/pkg/policy"
)

// Config is what a Server works with. Believe and Spend may be nil; every other func, Log and Upstreams are needed.
type Config struct {
	// Policy returns the policy in force, for each query: the same pointer until the policy changes.
	Policy func() *policy.Policy

	Upstreams []policy.Upstream // asked in this order; without one, no name is resolved

	// Ephemeral are the first and the last port that the kernel gives to sockets by itself. Questions leave from other
	// ports if there are enough. Zero leaves the choice to the kernel.
	Ephemeral [2]uint16

	// Stream asks over TCP only, for where a packet filter that knows no flows could not
	// tell a reply over UDP from what anybody sends.
	Stream bool

	// Health learns how Upstreams answer. Servers that ask the same may share one; nil makes one of this Server's own.
	Health *Health

	// Believe says why what a server has just answered is not to be believed.
	Believe func(policy.Upstream) error

	// Spend has who outlives the Server count questions for names below a wildcard.
	Spend func(ctx context.Context, name string) (bool, error)

	// Hold is asked about a name that nothing in the policy matches, before it is refused, and returns what is closed
	// when it is to be decided after all; nil: it is refused now. It waits for nobody. It may be nil.
	Hold func(name string, who func() *audit.Process) <-chan struct{}

	// Again says that it takes the place of another, whose rates go on: it begins with what has come up since the end of that.
	Again bool

	// Admit opens addrs, which the policy admits for name, in the firewall for at least lease, and returns those that
	// are open for certain. An error makes the answer SERVFAIL. It is called concurrently.
	Admit func(ctx context.Context, name string, addrs []netip.Addr, lease time.Duration) ([]netip.Addr, error)

	// Record takes every refusal, every answer of an upstream, and every failure.
	Record audit.Recorder

	// Find says who asks for what is refused, before the reply is sent: behind it, the
	// client may be gone. FindAllowed says it of what is asked upstream.
	Find, FindAllowed audit.Finder

	// Aside says that questions about name are not to be counted now.
	Aside func(name string) bool

	// Own are addresses of this machine: who asks at one of them is answered with it, and its like of the other family, in
	// place of what was found. All else is as it is for others.
	Own []netip.Addr

	// Monitor answers for every name, and records both verdicts where the policy
	// would not. Admit is called for what the policy admits only.
	Monitor bool

	Log *slog.Logger
}

// limits bounds what clients can make the Server hold and do.
type limits struct {
	lookups  int           // questions being asked upstream at once
	waiters  int           // clients waiting for the same question
	conns    int           // TCP connections at once; above that the oldest goes
	queries  int           // on a connection
	idle     time.Duration // for the next query on a connection, and for a reply to be taken
	lifetime time.Duration // of a connection
}

// Stats counts what a Server has done. A and AAAA of a name are one look-up.
type Stats struct {
	Queries  atomic.Uint64 // look-ups that were answered or dropped
	Allowed  atomic.Uint64 // answered for an allowed or local name
	Denied   atomic.Uint64 // refused
	Cached   atomic.Uint64 // of the allowed: from the cache
	Asked    atomic.Uint64 // questions to upstreams
	Failed   atomic.Uint64 // of those: without an answer
	Stripped atomic.Uint64 // addresses taken out of answers

	AskedNanos atomic.Uint64 // how long upstreams took together
}

const (
	leaseGrace = time.Minute // beyond the TTL
	denyTTL    = 5 * time.Second
	failTTL    = time.Second // of an upstream's failure

	// atLeastGone is how long nobody has served before one takes the place of another. What comes up meanwhile is for the
	// questions that have waited.
	atLeastGone = 50 * time.Millisecond
)

// Server answers DNS queries by a policy. It is made by New.
type Server struct {
	config    Config
	limits    limits
	exchange  func(ctx context.Context, q question) (*dns.Msg, error)
	upstreams atomic.Pointer[upstreams]
	cache     *cache
	wildcards *budget.Budget
	qps       budget.Bucket
	searched  seen // names that were recorded when asked for below a search domain
	pairs     *pairs
	stats     Stats
	uncounted Stats // the same of what does not count, read by nobody

	patience  time.Duration // for all of a question: clients give up after 5 s
	admitWait time.Duration // for Admit, also where the upstream took the rest

	life context.Context // of questions to upstreams: they outlive the client that caused them
	end  context.CancelFunc
	work sync.WaitGroup

	mu       sync.Mutex
	lookups  map[question]*lookup
	finished bool
}

// New returns a Server that doesn't listen yet.
func New(c Config) (*Server, error) {
	if c.Policy == nil || c.Admit == nil {
		return nil, errors.New("resolver: a policy and a way to admit addresses are needed")
	}
	if c.Health == nil {
		c.Health = new(Health)
	}
	s := &Server{
		config:    c,
		limits:    limits{lookups: 256, waiters: 64, conns: 256, queries: 100, idle: 5 * time.Second, lifetime: 30 * time.Second},
		cache:     newCache(maxCached),
		wildcards: budget.NewBudget(),
		pairs:     newPairs(),
		searched:  seen{window: 10 * time.Second},
		patience:  4500 * time.Millisecond,
		admitWait: 2 * time.Second,
		lookups:   make(map[question]*lookup),
	}
	s.exchange = func(ctx context.Context, q question) (*dns.Msg, error) { return s.upstreams.Load().exchange(ctx, q) }
	if err := s.SetUpstreams(c.Upstreams); err != nil {
		return nil, err
	}
	if c.Again {
		s.qps.Drain(time.Now().Add(-atLeastGone))
	}
	s.life, s.end = context.WithCancel(context.Background())
	return s, nil
}

// SetUpstreams has the servers of list asked from now on, in this order. It may be called while Serve runs.
func (s *Server) SetUpstreams(list []policy.Upstream) error {
	for _, u := range list {
		if !u.Addr.IsValid() || u.Addr.Port() == 0 {
			return fmt.Errorf("resolver: %v is not the address and port of a DNS server", u.Addr)
		}
	}
	// How they have been doing is still known if they are the same.
	old := s.upstreams.Load()
	if old == nil || !slices.EqualFunc(old.servers, list, func(s *server, u policy.Upstream) bool { return s.Upstream == u }) {
		u := newUpstreams(list, sourcePorts{low: s.config.Ephemeral[0], high: s.config.Ephemeral[1]})
		u.stream, u.believe, u.health = s.config.Stream, s.config.Believe, s.config.Health
		u.health.of(list)
		s.upstreams.Store(u)
		s.cache.forget()
	}
	return nil
}

// Stats go on counting.
func (s *Server) Stats() *Stats { return &s.stats }

// question is what is asked for: a name in lower case, without the last dot, and a type.
type question struct {
	name  string
	qtype uint16
}

// client is where a query came from: a connection if answers is set.
type client struct {
	conn    *net.UDPConn
	from    netip.AddrPort
	answers chan<- []byte

	count *Stats // where its question counts
	again bool   // it is the second of a look-up, which has its line in the log
	own   bool   // it is the resolver itself, ahead of everybody

	instead []netip.Addr // of the addresses of an answer; none: those are told
}

// insteadAt is what is told to those who ask at a listener.
func (s *Server) insteadAt(at net.Addr) []netip.Addr {
	ap, err := netip.ParseAddrPort(at.String())
	if err != nil || !slices.Contains(s.config.Own, ap.Addr().Unmap()) {
		return nil
	}
	return s.config.Own
}

// with is a with the addresses of own that are of its family, but for this machine's loopback.
func (a *answer) with(own []netip.Addr) *answer {
	if len(own) == 0 || len(a.addrs) == 0 || a.addrs[0].IsLoopback() {
		return a
	}
	b := *a
	b.addrs = nil
	for _, o := range own {
		if o.Is4() == a.addrs[0].Is4() {
			b.addrs = append(b.addrs, o)
		}
	}
	return &b
}

// mark says in e who has asked.
func (c client) mark(e audit.Event) audit.Event {
	if c.own {
		e.Asker = audit.ByGuard
	}
	return e
}

// process is who asks, as far as find can tell. Over TCP, the server knows only the
// address that the kernel has led the connection to.
func (c client) process(find audit.Finder) *audit.Process {
	if !c.from.IsValid() {
		return nil
	}
	return find("udp", c.from, netip.AddrPort{})
}

// reply packs the reply of answer a to q, into b if that has the room.
func (c client) reply(b []byte, q *query, a *answer, ttl uint32, turn int) []byte {
	limit := q.size
	if c.answers != nil {
		limit = dns.MaxMsgSize
	}
	return q.reply(a.with(c.instead), ttl, turn, limit, b)
}

// send is for replies that were not there at once.
func (c client) send(reply []byte) {
	if c.answers != nil {
		c.answers <- reply
		return
	}
	c.conn.WriteToUDPAddrPort(reply, c.from)
}

// handle answers pkt: with a reply in out, if that has the room, or later through c if it returns none and true, or not
// at all.
func (s *Server) handle(pkt, out []byte, c client) (reply []byte, later bool) {
	q, rcode, ok := parseQuery(pkt)
	if !ok || rcode != dns.RcodeSuccess {
		s.stats.Queries.Add(1)
		if !ok {
			return nil, false
		}
		return c.reply(out, q, &answer{rcode: rcode}, 0, 0), false
	}
	now := time.Now()
	p := s.config.Policy()
	c.again = !s.pairs.first(q.question, now)
	c.count = &s.stats
	if c.again || s.config.Aside(q.name) {
		c.count = &s.uncounted
	}
	c.count.Queries.Add(1)
	if q.clean {
		if e := s.cache.get(q.question, p, now); e != nil {
			c.count.Cached.Add(1)
			c.count.Allowed.Add(1)
			return c.reply(out, q, &e.answer, e.remaining(now), int(e.turn.Add(1))), false
		}
	}
	if s.hold(p, q, c) {
		return nil, true
	}
	if a := s.decide(p, q, c, now); a != nil {
		return c.reply(out, q, a, a.ttl, 0), false
	}
	who := &asker{client: c, question: q.question, find: s.config.FindAllowed}
	if s.config.Monitor && !p.Lookup(q.name).Allowed {
		who.find = s.config.Find
	}
	a, ok := s.ask(who, func(a *answer) { c.send(c.reply(nil, q, a, a.ttl, 0)) })
	if a != nil {
		return c.reply(out, q, a, a.ttl, 0), false
	}
	return nil, ok
}
