package keeper

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/privdrop"
)

// warnOfAccount says in one line what the agent's account lacks.
func (a *agent) warnOfAccount(err error) {
	if err == nil {
		return
	}
	var missing *privdrop.CapabilityError
	switch {
	case errors.As(err, &missing):
		fault.Warn(os.Stderr, fmt.Sprintf("the agent's home does not belong to it (uid %d), and can't be given to it: capability %s is missing", a.identity.UID, missing.Capability),
			a.launch.Capabilities(missing.Capability))
	case errors.Is(err, privdrop.ErrReadOnly):
		a.log.Warn("the agent's account is incomplete", "error", text.InOneLine(err)) // which most programs do without
	default:
		fault.Warn(os.Stderr, "the agent's account is incomplete: "+text.InOneLine(err), "make the home and the entry of uid "+fmt.Sprint(a.identity.UID)+" in the image")
	}
}

// warnOfWorkspace says that the agent can't write where it is to wora. One that is
// mounted to be read only is so on purpose.
func (a *agent) warnOfWorkspace(dir string) {
	var st unix.Stat_t
	if unix.Stat(dir, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return
	}
	if err := privdrop.MayWrite(a.identity, dir); !errors.Is(err, unix.EACCES) {
		return
	}
	cause, remedy := unwritable(a.launch, dir, a.identity.UID, st.Uid, a.config.HostUID)
	fault.Warn(os.Stderr, cause, remedy)
}

// unwritable says why uid can't write in dir, which is owner's, and what to do.
func unwritable(l fault.Launch, dir string, uid, owner uint32, hostUID string) (cause, remedy string) {
	cause = fmt.Sprintf("the agent can't write in %s: it belongs to uid %d, and the agent is uid %d", dir, owner, uid)
	if hostUID != "" {
		cause += ", by HOST_UID=" + hostUID
	}
	hand := fmt.Sprintf("give the directory to the agent, on the host: chown -R %d DIR", uid)
	if l == fault.ByKubernetes {
		hand = fmt.Sprintf("securityContext: {fsGroup: %d} in the pod, for its volume", uid)
	}
	if owner == 0 || owner == uid { // the agent is never root; or its own may not write
		if owner == uid {
			hand = "let its owner write there: chmod u+wx DIR, on the host"
		}
		return cause, hand
	}
	return cause, l.Variable("HOST_UID", fmt.Sprint(owner)) + ", which makes the agent that user; or " + hand
}
