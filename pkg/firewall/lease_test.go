package firewall

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

// E27, E28, E32: a lease opens one port of one protocol of one address.
func TestKernelLease(t *testing.T) {
	if !onBackends(t) {
		return
	}
	ctx := context.Background()
	l := newLab(t)
	l.serve(443)
	l.serve(8443)
	f := open(t, Options{})
	apply(t, f, Config{DropGroup: group})
	must(t, f.Lease(ctx, []Lease{leaseOf(other4, unix.IPPROTO_TCP, 443, time.Minute), leaseOf(other6, unix.IPPROTO_UDP, 8443, time.Minute)}))
	for _, uid := range []int{0, guardUID, agentUID} {
		for _, a := range []netip.Addr{far4, far6, other4, other6} {
			for _, port := range []uint16{443, 8443} {
				for _, network := range []string{"tcp", "udp"} {
					open := a == other4 && port == 443 && network == "tcp" || a == other6 && port == 8443 && network == "udp"
					if open {
						reached(t, network, at(a, port), uid)
					} else {
						refused(t, network, at(a, port), uid)
					}
				}
			}
		}
	}
	must(t, f.Verify(ctx))

	// Errors about our flows come in: nothing listens there.
	for _, a := range []netip.Addr{far4, far6} {
		must(t, f.Lease(ctx, []Lease{leaseOf(a, unix.IPPROTO_UDP, 7, time.Minute)}))
		if err := reach("udp", at(a, 7), agentUID); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("udp %v: %v, not the peer's refusal", at(a, 7), err)
		}
	}
}

// The kernel's own neighbour discovery goes out, and comes in: without it there is
// no IPv6. (A process's does not: TestKernelSeal.)
func TestKernelNeighbours(t *testing.T) {
	if !onBackends(t) {
		return
	}
	l := newLab(t)
	l.serve(443)
	f := open(t, Options{})
	apply(t, f, Config{DropGroup: group, Allow: []Entry{{Prefix: single(far6), Proto: unix.IPPROTO_TCP, Port: 443}}})
	link, err := netlink.LinkByName("eth0")
	must(t, err)
	must(t, netlink.LinkSetARPOff(link)) // which forgets every neighbour
	must(t, netlink.LinkSetARPOn(link))
	must(t, netlink.RouteReplace(&netlink.Route{Gw: far6.AsSlice()}))
	l.forget()
	eventually(t, "IPv6 with neighbours to be found", func() bool { return reach("tcp", at(far6, 443), agentUID) == nil })
	l.settle()
	l.wire.mu.Lock()
	defer l.wire.mu.Unlock()
	for _, p := range l.wire.ps {
		if p.proto == unix.IPPROTO_ICMPV6 && len(p.data) > 40 && p.data[40] == 135 {
			return
		}
	}
	t.Error("proves nothing: no neighbour was asked for")
}

// E16: a lease ends by itself, and one that is renewed lives on.
func TestKernelLeaseExpires(t *testing.T) {
	if !onBackends(t) {
		return
	}
	ctx := context.Background()
	l := newLab(t)
	l.serve(443)
	f := open(t, Options{})
	apply(t, f, Config{})
	for _, pair := range [][2]netip.Addr{{far4, other4}, {far6, other6}} {
		short, long := pair[0], pair[1]
		must(t, f.Lease(ctx, []Lease{leaseOf(short, unix.IPPROTO_TCP, 443, time.Second), leaseOf(long, unix.IPPROTO_TCP, 443, time.Second)}))
		reached(t, "tcp", at(short, 443), agentUID)
		must(t, f.Lease(ctx, []Lease{leaseOf(long, unix.IPPROTO_TCP, 443, time.Minute)}))
		eventually(t, "the end of the lease", func() bool { return reach("tcp", at(short, 443), agentUID) != nil })
		reached(t, "tcp", at(long, 443), agentUID)
	}
}

// E33: revoking ends flows that are under way, at once.
func TestKernelRevoke(t *testing.T) {
	if !onBackends(t) {
		return
	}
	ctx := context.Background()
	l := newLab(t)
	l.serve(443)
	f := open(t, Options{})
	apply(t, f, Config{})
	for _, a := range []netip.Addr{far4, far6} {
		for _, network := range []string{"tcp", "udp"} {
			e := Element{Addr: a, Proto: unix.IPPROTO_TCP, Port: 443}
			if network == "udp" {
				e.Proto = unix.IPPROTO_UDP
			}
			keep := e
			keep.Addr = map[netip.Addr]netip.Addr{far4: other4, far6: other6}[a]
			must(t, f.Lease(ctx, []Lease{{Element: e, TTL: time.Minute}, {Element: keep, TTL: time.Minute}}))
			c, err := net.Dial(network, at(e.Addr, e.Port).String())
			must(t, err)
			defer c.Close()
			k, err := net.Dial(network, at(keep.Addr, keep.Port).String())
			must(t, err)
			defer k.Close()
			for _, c := range []net.Conn{c, k} {
				if _, err := ping(c, "before"); err != nil {
					t.Fatal(err)
				}
			}
			if used := inUse(t, f); !contains(used, e) || !contains(used, keep) {
				t.Errorf("in use are %v, without %v and %v", used, e, keep)
			}
			must(t, f.Revoke(ctx, []Element{e, {Addr: a, Proto: unix.IPPROTO_TCP, Port: 12345}})) // the second was never leased
			if got, err := ping(c, "after-"+network); err == nil {
				t.Errorf("%v: the flow lives on: got %q", e, got)
			}
			if _, err := ping(k, "another"); err != nil {
				t.Errorf("%v: a flow that was not revoked: %v", keep, err)
			}
			refused(t, network, at(e.Addr, e.Port), agentUID)
			must(t, f.Revoke(ctx, []Element{e})) // again
			if used := inUse(t, f); contains(used, e) || !contains(used, keep) {
				t.Errorf("in use are %v, with %v or without %v", used, e, keep)
			}
		}
	}
	l.nowhere("after-")
}

