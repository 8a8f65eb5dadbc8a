package main

// The sockets of the runtime directory. Root talks to the keeper; the agent can
// talk to the guard only, which holds no privilege, and can only propose.
const (
	controlSocket = "control.sock"
	requestSocket = "request.sock"
	metricsSocket = "metrics.sock" // counters over HTTP, for root
	socketFile    = "session.sock" // the session server's
)

// The verbs of the sockets.
const (
	verbAllow    = "allow"
	verbDeny     = "deny"
	verbEnd      = "end"
	verbRequest  = "request"
	verbReload   = "reload"
	verbSelfTest = "selftest"
)
