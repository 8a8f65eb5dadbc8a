package guard

import (
	"context"
	"os"

	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/wire/peers"
	"github.com/agent-init/agent-init/pkg/gateway"
)

// handOver is the gate's way to the broker; nil if there is no broker.
func handOver(c stage.GuardConfig) (func(context.Context, gateway.Handed) error, error) {
	f := os.NewFile(fdHand, "hand over")
	if c.BrokerUID == 0 {
		return nil, f.Close()
	}
	over, err := peers.OpenHandOver(f)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, h gateway.Handed) error { return over.Send(ctx, peers.Handed(h)) }, nil
}
