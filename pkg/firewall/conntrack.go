package firewall

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/firewall/internal/nfnetlink"
	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

// From nfnetlink_conntrack.h.
const (
	ctGet    = 1 // IPCTNL_MSG_CT_GET
	ctDelete = 2 // IPCTNL_MSG_CT_DELETE

	ctaTupleOrig  = 1
	ctaTupleReply = 2
	ctaID         = 12
	ctaZone       = 18

	ctaTupleIP    = 1
	ctaTupleProto = 2

	ctaIPv4Src = 1
	ctaIPv4Dst = 2
	ctaIPv6Src = 3
	ctaIPv6Dst = 4

	ctaProtoNum     = 1
	ctaProtoDstPort = 3
)

// flow is one entry: where its first packet went, and whom the replies come
// from, which differ if it was redirected.
type flow struct {
	src, replySrc netip.Addr
	dst           Element
	raw           nfnetlink.Attrs
}

// eachFlow calls do with one entry after another, which are never all in memory. Both
// families are read at once, since the kernel walks its whole table for each
// request, that of all namespaces together.
func eachFlow(do func(flow) error) error {
	if noFlows() {
		return nil
	}
	list := nfnetlink.Request{Subsystem: unix.NFNL_SUBSYS_CTNETLINK, Type: ctGet, Flags: unix.NLM_F_DUMP}
	err := nfnetlink.Stream(list, func(m nfnetlink.Attrs) error {
		if fl, ok := parseFlow(m); ok {
			return do(fl)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read conntrack: %w", err)
	}
	return nil
}

// noFlows says whether the kernel counts no entry in this namespace, as when a
// container starts. Where it doesn't count, the table has to be read.
func noFlows() bool {
	count, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_count")
	return err == nil && string(count) == "0\n"
}

// forgetFlows deletes the entries that pick picks. One that can't be deleted keeps none
// of the others: the first such error is returned.
func forgetFlows(pick func(flow) bool) error {
	var failed error
	err := eachFlow(func(f flow) error {
		if pick(f) {
			failed = cmp.Or(failed, f.delete())
		}
		return nil
	})
	return cmp.Or(err, failed)
}

// delete deletes an entry, which may be gone already.
func (f flow) delete() error {
	q := nfnetlink.Request{Subsystem: unix.NFNL_SUBSYS_CTNETLINK, Type: ctDelete, Family: unix.AF_INET}
	if f.dst.Addr.Is6() {
		q.Family = unix.AF_INET6
	}
	// The tuple is never empty here; without it the kernel would delete
	// every entry. The id keeps a successor of the same tuple.
	q.Attrs = nfnetlink.Append(nil, ctaTupleOrig|unix.NLA_F_NESTED, f.raw[ctaTupleOrig]...)
	for _, typ := range []uint16{ctaZone, ctaID} {
		if b, ok := f.raw[typ]; ok {
			q.Attrs = nfnetlink.Append(q.Attrs, typ, b...)
		}
	}
	if _, err := nfnetlink.Exchange(q); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("delete the flow to %v from conntrack: %w", f.dst, err)
	}
	return nil
}

func parseFlow(m nfnetlink.Attrs) (f flow, ok bool) {
	f.raw = m
	var there, back bool
	f.src, f.dst, there = parseTuple(m[ctaTupleOrig])
	f.replySrc, _, back = parseTuple(m[ctaTupleReply])
	return f, there && back
}

func parseTuple(b []byte) (src netip.Addr, dst Element, ok bool) {
	tuple, err := nfnetlink.ParseAttrs(b)
	ip, ierr := nfnetlink.ParseAttrs(tuple[ctaTupleIP])
	proto, perr := nfnetlink.ParseAttrs(tuple[ctaTupleProto])
	src, sok := netip.AddrFromSlice(slices.Concat(ip[ctaIPv4Src], ip[ctaIPv6Src]))
	dst.Addr, ok = netip.AddrFromSlice(slices.Concat(ip[ctaIPv4Dst], ip[ctaIPv6Dst]))
	if n := proto[ctaProtoNum]; len(n) == 1 {
		dst.Proto = n[0]
	}
	if p := proto[ctaProtoDstPort]; len(p) == 2 {
		dst.Port = binary.BigEndian.Uint16(p)
	}
	return src, dst, sok && ok && cmp.Or(err, ierr, perr) == nil
}

// internal says whether f never leaves this namespace by rights: it is
// loopback's, or the container engine's DNS. That one never speaks first.
func (f flow) internal() bool {
	if f.src == plan.EngineDNS() {
		return false
	}
	if f.dst.Addr == plan.EngineDNS() || f.replySrc == plan.EngineDNS() {
		return true
	}
	return f.src.IsLoopback() && f.dst.Addr.IsLoopback() && f.replySrc.IsLoopback()
}

func compareElements(a, b Element) int {
	return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Proto, b.Proto), cmp.Compare(a.Port, b.Port))
}
