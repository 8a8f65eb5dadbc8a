package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/stage/child"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/broker/tunnel"
	"github.com/agent-init/agent-init/pkg/route"
)

// upstreamProxy is how connections go out, if not straight. A nil one is none.
type upstreamProxy struct {
	route.Proxy
	authorization string
}

// proxyOf is that of a load.
func proxyOf(l stage.BrokerLoad) *upstreamProxy {
	if l.Proxy.Host == "" {
		return nil
	}
	return &upstreamProxy{l.Proxy, l.Proxy.Authorization(l.ProxyCredential)}
}

const (
	// tunnelTime is for one connection: to reach the proxy, and for its answer. The guard waits a little longer.
	tunnelTime = 9 * time.Second
	// maxTunnels are asked for at once. The others stay in the guard's queue.
	maxTunnels = 256
	// mostTried are the addresses of a host of the broker's own that the proxy is asked for, one after the other.
	mostTried = 3
)

// proxyError is a failure of the upstream proxy's: whatever was to go by it does not go another way.
type proxyError struct{ error }

func (e proxyError) Error() string { return "by the upstream proxy: " + e.error.Error() }
func (e proxyError) Unwrap() error { return e.error }

// open asks the proxy for a target.
func (h *hosts) open(ctx context.Context, x *upstreamProxy, target string) (*net.TCPConn, error) {
	ctx, cancel := context.WithTimeout(ctx, tunnelTime)
	defer cancel()
	conn, err := h.straight(ctx, x.Host, x.Port)
	if err != nil {
		if ctx.Err() != nil {
			err = tunnel.ErrLate
		}
		return nil, proxyError{err}
	}
	tcp := conn.(*net.TCPConn)
	if err = tunnel.Open(ctx, tcp, target, x.authorization); err != nil {
		_ = tcp.SetLinger(0)
		tcp.Close()
		return nil, proxyError{err}
	}
	return tcp, nil
}

// requested says whether plain HTTP to a host is asked of the proxy by requests with whole URLs, and what it is shown. A
// URL has a name, and so that is where the proxy is asked for names.
func (h *hosts) requested(host string, port uint16) (authorization string, is bool) {
	x := h.proxy.Load()
	if x == nil || !x.ByName || x.PassesHost(host, port) {
		return "", false
	}
	return x.authorization, true
}

// dialProxy connects to the proxy itself, for such requests.
func (h *hosts) dialProxy(ctx context.Context, host string, port uint16) (net.Conn, error) {
	x := h.proxy.Load()
	if _, is := h.requested(host, port); !is || x == nil {
		return nil, proxyError{errors.New("the policy has changed")}
	}
	conn, err := h.straight(ctx, x.Host, x.Port)
	if err != nil {
		return nil, proxyError{err}
	}
	return conn, nil
}

// byProxy connects to a host of the broker's own.
func (h *hosts) byProxy(ctx context.Context, x *upstreamProxy, host string, port uint16) (net.Conn, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return h.open(ctx, x, netip.AddrPortFrom(a, port).String())
	}
	if x.ByName {
		return h.open(ctx, x, net.JoinHostPort(host, strconv.Itoa(int(port))))
	}
	addrs, _, err := h.lookup(ctx, host)
	if err != nil {
		return nil, err
	}
	addrs = slices.Clone(addrs)
	slices.SortStableFunc(addrs, func(a, b netip.Addr) int { return cmp.Compare(a.BitLen(), b.BitLen()) })
	var errs []error
	for _, a := range addrs[:min(len(addrs), mostTried)] {
		conn, err := h.open(ctx, x, netip.AddrPortFrom(a, port).String())
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
		if no := tunnel.Refusal(0); !errors.As(err, &no) || no < 500 { // another address would not help
			break
		}
	}
	return nil, errs[len(errs)-1]
}

// serveTunnels opens connections by the proxy for the gate, until ctx ends. The guard may have been taken over: the keeper
// says whether the agent holds a lease for just that.
func (p *process) serveTunnels(ctx context.Context, conn *net.UnixConn) error {
	ch := wire.Open(conn, wire.MaxText)
	defer context.AfterFunc(ctx, func() { ch.Close() })()
	asked := make(chan struct{}, maxTunnels)
	for {
		m, file, err := ch.Receive()
		if file != nil {
			file.Close()
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, wire.ErrMalformed):
			continue
		case err != nil:
			return fmt.Errorf("%w: %w", child.ErrKeeperGone, err)
		case m.Op != wire.OpTunnel || len(m.Addrs) != 1 || m.Port == 0 || m.Name == "":
			continue
		}
		select {
		case asked <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		go func() {
			defer func() { <-asked }()
			p.answerTunnel(ctx, ch, m)
		}()
	}
}

func (p *process) answerTunnel(ctx context.Context, ch *wire.Channel, m wire.Message) {
	reply := wire.Message{Op: wire.OpTunnel, ID: m.ID}
	var file *os.File
	conn, err := p.tunnel(ctx, m)
	if err == nil {
		file, err = p.last(ctx, conn)
	}
	if err != nil {
		reply.Err, reply.Text = true, wire.PlainText(err.Error())
	} else {
		defer file.Close()
	}
	if err := ch.Send(reply, file); err != nil {
		p.log.Debug("answering the guard", "error", err)
	}
}

// last is conn as it is given away: a socket that can't be connected to anything else, as it would be by the broker. The
// keeper sees to that, since it takes a capability.
func (p *process) last(ctx context.Context, conn *net.TCPConn) (*os.File, error) {
	file, err := conn.File()
	conn.Close() // the file is another descriptor of it
	if err != nil {
		return nil, err
	}
	reply, err := p.asks.AskAbout(ctx, wire.Message{Op: wire.OpLast}, file)
	if err == nil && reply.Err {
		err = errors.New("the kernel does not let a connection be given away as a socket's last")
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

func (p *process) tunnel(ctx context.Context, m wire.Message) (*net.TCPConn, error) {
	x := p.hosts.proxy.Load()
	if x == nil {
		return nil, errors.New("there is no upstream proxy")
	}
	reply, err := p.asks.Ask(ctx, wire.Message{Op: wire.OpTunnel, Name: m.Name, Addrs: m.Addrs, Port: m.Port})
	switch {
	case err != nil:
		return nil, fmt.Errorf("ask the keeper: %w", err)
	case reply.Err:
		return nil, errors.New("the address is not leased to this name, to go by the upstream proxy")
	}
	target := netip.AddrPortFrom(m.Addrs[0], m.Port).String()
	if x.ByName {
		target = net.JoinHostPort(m.Name, strconv.Itoa(int(m.Port)))
	}
	return p.hosts.open(ctx, x, target)
}
