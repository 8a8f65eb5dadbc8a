package firewall

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/firewall/internal/nfnetlink"
	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
	"github.com/agent-init/agent-init/pkg/firewall/internal/xtables"
)

// Options say how to open a Firewall.
type Options struct {
	Backend string // one of Backends; "" is "auto"

	// Owner binds the table to this process where the kernel can do that without deleting the table when the process
	// ends: no other process, whatever its capabilities, can then change it.
	Owner bool

	// Seal has Open do what Firewall.Seal does, and do that first: the kernel is only then asked for what else plans need.
	// What is sealed stays so if Open fails.
	Seal bool

	Run Runner // of the programs of iptables(8); without it there is no xtables backend

	// LockFile is what iptables locks where it can't make /run/xtables.lock, as
	// on a read-only root. Nobody but root may be able to make or open it.
	LockFile string

	Log *slog.Logger // takes diagnostics; nil discards them
}

func (o Options) programs() xtables.Options {
	return xtables.Options{Run: o.Run, LockFile: o.LockFile, Log: o.Log}
}

// backend is the seam between the methods of Firewall and a kernel's way to hold a Plan. Calls come one at a time.
type backend interface {
	Seal(sealed Plan) error                    // closed, keeping a table that is closed already
	Apply(p, sealed Plan) error                // p, in one step, leases kept; by way of sealed if it must be
	Lease(ls []Lease) error                    // adds or extends, all or none of each thousand; each element once, and its time is over 0
	Unlease(es []Element) error                // removes, from the sets of what answers too; absent ones are fine
	Held(set plan.Set, each func(Lease)) error // what one of these sets holds, with what is left of its time
	Empty(sets []plan.Set) error               // removes all of that, of those that are there
	Verify(p Plan) error                       // nil if the kernel holds just p
	Close() error
}

// Firewall is the live rules of this network namespace. Its methods are safe for concurrent use; a call whose context
// ends returns the context's error at once, and whether it took effect is then not known.
type Firewall struct {
	Backend string // in use: "nftables" or "xtables-legacy"
	Why     string // for people: what the backend runs on, and why it was chosen
	Reduced string // for people: why plans must have Config.Reduced; "" if they must not
	Zones   bool   // plans may have Config.GuardZone

	be    backend
	port  uint32       // the netlink port that its changes come from; 0: other processes'
	rules *worker      // the only one to use be
	last  *Plan        // what was applied; rules' own
	clear func() error // removes what other backends left; rules' own; nil once it was done
}

