// Package firewall confines everything in this network namespace to a plan: which addresses and ports may be reached,
// and nothing else. It speaks addresses, ports and uids; names and their policy are known elsewhere.
//
// NewPlan computes a Plan in pure code from a Config. A Firewall, made by Open, carries it into the kernel as one table
// named "agent-init" and reads back what it did. The order of use is Open, which may seal at once,
// else Seal, Apply, then Lease and Revoke as names are resolved and policies change, with Verify in between.
//
// Nothing here ever opens the network: Close leaves every rule in place, and
// each failure leaves the kernel as closed as it was.
package firewall

import (
	"github.com/agent-init/agent-init/pkg/firewall/internal/nfnetlink"
	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
	"github.com/agent-init/agent-init/pkg/firewall/internal/xtables"
)

type (
	// Plan is a set of rules, computed by NewPlan. It is immutable; the zero Plan
	// can't be applied. Two plans with the same String are the same.
	Plan = plan.Plan

	Inside  = plan.Inside  // the agents' network, of a gateway
	Config  = plan.Config  // what NewPlan computes a Plan from
	Entry   = plan.Entry   // the addresses of a block, on one port of one IP protocol
	Grant   = plan.Grant   // an Entry of Config.Allow for a time
	Element = plan.Element // an address, an IP protocol number (6 or 17) and a port
	Lease   = plan.Lease   // an Element that may be reached for a time from now on
	Holder  = plan.Holder  // whose an Element is

	Program = xtables.Program // one that a backend wants run
	Runner  = xtables.Runner  // runs a Program to its end, and kills it when the context ends
)

// The holders of leases.
const (
	Agent     = plan.Agent     // everybody but those below, past the gate
	Gated     = plan.Gated     // the guard; of all others but those below, it is redirected to the gate
	Inspected = plan.Inspected // nobody; likewise
	Broker    = plan.Broker    // the broker alone
)

// NewPlan computes the rules for c. The error says what in c makes no sense.
func NewPlan(c Config) (Plan, error) { return plan.New(c) }

// What an error of the kernel's matches.
var (
	ErrPermission = nfnetlink.ErrPermission // for want of NET_ADMIN
	ErrRaw        = nfnetlink.ErrRaw        // for want of NET_RAW: iptables opens raw sockets to speak to the kernel
	ErrLeft       = nfnetlink.ErrLeft       // another backend's rules are there, and can't be removed
)
