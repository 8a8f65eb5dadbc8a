// Package broker is the process that holds the credentials of APIs. It has no privilege, opens no file, and reaches only
// the hosts of its routes.
package broker

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/stage/child"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/internal/wire/peers"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/broker"
	"github.com/agent-init/agent-init/pkg/broker/authority"
	"github.com/agent-init/agent-init/pkg/broker/inspect"
	"github.com/agent-init/agent-init/pkg/gateway"
	"github.com/agent-init/agent-init/pkg/privdrop/drop"
	"github.com/agent-init/agent-init/pkg/route"
	"github.com/agent-init/agent-init/pkg/sockowner"
)

// process is the broker. What it may spend, and where its hosts are, it asks the keeper.
type process struct {
	channel  *wire.Channel
	asks     *peers.Asks
	hosts    *hosts
	proxy    *broker.Proxy
	record   audit.Recorder
	owed     owed
	released owed          // what requests hold no more, and the keeper was not told in time
	blind    bool          // nothing says whose a connection is
	start    chan struct{} // closed when the start of the container is over
	once     sync.Once     // closes it
	begun    chan struct{} // closed when the first routes were taken, or could not be
	logins   *logins
	token    string
	owner    func(client, server netip.AddrPort) (uid uint32, err error) // of a connection; nil where nothing says it
	led      func(*net.TCPConn) (netip.AddrPort, error)                  // where one was going to that the kernel redirected
	uids     []uint32                                                    // who may ask; none: anybody but the guard
	guard    uint32                                                      // its uid

	authority atomic.Pointer[authority.Authority] // of the names that are looked into; nil: there were none yet
	trust     string                              // what the keeper was told of it; under loading

	journal map[string]journal                // by route
	names   atomic.Pointer[map[string]string] // of the hosts that routes lead to, for the log
	log     *slog.Logger

	loading sync.Mutex
	load    stage.BrokerLoad
}

// The descriptors that the broker inherits behind its channel, in the keeper's order.
const (
	fdAudit = stage.FDFiles + 1 + iota
	fdLoad
	fdDiag      // where sockets are looked up, or nothing of use
	fdHanded    // where the gate's connections are taken over
	fdTunnels   // where the gate asks for connections by the upstream proxy
	fdListeners // and on: one for each address family
)

// Run reads what it is told, and serves until the keeper goes.
func Run(ctx context.Context) error {
	var c stage.BrokerConfig
	conn, err := child.Told(&c, fault.New(fault.Usage, "use agent-init run, up or sidecar", "the broker is started by agent-init itself"))
	if err != nil {
		return err
	}
	debug.SetMemoryLimit(broker.MemoryLimit)
	log.SetOutput(io.Discard) // net/http says there what a server sends unasked, which may repeat a credential
	report, err := child.Reports(os.NewFile(fdAudit, "audit"))
	if err != nil {
		return err
	}
	limiter := audit.NewLimiter(report)
	defer limiter.Flush()
	go limiter.Run(ctx)
	p := newProcess(c, conn, limiter.Record)
	for i, name := range c.Journals {
		p.journal[name] = journal{os.NewFile(uintptr(fdListeners+c.Families+i), "journal")}
	}
	handed, err := peers.OpenTakeOver(os.NewFile(fdHanded, "take over"))
	if err != nil {
		return err
	}
	tunnels, err := wire.OpenPair(os.NewFile(fdTunnels, "tunnels"))
	if err != nil {
		return err
	}
	var listeners []net.Listener
	for i := range c.Families {
		l, err := wire.Inherit(uintptr(fdListeners+i), net.FileListener)
		if err != nil {
			return err
		}
		listeners = append(listeners, l)
	}
	_ = time.Now().Local().String() // the time zone, before files are out of reach
	if err := drop.Serve(); err != nil {
		return err
	}
	first, err := child.ReadBrokerLoad(os.NewFile(fdLoad, "load"))
	if err != nil {
		return err
	}
	p.hosts.proxy.Store(proxyOf(first))
	if err := p.certify(first.Inspected); err != nil { // the keeper has what the agent is to trust before it starts it
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { cancel(p.serveChannel(ctx)) }()
	go func() { cancel(p.serveTunnels(ctx, tunnels)) }() // at once: the self-test goes that way
	// To read the authorities takes longer than all else, and would take the processor from the start. So it is done when
	// the keeper says so. Who connects meanwhile waits.
	go func() {
		<-p.start
		err := p.begin(first)
		if err == nil {
			go p.logins.run(ctx)
			go func() { cancel(p.takeOver(ctx, handed)) }()
			err = p.proxy.Serve(ctx, listeners...)
		}
		cancel(err)
	}()
	if err := p.channel.Send(wire.Message{Op: wire.OpReady}, nil); err != nil {
		return fmt.Errorf("tell the keeper: %w", err)
	}
	return child.Serve(ctx)
}

func newProcess(c stage.BrokerConfig, conn *net.UnixConn, record audit.Recorder) *process {
	p := &process{
		channel: wire.Open(conn, wire.MaxSecret), record: record, start: make(chan struct{}), begun: make(chan struct{}), blind: c.Blind,
		token: c.Token, uids: c.UIDs, guard: c.GuardUID, journal: map[string]journal{},
		log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: c.LogLevel})),
	}
	p.led = gateway.OriginalDestination
	p.asks = peers.NewAsks(p.channel)
	p.hosts = newHosts(p.asks.Ask)
	p.logins = newLogins(p)
	config := broker.Config{UIDs: c.UIDs, Log: p.log, Config: inspect.Config{
		Token: c.Token, Dial: p.hosts.dial, Proxy: p.hosts.requested, DialProxy: p.hosts.dialProxy,
		Spend: p.spend, Leaf: p.leaf, Record: p.over,
	}}
	if !c.Blind {
		sockets := sockowner.NewFinder(os.NewFile(fdDiag, "sock_diag"))
		p.owner = func(client, server netip.AddrPort) (uint32, error) {
			s, err := sockets.Find(unix.IPPROTO_TCP, client, server)
			return s.UID, err
		}
		config.Owner = p.owner
	}
	p.proxy = broker.New(config)
	return p
}

