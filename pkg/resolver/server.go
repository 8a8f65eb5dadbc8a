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

// Config is what a Server works with. Policy and Admit are needed.
type Config struct {
	// Policy returns the policy in force. It is called for each query, and must
	// return the same pointer until the policy changes.
	Policy func() *policy.Policy

	// Upstreams are asked in this order. With none, only names of the hosts
	// file have addresses.
	Upstreams []Upstream

	// Ephemeral are the first and the last port that the kernel gives to sockets
	// by itself. Questions leave from other ports if there are enough, so that no
	// program's query shares one with them. Zero leaves the choice to the kernel.
	Ephemeral [2]uint16

	// Stream asks over TCP only, for where a packet filter that knows no flows
	// could not tell a reply over UDP from what anybody sends.
	Stream bool

	// Believe says why the answer that a server has just given is not to be believed;
	// nil if it is. Without it, every server is.
	Believe func(Upstream) error

	// Spend says whether one more question may go upstream for a name below a
	// wildcard, besides what the Server allows itself: to be asked of who outlives it.
	// Nil allows all.
	Spend func(ctx context.Context, name string) (bool, error)

	// Again says that it takes the place of another, whose rates go on: it begins
	// with nothing saved up.
	Again bool

	// Search has the search domains of resolv.conf.
	Search []string

	// Admit opens addrs, which the policy admits for name, in the firewall for
	// at least lease, and returns those that are open for certain. An error
	// makes the answer SERVFAIL. It is called concurrently.
	Admit func(ctx context.Context, name string, addrs []netip.Addr, lease time.Duration) ([]netip.Addr, error)

	// Record takes every refusal, every answer that was had from an upstream,
	// and every failure; nil discards them. Answers from the cache aren't recorded.
	Record audit.Recorder

	// Find says who asks for what is refused, before the reply is sent: behind it,
	// the client may be gone. FindAllowed says it of what is asked upstream. Nil
	// finds nobody.
	Find, FindAllowed audit.Finder

	// Aside says that questions about name are not the clients' own doing now, and
	// not to be counted. Nil counts all.
	Aside func(name []byte) bool

	// Monitor answers for every name, and records both verdicts where the policy
	// would not. Admit is called for what the policy admits only.
	Monitor bool

	Log    *slog.Logger // nil discards
	Limits Limits
}

// Stats counts what a Server has done since it was made.
type Stats struct {
	Queries  uint64 `json:"queries"`  // look-ups that were answered or dropped: A and AAAA of a name are one
	Allowed  uint64 `json:"allowed"`  // answered for an allowed or local name
	Denied   uint64 `json:"denied"`   // refused
	Cached   uint64 `json:"cached"`   // of the allowed: from the cache
	Asked    uint64 `json:"asked"`    // questions to upstreams
	Failed   uint64 `json:"failed"`   // of those: without an answer
	Dropped  uint64 `json:"dropped"`  // not answered, for want of a place
	Invalid  uint64 `json:"invalid"`  // not a question that can be answered
	Stripped uint64 `json:"stripped"` // addresses taken out of answers
	Cache    int    `json:"cache"`    // answers held now

	AskedNanos uint64 `json:"asked_ns"` // how long upstreams took together
}

type counters struct {
	queries, allowed, denied, cached, asked, failed, dropped, invalid, stripped, askedNanos atomic.Uint64
}

// Server answers DNS queries by a policy. It is made by New.
type Server struct {
	config    Config
	exchange  func(ctx context.Context, name string, qtype uint16) (*dns.Msg, error)
	upstreams atomic.Pointer[upstreams]
	cache     *cache
	wildcards *budget.Budget
	qps       budget.Bucket
	searched  seen // names that were recorded when asked for below a search domain
	pairs     *pairs
	stats     counters
	uncounted counters // the same of what does not count, read by nobody

	grace     time.Duration // of a lease, beyond the TTL
	denyTTL   time.Duration // of a refusal
	failTTL   time.Duration // of an upstream's failure
	patience  time.Duration // for all of a question: clients give up after 5 s
	admitWait time.Duration // for Admit, also where the upstream took the rest

	life context.Context // of questions to upstreams: they outlive the client that caused them
	end  context.CancelFunc
	work sync.WaitGroup

	mu       sync.Mutex
	lookups  map[string]*lookup // by cacheKey
	finished bool
}

