package keeper

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agent-init/agent-init/internal/lease"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/budget"
	"github.com/agent-init/agent-init/pkg/firewall"
	"github.com/agent-init/agent-init/pkg/policy"
)

// leases owns the ledgers, and what of them is in the kernel.
type leases struct {
	*base
	book    *book
	fw      filter
	reduced bool
	books   lease.Books
	edition *wire.Edition

	// What the agent may have the guard do, of all guards together: no end of a guard resets it, and one that was taken
	// over can't go around it. What is under way between the two at a time is one number for both, wire.AsksAtOnce.
	names    *budget.Budget // below wildcards
	requests budget.Pace
	held     budget.Pace // of questions that are held

	// moving is held for reading while a lease goes from the ledger to the kernel, and for writing while the policy
	// changes: no lease of the old policy can arrive after the new one has closed it.
	moving sync.RWMutex

	ended    []firewall.Element // taken out of the kernel, to be looked at again; under moving
	emptied  bool               // the kernel holds none of the book; under moving
	settling sync.Mutex         // one at a time
	due      atomic.Bool        // there is something to settle
}

// spent says whether the budget of the wildcard that name is below has it, by how. The broker's names are below none.
func (l *leases) spent(name string, how func(*budget.Budget, string, string, int, time.Time) bool) bool {
	p := l.book.policy()
	match := p.Lookup(name)
	if match.Wildcard == nil {
		return true // it has none: what else is to be said of it, others say
	}
	return how(l.names, match.Wildcard.Name, match.Name, p.Settings.Limits.NewNamesPerWildcardPerMinute, time.Now())
}

func (l *leases) mayAsk(m, reply wire.Message) wire.Message {
	reply.Err = !l.spent(m.Name, (*budget.Budget).Take)
	return reply
}

const leaseTime = 5 * time.Second

// lease serves one request of the guard: the addresses are open in the kernel before the answer is sent.
func (l *leases) lease(ctx context.Context, m, reply wire.Message) wire.Message {
	// What was booked reaches the kernel, or is unbooked, also if the guard that asked has ended meanwhile.
	whole := context.WithoutCancel(ctx)
	l.moving.RLock()
	defer l.moving.RUnlock()
	ctx, cancel := context.WithTimeout(whole, leaseTime)
	defer cancel()
	ledger := l.books.Of(firewall.Agent)
	switch {
	case m.Flag == wire.ForBroker:
		ledger = l.books.Of(firewall.Broker)
	case !l.spent(m.Name, (*budget.Budget).Has):
		return reply
	}
	open, admitted := ledger.Lease(m.Name, l.keepApart(m), m.TTL)
	if len(open) == 0 {
		return reply
	}
	if err := l.give(ctx, open); err != nil {
		l.log.Error("leasing", "name", m.Name, "error", err)
		l.record(audit.Event{Kind: audit.Guard, Verdict: audit.Fault, Name: m.Name, Reason: "the kernel refused the lease: " + err.Error()})
		ctx, cancel := context.WithTimeout(whole, leaseTime) // of the first there may be nothing left
		defer cancel()
		closed := ledger.RevokeName(m.Name)
		for _, o := range open { // others that were to run out
			if !ledger.Holds(o.Element) {
				closed = append(closed, o.Element)
			}
		}
		if err := l.fw.Revoke(ctx, closed); err != nil {
			// The next attestation finds what the book does not hold.
			l.log.Error("revoking", "error", err)
			l.guardian(audit.Fault, "revoking failed: "+err.Error())
		}
		reply.Err = true
		return reply
	}
	reply.Addrs = admitted
	return reply
}

func asked(m wire.Message) (e firewall.Element, ok bool) {
	if len(m.Addrs) != 1 {
		return e, false
	}
	return firewall.Element{Addr: m.Addrs[0], Proto: uint8(policy.TCP), Port: m.Port}, true
}

// leasedTo answers the name gate: does the book have this address for this name? And where else does the name have leases?
func (l *leases) leasedTo(m, reply wire.Message) wire.Message {
	if e, ok := asked(m); ok {
		ledger := l.books.Of(e.For)
		reply.TTL, reply.Arg = ledger.LeasedTo(m.Name, e)
		reply.Addrs = ledger.Beside(m.Name, e)
		reply.Addrs = reply.Addrs[:min(len(reply.Addrs), wire.MaxLeaseAddrs)]
	}
	reply.Err = reply.TTL == 0
	return reply
}

