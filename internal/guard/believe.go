package guard

import (
	"errors"
	"fmt"

	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/sockowner"
)

// errOtherEngine is why nothing is believed that comes from where the engine's DNS
// server was.
var errOtherEngine = errors.New("the engine's DNS server has ended since agent-init was started: start this container again to take the new one")

// believer is the guard's check of answers, in a sidecar. A socket that is still
// there after an answer had the port all the while, so that nobody else can have
// sent it.
func believer(find *sockowner.Finder, engine []sockowner.Bound) func(policy.Upstream) error {
	return func(u policy.Upstream) error {
		if u.Addr.Addr().Unmap() != policy.EngineDNS() {
			return nil
		}
		if len(engine) == 0 {
			return errOtherEngine
		}
		for _, b := range engine {
			there, err := find.Still(b)
			if err != nil {
				return fmt.Errorf("look for the engine's DNS server: %w", err)
			}
			if !there {
				return errOtherEngine
			}
		}
		return nil
	}
}