// New returns a Server that doesn't listen yet.
func New(c Config) (*Server, error) {
	switch {
	case c.Policy == nil:
		return nil, errors.New("resolver: no policy is given")
	case c.Admit == nil:
		return nil, errors.New("resolver: no way to admit addresses is given")
	}
	if err := c.Limits.setDefaults(); err != nil {
		return nil, fmt.Errorf("resolver: %v", err)
	}
	if c.Record == nil {
		c.Record = audit.Discard
	}
	if c.Find == nil {
		c.Find = audit.Nobody
	}
	if c.FindAllowed == nil {
		c.FindAllowed = audit.Nobody
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.Search = searchDomains(c.Search)
	s := &Server{
		config:    c,
		cache:     newCache(c.Limits.CacheEntries),
		wildcards: budget.NewBudget(),
		pairs:     newPairs(),
		searched:  seen{window: 10 * time.Second},
		grace:     time.Minute,
		denyTTL:   5 * time.Second,
		failTTL:   time.Second,
		patience:  4500 * time.Millisecond,
		admitWait: 2 * time.Second,
		lookups:   make(map[string]*lookup),
	}
	s.exchange = func(ctx context.Context, name string, qtype uint16) (*dns.Msg, error) {
		return s.upstreams.Load().exchange(ctx, name, qtype)
	}
	if err := s.SetUpstreams(c.Upstreams); err != nil {
		return nil, err
	}
	if c.Again {
		s.qps.Drain(time.Now())
	}
	s.life, s.end = context.WithCancel(context.Background())
	return s, nil
}

// SetUpstreams has the servers of list asked from now on, in this order. What is
// known of how they have been doing is kept if they are the same as before. It
// may be called while Serve runs.
func (s *Server) SetUpstreams(list []Upstream) error {
	if len(list) == 0 {
		return errors.New("resolver: there is no DNS server to ask: name one in dns.upstream, or in resolv.conf")
	}
	for _, u := range list {
		if !u.Addr.IsValid() || u.Addr.Port() == 0 {
			return fmt.Errorf("resolver: %v is not the address and port of a DNS server", u.Addr)
		}
	}
	if old := s.upstreams.Load(); old != nil && slices.EqualFunc(old.servers, list, func(s *server, u Upstream) bool { return s.Upstream == u }) {
		return nil
	}
	u := newUpstreams(list)
	u.leaveFrom(sourcePorts{low: s.config.Ephemeral[0], high: s.config.Ephemeral[1]})
	u.stream, u.believe = s.config.Stream, s.config.Believe
	s.upstreams.Store(u)
	return nil
}

// Stats returns the counts so far.
func (s *Server) Stats() Stats {
	c := &s.stats
	return Stats{
		Queries:  c.queries.Load(),
		Allowed:  c.allowed.Load(),
		Denied:   c.denied.Load(),
		Cached:   c.cached.Load(),
		Asked:    c.asked.Load(),
		Failed:   c.failed.Load(),
		Dropped:  c.dropped.Load(),
		Invalid:  c.invalid.Load(),
		Stripped: c.stripped.Load(),
		Cache:    s.cache.len(),

		AskedNanos: c.askedNanos.Load(),
	}
}

// scratch is what one reader needs to answer queries without allocation.
type scratch struct {
	in   []byte
	out  []byte
	name [4*maxNameLen + 16]byte
	key  [4*maxNameLen + 16]byte
}

// client is where a query came from: a connection if answers is set.
type client struct {
	conn    *net.UDPConn
	from    netip.AddrPort
	answers chan<- []byte

	count *counters // where its question counts
	again bool      // it is the second of a look-up, which has its line in the log
	own   bool      // it is the resolver itself, ahead of everybody
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

// limit is how long a reply to q may be.
func (c client) limit(q *query) int {
	if c.answers != nil {
		return maxMessage
	}
	return q.size
}

// send is for replies that were not there at once.
func (c client) send(reply []byte) {
	if c.answers != nil {
		c.answers <- reply
		return
	}
	c.conn.WriteToUDPAddrPort(reply, c.from)
}

// handle answers pkt: with a reply in w.out, or later through c if it returns
// none and true, or not at all.
func (s *Server) handle(pkt []byte, w *scratch, c client) (reply []byte, later bool) {
	var q query
	rcode, ok := parseQuery(pkt, w.name[:], &q)
	if !ok || rcode != rcodeOK {
		s.stats.queries.Add(1)
		s.stats.invalid.Add(1)
	}
	if !ok {
		return nil, false
	}
	if rcode != rcodeOK {
		return appendReply(w.out[:0], &q, &answer{rcode: rcode}, 0, 0, c.limit(&q)), false
	}
	now := time.Now()
	p := s.config.Policy()
	c.again = !s.pairs.first(q.name, q.qtype, now)
	c.count = &s.stats
	if c.again || s.config.Aside != nil && s.config.Aside(q.name) {
		c.count = &s.uncounted
	}
	c.count.queries.Add(1)
	key := cacheKey(w.key[:0], q.name, q.qtype)
	if q.clean {
		if e := s.cache.get(key, p, now); e != nil {
			c.count.cached.Add(1)
			c.count.allowed.Add(1)
			return appendReply(w.out[:0], &q, e.answer, e.remaining(now), int(e.turn.Add(1)), c.limit(&q)), false
		}
	}
	name := string(q.name)
	if a := s.decide(p, name, &q, c, now); a != nil {
		return appendReply(w.out[:0], &q, a, a.ttl, 0, c.limit(&q)), false
	}
	keep := q
	keep.question = append([]byte(nil), q.question...)
	keep.name = nil
	find := s.config.FindAllowed
	if s.config.Monitor && !p.Lookup(name).Allowed {
		find = s.config.Find
	}
	a, ok := s.ask(string(key), name, q.qtype, &asker{find: find, client: c}, func(a *answer) {
		c.send(appendReply(nil, &keep, a, a.ttl, 0, c.limit(&keep)))
	})
	if a != nil {
		return appendReply(w.out[:0], &q, a, a.ttl, 0, c.limit(&q)), false
	}
	if !ok {
		c.count.dropped.Add(1)
	}
	return nil, ok
}
