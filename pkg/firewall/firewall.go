package firewall

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Element is one destination: an address, an IP protocol number (6 or 17) and
// a port.
type Element struct {
	Addr  netip.Addr
	Proto uint8
	Port  uint16
}

// String returns, for example, "tcp 192.0.2.1:443".
func (e Element) String() string {
	return fmt.Sprintf("%s %s", protoName(e.Proto), netip.AddrPortFrom(e.Addr, e.Port))
}

// Lease is an Element that may be reached for TTL from now on. The kernel
// counts in milliseconds; TTL is rounded up to at least a second.
type Lease struct {
	Element
	TTL time.Duration
}

// Options say how to open a Firewall.
type Options struct {
	// Backend is one of Backends; "" is "auto".
	Backend string

	// Owner binds the table to this process where the kernel can do that
	// without deleting the table when the process ends: no other process,
	// whatever its capabilities, can then change it.
	Owner bool

	// Run runs the programs of iptables(8). Without it there is no xtables
	// backend.
	Run Runner

	// LockFile is what iptables locks where it can't make /run/xtables.lock, as
	// on a read-only root. Nobody but root may be able to make or open it.
	LockFile string

	// Log takes diagnostics; nil discards them.
	Log *slog.Logger
}

func (o Options) logger() *slog.Logger {
	if o.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return o.Log
}

// backend is the seam between the methods of Firewall and a kernel's way to
// hold a Plan. Calls come one at a time.
type backend interface {
	name() string
	zones() bool                // it can hold plans with Config.GuardZone
	portID() (uint32, error)    // the netlink port that changes come from
	seal(sealed Plan) error     // closed, keeping a table that is closed already
	apply(p, sealed Plan) error // p, in one step, leases kept; by way of sealed if it must be
	lease(ls []Lease) error     // adds or extends, all or none of each thousand
	unlease(es []Element) error // removes, and from what kept returns too; absent ones are fine
	unleaseAll() error          // removes every one, also without a table
	leases() ([]Lease, error)   // what is leased now
	kept() ([]Lease, error)     // what has answered while it was, with what is left of liveFor
	verify(p Plan) error        // nil if the kernel holds just p
	close() error
}

// Firewall is the live rules of this network namespace. Its methods are safe
// for concurrent use; a call whose context ends returns the context's error
// at once, and whether it took effect is then not known.
type Firewall struct {
	log   *slog.Logger
	be    backend
	why   string
	ct    *conntrack
	rules *worker      // the only one to use be
	flows *worker      // the only one to use ct
	last  *Plan        // what was applied; rules' own
	clear func() error // removes what other backends left; rules' own; nil once it was done

	reduced string // why plans must be reduced; then ct is nil
}

// Open connects to the kernel and finds out, by a transaction that changes
// nothing, whether it can hold a Plan. The error matches ErrPermission or
// ErrUnsupported.
func Open(ctx context.Context, opts Options) (*Firewall, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	be, why, clear, err := choose(ctx, opts)
	if err != nil {
		return nil, err
	}
	if r, ok := be.(*reducedXT); ok {
		return &Firewall{log: opts.logger(), be: be, why: why, reduced: r.reason, rules: newWorker(be.lease), flows: newWorker(nil)}, nil
	}
	ct, err := openConntrack()
	if err != nil {
		be.close()
		return nil, explain("open conntrack socket", err)
	}
	return &Firewall{log: opts.logger(), be: be, why: why, clear: clear, ct: ct, rules: newWorker(be.lease), flows: newWorker(nil)}, nil
}

// Backend returns the name of the backend in use: "nftables", "xtables-nft" or
// "xtables-legacy".
func (f *Firewall) Backend() string { return f.be.name() }

// Why says, in a few words for people, what the backend runs on and why it was
// chosen.
func (f *Firewall) Why() string { return f.why }

// Reduced says, in a few words for people, why plans must have Config.Reduced; ""
// if they must not.
func (f *Firewall) Reduced() string { return f.reduced }

// Zones says whether plans may have Config.GuardZone.
func (f *Firewall) Zones() bool { return f.reduced == "" && f.be.zones() }

// Seal refuses everything but loopback. A table that an earlier process left
// is kept if its chains drop by default: it is at least as closed as the plan
// that it held.
func (f *Firewall) Seal(ctx context.Context) error {
	p, err := NewPlan(Config{Sealed: true, Reduced: f.reduced != ""})
	if err != nil {
		return err
	}
	return f.rules.do(ctx, func() error { return f.be.seal(p) })
}

// Apply replaces the rules by those of p in one step, keeps the leases that
// the kernel holds, and adds leases. It changes nothing if the kernel holds p
// already.
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
		return f.be.lease(leases)
	})
}

// put brings p into the kernel.
func (f *Firewall) put(p Plan) error {
	if len(p.chains) == 0 {
		return errors.New("apply: an empty plan")
	}
	sealed, err := NewPlan(Config{Sealed: true, DropGroup: p.dropGroup, Reduced: p.reduced})
	if err != nil {
		return err
	}
	if err := f.be.apply(p, sealed); err != nil {
		return err
	}
	// Until here what another backend left was in force as well, and only what
	// both allow has passed.
	if f.clear != nil {
		if err := f.clear(); err != nil {
			return err
		}
		f.clear = nil
	}
	return nil
}

// Lease lets each element be reached for its TTL from now, and returns once
// the kernel has confirmed. Elements that are leased already are extended, or
// shortened. It fails if no plan with leases was applied before.
func (f *Firewall) Lease(ctx context.Context, leases []Lease) error {
	leases, err := cleanLeases(leases)
	if err != nil || len(leases) == 0 {
		return err
	}
	return f.rules.leaseSoon(ctx, leases)
}

