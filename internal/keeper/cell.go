package keeper

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/pkg/firewall"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/privdrop"
)

// Cell is what the keeper of one agent of several is told by who keeps them all. It is nil in any other, and its methods
// then say what there is else.
type Cell struct {
	Name     string
	Dir      string         // of its policy, below that of agents
	Networks []netip.Prefix // of the agent
	Mark     uint32         // of the packets that its rules let pass
	Slot     uint16         // that no other cell has
	Parent   int            // the process that keeps them all

	GuardUID, BrokerUID, ExporterUID, ProbeUID uint32 // likewise
}

// uidsOfCell is how many it has.
const uidsOfCell = 4

func (c *Cell) name() string {
	if c == nil {
		return ""
	}
	return c.Name
}

func (c *Cell) networks() []netip.Prefix {
	if c == nil {
		return nil
	}
	return c.Networks
}

func (c *Cell) dropGroup() uint16 {
	if c == nil {
		return dropGroup
	}
	return dropGroup + 1 + c.Slot
}

func (c *Cell) plan() firewall.Cell {
	if c == nil {
		return firewall.Cell{}
	}
	return firewall.Cell{Mark: c.Mark}
}

// bind has the kernel kill this process when its parent ends. What the parent has asked for as it forked is gone: root
// gets its capabilities back when it executes a program, and with more of them the kernel forgets it (commit_creds of
// kernel/cred.c).
func (c *Cell) bind() error {
	bound := make(chan error)
	go func() {
		runtime.LockOSThread() // it is the thread's, and gone with that
		err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0)
		if err == nil && os.Getppid() != c.Parent {
			err = errors.New("it has ended already")
		}
		if bound <- err; err == nil {
			select {}
		}
	}()
	if err := <-bound; err != nil {
		return fmt.Errorf("end with the keeper of all agents: %w", err)
	}
	return nil
}

// probe is who makes the self-test. The agent's own user is known in its own container alone.
func (c *Cell) probe() privdrop.Identity {
	return privdrop.Identity{UID: c.ProbeUID, GID: c.ProbeUID, Name: c.Name, Home: "/", Shell: "/bin/sh"}
}

// backend is the one to use. Several agents are told apart by nftables alone.
func (b *base) backend() string {
	if b.config.Cell != nil {
		return "nftables"
	}
	return b.config.Backend
}

// ofSeveral refuses a list of agents where there is no gateway that keeps them.
func ofSeveral(p *policy.Policy) error {
	if len(p.Settings.Agents) == 0 {
		return nil
	}
	return fault.New(fault.Policy, "take agents out of this policy.yaml; for those behind a gateway, start it again: agent-init gateway",
		"the policy lists agents, which a gateway reads when it starts, and in its own policy.yaml alone")
}
