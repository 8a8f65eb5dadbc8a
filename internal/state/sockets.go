package state

// The sockets of the runtime directory. Root talks to the keeper; the agent can
// talk to the guard only, which holds no privilege, and can only propose.
const (
	ControlSocket = "control.sock"
	RequestSocket = "request.sock"
	MetricsSocket = "metrics.sock" // counters over HTTP, for root
	SessionSocket = "session.sock" // the session server's
)

// The verbs of the sockets.
const (
	VerbAllow    = "allow"
	VerbDeny     = "deny"
	VerbEnd      = "end"
	VerbRequest  = "request"
	VerbReload   = "reload"
	VerbSelfTest = "selftest"
)
