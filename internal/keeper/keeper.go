// Package keeper is the privileged process: it seals the network, holds the rules, keeps the
// guard, the session and the agent running, and publishes how they do.
//
// Five owners share what it knows. A step of the start makes each of them, and each is whole from then on:
//
//   - book: the policy in force, with the grants on top of it;
//   - leases: who holds which address until when, and the way of that into the kernel;
//   - rules: the plan, as the kernel is to hold it;
//   - children: guardKeeper, with the guard, brokerKeeper, with the broker, and agent,
//     with the agent and its session;
//   - publisher: the status, the files that others read, and the audit log.
//
// Locks are taken in this order, and let go in the reverse: keeper.proving, book.changing, leases.settling, leases.moving,
// publisher.writing. Behind them come those under which no other owner is called: of the ledger, the firewall,
// guardKeeper.mu, publisher.mu.
package keeper

import (
	"errors"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/agent-init/agent-init/internal/container"
	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/privdrop"
	"github.com/agent-init/agent-init/pkg/reaper"
)

// base is what there is from the first moment, before anything is known of the container.
type base struct {
	*publisher
	config   Config
	mode     string    // run, up, sidecar or gateway
	progress *progress // nil: nobody watches the start
	patience *patience // of the step that is under way; nil before the first
	launch   fault.Launch
	reaper   *reaper.Reaper
	ends     []func() error
	lock     *os.File // held for as long as this is the keeper
}

// newBase takes no action on the system but becoming the reaper.
func newBase(c Config, mode string, log *slog.Logger) (*base, error) {
	here := fault.LaunchHere(c.Environ)
	if err := container.CheckLimits(here); err != nil {
		return nil, err
	}
	r, err := reaper.New(log, privdrop.SignalAs)
	if err != nil {
		return nil, err
	}
	begun := state.State{Version: 1, Phase: state.PhaseStarting, Mode: mode, Monitor: c.Monitor, Given: c.GivenWords, Keeper: state.Self(), Started: time.Now()}
	return &base{publisher: &publisher{log: log, version: c.Version, record: audit.Discard, state: begun}, config: c, mode: mode, launch: here, reaper: r}, nil
}

// shared says whether the agent is in another container, with a uid that is not known.
func (b *base) shared() bool { return b.mode == "sidecar" || b.config.Gateway != nil }

// atEnd has end called when the keeper ends, before those that it was told of earlier.
func (b *base) atEnd(end func() error) { b.ends = append(b.ends, end) }

// close leaves the rules in place: nothing opens on the way out.
func (b *base) close() {
	var errs []error
	for _, end := range slices.Backward(b.ends) {
		errs = append(errs, end())
	}
	if err := errors.Join(errs...); err != nil {
		b.log.Warn("ending", "error", err)
	}
}

// keeper owns what needs CAP_NET_ADMIN: the kernel's rules, and the book of leases that go into them. It reads
// nothing from the network. What it takes from the guard are numbers and bounded texts in fixed places, see
// internal/wire, judged by its own copy of the policy.
type keeper struct {
	*base
	book    *book
	leases  *leases
	rules   *rules
	guard   *guardKeeper
	broker  *brokerKeeper // nil: there was nothing for it at the start
	agent   *agent
	doors   doors
	proving sync.Mutex // one self-test, or change of the phase, at a time
}
