package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agent-init/agent-init/internal/race"
	"github.com/agent-init/agent-init/internal/wire"
)

// hosts are the addresses of the routes' hosts and of inspected names, as the keeper has them leased to this process.
type hosts struct {
	ask   func(context.Context, wire.Message) (wire.Message, error)
	now   func() time.Time
	proxy atomic.Pointer[upstreamProxy] // by which they are reached, but for those that go past it; nil: all go straight

	mu    sync.Mutex
	known map[string]leased
}

// maxHosts are known at once. When there are more, it begins anew.
const maxHosts = 1024

// askAgain is for how long an answer that leads nowhere is not asked for anew. The keeper answers so many questions a
// second, of all hosts: one that refuses connections would take those of the others, as fast as the agent asks it.
const askAgain = 5 * time.Second

type leased struct {
	addrs       []netip.Addr
	from, until time.Time
}

func newHosts(ask func(context.Context, wire.Message) (wire.Message, error)) *hosts {
	return &hosts{ask: ask, now: time.Now, known: map[string]leased{}}
}

// forget has all hosts looked up anew.
func (h *hosts) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.known)
}

// lookup asks the keeper, unless it has answered already for as long as that counts. What it said a while ago is old.
func (h *hosts) lookup(ctx context.Context, host string) (addrs []netip.Addr, old bool, err error) {
	h.mu.Lock()
	l := h.known[host]
	h.mu.Unlock()
	asked := h.now()
	if asked.Before(l.until) {
		return l.addrs, asked.Sub(l.from) >= askAgain, nil
	}
	reply, err := h.ask(ctx, wire.Message{Op: wire.OpLookup, Name: host})
	switch {
	case err != nil:
		return nil, false, fmt.Errorf("ask for the addresses of %s: %w", host, err)
	case reply.Err:
		return nil, false, &net.DNSError{Err: reply.Text, Name: host}
	case len(reply.Addrs) == 0:
		return nil, false, &net.DNSError{Err: "no address of a class that the route may lead to", Name: host, IsNotFound: true}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.known) >= maxHosts { // below a wildcard, the agent makes as many names as it likes
		clear(h.known)
	}
	h.known[host] = leased{reply.Addrs, asked, asked.Add(reply.TTL)}
	return reply.Addrs, false, nil
}

// dial connects to a host, by the upstream proxy if there is one for it.
func (h *hosts) dial(ctx context.Context, host string, port uint16) (net.Conn, error) {
	if x := h.proxy.Load(); x != nil && !x.PassesHost(host, port) {
		return h.byProxy(ctx, x, host, port)
	}
	return h.straight(ctx, host, port)
}

// straight connects to a host itself. What was known for a while, and leads nowhere, is asked for again.
func (h *hosts) straight(ctx context.Context, host string, port uint16) (net.Conn, error) {
	if a, err := netip.ParseAddr(host); err == nil { // the rules have it by itself
		return connect(ctx, []netip.Addr{a}, port)
	}
	addrs, old, err := h.lookup(ctx, host)
	if err != nil {
		return nil, err
	}
	conn, err := connect(ctx, addrs, port)
	if err == nil || !old || ctx.Err() != nil {
		return conn, err
	}
	h.mu.Lock()
	delete(h.known, host)
	h.mu.Unlock()
	if addrs, _, err = h.lookup(ctx, host); err != nil {
		return nil, err
	}
	return connect(ctx, addrs, port)
}

// connect connects to the first of addrs that answers.
func connect(ctx context.Context, addrs []netip.Addr, port uint16) (net.Conn, error) {
	if len(addrs) == 0 {
		return nil, errors.New("there is no address")
	}
	r := race.Race[net.Conn]{After: race.After, Others: func(context.Context) []netip.Addr { return addrs[1:] }}
	r.Dial = func(ctx context.Context, a netip.Addr) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", netip.AddrPortFrom(a, port).String())
	}
	conn, _, err := r.Connect(ctx, addrs[0])
	return conn, err
}
