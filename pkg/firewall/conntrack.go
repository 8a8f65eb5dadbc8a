package firewall

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/firewall/internal/nfnetlink"
	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

// flow is one entry: where its first packet went, and whom the replies come from, which differ if it was redirected.
type flow struct {
	src, replySrc netip.Addr
	dst           Element
	raw           nfnetlink.Attrs
}

// eachFlow calls do with one entry after another, which are never all in memory. Both families are read at once, since
// the kernel walks its whole table for each request, that of all namespaces together.
func eachFlow(do func(flow) error) error {
	// Where the kernel counts no entry in this namespace, as when a container starts, the table needn't be read.
	if count, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_count"); err == nil && string(count) == "0\n" {
		return nil
	}
	list := nfnetlink.Request{Subsystem: unix.NFNL_SUBSYS_CTNETLINK, Type: nl.IPCTNL_MSG_CT_GET, Flags: unix.NLM_F_DUMP}
	err := nfnetlink.Stream(list, func(m nfnetlink.Attrs) error {
		src, dst, there := parseTuple(m[nl.CTA_TUPLE_ORIG])
		replySrc, _, back := parseTuple(m[nl.CTA_TUPLE_REPLY])
		if !there || !back {
			return nil
		}
		return do(flow{src, replySrc, dst, m})
	})
	if err != nil {
		return fmt.Errorf("read conntrack: %w", err)
	}
	return nil
}

// forgetFlows deletes the entries that leave this namespace. One that can't be deleted
// keeps none of the others: the first such error is returned.
func forgetFlows(ctx context.Context) error {
	var failed error
	err := eachFlow(func(f flow) error {
		if !f.internal() {
			failed = cmp.Or(failed, f.delete())
		}
		return ctx.Err()
	})
	return cmp.Or(err, failed)
}

// delete deletes an entry, which may be gone already.
func (f flow) delete() error {
	q := nfnetlink.Request{Subsystem: unix.NFNL_SUBSYS_CTNETLINK, Type: nl.IPCTNL_MSG_CT_DELETE, Family: unix.AF_INET}
	if f.dst.Addr.Is6() {
		q.Family = unix.AF_INET6
	}
	// The tuple is never empty here; without it the kernel would delete
	// every entry. The id keeps a successor of the same tuple.
	q.Attrs = nfnetlink.Append(nil, nl.CTA_TUPLE_ORIG|unix.NLA_F_NESTED, f.raw[nl.CTA_TUPLE_ORIG]...)
	for _, typ := range []uint16{nl.CTA_ZONE, nl.CTA_ID} {
		if b, ok := f.raw[typ]; ok {
			q.Attrs = nfnetlink.Append(q.Attrs, typ, b...)
		}
	}
	if err := nfnetlink.Do(q); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("delete the flow to %v from conntrack: %w", f.dst, err)
	}
	return nil
}

func parseTuple(b []byte) (src netip.Addr, dst Element, ok bool) {
	tuple, err := nfnetlink.ParseAttrs(b)
	ip, ierr := nfnetlink.ParseAttrs(tuple[nl.CTA_TUPLE_IP])
	proto, perr := nfnetlink.ParseAttrs(tuple[nl.CTA_TUPLE_PROTO])
	src, sok := netip.AddrFromSlice(slices.Concat(ip[nl.CTA_IP_V4_SRC], ip[nl.CTA_IP_V6_SRC]))
	dst.Addr, ok = netip.AddrFromSlice(slices.Concat(ip[nl.CTA_IP_V4_DST], ip[nl.CTA_IP_V6_DST]))
	dst.Proto, dst.Port = proto.Uint8(nl.CTA_PROTO_NUM), proto.Uint16(nl.CTA_PROTO_DST_PORT)
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