// Open connects to the kernel and finds out, by a transaction that changes nothing, whether it can hold a Plan; with
// Options.Seal it seals before. The error matches ErrPermission where a capability is missing.
func Open(ctx context.Context, opts Options) (*Firewall, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	f, err := choose(opts)
	if err != nil {
		return nil, err
	}
	f.rules = newWorker(f.lease)
	if opts.Seal && f.Reduced != "" { // the others have begun with that
		if err := f.Seal(ctx); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return f, nil
}

// Seal refuses everything but loopback. A table that an earlier process left is kept if its chains drop by default: it
// is at least as closed as the plan that it held.
func (f *Firewall) Seal(ctx context.Context) error {
	p, err := sealedPlan(f.Reduced != "", 0)
	if err != nil {
		return err
	}
	return f.rules.do(ctx, func() error { return f.be.Seal(p) })
}

func sealedPlan(reduced bool, group uint16) (Plan, error) {
	return NewPlan(Config{Sealed: true, DropGroup: group, Reduced: reduced})
}

// Apply replaces the rules by those of p in one step, keeps the leases that the kernel holds, and adds leases. It
// changes nothing if the kernel holds p already.
func (f *Firewall) Apply(ctx context.Context, p Plan, leases []Lease) error {
	leases, err := cleanLeases(leases)
	if err != nil {
		return err
	}
	return f.rules.do(ctx, func() error {
		if err := f.put(p); err != nil {
			return err
		}
		f.last = &p
		return f.lease(leases)
	})
}

func (f *Firewall) put(p Plan) error {
	if len(p.Chains) == 0 {
		return errors.New("apply: an empty plan")
	}
	sealed, err := sealedPlan(f.Reduced != "", p.DropGroup)
	if err != nil {
		return err
	}
	if err := f.be.Apply(p, sealed); err != nil {
		return err
	}
	// Until here what another backend left was in force as well, and only what both allow has passed.
	if f.clear != nil {
		if err := f.clear(); err != nil {
			return err
		}
		f.clear = nil
	}
	return nil
}

// Lease lets each element be reached for its TTL from now, and returns once the kernel has confirmed. Elements that are
// leased already are extended, or shortened. It fails if no plan with leases of that holder was applied before.
func (f *Firewall) Lease(ctx context.Context, leases []Lease) error {
	leases, err := cleanLeases(leases)
	if err != nil || len(leases) == 0 {
		return err
	}
	return f.rules.leaseSoon(ctx, leases)
}

func cleanLeases(ls []Lease) ([]Lease, error) {
	out := make([]Lease, len(ls))
	for i, l := range ls {
		e, err := l.Clean()
		if err != nil {
			return nil, err
		}
		out[i] = Lease{Element: e, TTL: l.TTL}
	}
	return out, nil
}

// lease has the backend lease each element once, for the longest of its times.
func (f *Firewall) lease(ls []Lease) error {
	longest := make(map[Element]time.Duration, len(ls))
	for _, l := range ls {
		longest[l.Element] = max(longest[l.Element], l.TTL, 1)
	}
	out := make([]Lease, 0, len(longest))
	for e, ttl := range longest {
		out = append(out, Lease{Element: e, TTL: ttl})
	}
	return f.be.Lease(out)
}

// Revoke ends the leases of elements, and what is under way to them: no packet passes any more, to or fro.
func (f *Firewall) Revoke(ctx context.Context, elements []Element) error {
	gone := make(map[Element]bool, len(elements))
	for _, e := range elements {
		e, err := e.Clean()
		if err != nil {
			return err
		}
		gone[e] = true
	}
	if len(gone) == 0 {
		return nil
	}
	return f.Retain(ctx, slices.Collect(maps.Keys(gone)), func(e Element) bool { return !gone[e] })
}

// Drop is Revoke without a look at what the kernel holds, however much that is. A packet that is judged meanwhile may put
// an element back among what has answered, until Drop is called again, or Retain.
func (f *Firewall) Drop(ctx context.Context, elements []Element) error {
	if len(elements) == 0 {
		return nil
	}
	return f.rules.do(ctx, func() error { return f.unlease(elements) })
}

func (f *Firewall) unlease(elements []Element) error {
	if err := f.be.Unlease(elements); err != nil && !errors.Is(err, unix.ENOENT) { // sealed
		return nfnetlink.Explain("revoke", err)
	}
	return nil
}

// Retain is Revoke of all elements but those that wanted wants. Those that it surely
// doesn't are taken out first, before there is a look at all others.
func (f *Firewall) Retain(ctx context.Context, surplus []Element, wanted func(Element) bool) error {
	return f.rules.do(ctx, func() error {
		if len(surplus) > 0 {
			if err := f.unlease(surplus); err != nil {
				return err
			}
		}
		return nfnetlink.Explain("revoke", f.retain(wanted))
	})
}

// retainTries is how often retain looks. A packet that is judged while its address
// is taken out may put it back, for an instant once and again.
const retainTries = 100

func (f *Firewall) retain(wanted func(Element) bool) error {
	for range retainTries {
		held, err := f.held(slices.Concat(plan.LeaseSets(), plan.KeptSets()), func(l Lease) bool { return !wanted(l.Element) })
		if err != nil {
			return err
		}
		surplus := map[Element]bool{}
		for _, l := range held {
			surplus[l.Element] = true
		}
		if len(surplus) == 0 {
			return nil
		}
		if err := f.be.Unlease(slices.Collect(maps.Keys(surplus))); err != nil {
			return err
		}
	}
	return errors.New("something puts addresses back")
}

// Leased returns what the kernel holds as leased, with the time that is left
// to each; 0 means for ever, which none of ours is. Of tens of thousands few are looked for: those are listed that
// wanted wants, which may be called after an end of ctx.
func (f *Firewall) Leased(ctx context.Context, wanted func(Lease) bool) ([]Lease, error) {
	return listed(ctx, f.rules, "list leases", func() ([]Lease, error) { return f.held(plan.LeaseSets(), wanted) })
}

// held is what is wanted of what the kernel holds in those of sets that the last plan has, or before one, that an earlier
// process may have left.
func (f *Firewall) held(sets []plan.Set, wanted func(Lease) bool) (out []Lease, err error) {
	for _, s := range sets {
		if f.last != nil && s.For == plan.Broker {
			if _, err := f.last.Set(s.Name); err != nil {
				continue
			}
		}
		err := f.be.Held(s, func(l Lease) {
			if wanted(l) {
				out = append(out, l)
			}
		})
		if err != nil && !errors.Is(err, unix.ENOENT) { // sealed, or no table at all
			return nil, err
		}
	}
	return out, nil
}

// listed has w call list, and returns what that returns.
func listed[T any](ctx context.Context, w *worker, what string, list func() ([]T, error)) ([]T, error) {
	var out []T
	err := w.do(ctx, func() error {
		list, err := list()
		out = list
		return nfnetlink.Explain(what, err)
	})
	if err != nil { // the worker may still be at it
		return nil, err
	}
	return out, nil
}

// RevokeAll is Revoke of every element, those that an earlier process leased too, which Seal and Apply keep.
func (f *Firewall) RevokeAll(ctx context.Context) error {
	return f.rules.do(ctx, func() error { // leases first: what is not leased is not newly kept
		return nfnetlink.Explain("revoke all", f.be.Empty(slices.Concat(plan.LeaseSets(), plan.KeptSets())))
	})
}

// FlushConntrack forgets every flow, so that none that is older than the
// rules lives on. It spares loopback, and the container engine's DNS.
func (f *Firewall) FlushConntrack(ctx context.Context) error {
	if f.Reduced != "" {
		return ctx.Err() // each packet is judged by itself, whatever it is part of
	}
	return nfnetlink.Explain("flush conntrack", forgetFlows(ctx))
}

// Use is an element that packets pass to and fro, leased still or no longer.
type Use struct {
	Element
	Idle time.Duration // since it last answered
}

// InUse returns what has answered while it was leased, and was not revoked since, in the last day.
func (f *Firewall) InUse(ctx context.Context) ([]Use, error) {
	return listed(ctx, f.rules, "list what is in use", func() (out []Use, err error) {
		if f.Reduced != "" {
			if f.last == nil {
				return nil, nil
			}
			// Nobody but the guard is connected to anything outside.
			es, err := connectionsOf(procNet, f.last.Guard)
			for _, e := range es {
				out = append(out, Use{Element: e})
			}
			return out, err
		}
		_, err = f.held(plan.KeptSets(), func(l Lease) bool {
			out = append(out, Use{l.Element, max(plan.KeptFor-l.TTL, 0)})
			return false
		})
		return out, err
	})
}

// Verify compares the kernel's rules with the plan that was applied last. The error describes the first differences.
func (f *Firewall) Verify(ctx context.Context) error {
	return f.rules.do(ctx, func() error {
		if f.last == nil {
			return errors.New("verify: nothing was applied yet")
		}
		// Someone's change during the listing may make it look torn; one that lasts is seen again.
		if f.be.Verify(*f.last) == nil {
			return nil
		}
		return f.be.Verify(*f.last)
	})
}

// Repair applies the last plan again. Leases that were lost with the table are the caller's to add again.
func (f *Firewall) Repair(ctx context.Context) error {
	return f.rules.do(ctx, func() error {
		if f.last == nil {
			return errors.New("repair: nothing was applied yet")
		}
		return f.put(*f.last)
	})
}

// Watch returns a channel that gets a value soon after anyone else changed rules in this namespace, ours or their own.
// It is closed when ctx ends, or when the kernel can't be listened to any more.
func (f *Firewall) Watch(ctx context.Context) (<-chan struct{}, error) {
	if f.Reduced != "" {
		return nil, errors.New("this kernel tells nobody of changes")
	}
	return watch(ctx, f.port)
}

// Close frees what this process holds. All rules stay.
func (f *Firewall) Close() error {
	f.rules.close()
	return f.be.Close()
}