// direct answers it about what it can't look into: does the policy allow this
// address by itself, or does the book have it for any name?
func (l *leases) direct(m, reply wire.Message) wire.Message {
	reply.Err = true
	if e, ok := asked(m); ok {
		if reply.Err = !l.book.policy().DecideAddr(e.Addr, policy.Port{Proto: policy.TCP, Number: e.Port}).Allowed; reply.Err {
			reply.Name = l.books.Of(e.For).Holder(e)
			reply.Err = reply.Name == ""
		}
	}
	return reply
}

// give has the kernel hold what the book does. What others book of the same elements meanwhile may have reached the kernel
// before: so there is another look.
func (l *leases) give(ctx context.Context, leases []firewall.Lease) error {
	for len(leases) > 0 {
		made := time.Now()
		if err := l.fw.Lease(ctx, leases); err != nil {
			return err
		}
		leases = l.books.Longer(leases, made)
	}
	return nil
}

// atOnce is how many leases the kernel is given before a change of the policy has its turn.
const atOnce = 512

// giveInParts is give for what may be the whole book. The policy may change between two parts, so the kernel gets what the
// book still has by then.
func (l *leases) giveInParts(ctx context.Context, leases []firewall.Lease) error {
	for part := range slices.Chunk(leases, atOnce) {
		if err := l.giveHeld(ctx, part); err != nil {
			return err
		}
	}
	return nil
}

func (l *leases) giveHeld(ctx context.Context, part []firewall.Lease) error {
	l.moving.RLock()
	defer l.moving.RUnlock()
	for i := range part {
		part[i].TTL = 0 // the book says how long
	}
	return l.give(ctx, l.books.Longer(part, time.Now()))
}

// adopt has p be what leases are given by, takes the leases out of the kernel that its rules close, and calls put. None of
// that takes longer for what the agent has made: all else is for settle. If it fails, the old policy counts, though some of
// its leases may have ended.
func (l *leases) adopt(ctx context.Context, p *policy.Policy, put func() error) error {
	l.moving.Lock()
	defer l.moving.Unlock()
	l.due.Store(true)
	old := l.book.policy()
	err := l.end(ctx, l.books.Begin(p))
	if err != nil {
		err = fmt.Errorf("end the leases that the policy no longer allows: %w", err)
	} else if err = put(); err != nil {
		err = fmt.Errorf("apply the rules: %w", err)
	}
	if err != nil {
		if err := l.end(ctx, l.books.Begin(old)); err != nil {
			l.log.Error("going back to the old policy", "error", err)
		}
	}
	return err
}

// end takes elements out of the kernel. That ends flows as well: no packet passes for being part of one. If some can't be
// taken out, none may stay; settle gives those of the book again. moving is held for writing.
func (l *leases) end(ctx context.Context, closed []firewall.Element) error {
	l.ended = append(l.ended, closed...)
	if l.fw.Drop(ctx, closed) == nil {
		return nil
	}
	l.emptied = true
	return l.fw.RevokeAll(ctx)
}

// settle does what is left to do after adopt, which grows with the book: others may change the policy meanwhile, and ask
// for leases. Where there is nothing to do, it says so.
func (l *leases) settle(ctx context.Context) (some bool) {
	l.settling.Lock()
	defer l.settling.Unlock()
	if !l.due.Swap(false) {
		return false
	}
	for more := true; more; {
		var err error
		if more, err = l.sift(ctx); err != nil {
			l.due.Store(true)
			l.log.Error("ending leases", "error", err)
			l.guardian(audit.Fault, "what is no longer allowed could not be taken out of the kernel, which is tried again: "+err.Error())
			return true
		}
	}
	if err := l.fw.Retain(ctx, nil, l.books.Knows); err != nil {
		l.due.Store(true)
		l.log.Error("looking for what was put back", "error", err)
		l.guardian(audit.Fault, "what was taken out of the kernel may be back, which is looked for again: "+err.Error())
	}
	return true
}

// sift brings the policy to some more of the book, and the outcome into the kernel.
func (l *leases) sift(ctx context.Context) (more bool, err error) {
	l.moving.Lock()
	defer l.moving.Unlock()
	// What was judged while it was taken out may have put it back.
	again := slices.DeleteFunc(l.ended, l.books.Knows)
	l.ended = nil
	closed, moved, more := l.books.Sift()
	if err := l.end(ctx, append(again, closed...)); err != nil {
		return more, err
	}
	l.ended = nil
	if l.emptied {
		l.emptied = false
		moved = l.books.Leases()
	}
	return more, l.give(ctx, moved)
}

