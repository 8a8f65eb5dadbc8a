// Package top shows what a confined container does, live: its connections, the names that are asked for, what was
// refused, and what waits for a person. It only reads: what the keeper publishes, the log, and what the kernel tells
// whoever looks. A Model is pure: facts go in, and what is to be shown comes out.
package top

import (
	"time"

	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/internal/lease"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/sockowner"
)

// Facts are what one look has found out.
type Facts struct {
	At       time.Time
	State    *state.State  // nil: nothing is published
	Unread   string        // why
	Leases   *lease.Report // a new one if it has changed
	Grants   []grant.Grant
	Policy   *policy.Policy
	Sockets  *sockowner.Table
	Holders  map[uint32]sockowner.Process
	Unseen   []string // what can't be seen from here, and why
	Parts    []Part
	Events   []audit.Event // of the log, since the last look
	Operator bool          // who looks may decide
}

// Part is one of agent-init's own processes.
type Part struct {
	Name  string `json:"name"`
	PID   int    `json:"pid"`
	Bytes uint64 `json:"bytes"` // of memory, that are resident
}
