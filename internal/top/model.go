package top

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lease"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/sockowner"
)

// Model folds facts into what is shown. Its memory is bounded, whatever the agent makes.
type Model struct {
	facts   Facts
	begun   time.Time
	round   uint64
	conns   map[uint64]*conn
	names   map[netip.Addr][]leased
	of      *lease.Report // what names was made of
	refused folded
	asked   folded
	total   uint64 // refusals
	before  uint64 // of these, at the last look
	paused  time.Duration
}

// NewModel returns a Model that knows nothing yet.
func NewModel() *Model {
	return &Model{conns: map[uint64]*conn{}, refused: folded{}, asked: folded{}}
}

// conn is what is remembered of a connection from look to look.
type conn struct {
	Connection
	round uint64
}

// Take takes a look in. What was there before and is in no fact any more is forgotten, but for what is folded.
func (m *Model) Take(f Facts) {
	if m.round++; m.begun.IsZero() {
		m.begun = f.At
	}
	if !m.facts.At.IsZero() {
		m.paused = f.At.Sub(m.facts.At)
	}
	m.facts, m.before = f, m.total
	if f.Leases != m.of {
		m.of, m.names = f.Leases, openedBy(f.Leases)
	}
	for _, e := range f.Events {
		m.fold(e)
	}
	if f.Sockets != nil {
		for i := range f.Sockets.Conns {
			if c := &f.Sockets.Conns[i]; !m.theirs(c) {
				m.meet(c)
			}
		}
	}
	for key, c := range m.conns {
		if c.round != m.round {
			delete(m.conns, key)
		}
	}
}

// theirs says whether a socket is one of agent-init's own: the far end of what the agent has, or what goes on from it.
func (m *Model) theirs(c *sockowner.Conn) bool {
	s := m.facts.State
	if s == nil {
		return false
	}
	return s.Guard.UID != 0 && c.UID == s.Guard.UID || s.Broker.UID != 0 && c.UID == s.Broker.UID || c.Proto == unix.IPPROTO_UDP && c.Remote.Port() == 53
}

// keyOf tells a socket from each other one. An inode is used again; it is all that proc(5) tells.
func keyOf(c *sockowner.Conn) uint64 { return cmp.Or(c.Cookie, uint64(c.Inode)) }

func (m *Model) meet(c *sockowner.Conn) {
	key := keyOf(c)
	known := m.conns[key]
	if known == nil {
		known = &conn{Connection: Connection{id: strconv.FormatUint(key, 36), Since: m.facts.At, Older: m.round == 1, Out: c.Sent, In: c.Received}}
		m.conns[key] = known
	}
	known.round = m.round
	if seconds := m.paused.Seconds(); seconds > 0 {
		known.OutRate, known.InRate = perSecond(known.Out, c.Sent, seconds), perSecond(known.In, c.Received, seconds)
	}
	known.Out, known.In = c.Sent, c.Received
	known.Local, known.Remote, known.Proto, known.Opening, known.UID = c.Local, c.Remote, "tcp", c.Opening, c.UID
	if c.Proto == unix.IPPROTO_UDP {
		known.Proto = "udp"
	}
	holder := m.facts.Holders[c.Inode]
	known.PID, known.Process = holder.PID, holder.Name
	if known.Way == "" || known.Way == unknown { // its name may be published a moment later
		known.Name, known.Others, known.Way = m.leads(c)
	}
}

func perSecond(before, now uint64, seconds float64) float64 {
	if now < before {
		return 0
	}
	return float64(now-before) / seconds
}

// maxFolded is how many names are remembered of each sort: those that came last.
const maxFolded = 512

// folded is what happened, by name.
type folded map[string]*fold

type fold struct {
	count  uint64
	last   audit.Event
	judged *policy.Policy // that says line
	line   string         // what would allow it
}

func (f folded) add(key string, e audit.Event, count uint64) {
	known := f[key]
	if known == nil {
		if len(f) >= maxFolded {
			f.forget()
		}
		known = &fold{}
		f[key] = known
	}
	known.count += count
	if !e.Time.Before(known.last.Time) {
		if e.Comm == "" && e.PID == 0 { // who it was is not told each time
			e.Comm, e.PID = known.last.Comm, known.last.PID
		}
		known.last = e
	}
}

// forget makes room: those that came last stay.
func (f folded) forget() {
	for _, key := range f.newest()[maxFolded*3/4:] {
		delete(f, key)
	}
}

// newest are the keys, those that came last first.
func (f folded) newest() []string {
	return slices.SortedFunc(maps.Keys(f), func(a, b string) int {
		return cmp.Or(f[b].last.Time.Compare(f[a].last.Time), cmp.Compare(a, b))
	})
}

// fold takes in a line of the log. What agent-init itself asks and tries is nobody's wish.
func (m *Model) fold(e audit.Event) {
	if e.Asker != audit.Agent || m.facts.State == nil || e.Time.Before(m.facts.State.Started) {
		return
	}
	count := e.Suppressed + 1
	refused := e.Verdict == audit.Deny || e.Enforce == audit.Deny
	if e.Kind == audit.DNS && e.Name != "" {
		m.asked.add(e.Name, e, count)
	}
	if !refused || !slices.Contains([]audit.Kind{audit.DNS, audit.Connect, audit.HTTP, audit.Drop, audit.Broker}, e.Kind) {
		return
	}
	m.total += count
	m.refused.add(m.about(&e), e, count)
}

// about is what a refusal was about: a name, or an address with a port. A refused packet has no name; it gets that of
// whose the address is.
func (m *Model) about(e *audit.Event) string {
	if a, err := netip.ParseAddr(e.IP); e.Name == "" && err == nil {
		e.Name, _ = m.latest(m.names[a.Unmap()])
	}
	at := e.Name
	switch a, err := netip.ParseAddr(e.IP); {
	case at == "" && err != nil:
		at = cmp.Or(e.IP, e.Route, string(e.Kind))
	case at == "" && e.Port != 0:
		at = netip.AddrPortFrom(a, e.Port).String()
	case at == "":
		at = a.String()
	case e.Kind != audit.DNS && e.Port != 0:
		at += ":" + strconv.Itoa(int(e.Port))
	}
	if e.Proto == "udp" && e.Kind != audit.DNS {
		at += "/udp"
	}
	return at
}

// word is how far what is published can be relied on.
func (m *Model) word() string {
	if m.facts.State == nil {
		return "not running"
	}
	word, _ := m.facts.State.Word()
	return word
}

func (m *Model) health() (ok bool, why []string) {
	if m.facts.State == nil {
		return false, []string{m.facts.Unread}
	}
	return m.facts.State.Healthy(m.facts.At)
}
