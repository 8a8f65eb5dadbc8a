package keeper

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/ids"
	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/budget"
	"github.com/agent-init/agent-init/pkg/firewall"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/reaper"
	"github.com/agent-init/agent-init/pkg/route"
	"github.com/agent-init/agent-init/pkg/sockowner"
)

// brokerKeeper keeps one broker running, and owns what it is lent: its listener, the credentials, the counts of what was
// spent. It is nil where there was neither a route nor an inspected name at the start. Then nothing of it is there.
type brokerKeeper struct {
	child
	book        *book
	guard       *guardKeeper
	credentials *credentials
	roots       *roots
	spending    *spending
	lookups     budget.Pace
	keeps       budget.Pace
	handing     sync.Mutex // held while credentials go to the broker or come from it: none goes that is older
	token       string
	told        stage.BrokerConfig
	sockets     *brokerSockets
	uid         uint32
	group       ids.Group

	trust   *trust            // what programs are to trust
	filed   map[string]string // the files of routes that were written last, by name; one change at a time writes them
	always  []*os.File        // what each gets
	version uint64            // of what brokers are to serve; under mu
	given   uint64            // what the present broker was started with; under mu
	started bool              // the start of the container is over; under mu
}

const brokerPatience = 5 * time.Second

// newBrokerKeeper opens what brokers are lent. It stays the keeper's while they come and go.
func newBrokerKeeper(ctx context.Context, b *base, h guarded) (*brokerKeeper, error) {
	k := &brokerKeeper{
		child: child{base: b, who: "the broker", sender: audit.TheBroker},
		book:  h.book, credentials: h.book.credentials, roots: newRoots(b.config.Environ), spending: newSpending(),
		lookups: budget.Pace{Burst: 64, Every: 50 * time.Millisecond}, uid: h.found.broker.uid, group: h.found.broker.group, guard: h.guard,
	}
	// More than a broker of ours has kept. One that was taken over wears out no disk, and fills no log.
	k.keeps.Burst, k.keeps.Every = 64, 5*time.Second
	k.trust = newTrust(k)
	err := k.prepare(h.book.policy().Settings)
	if err != nil {
		return nil, err
	}
	if k.sockets, err = openBrokerSockets(ctx, h.inside.hosts()...); err != nil {
		return nil, err
	}
	var drawn [32]byte
	rand.Read(drawn[:])
	k.token = base64.RawURLEncoding.EncodeToString(drawn[:])
	k.told = stage.BrokerConfig{Token: k.token, GuardUID: h.agent.guardUID, Families: len(k.sockets.files), LogLevel: b.config.level()}
	k.told.Blind = h.inside != nil
	if !b.shared() {
		k.told.UIDs = []uint32{h.agent.identity.UID, 0}
	}
	diag, err := k.openDiag()
	if err != nil {
		return nil, err
	}
	k.door = &k.sockets.lent
	k.always = slices.Concat([]*os.File{diag}, k.guard.brokers, k.sockets.files)
	k.spec = stage.Own("broker", k.uid, k.group.GID, stage.BrokerName)
	k.part = func(s *state.State) partState {
		return partState{&s.Broker.OK, &s.Broker.Fault, &s.Broker.Restarts, &s.Broker.Seen}
	}
	k.keep(brokerPatience, wire.MaxSecret, k.spawn, k.serve)
	b.update(func(s *state.State) { s.Broker.UID, s.Broker.Port = k.uid, k.sockets.port })
	return k, nil
}

// identity is what the rules know the broker by.
func (k *brokerKeeper) identity() identity {
	if k == nil {
		return identity{}
	}
	i := identity{uid: k.uid, gid: k.group.GID, port: k.sockets.port, at: k.sockets.at}
	if k.group.Any {
		i.gid = 0
	}
	return i
}

// await waits until the first broker serves.
func (k *brokerKeeper) await(ctx context.Context) error {
	if k == nil {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, stage.StartTime)
	defer cancel()
	select {
	case <-k.ready:
		return nil
	case <-bounded.Done():
		return fault.New(fault.Rules, "run it again with --log-level debug", "the broker did not start in time (%s)", k.status().Broker.Fault)
	}
}

