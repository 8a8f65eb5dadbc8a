package firewall

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"github.com/mdlayher/netlink"
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

// conntrack is the kernel's table of flows.
type conntrack struct{ conn *netlink.Conn }

func openConntrack() (*conntrack, error) {
	c, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, err
	}
	return &conntrack{c}, nil
}

// flow is one entry: where its first packet went, and whom the replies come
// from, which differ if it was redirected.
type flow struct {
	src, replySrc netip.Addr
	dst           Element
	raw           nfnetlink.Attrs
}

// each calls do with one entry after another, which are never all in memory. Both
// families are read at once, since the kernel walks its whole table for each
// request, that of all namespaces together.
func (c *conntrack) each(do func(flow) error) error {
	if noFlows() {
		return nil
	}
	err := nfnetlink.Stream(ctMessage(ctGet, netlink.Dump, unix.AF_UNSPEC, nil), func(m nfnetlink.Attrs) error {
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

// forget deletes the entries that pick picks. One that can't be deleted keeps none
// of the others: the first such error is returned.
func (c *conntrack) forget(pick func(flow) bool) error {
	var failed error
	err := c.each(func(f flow) error {
		if pick(f) {
			failed = cmp.Or(failed, c.delete(f))
		}
		return nil
	})
	return cmp.Or(err, failed)
}

// delete deletes an entry, which may be gone already.
func (c *conntrack) delete(f flow) error {
	family := byte(unix.AF_INET)
	if f.dst.Addr.Is6() {
		family = unix.AF_INET6
	}
	// The tuple is never empty here; without it the kernel would delete
	// every entry. The id keeps a successor of the same tuple.
	list := []netlink.Attribute{{Type: ctaTupleOrig | unix.NLA_F_NESTED, Data: f.raw[ctaTupleOrig]}}
	for _, typ := range []uint16{ctaZone, ctaID} {
		if b, ok := f.raw[typ]; ok {
			list = append(list, netlink.Attribute{Type: typ, Data: b})
		}
	}
	data, err := netlink.MarshalAttributes(list)
	if err != nil {
		return err
	}
	_, err = nfnetlink.Exchange(c.conn, ctMessage(ctDelete, netlink.Acknowledge, family, data))
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("delete the flow to %v from conntrack: %w", f.dst, err)
	}
	return nil
}

func ctMessage(typ int, flags netlink.HeaderFlags, family byte, data []byte) netlink.Message {
	return netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(unix.NFNL_SUBSYS_CTNETLINK<<8 | typ), Flags: netlink.Request | flags},
		Data:   append([]byte{family, unix.NFNETLINK_V0, 0, 0}, data...),
	}
}

func parseFlow(m nfnetlink.Attrs) (flow, bool) {
	f := flow{raw: m}
	src, dst, ok := parseTuple(m[ctaTupleOrig])
	if !ok {
		return f, false
	}
	f.src, f.dst = src, dst
	if f.replySrc, _, ok = parseTuple(m[ctaTupleReply]); !ok {
		return f, false
	}
	return f, true
}

func parseTuple(b []byte) (src netip.Addr, dst Element, ok bool) {
	tuple, err := nfnetlink.ParseAttrs(b)
	if err != nil {
		return src, dst, false
	}
	ip, err := nfnetlink.ParseAttrs(tuple[ctaTupleIP])
	if err != nil {
		return src, dst, false
	}
	proto, err := nfnetlink.ParseAttrs(tuple[ctaTupleProto])
	if err != nil {
		return src, dst, false
	}
	src, sok := netip.AddrFromSlice(append(slices.Clone(ip[ctaIPv4Src]), ip[ctaIPv6Src]...))
	addr, dok := netip.AddrFromSlice(append(slices.Clone(ip[ctaIPv4Dst]), ip[ctaIPv6Dst]...))
	dst.Addr = addr
	if n := proto[ctaProtoNum]; len(n) == 1 {
		dst.Proto = n[0]
	}
	if p := proto[ctaProtoDstPort]; len(p) == 2 {
		dst.Port = binary.BigEndian.Uint16(p)
	}
	return src, dst, sok && dok
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
