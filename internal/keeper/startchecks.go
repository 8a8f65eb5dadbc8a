package keeper

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/container"
	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/pkg/privdrop"
)

// requireAll names all capabilities that are missing, so that one run is enough to
// learn of them.
func (b *base) requireAll(need []int) error {
	var names, reasons []string
	for _, c := range need {
		err := privdrop.Require(c)
		var missing *privdrop.CapabilityError
		switch {
		case err == nil:
		case errors.As(err, &missing):
			names = append(names, missing.Capability)
			reasons = append(reasons, missing.Capability+" to "+missing.Doing)
		default:
			return fault.New(fault.Privilege, "report this with the container's run line", "%w", err)
		}
	}
	switch len(names) {
	case 0:
		return nil
	case 1:
		return fault.New(fault.Privilege, b.launch.Capabilities(names...), "a capability is missing: %s", reasons[0])
	}
	return fault.New(fault.Privilege, b.launch.Capabilities(names...), "%d capabilities are missing: %s", len(names), strings.Join(reasons, ", "))
}

// warnOfEngines says what no packet filter sees: who can open an engine's socket is
// root on the machine, and has its networb.
func (b *base) warnOfEngines() {
	for _, s := range container.MountedSockets("/proc/self/mountinfo", b.config.Environ) {
		if container.IsEngineSocket(s) {
			fault.Warn(os.Stderr, fmt.Sprintf("%s is mounted: who can open an engine's socket is root on the machine, and is not confined", s), "remove the mount of "+s)
		}
	}
}

// xtablesLock returns the file that iptables locks on a read-only root. No one
// but root can open it, in a directory that is root's.
func xtablesLock(mode string) string {
	dir, err := state.Make(mode)
	if err != nil { // then the start ends at its next step
		return ""
	}
	return filepath.Join(string(dir), "xtables.lock")
}

func alreadyKept(dir state.Dir, err error) *fault.Fault {
	because := ""
	if !errors.Is(err, unix.EWOULDBLOCK) {
		because = ": " + err.Error()
	}
	return fault.New(fault.Rules, "run agent-init only once; see agent-init status", "another agent-init keeps this container already (%s%s)", dir, because)
}