// openDiag opens where the broker sees whose a connection is. Where the kernel can't tell that, the token has to do.
func (k *brokerKeeper) openDiag() (*os.File, error) {
	if k.told.Blind { // callers are on other machines, as it seems from here
		return os.Open(os.DevNull)
	}
	diag, err := sockowner.Open()
	if err == nil {
		nobody := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 0)
		if _, err = sockowner.NewFinder(diag).Find(unix.IPPROTO_TCP, nobody, nobody); errors.Is(err, sockowner.ErrNone) {
			return diag, nil
		}
		diag.Close()
	}
	k.log.Warn("the broker knows callers by their token alone: the kernel can't say whose a socket is", "error", err)
	k.told.Blind = true
	return os.Open(os.DevNull)
}

// prepare reads the certificate authorities, if a route or an inspected name needs them for the first time.
func (k *brokerKeeper) prepare(s policy.Settings) error {
	overTLS := func(r route.Route) bool { return strings.HasPrefix(r.To, "https:") }
	if k == nil || k.roots.pem != nil || !slices.ContainsFunc(s.Broker, overTLS) && !certified(s) && s.Notify.Webhook.To == "" {
		return nil
	}
	return k.rereadRoots()
}

func (k *brokerKeeper) spawn(channel *os.File) (*reaper.Process, error) {
	k.mu.Lock()
	k.given = k.version
	k.mu.Unlock()
	load, err := k.load().File()
	if err != nil {
		return nil, err
	}
	defer load.Close()
	journals, routes := k.openJournals()
	defer closeAll(journals)
	told := k.told
	told.Journals = routes
	k.gets = append(k.always[:len(k.always):len(k.always)], journals...)
	return k.child.spawn(channel, told, load)
}

// load is what the broker is to serve now.
func (k *brokerKeeper) load() stage.BrokerLoad {
	settings := k.book.policy().Settings
	l := stage.BrokerLoad{Routes: settings.Broker, Inspected: settings.Inspected, Credentials: map[string][]byte{}}
	for _, r := range l.Routes {
		c := k.credentials.of(r)
		if l.Credentials[r.Name] = c.secret; c.login != "" {
			l.Logins = append(l.Logins, r.Name)
		}
	}
	l.Proxy, l.ProxyCredential = settings.UpstreamProxy, k.credentials.of(proxyRoute(settings)).secret
	k.mu.Lock()
	defer k.mu.Unlock()
	l.Roots = k.roots.pem
	return l
}

// push hands over other routes or credentials. A broker that can't take them is replaced by one that starts with them.
// What is returned is closed when the broker has them, or is gone; nil if there is none.
func (k *brokerKeeper) push() (taken <-chan wire.Message) {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	k.version++
	k.mu.Unlock()
	k.handing.Lock()
	defer k.handing.Unlock()
	f, err := k.load().File()
	if err != nil {
		k.log.Error("handing over credentials", "error", err)
		return nil
	}
	defer f.Close()
	taken, ch, err := k.ask(wire.Message{Op: wire.OpCredentials}, f)
	if ch != nil && err != nil {
		k.log.Warn("the broker is restarted to take other credentials", "error", err)
		ch.Close()
	}
	return taken
}

// watch takes over credentials and certificate authorities that have changed.
func (k *brokerKeeper) watch() {
	if k == nil {
		return
	}
	settings := k.book.policy().Settings
	routes := append(slices.Clip(settings.Broker), proxyRoute(settings))
	another, news := k.credentials.changed(routes)
	if k.roots.pem != nil && k.roots.changed() {
		if err := k.rereadRoots(); err != nil {
			k.log.Error("the certificate authorities were not read again; the former ones stay", "error", err)
		} else {
			another = true
			if err := k.trust.write(); err != nil {
				k.log.Error("what programs are to trust was not written again", "error", err)
			}
		}
	}
	switch {
	case another:
		taken := k.push()
		go func() { // it is said of what is in force
			if taken != nil {
				<-taken
			}
			k.guardian(audit.Info, "credentials or certificate authorities of the broker have changed")
		}()
		k.book.publishRoutes()
	case news:
		k.book.publishRoutes()
	}
	if news {
		k.publish()
	}
}

