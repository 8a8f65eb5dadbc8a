package privdrop

import "errors"

// Exec becomes what s says, verifies it, and executes the command in place of
// the calling process. It returns only if something failed: an *ExecError if
// the drop went well but the command can't be executed, a *CapabilityError if
// a capability is missing. The calling process must exit then, whatever the
// error.
func Exec(s Spec) error { return errors.New("not built yet") }

// Environment returns base without the variables that belong to agent-init,
// and with HOME, USER, LOGNAME and SHELL of id. The last of several
// definitions wins.
func Environment(base []string, id Identity) []string { return base }
