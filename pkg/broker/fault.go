package broker

import (
	"context"
	"errors"

	"github.com/agent-init/agent-init/pkg/broker/onward"
)

// gone is a fault that nobody is told of.
const gone = "gone"

// fault says why the API was not reached.
func (x *exchange) fault(ctx context.Context, g goal, err error) *no {
	host, cause := g.up.place.host, context.Cause(ctx)
	switch n := x.ended(); {
	case n != nil:
		return n
	case errors.Is(cause, errSilent):
		return refusal("late", host+" was silent for too long")
	case g.up.ctx.Err() != nil:
		return refusal("server", "the policy has changed: this route is no more")
	case cause != nil:
		return refusal(gone, "the client hung up")
	}
	return onward.FaultOf(host, err)
}