// Revoke ends the leases of elements, and what is under way to them: no packet of
// theirs passes any more, in no direction.
func (f *Firewall) Revoke(ctx context.Context, elements []Element) error {
	gone := make(map[Element]bool, len(elements))
	for _, e := range elements {
		e, err := e.clean()
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

// Retain is Revoke of all elements but those that wanted wants. Those that it surely
// doesn't are taken out first, before there is a look at all others.
func (f *Firewall) Retain(ctx context.Context, surplus []Element, wanted func(Element) bool) error {
	return f.rules.do(ctx, func() error {
		if len(surplus) > 0 {
			if err := f.be.unlease(surplus); err != nil && !errors.Is(err, unix.ENOENT) { // sealed
				return explain("revoke", err)
			}
		}
		return explain("revoke", f.retain(wanted))
	})
}

// retainTries is how often retain looks. A packet that is judged while its address
// is taken out may put it back, for an instant once and again.
const retainTries = 100

func (f *Firewall) retain(wanted func(Element) bool) error {
	for range retainTries {
		leased, err := f.be.leases()
		if err != nil {
			return err
		}
		kept, err := f.be.kept()
		if err != nil {
			return err
		}
		surplus := map[Element]bool{}
		for _, l := range append(leased, kept...) {
			if !wanted(l.Element) {
				surplus[l.Element] = true
			}
		}
		if len(surplus) == 0 {
			return nil
		}
		if err := f.be.unlease(slices.Collect(maps.Keys(surplus))); err != nil {
			return err
		}
	}
	return errors.New("something puts addresses back")
}

// Leased returns what the kernel holds as leased, with the time that is left
// to each; 0 means for ever, which none of ours is.
func (f *Firewall) Leased(ctx context.Context) ([]Lease, error) {
	var out []Lease
	err := f.rules.do(ctx, func() (err error) {
		out, err = f.be.leases()
		return explain("list leases", err)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// RevokeAll is Revoke of every element, those that an earlier process leased too,
// which Seal and Apply keep.
func (f *Firewall) RevokeAll(ctx context.Context) error {
	return f.rules.do(ctx, f.be.unleaseAll)
}

// FlushConntrack forgets every flow, so that none that is older than the
// rules lives on. It spares loopback, and the container engine's DNS.
func (f *Firewall) FlushConntrack(ctx context.Context) error {
	if f.ct == nil {
		return ctx.Err() // each packet is judged by itself, whatever it is part of
	}
	return f.flows.do(ctx, func() error {
		return explain("flush conntrack", f.ct.forget(func(fl flow) bool { return !fl.internal() }))
	})
}

// Use is an element that packets pass to and fro, leased still or no longer.
type Use struct {
	Element
	Idle time.Duration // since it last answered
}

// InUse returns what has answered while it was leased, and was not revoked since, in
// the last day.
func (f *Firewall) InUse(ctx context.Context) ([]Use, error) {
	if f.reduced != "" {
		return f.guardFlows(ctx)
	}
	var out []Use
	err := f.rules.do(ctx, func() error {
		kept, err := f.be.kept()
		for _, l := range kept {
			out = append(out, Use{l.Element, max(liveFor-l.TTL, 0)})
		}
		return explain("list what is in use", err)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Verify compares the kernel's rules with the plan that was applied last. The
// error describes the first differences.
func (f *Firewall) Verify(ctx context.Context) error {
	return f.rules.do(ctx, func() error {
		if f.last == nil {
			return errors.New("verify: nothing was applied yet")
		}
		// Someone's change during the listing may make it look torn; one
		// that lasts is seen again.
		if f.be.verify(*f.last) == nil {
			return nil
		}
		return f.be.verify(*f.last)
	})
}

// Repair applies the last plan again. Leases that were lost with the table
// are the caller's to add again.
func (f *Firewall) Repair(ctx context.Context) error {
	return f.rules.do(ctx, func() error {
		if f.last == nil {
			return errors.New("repair: nothing was applied yet")
		}
		return f.put(*f.last)
	})
}

// Watch returns a channel that gets a value soon after anyone else changed
// rules in this namespace, ours or their own. It is closed when ctx ends, or when
// the kernel can't be listened to any more.
func (f *Firewall) Watch(ctx context.Context) (<-chan struct{}, error) {
	if f.reduced != "" {
		return nil, errors.New("this kernel tells nobody of changes")
	}
	id, err := f.be.portID()
	if err != nil {
		return nil, explain("watch the rules", err)
	}
	return watch(ctx, id)
}

// Close frees what this process holds. All rules stay.
func (f *Firewall) Close() error {
	f.rules.close()
	f.flows.close()
	if f.ct == nil {
		return f.be.close()
	}
	return errors.Join(f.be.close(), f.ct.conn.Close())
}

// clean returns e as the kernel knows it, or an error if e can't be leased.
func (e Element) clean() (Element, error) {
	e.Addr = e.Addr.Unmap().WithZone("")
	if !e.Addr.IsValid() || e.Port == 0 || e.Proto != protoTCP && e.Proto != protoUDP {
		return e, fmt.Errorf("%v: want an address, tcp or udp, and a port", e)
	}
	return e, nil
}

func cleanLeases(ls []Lease) ([]Lease, error) {
	out := make([]Lease, 0, len(ls))
	for _, l := range ls {
		e, err := l.Element.clean()
		if err != nil {
			return nil, err
		}
		out = append(out, Lease{e, l.TTL})
	}
	return out, nil
}
