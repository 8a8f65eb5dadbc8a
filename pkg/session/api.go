package session

import "github.com/agent-init/agent-init/pkg/session/internal/protocol"

type (
	// Request opens a connection.
	Request = protocol.Request

	// Info describes a session.
	Info = protocol.Info

	// WindowInfo describes a window.
	WindowInfo = protocol.WindowInfo

	// ClientInfo describes an attached client.
	ClientInfo = protocol.ClientInfo
)

// The verbs of requests that are answered (attach.Call).
const (
	VerbList    = protocol.VerbList    // answer with the JSON of an Info
	VerbNew     = protocol.VerbNew     // start a command in a window; answer with the JSON of its WindowInfo
	VerbHistory = protocol.VerbHistory // answer with what has scrolled away, and the screen
	VerbKill    = protocol.VerbKill    // end a window
)

// CheckName says why a name of a session or a window is none.
func CheckName(name string) error { return protocol.CheckName(name) }
