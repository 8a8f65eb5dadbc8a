package xtables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/firewall/internal/nfnetlink"
	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

// From ip_set.h.
const ipsetListNames = 1 << 1 // IPSET_FLAG_LIST_SETNAME

// setNames returns the names of the sets that begin with prefix, sorted.
func setNames(prefix string) (out []string, err error) {
	flags := nfnetlink.Append(nil, nl.IPSET_ATTR_FLAGS|unix.NLA_F_NET_BYTEORDER, 0, 0, 0, ipsetListNames)
	err = nfnetlink.Stream(setRequest(nl.IPSET_CMD_LIST, unix.NLM_F_DUMP, flags), func(m nfnetlink.Attrs) error {
		if name := m.String(nl.IPSET_ATTR_SETNAME); strings.HasPrefix(name, prefix) {
			out = append(out, name)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list ipsets: %w", err)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// ipsetDump is a set as the kernel has it.
type ipsetDump struct {
	ipset
	revision uint8
	foreign  bool // it has what none of ours has
	entries  map[plan.Box]time.Duration
}

// dumpSet returns a set, or nil if there is none of that name.
func dumpSet(name string) (*ipsetDump, error) {
	d := &ipsetDump{ipset: ipset{name: name}, entries: map[plan.Box]time.Duration{}}
	err := nfnetlink.Stream(setRequest(nl.IPSET_CMD_LIST, unix.NLM_F_DUMP, nfnetlink.Text(nl.IPSET_ATTR_SETNAME, name)), func(m nfnetlink.Attrs) error {
		if _, ok := m[nl.IPSET_ATTR_TYPENAME]; ok {
			if err := d.header(m); err != nil {
				return err
			}
		}
		if d.family == 0 || revisions[d.typ] == 0 { // entries of another kind
			return nil
		}
		return nfnetlink.EachAttr(m[nl.IPSET_ATTR_ADT], d.read)
	})
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	return d, ipsetError("list", name, err)
}

func (d *ipsetDump) header(m nfnetlink.Attrs) error {
	d.typ = m.String(nl.IPSET_ATTR_TYPENAME)
	if b := m[nl.IPSET_ATTR_REVISION]; len(b) == 1 {
		d.revision = b[0]
	}
	for f, in := range inFamily {
		if slices.Equal(m[nl.IPSET_ATTR_FAMILY], []byte{in.number}) {
			d.family = f
		}
	}
	h, err := nfnetlink.ParseAttrs(m[nl.IPSET_ATTR_DATA])
	if err != nil {
		return err
	}
	d.max = h.Uint32(nl.IPSET_ATTR_MAXELEM)
	_, d.timed = h[nl.IPSET_ATTR_TIMEOUT]
	_, masked := h[nl.IPSET_ATTR_NETMASK]
	fallback := h.Uint32(nl.IPSET_ATTR_TIMEOUT)
	d.foreign = d.revision == 0 || d.revision != revisions[d.typ] || d.family == 0 || masked ||
		h.Uint32(nl.IPSET_ATTR_CADT_FLAGS) != 0 || d.timed && fallback != fallbackTTL
	return nil
}

// is says whether the set is defined as want.
func (d *ipsetDump) is(want ipset) bool { return !d.foreign && d.ipset == want }

// read adds an entry.
func (d *ipsetDump) read(_ uint16, raw []byte) error {
	m, err := nfnetlink.ParseAttrs(raw)
	if err != nil {
		return err
	}
	b, err := d.box(m)
	d.entries[b] = time.Duration(m.Uint32(nl.IPSET_ATTR_TIMEOUT)) * time.Second
	return err
}

func (d *ipsetDump) box(m nfnetlink.Attrs) (plan.Box, error) {
	raw := nfnetlink.Within(m[nl.IPSET_ATTR_IP], inFamily[d.family].attr)
	a, ok := netip.AddrFromSlice(raw)
	if !ok {
		return plan.Box{}, fmt.Errorf("an entry has the address %x", raw)
	}
	b := plan.Box{Prefix: single(a)}
	if c := m[nl.IPSET_ATTR_CIDR]; len(c) == 1 {
		b.Prefix = netip.PrefixFrom(a, int(c[0]))
	}
	if p := m[nl.IPSET_ATTR_PROTO]; len(p) == 1 {
		b.Proto = p[0]
	}
	if p := m[nl.IPSET_ATTR_PORT]; len(p) == 2 {
		b.Port = binary.BigEndian.Uint16(p)
	}
	if flags := m.Uint32(nl.IPSET_ATTR_CADT_FLAGS); flags != 0 { // "nomatch": an entry that says no
		return plan.Box{}, fmt.Errorf("an entry has the flags %#x", flags)
	}
	return b, nil
}
