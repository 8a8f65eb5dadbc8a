// Package keeper is the privileged process: it seals the network, holds the rules, keeps the
// guard, the session and the agent running, and publishes how they do.
package keeper

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/internal/lease"
	"github.com/agent-init/agent-init/internal/stage"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/upstream"
	"github.com/agent-init/agent-init/internal/window"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/budget"
	"github.com/agent-init/agent-init/pkg/firewall"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/privdrop"
	"github.com/agent-init/agent-init/pkg/reaper"
	"github.com/agent-init/agent-init/pkg/sockowner"
)

// dropGroup is the NFLOG group of refused packets. Groups belong to a network
// namespace, which agent-init has to itself.
const dropGroup = 4100

// keeper owns what needs CAP_NET_ADMIN: the kernel's rules, and the book of
// leases that go into them. It reads nothing from the network. What it takes from
// the guard are numbers and bounded texts in fixed places, see internal/wire, judged by
// its own copy of the policy.
type keeper struct {
	config     Config
	log        *slog.Logger
	progress   *progress // nil: nobody watches the start
	dir        state.Dir
	fw         *firewall.Firewall
	lock       *os.File // held for as long as this is the keeper
	audit      *audit.Log
	record     audit.Recorder
	flush      func() // what the recorder holds back
	reaper     *reaper.Reaper
	sockets    *guardSockets
	drops      *os.File      // the log of refused packets
	edition    *wire.Edition // of the ledger
	resolv     upstream.Conf
	engine     []sockowner.Bound // in a sidecar: the sockets of the engine's DNS server
	guardUID   uint32
	guardGroup stage.Group
	identity   privdrop.Identity // the agent's
	guard      *guardKeeper
	sessions   *window.Session // nil: no session
	ledger     *lease.Ledger
	budgets    *budgets
	proving    sync.Mutex // one self-test at a time
	overheard  overheard
	launch     fault.Launch
	diag       *os.File           // where the guard looks sockets up
	scanner    *sockowner.Scanner // nil: processes can't be looked at
	scans      budget.Pace

	// leasing is held for reading while a lease goes from the ledger to the
	// kernel, and for writing while the policy changes: no lease of the old
	// policy can arrive after the new one has closed it.
	leasing sync.RWMutex

	reloading  sync.Mutex     // one reload, or change of grants, at a time
	files      *policy.Bundle // the files of the policy; reloading's own
	watched    watched        // reloading's own
	owedCuts   *owedCuts      // reloading's own; nil: none are
	publishing sync.Mutex     // one writer of published files at a time
	owed       atomic.Bool    // of those, one could not be written
	unadopted  atomic.Bool    // files were read that could not be brought into force: tried again

	controls *net.UnixListener // for root
	metrics  *net.UnixListener // for root
	requests *os.File          // the agent's, listened to by the guard

	mu     sync.Mutex
	bundle *policy.Bundle // files and grants
	policy *policy.Policy // of the bundle
	grants grant.Book     // changed under reloading only
	state  state.State
}

// upstreams are the servers that the guard may ask.
func (k *keeper) upstreams(p *policy.Policy) ([]policy.Upstream, error) {
	return upstream.Of(p, k.resolv.Servers)
}

// plan turns a policy into what the kernel is to hold. No name appears in it.
func (k *keeper) plan(p *policy.Policy, grants grant.Book) (firewall.Plan, error) {
	ups, err := k.upstreams(p)
	if err != nil {
		return firewall.Plan{}, err
	}
	c := firewall.Config{
		GuardUID: k.guardUID, AnyGroup: k.guardGroup.Any, GuardZone: k.fw.Zones(), DropGroup: dropGroup,
		DNSPort4: k.sockets.dns4, DNSPort6: k.sockets.dns6,
		GatePort4: k.sockets.gate4, GatePort6: k.sockets.gate6, Gated: []uint16{policy.HTTP.Number, policy.HTTPS.Number},
		Observe: k.config.Monitor, AgentUID: k.identity.UID, AnyAgent: k.shared(), Here: here(p),
	}
	if !c.AnyGroup {
		c.GuardGID = k.guardGroup.GID
	}
	if k.fw.Backend() == "nftables" && policy.HostRoot() != "" {
		c.EngineUID = policy.OverflowUID
	}
	if k.fw.Reduced() != "" {
		if err := k.reduce(&c, p); err != nil {
			return firewall.Plan{}, err
		}
	}
	for _, u := range ups {
		c.Upstreams = append(c.Upstreams, netip.AddrPortFrom(u.Addr.Addr().WithZone(""), u.Addr.Port()))
	}
	for _, s := range p.Static() {
		if end := grants.Ends(s.Rule); !end.IsZero() {
			c.Granted = append(c.Granted, firewall.Grant{Entry: entry(s), Until: end})
			continue
		}
		c.Allow = append(c.Allow, entry(s))
	}
	for _, s := range p.Denied() {
		if c.Observe {
			break
		}
		c.Deny = append(c.Deny, entry(s))
	}
	for _, never := range policy.NeverPrefixes() {
		c.Deny = append(c.Deny, firewall.Entry{Prefix: never})
	}
	for _, in := range p.Settings().Inbound {
		c.Inbound = append(c.Inbound, firewall.Entry{Proto: uint8(in.Proto), Port: in.Number})
	}
	return firewall.NewPlan(c)
}

func entry(s policy.Static) firewall.Entry {
	return firewall.Entry{Prefix: s.Prefix, Proto: uint8(s.Port.Proto), Port: s.Port.Number}
}

// close leaves the rules in place: nothing opens on the way out.
func (k *keeper) close() {
	if k.sessions != nil {
		k.sessions.Stop()
	}
	if k.guard != nil {
		k.guard.service.Stop(0) // with the last that it has to report
	}
	var errs []error
	if k.fw != nil {
		errs = append(errs, k.fw.Close())
	}
	if k.flush != nil {
		k.flush()
	}
	if k.audit != nil {
		errs = append(errs, k.audit.Close())
	}
	if k.controls != nil {
		errs = append(errs, k.controls.Close())
	}
	if k.metrics != nil {
		errs = append(errs, k.metrics.Close())
	}
	if err := errors.Join(errs...); err != nil {
		k.log.Warn("ending", "error", err)
	}
}
