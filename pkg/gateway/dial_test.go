package gateway

import (
	"context"
	"errors"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/netns"
)

// TestKernelDialEnds: a server that never answers is given up when the time is
// over, or when the connection is no longer wanted.
func TestKernelDialEnds(t *testing.T) {
	netns.Enter(t)
	run(t, "", "ip", "link", "set", "lo", "up")
	run(t, "", "ip", "link", "add", "hole0", "type", "veth", "peer", "name", "hole1")
	run(t, "", "ip", "addr", "add", "10.78.0.1/24", "dev", "hole0")
	run(t, "", "ip", "link", "set", "hole0", "up")
	run(t, "", "ip", "link", "set", "hole1", "up")
	run(t, "", "ip", "neigh", "add", "10.78.0.2", "lladdr", "02:00:00:00:00:02", "dev", "hole0")
	silent := netip.MustParseAddrPort("10.78.0.2:443")

	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if c, err := dial(short, silent); c != nil || !late(err) {
		t.Errorf("out of time: %v, %v", c, err)
	}
	ctx, stop := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, stop)
	if c, err := dial(ctx, silent); c != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("no longer wanted: %v, %v", c, err)
	}
	if c, err := dial(ctx, silent); c != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("never wanted: %v, %v", c, err)
	}
	if c, err := dial(t.Context(), netip.MustParseAddrPort("127.0.0.1:1")); c != nil || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("refused: %v, %v", c, err)
	}
	l := listen(t)
	ctx, stop = context.WithCancel(t.Context())
	c, err := dial(ctx, netip.MustParseAddrPort(l.Addr().String()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	stop() // of the dialling, which is over
	if _, err := c.Write([]byte("x")); err != nil {
		t.Errorf("connected: %v", err)
	}
}
