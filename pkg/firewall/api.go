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

	// Config is what NewPlan computes a Plan from.
	Config = plan.Config

	// Entry is a set of destinations: the addresses of a block, on one port of one
	// IP protocol.
	Entry = plan.Entry

	// Grant is an Entry of Config.Allow for a time.
	Grant = plan.Grant

	// Element is one destination: an address, an IP protocol number (6 or 17) and
	// a port.
	Element = plan.Element

	// Lease is an Element that may be reached for a time from now on.
	Lease = plan.Lease

	// Program is a program that a backend wants run.
	Program = xtables.Program

	// Runner runs a program to its end and returns what it wrote. The error says how
	// it ended, if not with status 0. When ctx ends, the program is killed.
	Runner = xtables.Runner
)

// NewPlan computes the rules for c. The error says what in c makes no sense.
func NewPlan(c Config) (Plan, error) { return plan.New(c) }

// What an error of the kernel's matches.
var (
	// ErrPermission says that the kernel refused for want of a capability.
	ErrPermission = nfnetlink.ErrPermission

	// ErrRaw says that the xtables backend can't be used for want of a
	// capability: iptables opens raw sockets to speak to the kernel.
	ErrRaw = nfnetlink.ErrRaw
)
