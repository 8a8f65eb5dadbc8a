package guard

import (
	"context"
	"errors"
	"os"

	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/wire/peers"
	"github.com/agent-init/agent-init/pkg/gateway"
)

// toBroker gives the gate its two ways to the broker, if there is one: connections are handed over to it, and others are
// opened by the upstream proxy. The guard neither reaches the proxy nor knows its credential: the broker asks, and gives a
// connection that is good for one name at one address.
func (g *guard) toBroker(c stage.GuardConfig, gc *gateway.Config) error {
	hand, tunnels := os.NewFile(fdHand, "hand over"), os.NewFile(fdTunnels, "tunnels")
	if c.BrokerUID == 0 {
		return errors.Join(hand.Close(), tunnels.Close())
	}
	over, err := peers.OpenHandOver(hand)
	if err != nil {
		return err
	}
	t, err := peers.OpenTunnels(tunnels)
	if err != nil {
		return err
	}
	gc.Hand = func(ctx context.Context, h gateway.Handed) error { return over.Send(ctx, peers.Handed(h)) }
	gc.Proxied, g.tunnelled = t.Open, t.Receive
	return nil
}
