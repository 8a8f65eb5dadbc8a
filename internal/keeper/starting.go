package keeper

import (
	"cmp"
	"context"
	"time"

	"github.com/agent-init/agent-init/internal/container"
	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/ids"
	"github.com/agent-init/agent-init/pkg/firewall"
)

// What each step of the start returns, and the next one needs: the compiler holds their order.
type (
	fit struct { // the container is one that can be confined
		inside *inside // of a gateway
	}
	examined struct{ fit } // nobody else than root can replace agent-init

	sealed struct { // nothing leaves
		fw      *firewall.Firewall
		reduced bool // of a kernel without sets and states; decided here, once
		inside  *inside
	}
	placed struct { // the runtime directory is there, and the lock held
		sealed
		servers *servers
	}
	loaded struct { // the policy is read
		placed
		book   *book
		leases *leases
	}
	listening struct { // the control sockets are there
		loaded
		doors doors
	}
	person struct {
		uid   uint32
		group ids.Group
	}
	found struct { // the agent's user is known, and those of the guard and the broker
		listening
		agent *agent
		group ids.Group

		broker person // zero: there is nothing for it
	}
	hardened struct{ found }
	guarded  struct { // the guard is starting
		hardened
		guard  *guardKeeper
		broker *brokerKeeper // nil: there is nothing for it
	}
	ruled  struct{ *keeper } // the policy's rules are in force
	served ruled             // names are answered
)

// starting runs steps. Behind one that has failed, none is run.
type starting struct {
	*base
	ctx context.Context
	err error
}

// then is the next thing that must succeed before the agent may start. The part is how it is shown to a person.
func then[I, O any](s *starting, name, part string, do func(context.Context, I) (O, error), in I) (out O) {
	if s.err != nil {
		return out
	}
	begun := time.Now()
	s.progress.enter(part)
	waiting := s.begin(name)
	out, s.err = do(s.ctx, in)
	if waiting.end(); s.err == nil {
		s.log.Info(name, "took", time.Since(begun).Round(10*time.Microsecond))
		return out
	}
	s.progress.failed()
	s.err = s.fail(cmp.Or(container.Scarce(s.launch, s.err, name), fault.Of(s.err, name)))
	return out
}