// foreign are the kernel's leases that are not in the book, and what it lets go on without one.
func (l *leases) foreign(ctx context.Context) ([]firewall.Element, error) {
	foreign, err := l.unbooked(ctx)
	if err != nil || len(foreign) == 0 {
		return nil, err
	}
	// Some may be on their way between the book and the kernel. While none is, there can
	// be no new lease, so this is not where every look begins.
	l.moving.Lock()
	defer l.moving.Unlock()
	return l.unbooked(ctx)
}

func (l *leases) unbooked(ctx context.Context) ([]firewall.Element, error) {
	// The last moments are left out: the kernel's clock starts a little
	// after the book's, and what one name evicts runs out.
	leases, err := l.fw.Leased(ctx, func(lease firewall.Lease) bool {
		ending := lease.TTL > 0 && lease.TTL < 2*time.Second
		return !ending && !l.books.Holds(lease.Element)
	})
	if err != nil {
		return nil, err
	}
	used, err := l.fw.InUse(ctx)
	if err != nil {
		return nil, err
	}
	var out []firewall.Element
	for _, lease := range leases {
		out = append(out, lease.Element)
	}
	for _, u := range used {
		if !l.reduced && !l.books.Knows(u.Element) {
			out = append(out, u.Element)
		}
	}
	return out, nil
}

func (l *leases) verify(ctx context.Context) error {
	foreign, err := l.foreign(ctx)
	if err == nil && len(foreign) > 0 {
		err = fmt.Errorf("%s that the policy did not give, the first of them %s", text.Counted(len(foreign), "lease", "leases"), foreign[0])
	}
	return err
}

// repair takes out what is foreign, and gives the kernel every lease of the book.
func (l *leases) repair(ctx context.Context) error {
	foreign, err := l.foreign(ctx)
	if err == nil {
		err = l.fw.Revoke(ctx, foreign)
	}
	if err != nil {
		return err
	}
	return l.giveInParts(ctx, l.books.Leases())
}

// maintain keeps leases that are in use, forgets the others, and holds the live rules against the plan, until ctx ends.
func (k *keeper) maintain(ctx context.Context) {
	changed, err := k.rules.fw.Watch(ctx)
	if err != nil {
		k.log.Warn("rule changes are noticed by the clock only", "error", err)
	}
	renew, attest, sweep := time.Tick(lease.RenewEvery), time.Tick(state.AttestEvery), time.Tick(time.Second)
	for {
		select {
		case <-ctx.Done():
			return
		case <-sweep:
			k.leases.sweep(ctx)
		case <-renew:
			k.leases.renew(ctx)
		case <-attest:
			k.leases.settle(ctx) // what failed
			k.attest(ctx)
			k.audit.Retry()
			k.publish()
		case _, ok := <-changed:
			if !ok {
				changed = nil
				continue
			}
			k.attest(ctx)
			k.publish()
		}
	}
}

// renew keeps open what answers. That is the kernel's own account, by element: the agent can't add to it, nor can
// connections to the gate, which lead nowhere else. Where the gate is, the guard's onward connection counts.
func (l *leases) renew(ctx context.Context) {
	begun := time.Now()
	all, err := l.fw.InUse(ctx)
	if err != nil {
		l.log.Warn("looking for leases in use", "error", err)
		return
	}
	under, busy := make(map[firewall.Element]bool, len(all)), map[firewall.Element]bool{}
	for _, u := range all {
		under[u.Element] = true
		if u.Idle < 10*time.Minute { // who is silent for longer goes on, and keeps no address open
			busy[u.Element] = true
		}
	}
	l.books.ForgetLapsed(under, begun)
	l.moving.RLock()
	longer := l.books.Renew(busy, lease.RenewWindow, lease.RenewFor)
	l.moving.RUnlock()
	if err := l.giveInParts(ctx, longer); err != nil {
		l.log.Warn("renewing leases", "error", err)
	}
}

// sweep forgets what has expired. No policy may close it before the kernel was told.
func (l *leases) sweep(ctx context.Context) {
	l.moving.RLock()
	defer l.moving.RUnlock()
	if err := l.give(ctx, l.books.Sweep()); err != nil {
		l.log.Warn("letting leases run out", "error", err)
	}
}
