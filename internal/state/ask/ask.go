// Package ask is what people and the agent ask for at the sockets of the runtime directory, and the answers.
package ask

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/pkg/control"
)

// The sockets. The agent can talk to the guard only, which holds no privilege, and can only propose.
const (
	ControlSocket = "control.sock" // root's, to the keeper
	RequestSocket = "request.sock" // the agent's, to the guard
	SessionSocket = "session.sock" // the session server's
)

// The verbs.
const (
	Allow    = "allow"
	Deny     = "deny"
	End      = "end"
	Request  = "request"
	Reload   = "reload"
	SelfTest = "selftest"
	Phase    = "phase"
)

// Refuse is a reply that says no.
func Refuse(code int, remedy, format string, args ...any) control.Reply {
	return control.Reply{Code: code, Error: fmt.Errorf(format, args...).Error(), Remedy: remedy}
}

// Answer is a reply with data.
func Answer(v any) control.Reply {
	data, err := json.Marshal(v)
	if err != nil {
		return RefuseWith(err)
	}
	return control.Reply{OK: true, Data: data}
}

// RefuseWith is the reply for an error.
func RefuseWith(err error) control.Reply {
	if f, ok := errors.AsType[*fault.Fault](err); ok {
		return control.Reply{Code: f.Code, Error: f.Error(), Remedy: f.Remedy}
	}
	return control.Reply{Code: fault.Rules, Error: err.Error(), Remedy: "see agent-init status; what was in force before stays"}
}
