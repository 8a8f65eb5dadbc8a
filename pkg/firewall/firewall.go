package firewall

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"time"
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
	// Backend is "auto" (also ""), which probes the kernel, or "nftables".
	Backend string

	// Owner binds the table to this process where the kernel can do that
	// without deleting the table when the process ends: no other process,
	// whatever its capabilities, can then change it.
	Owner bool

	// Log takes diagnostics; nil discards them.
	Log *slog.Logger
}

// backend is the seam between the methods of Firewall and a kernel's way to
// hold a Plan. Calls come one at a time.
type backend interface {
	name() string
	seal() error                    // closed, keeping a table that is closed already
	apply(p Plan, ls []Lease) error // p, in one step, leases kept
	lease(ls []Lease) error         // adds or extends
	unlease(es []Element) error     // removes; absent ones are fine
	verify(p Plan) error            // nil if the kernel holds just p
	close() error
}

// Firewall is the live rules of this network namespace. Its methods are safe
// for concurrent use; a call whose context ends returns the context's error
// at once, and whether it took effect is then not known.
type Firewall struct {
	log *slog.Logger
}

// Open connects to the kernel and finds out, by a transaction that changes
// nothing, whether it can hold a Plan. The error matches ErrPermission or
// ErrUnsupported.
func Open(ctx context.Context, opts Options) (*Firewall, error) {
	return nil, fmt.Errorf("open firewall: %w", ErrUnsupported)
}

// Backend returns the name of the backend in use.
func (f *Firewall) Backend() string { return "" }

// Seal refuses everything but loopback. A table that an earlier process left
// is kept if its chains drop by default: it is at least as closed as the plan
// that it held.
func (f *Firewall) Seal(ctx context.Context) error { return ErrUnsupported }

// Apply replaces the rules by those of p in one step, keeps the leases that
// the kernel holds, and adds leases. It changes nothing if the kernel holds p
// already.
func (f *Firewall) Apply(ctx context.Context, p Plan, leases []Lease) error { return ErrUnsupported }

// Lease lets each element be reached for its TTL from now, and returns once
// the kernel has confirmed. Elements that are leased already are extended.
func (f *Firewall) Lease(ctx context.Context, leases []Lease) error { return ErrUnsupported }

// Revoke ends the leases of elements and the flows that use them.
func (f *Firewall) Revoke(ctx context.Context, elements []Element) error { return ErrUnsupported }

// FlushConntrack forgets every flow, so that none that is older than the
// rules lives on. It spares loopback, and the container engine's DNS.
func (f *Firewall) FlushConntrack(ctx context.Context) error { return ErrUnsupported }

// Flows returns the destinations of the flows that the kernel now tracks,
// each once, sorted.
func (f *Firewall) Flows(ctx context.Context) ([]Element, error) { return nil, ErrUnsupported }

// Verify compares the kernel's rules with the plan that was applied last. The
// error describes the first differences.
func (f *Firewall) Verify(ctx context.Context) error { return ErrUnsupported }

// Repair applies the last plan again. Leases that were lost with the table
// are the caller's to add again.
func (f *Firewall) Repair(ctx context.Context) error { return ErrUnsupported }

// Watch returns a channel that gets a value soon after anyone else changed
// rules in this namespace. It is closed when ctx ends.
func (f *Firewall) Watch(ctx context.Context) (<-chan struct{}, error) { return nil, ErrUnsupported }

// Close frees what this process holds. All rules stay.
func (f *Firewall) Close() error { return nil }