func (k *brokerKeeper) rereadRoots() error {
	next := &roots{files: k.roots.files}
	err := next.read()
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		k.roots.seen = next.look() // it is read again when it has changed again
		return err
	}
	k.roots = next
	return nil
}

// serve answers the broker.
func (k *brokerKeeper) serve(ctx context.Context, ch *wire.Channel) error {
	a := answering{who: k.who, patience: brokerPatience, log: k.log}
	a.answers = map[wire.Op]func(m, reply wire.Message) wire.Message{
		wire.OpSpend:  k.spend,
		wire.OpKeep:   k.keepLogin,
		wire.OpTunnel: func(m, reply wire.Message) wire.Message { return k.guard.leases.tunnel(ctx, m, reply) },
		wire.OpLookup: func(m, reply wire.Message) wire.Message {
			return k.guard.lookup(ctx, &k.lookups, m, reply)
		},
	}
	a.last = firewall.LastConnection
	a.takes = func(m wire.Message) error {
		switch m.Op {
		case wire.OpReady:
			k.serving(ch)
		case wire.OpPong:
			k.update(func(s *state.State) { s.Broker.Seen = time.Now() })
		case wire.OpTrust: // answered by nothing: the next message of the broker's comes after it is written
			return k.trust.take(m)
		case wire.OpCredentials:
			if m.Err {
				return errors.New("the broker could not take other credentials")
			}
			k.answered(m)
		case wire.OpNotify:
			k.answered(m)
		default:
			return errors.New("the broker sent an unknown request")
		}
		return nil
	}
	defer k.spending.broke()
	return a.serve(ch)
}

func (k *brokerKeeper) serving(ch *wire.Channel) {
	k.begun(ch)
	k.mu.Lock()
	outdated, started := k.given != k.version, k.started
	k.mu.Unlock()
	if started {
		k.tellStarted(ch)
	}
	if outdated { // something changed while the broker was on its way
		k.push()
	}
	k.serves()
}

// release lets this broker, and those that follow it, take up their work: the start is over, and lacks the processor no
// more.
func (k *brokerKeeper) release() {
	if k == nil {
		return
	}
	k.mu.Lock()
	k.started = true
	ch := k.live
	k.mu.Unlock()
	if ch != nil {
		k.tellStarted(ch)
	}
}

func (k *brokerKeeper) tellStarted(ch *wire.Channel) {
	if err := ch.Send(wire.Message{Op: wire.OpAhead, Arg: uint64(wire.AheadAll)}, nil); err != nil {
		k.log.Warn("the broker is restarted to begin its work", "error", err)
		ch.Close()
	}
}

// route is the present route of that name.
func (k *brokerKeeper) route(name string) (r route.Route, ok bool) {
	routes := k.book.policy().Settings.Broker
	i := slices.IndexFunc(routes, func(r route.Route) bool { return r.Name == name })
	if i < 0 {
		return r, false
	}
	return routes[i], true
}

// spend takes a request from the limits of its route, or with a flag counts what one has come to.
func (k *brokerKeeper) spend(m, reply wire.Message) wire.Message {
	r, ok := k.route(m.Name)
	switch {
	case m.Flag == wire.SpentHeld: // also of a route that has gone meanwhile
		k.spending.release(m.Name, m.Arg)
	case !ok:
		reply.Err, reply.Text = true, "there is no such route any more"
	case m.Flag == 0:
		reply.Text = k.spending.take(r, m.Arg, time.Now())
		reply.Err = reply.Text != ""
	default:
		k.spending.count(r.Name, m.Arg, uint64(max(0, m.Value)), time.Now())
		k.count(m)
	}
	return reply
}
