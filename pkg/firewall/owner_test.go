package firewall

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Who has one of the guard's two ids, in place of a uid. Nobody has such uids.
const (
	impostor       = 1<<20 + iota // the guard's uid, and another group
	member                        // likewise, with the guard's group as a supplementary one
	namesake                      // the agent's uid, in the guard's group
	brokerImpostor                // the broker's uid, and another group
	brokerNamesake                // the agent's uid, in the broker's group
)

// become gives the calling thread a uid, and the group that goes with it.
func become(uid int) error {
	gid, groups := uid, []uint32(nil)
	switch uid {
	case guardUID:
		gid = guardGID
	case brokerUID:
		gid = brokerGID
	case brokerImpostor:
		uid, gid = brokerUID, brokerUID
	case brokerNamesake:
		uid, gid = agentUID, brokerGID
	case impostor:
		uid, gid = guardUID, guardUID
	case member:
		uid, gid, groups = guardUID, guardUID, []uint32{guardGID}
	case namesake:
		uid, gid = agentUID, guardGID
	}
	first := uintptr(unsafe.Pointer(unsafe.SliceData(groups)))
	if _, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), first, 0); e != 0 {
		return e
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESGID, uintptr(gid), uintptr(gid), uintptr(gid)); e != 0 {
		return e
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); e != 0 {
		return e
	}
	return nil
}

// TestKernelGuardGroup: who has the guard's uid in another group, or its group with
// another uid, is treated as everybody is: by each rule that is for the guard.
func TestKernelGuardGroup(t *testing.T) {
	if !onBackends(t) {
		return
	}
	ctx := context.Background()
	l := newLab(t)
	for _, port := range []uint16{53, 443, 8853} {
		l.serve(port)
	}
	echo(t, netip.MustParseAddrPort("127.0.0.1:4053"), "guard ")
	echo(t, netip.MustParseAddrPort("127.0.0.1:4080"), "gate ")
	echo(t, netip.MustParseAddrPort("127.0.0.11:40053"), "engine ")
	engineAt := netip.MustParseAddrPort("127.0.0.11:53")
	engine(t, enginesVariant())
	f := open(t, Options{})
	c := Config{
		DNSPort4: 4053, GatePort4: 4080, DropGroup: group,
		Upstreams: []netip.AddrPort{engineAt, at(other4, 53), at(other6, 53), at(other4, 8853), at(other6, 8853)},
	}
	for _, observe := range []bool{false, true} {
		c.Observe = observe
		apply(t, f, c)
		must(t, f.Lease(ctx, leasedTo(Gated, tcpLeases(443, far4, far6)...)))
		l.forget()
		for _, who := range []int{impostor, member, namesake} {
			for _, network := range []string{"udp", "tcp"} {
				for _, ap := range []netip.AddrPort{engineAt, at(other4, 53)} {
					if got, err := ask(network, ap, who, "q"); got != "guard q" {
						t.Errorf("%s %v as %d: answer %q, %v; want the guard's", network, ap, who, got, err)
					}
				}
				refused(t, network, netip.MustParseAddrPort("127.0.0.11:40053"), who)
				refused(t, network, at(other6, 53), who) // nobody answers there over IPv6
				for _, ap := range []netip.AddrPort{at(other4, 8853), at(other6, 8853)} {
					refused(t, network, ap, who)
				}
			}
			if got, err := ask("tcp", at(far4, 443), who, "hello"); got != "gate hello" {
				t.Errorf("as %d: got %q, %v; want the gate", who, got, err)
			}
			refused(t, "tcp", at(far6, 443), who) // where there is no gate
			port := abandonedFlow(t, at(far4, 443))
			got := askFrom(t, "tcp", port, at(far4, 443), who, "hello from before")
			if f.Zones && got != "gate hello from before" || !f.Zones && strings.Contains(got, "hello") {
				t.Errorf("as %d, from the port of a flow of the guard's: %s", who, got)
			}
		}
		l.settle()
		if got := l.wire.arrived("hello from "); len(got) > 0 {
			t.Errorf("arrived at the peer: %+v", got)
		}
		for _, ap := range []netip.AddrPort{at(other4, 53), at(other6, 53), at(other4, 8853), at(other6, 8853)} {
			reached(t, "udp", ap, guardUID)
			reached(t, "tcp", ap, guardUID)
		}
		if got, err := ask("udp", engineAt, guardUID, "q"); got != "engine q" {
			t.Errorf("as the guard: answer %q, %v; want the engine's", got, err)
		}
		reached(t, "tcp", at(far4, 443), guardUID)
		reached(t, "tcp", at(far6, 443), guardUID)
		must(t, f.Verify(ctx))
	}

	// Where no group counts, the uid is all that it takes.
	c.Observe, c.AnyGroup = false, true
	apply(t, f, c)
	for _, who := range []int{impostor, guardUID} {
		reached(t, "udp", at(other4, 53), who)
		reached(t, "tcp", at(far4, 443), who)
	}
	refused(t, "tcp", at(far6, 443), namesake)
	if slices.Contains(strings.Fields(f.last.String()), "skgid") {
		t.Error("a group counts")
	}
	must(t, f.Verify(ctx))

	// Rules for another group, or for any, are not those of the plan.
	c.AnyGroup = false
	apply(t, f, c)
	other := open(t, Options{})
	for _, theirs := range []Config{{GuardGID: guardGID + 1}, {AnyGroup: true}} {
		changed := c
		changed.GuardGID, changed.AnyGroup = theirs.GuardGID, theirs.AnyGroup
		apply(t, other, changed)
		if err := f.Verify(ctx); err == nil || !strings.Contains(err.Error(), "to-guard has other rules") {
			t.Errorf("with rules for %+v: verify says %v", theirs, err)
		}
		must(t, f.Repair(ctx))
		must(t, f.Verify(ctx))
		refused(t, "tcp", at(far6, 443), impostor)
	}
}
