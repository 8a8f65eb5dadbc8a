package broker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/internal/wire/peers"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/broker"
	"github.com/agent-init/agent-init/pkg/sockowner"
)

// maxAsked are the connections of which the kernel is asked at once whose they are. The others stay in the guard's queue,
// where each counts against what it may send: here, a guard that sends without end would fill the table of files.
const maxAsked = 16

// takeOver takes connections over from the gate, until t is closed. The guard may have been taken over itself: what it
// says of a connection decides nothing that the connection's own bytes, or the kernel, can say.
func (p *process) takeOver(ctx context.Context, t *peers.TakeOver) error {
	defer context.AfterFunc(ctx, func() { t.Close() })()
	asked := make(chan struct{}, maxAsked)
	for {
		h, err := t.Next()
		switch {
		case err == nil:
			select {
			case asked <- struct{}{}:
			case <-ctx.Done():
				reset(h.Conn)
				return nil
			}
			go func() {
				defer func() { <-asked }()
				p.taken(h)
			}()
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, io.EOF): // a packet of no bytes, or the keeper is gone, which its channel says
			time.Sleep(10 * time.Millisecond)
		case !errors.Is(err, wire.ErrMalformed):
			return fmt.Errorf("take connections over: %w", err)
		}
	}
}

// taken serves a connection, if it is one of somebody who may ask.
func (p *process) taken(h peers.Handed) {
	client, _ := h.Conn.RemoteAddr().(*net.TCPAddr)
	uid, err := uint32(0), p.redirected(h)
	if err == nil {
		uid, err = p.maker(client, h.To)
	}
	if err != nil {
		e := audit.Event{Kind: audit.Broker, Verdict: audit.Deny, Name: h.Name, IP: h.To.Addr().String(), Port: h.To.Port(), Proto: "tcp",
			Reason: "caller: " + err.Error()}
		switch {
		case errors.Is(err, sockowner.ErrNone):
			e.Reason = "gone: the client closed the connection before it could be told whose it was, or it was never made"
		case !p.blind && !errors.Is(err, errNotLed):
			e.UID = &uid
		}
		p.record(e)
		reset(h.Conn)
		return
	}
	p.proxy.Inspect(broker.Handed{Conn: h.Conn, Name: h.Name, To: h.To, Read: h.Read, UID: uid})
}

var (
	errNotAgents = errors.New("not a connection of the agent's")
	errNotLed    = errors.New("not a connection that was going there")
)

// redirected says whether the kernel led the connection here on its way to where the guard says. Of another socket, the
// ends could be those of one of the agent's (IP_LOCAL_PORT_RANGE of ip(7) lets two have one port).
func (p *process) redirected(h peers.Handed) error {
	if p.led == nil {
		return nil
	}
	if to, err := p.led(h.Conn); err != nil || netip.AddrPortFrom(to.Addr().Unmap(), to.Port()) != h.To {
		return errNotLed
	}
	return nil
}

// maker is the user whose connection it is. A guard that hands over one that it has made itself would ask with the
// agent's rules, and the credentials that are put on there.
func (p *process) maker(client *net.TCPAddr, to netip.AddrPort) (uid uint32, err error) {
	if p.owner == nil {
		return 0, nil
	}
	if client == nil {
		return 0, errNotAgents
	}
	uid, err = p.owner(client.AddrPort(), to)
	switch {
	case err != nil:
		return 0, err // it has been closed, or was never made to there
	case uid == p.guard, len(p.uids) > 0 && !slices.Contains(p.uids, uid):
		return uid, errNotAgents
	}
	return uid, nil
}

func reset(conn *net.TCPConn) {
	_ = conn.SetLinger(0)
	conn.Close()
}
