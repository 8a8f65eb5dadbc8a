package ask

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/pkg/control"
	"github.com/agent-init/agent-init/pkg/selftest"
)

// ErrNobody is a socket at which nobody answers.
var ErrNobody = errors.New("nobody answers: agent-init does not run, or is still starting")

// Call asks at one of the sockets of the runtime directory, and reads the answer
// into out. A refusal is the fault that it says.
func Call(ctx context.Context, socket string, r control.Request, out any) error {
	patience := 30 * time.Second // the keeper may have to apply a long policy
	switch r.Verb {
	case SelfTest:
		patience = selftest.Time + 10*time.Second
	case Phase: // another change may be under way
		patience = 2*selftest.Time + 20*time.Second
	}
	dir, err := state.Find()
	if err != nil {
		return state.NotRunning(err)
	}
	var s state.State
	if dir.Read(state.StatusFile, &s) == nil && s.Phase == state.PhaseOpen {
		return fault.New(fault.Failure, "start without --unsafe-no-firewall",
			"NOT CONFINED: the container was started with an open network, and nothing is allowed, denied or logged")
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	reply, err := control.Call(ctx, filepath.Join(string(dir), socket), r)
	switch {
	case errors.Is(err, control.ErrBounds):
		return fault.New(fault.Usage, "shorten it, and leave control characters out", "%w", err)
	case errors.Is(err, fs.ErrPermission):
		return fault.New(fault.Privilege, "run it as root (docker exec -u root); the agent can only ask: agent-init request", "only root may change what is allowed")
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ECONNREFUSED):
		return fault.New(fault.Failure, "see agent-init status", "%w", ErrNobody)
	case err != nil:
		return fault.New(fault.Failure, "see agent-init status", "%w", err)
	case !reply.OK:
		return fault.New(reply.Code, reply.Remedy, "%s", reply.Error)
	case out == nil:
		return nil
	}
	return json.Unmarshal(reply.Data, out)
}
