package broker

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/wire"
)

// server accepts on loopback, and says where.
func server(t *testing.T) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// TestDial: the keeper is asked once for as long as its answer counts, and again where that leads nowhere any more.
func TestDial(t *testing.T) {
	here := server(t)
	dead := netip.MustParseAddr("127.0.0.2") // where nobody listens on that port
	asked := 0
	answer := wire.Message{Addrs: []netip.Addr{dead, here.Addr()}, TTL: time.Minute}
	now := time.Now()
	h := newHosts(func(_ context.Context, m wire.Message) (wire.Message, error) {
		if asked++; m.Op != wire.OpLookup || m.Name != "api.test" {
			t.Errorf("asked %+v", m)
		}
		return answer, nil
	})
	h.now = func() time.Time { return now }
	dial := func(what string, ok bool, questions int) {
		t.Helper()
		asked = 0
		c, err := h.dial(t.Context(), "api.test", here.Port())
		if (err == nil) != ok || asked != questions {
			t.Errorf("%s: %v, after %d questions", what, err, asked)
		}
		if err == nil {
			c.Close()
		}
	}
	dial("a first time, past an address that is dead", true, 1)
	dial("again", true, 0)
	now = now.Add(time.Minute)
	dial("when the answer is over", true, 1)
	answer.Addrs = []netip.Addr{dead}
	h.forget()
	dial("where all is dead", false, 1)
	dial("where all is dead, again and again", false, 0)
	now = now.Add(askAgain)
	dial("a while later", false, 1)
	dial("and again", false, 0)
	now = now.Add(askAgain)
	answer.Addrs = []netip.Addr{here.Addr()}
	dial("the host has moved", true, 1)
	answer = wire.Message{Err: true, Text: "no route leads there"}
	h.forget()
	dial("it is refused", false, 1)
	var named *net.DNSError
	if _, err := h.dial(t.Context(), "api.test", here.Port()); !errors.As(err, &named) || named.Err != "no route leads there" {
		t.Errorf("got %v", err)
	}
	asked = 0
	c, err := h.dial(t.Context(), here.Addr().String(), here.Port())
	if err != nil || asked != 0 {
		t.Fatalf("an address by itself: %v, after %d questions", err, asked)
	}
	c.Close()
}

// TestConnectGivesUp: who asks has gone.
func TestConnectGivesUp(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := connect(ctx, []netip.Addr{netip.MustParseAddr("127.0.0.1")}, 9); err == nil {
		t.Error("it connected")
	}
	if _, err := connect(t.Context(), nil, 9); err == nil {
		t.Error("no address was enough")
	}
}
