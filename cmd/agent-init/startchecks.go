package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/pkg/privdrop"
)

// requireAll names all capabilities that are missing, so that one run is enough to
// learn of them.
func (k *keeper) requireAll(need []int) error {
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
		return fault.New(fault.Privilege, k.launch.Capabilities(names...), "a capability is missing: %s", reasons[0])
	}
	return fault.New(fault.Privilege, k.launch.Capabilities(names...), "%d capabilities are missing: %s", len(names), strings.Join(reasons, ", "))
}

// engineSockets are the names of sockets behind which somebody starts containers.
var engineSockets = [...]string{"docker.sock", "podman.sock", "containerd.sock", "crio.sock", "buildkitd.sock"}

func isEngineSocket(file string) bool { return slices.Contains(engineSockets[:], path.Base(file)) }

// warnOfEngines says what no packet filter sees: who can open an engine's socket is
// root on the machine, and has its network.
func (k *keeper) warnOfEngines() {
	for _, s := range mountedSockets("/proc/self/mountinfo", k.config.environ) {
		if isEngineSocket(s) {
			warning(os.Stderr, fmt.Sprintf("%s is mounted: who can open an engine's socket is root on the machine, and is not confined", s), "remove the mount of "+s)
		}
	}
}

// warning is one line of cause and one of remedy that stop nothing.
func warning(w io.Writer, cause, remedy string) {
	fmt.Fprintf(w, "agent-init: warning: %s\n  remedy: %s\n", cause, remedy)
}