// begin takes what the process was started with. It comes before whatever the keeper sends.
func (p *process) begin(l stage.BrokerLoad) error {
	defer close(p.begun)
	return p.take(l)
}

// take serves other routes, or with other credentials, from now on.
func (p *process) take(l stage.BrokerLoad) error {
	p.loading.Lock()
	defer p.loading.Unlock()
	if err := p.certify(l.Inspected); err != nil {
		return err
	}
	p.load = l
	p.hosts.proxy.Store(proxyOf(l))
	return p.reload()
}

// relogged serves a route with another login from now on, unless adopt says that it has a newer one.
func (p *process) relogged(name string, file []byte, adopt func() bool) error {
	p.loading.Lock() // no other logins come meanwhile
	defer p.loading.Unlock()
	if !adopt() {
		return nil
	}
	p.load.Credentials[name] = file
	return p.reload()
}

// reload serves what was handed over last, with the logins as they are now. Its caller holds p.loading.
func (p *process) reload() error {
	l := p.load
	roots := x509.NewCertPool()
	if len(l.Roots) > 0 && !roots.AppendCertsFromPEM(l.Roots) {
		return errors.New("the certificate authorities have no certificate")
	}
	names := map[string]string{}
	for _, r := range l.Routes {
		if u, err := url.Parse(r.To); err == nil {
			names[r.Name] = u.Hostname()
		}
	}
	p.names.Store(&names)
	routes, credentials := p.loggedIn(l, roots)
	return p.proxy.Load(broker.Loaded{Routes: routes, Inspected: l.Inspected, Credentials: credentials, Roots: roots, By: fmt.Sprint(l.Proxy)})
}

// loggedIn are the routes with what logins make of them. A route whose login can't be read is not served.
func (p *process) loggedIn(l stage.BrokerLoad, roots *x509.CertPool) ([]route.Route, map[string][]byte) {
	credentials, logged := maps.Clone(l.Credentials), map[string]bool{}
	var routes []route.Route
	for _, r := range l.Routes {
		if slices.Contains(l.Logins, r.Name) {
			in, err := p.logins.take(r, l.Credentials[r.Name], roots, p.journal[r.Name])
			if err != nil {
				p.log.Error("the login of a route can't be read: there is no such route now", "route", r.Name, "error", err)
				p.record(p.event(broker.Event{Route: r.Name, Refused: "login: " + err.Error()}))
				if delete(credentials, r.Name); r.Inspects != "" { // else the agent's own would pass on that name
					routes = append(routes, r)
				}
				continue
			}
			credentials[r.Name], logged[r.Name] = []byte(in.Access()), true
			if account := in.Account(); account != "" {
				r.Add = append(r.Add[:len(r.Add):len(r.Add)], route.Header{Name: "ChatGPT-Account-Id", Value: account})
			}
		}
		routes = append(routes, r)
	}
	p.logins.only(logged)
	return routes, credentials
}

// serveChannel handles what the keeper sends, until the keeper goes.
func (p *process) serveChannel(ctx context.Context) error {
	for {
		m, file, err := p.channel.Receive()
		if errors.Is(err, wire.ErrMalformed) {
			continue
		}
		if err != nil {
			return fmt.Errorf("%w: %w", child.ErrKeeperGone, err)
		}
		switch m.Op {
		case wire.OpLookup, wire.OpSpend, wire.OpKeep, wire.OpTunnel, wire.OpLast:
			p.asks.End(m)
		case wire.OpPing:
			err = p.channel.Deliver(wire.Message{Op: wire.OpPong, ID: m.ID})
		case wire.OpAhead:
			p.once.Do(func() { close(p.start) })
		case wire.OpCredentials:
			p.once.Do(func() { close(p.start) })
			err = p.takeFrom(m, file)
			file = nil
		case wire.OpNotify:
			go p.notify(ctx, m, file)
			file = nil
		}
		if file != nil {
			file.Close()
		}
		if err != nil { // it was there to ask
			return fmt.Errorf("%w: %w", child.ErrKeeperGone, err)
		}
	}
}

// takeFrom is take of what came with a message, and answers it.
func (p *process) takeFrom(m wire.Message, file *os.File) error {
	<-p.begun
	refused := errors.New("no routes in the message")
	if file != nil {
		var l stage.BrokerLoad
		if l, refused = child.ReadBrokerLoad(file); refused == nil {
			refused = p.take(l)
		}
	}
	if refused != nil {
		p.log.Error("taking other routes", "error", refused)
	}
	p.hosts.forget()
	return p.channel.Deliver(wire.Message{Op: wire.OpCredentials, ID: m.ID, Err: refused != nil})
}