func contains(es []Element, e Element) bool {
	for _, x := range es {
		if x == e {
			return true
		}
	}
	return false
}

// inUse are the elements that have answered.
func inUse(t *testing.T, f *Firewall) (out []Element) {
	t.Helper()
	used, err := f.InUse(context.Background())
	must(t, err)
	for _, u := range used {
		out = append(out, u.Element)
	}
	return out
}

// forgetful is a backend that says it has ended leases, and has not.
type forgetful struct{ backend }

func (forgetful) Unlease([]Element) error { return nil }

// What could not be taken out is an error, and no success.
func TestKernelRevokeLooksAgain(t *testing.T) {
	if !onBackends(t) {
		return
	}
	f := open(t, Options{})
	apply(t, f, Config{}, leaseOf(far4, unix.IPPROTO_TCP, 443, time.Minute))
	real := f.be
	f.be = forgetful{f.be}
	e := Element{Addr: far4, Proto: unix.IPPROTO_TCP, Port: 443}
	if err := f.Revoke(context.Background(), []Element{e}); err == nil {
		t.Error("revoked")
	}
	f.be = real
	must(t, f.Revoke(context.Background(), []Element{e}))
}

// E72: leases that an earlier process left end, and only they.
func TestKernelRevokeAll(t *testing.T) {
	if !onBackends(t) {
		return
	}
	ctx := context.Background()
	l := newLab(t)
	l.serve(443)
	must(t, open(t, Options{}).RevokeAll(ctx)) // nothing is there yet
	apply(t, open(t, Options{}), Config{Allow: []Entry{{Prefix: single(other4), Proto: unix.IPPROTO_TCP, Port: 443}}}, leaseOf(far4, unix.IPPROTO_TCP, 443, time.Hour), leaseOf(far6, unix.IPPROTO_TCP, 443, time.Hour))
	reached(t, "tcp", at(far4, 443), agentUID)
	second := open(t, Options{})
	must(t, second.Seal(ctx))
	leased, err := second.Leased(ctx, anyLease)
	must(t, err)
	for _, a := range []netip.Addr{far4, far6} {
		if !slices.ContainsFunc(leased, func(l Lease) bool {
			return l.Element == Element{Addr: a, Proto: unix.IPPROTO_TCP, Port: 443} && l.TTL > 59*time.Minute && l.TTL <= time.Hour
		}) {
			t.Errorf("leased: %v", leased)
		}
	}
	reached(t, "tcp", at(far4, 443), agentUID)
	must(t, second.RevokeAll(ctx))
	if leased, err := second.Leased(ctx, anyLease); err != nil || len(leased) > 0 {
		t.Errorf("still leased: %v, %v", leased, err)
	}
	refused(t, "tcp", at(far4, 443), agentUID)
	refused(t, "tcp", at(far6, 443), agentUID)
	reached(t, "tcp", at(other4, 443), agentUID)
	must(t, second.RevokeAll(ctx))
}

// E15: when Lease returns, the way is open, whatever others do meanwhile.
func TestKernelLeaseConcurrently(t *testing.T) {
	if !onBackends(t) {
		return
	}
	ctx := context.Background()
	f := open(t, Options{})
	apply(t, f, Config{})
	var wg sync.WaitGroup
	for i := range 500 {
		wg.Go(func() {
			a := netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
			if err := f.Lease(ctx, []Lease{leaseOf(a, unix.IPPROTO_TCP, 443, time.Minute), leaseOf(far4, unix.IPPROTO_TCP, 443, time.Minute)}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	leased, err := f.Leased(ctx, anyLease)
	must(t, err)
	if len(leased) != 501 {
		t.Errorf("%d leases, not 501", len(leased))
	}
	for _, l := range leased {
		if l.TTL > time.Minute || l.TTL < 30*time.Second {
			t.Fatalf("a time of %v", l.TTL)
		}
	}
	bad := []Lease{{}, leaseOf(far4, 1, 0, time.Minute), leaseOf(far4, unix.IPPROTO_TCP, 0, time.Minute)}
	for _, l := range bad {
		if err := f.Lease(ctx, []Lease{l}); err == nil {
			t.Errorf("%v was leased", l)
		}
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if err := f.Lease(gone, []Lease{leaseOf(far4, unix.IPPROTO_TCP, 1, time.Minute)}); err != context.Canceled {
		t.Errorf("with an ended context: %v", err)
	}
}

// A set has an end. Then leases fail, for those who ask for new ones, and the
// others' hold.
func TestKernelLeaseFull(t *testing.T) {
	if !onBackends(t) {
		return
	}
	ctx := context.Background()
	f := open(t, Options{})
	apply(t, f, Config{})
	ls := make([]Lease, plan.IPv4.Leases(plan.Agent).Size)
	for i := range ls {
		ls[i] = leaseOf(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), unix.IPPROTO_TCP, 443, time.Hour)
	}
	must(t, f.Lease(ctx, ls))
	if err := f.Lease(ctx, []Lease{leaseOf(far4, unix.IPPROTO_TCP, 443, time.Hour)}); err == nil {
		t.Error("one more than the set holds was leased")
	}
	must(t, f.Revoke(ctx, []Element{ls[0].Element}))
	must(t, f.Lease(ctx, []Lease{leaseOf(far4, unix.IPPROTO_TCP, 443, time.Hour)}))
}
