package broker

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/internal/wire/peers"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/sockowner"
)

// TestMaker: a connection is served if the agent has made it to where it is said to go, and no other.
func TestMaker(t *testing.T) {
	const agent, guard, other = 1000, 64901, 1001
	client, to := netip.MustParseAddrPort("172.17.0.2:40000"), netip.MustParseAddrPort("192.0.2.1:443")
	none := errors.New("no such socket")
	of := func(uid uint32) func(c, s netip.AddrPort) (uint32, error) {
		return func(c, s netip.AddrPort) (uint32, error) {
			if c != client || s != to {
				return 0, none
			}
			return uid, nil
		}
	}
	for what, tt := range map[string]struct {
		p      *process
		client netip.AddrPort
		to     netip.AddrPort
		ok     bool
	}{
		"the agent's":                {&process{owner: of(agent), uids: []uint32{agent, 0}, guard: guard}, client, to, true},
		"root's":                     {&process{owner: of(0), uids: []uint32{agent, 0}, guard: guard}, client, to, true},
		"another user's":             {&process{owner: of(other), uids: []uint32{agent, 0}, guard: guard}, client, to, false},
		"the guard's":                {&process{owner: of(guard), uids: []uint32{agent, 0}, guard: guard}, client, to, false},
		"to somewhere else":          {&process{owner: of(agent), uids: []uint32{agent, 0}, guard: guard}, client, netip.MustParseAddrPort("192.0.2.2:443"), false},
		"in a pod":                   {&process{owner: of(other), guard: guard}, client, to, true},
		"the guard's, in a pod":      {&process{owner: of(guard), guard: guard}, client, to, false},
		"where the kernel says none": {&process{guard: guard}, client, to, true},
	} {
		if _, err := tt.p.maker(net.TCPAddrFromAddrPort(tt.client), tt.to); (err == nil) != tt.ok {
			t.Errorf("%s: %v", what, err)
		}
	}
	p := &process{owner: of(agent)}
	if _, err := p.maker(nil, to); err == nil {
		t.Error("without an address: served")
	}
}

// TestTakenTooLate: a client that has closed its connection is nobody's attack, and the log says so.
func TestTakenTooLate(t *testing.T) {
	for err, want := range map[error]string{sockowner.ErrNone: "gone: the client closed", errNotAgents: "caller: not a connection of the agent's"} {
		var got audit.Event
		p := &process{record: func(e audit.Event) { got = e }, owner: func(_, _ netip.AddrPort) (uint32, error) { return 7, err }}
		l, fault := net.Listen("tcp", "127.0.0.1:0")
		if fault != nil {
			t.Fatal(fault)
		}
		defer l.Close()
		c, fault := net.Dial("tcp", l.Addr().String())
		if fault != nil {
			t.Fatal(fault)
		}
		p.taken(peers.Handed{Conn: c.(*net.TCPConn), Name: "a.example", To: netip.MustParseAddrPort("192.0.2.1:443")})
		if !strings.HasPrefix(got.Reason, want) || got.Verdict != audit.Deny || (got.UID == nil) != (err == sockowner.ErrNone) {
			t.Errorf("%v: %+v", err, got)
		}
	}
}

// TestRedirected: a connection is one that the kernel led here on its way to where the guard says.
func TestRedirected(t *testing.T) {
	to := netip.MustParseAddrPort("192.0.2.1:443")
	for name, c := range map[string]struct {
		led netip.AddrPort
		err error
		ok  bool
	}{
		"there":           {to, nil, true},
		"as IPv6 has it":  {netip.AddrPortFrom(netip.MustParseAddr("::ffff:192.0.2.1"), 443), nil, true},
		"elsewhere":       {netip.MustParseAddrPort("192.0.2.2:443"), nil, false},
		"to another port": {netip.MustParseAddrPort("192.0.2.1:8443"), nil, false},
		"nowhere":         {netip.AddrPort{}, errors.New("no such entry"), false},
	} {
		p := &process{led: func(*net.TCPConn) (netip.AddrPort, error) { return c.led, c.err }}
		if err := p.redirected(peers.Handed{To: to}); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestTakeOverBounded: a guard that hands over without end fills nothing here. What is too much waits in its queue.
func TestTakeOverBounded(t *testing.T) {
	guards, brokers, err := wire.LentPair()
	if err != nil {
		t.Fatal(err)
	}
	send, err := peers.OpenHandOver(guards)
	if err != nil {
		t.Fatal(err)
	}
	take, err := peers.OpenTakeOver(brokers)
	if err != nil {
		t.Fatal(err)
	}
	var asked atomic.Int32
	answer, full := make(chan struct{}), make(chan struct{})
	over := make(chan struct{}, 4*maxAsked)
	p := &process{record: func(audit.Event) { over <- struct{}{} }, owner: func(_, _ netip.AddrPort) (uint32, error) {
		if asked.Add(1) == maxAsked {
			close(full)
		}
		<-answer
		return 0, errors.New("no such socket")
	}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.takeOver(ctx, take) }()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var d net.Dialer
	d.SetMultipathTCP(false)
	c, err := d.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	h := peers.Handed{Conn: c.(*net.TCPConn), Name: "api.example", To: netip.MustParseAddrPort("192.0.2.1:443")}
	const more = 3 * maxAsked
	for range more {
		if err := send.Send(ctx, h); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-full:
	case <-time.After(time.Minute):
		t.Fatal("not as many are asked for at once as may be")
	}
	time.Sleep(50 * time.Millisecond) // for one too many to come
	if n := asked.Load(); n != maxAsked {
		t.Errorf("%d are asked for at once", n)
	}
	close(answer)
	for range more {
		select {
		case <-over:
		case <-time.After(time.Minute):
			t.Fatal("what waited is not taken over")
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
