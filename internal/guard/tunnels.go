package guard

import (
	"context"
	"net"
	"net/netip"
	"os"

	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/wire/peers"
)

// tunnels is the gate's way out by the upstream proxy, and what has to run for it. The guard neither reaches the proxy
// nor knows its credential: the broker asks, and gives a connection that is good for one name at one address. Where
// there is no broker, there is no such way.
func tunnels(c stage.GuardConfig) (open func(context.Context, string, netip.AddrPort) (*net.TCPConn, error), receive func() error, err error) {
	f := os.NewFile(fdTunnels, "tunnels")
	if c.BrokerUID == 0 {
		return nil, nil, f.Close()
	}
	t, err := peers.OpenTunnels(f)
	if err != nil {
		return nil, nil, err
	}
	return t.Open, t.Receive, nil
}
