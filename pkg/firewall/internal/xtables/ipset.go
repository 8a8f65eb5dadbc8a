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

// ipset is the definition of a set of ipset(8). Its revision of the type is
// named, not left to anyone's default: an older one drops options in silence.
type ipset struct {
	name   string
	typ    string // one of the types below
	family plan.Family
	timed  bool // entries may expire
	max    uint32
}

const (
	hashIPPort  = "hash:ip,port"
	hashNetPort = "hash:net,port"
	hashNet     = "hash:net"
)

// revisions are those of the types that Linux has known since 3.18.
var revisions = map[string]uint8{hashIPPort: 5, hashNetPort: 7, hashNet: 6}

// inFamily says how a family's sets and addresses are told.
var inFamily = map[plan.Family]struct {
	number byte
	attr   uint16
}{plan.IPv4: {unix.AF_INET, nl.IPSET_ATTR_IPADDR_IPV4}, plan.IPv6: {unix.AF_INET6, nl.IPSET_ATTR_IPADDR_IPV6}}

// fallbackTTL is how long an entry stays, in seconds, that somebody adds to a set of leases without saying.
const fallbackTTL = 60

// createSet makes an empty set. There must be none of that name.
func createSet(d ipset) error {
	data := nfnetlink.Append(nil, nl.IPSET_ATTR_MAXELEM|unix.NLA_F_NET_BYTEORDER, binary.BigEndian.AppendUint32(nil, d.max)...)
	if d.timed {
		data = nfnetlink.Append(data, nl.IPSET_ATTR_TIMEOUT|unix.NLA_F_NET_BYTEORDER, binary.BigEndian.AppendUint32(nil, fallbackTTL)...)
	}
	attrs := nfnetlink.Text(nl.IPSET_ATTR_TYPENAME, d.typ)
	attrs = nfnetlink.Append(attrs, nl.IPSET_ATTR_REVISION, revisions[d.typ])
	attrs = nfnetlink.Append(attrs, nl.IPSET_ATTR_FAMILY, inFamily[d.family].number)
	return setCommand(nl.IPSET_CMD_CREATE, d.name, nfnetlink.Append(attrs, nl.IPSET_ATTR_DATA|unix.NLA_F_NESTED, data...)...)
}

// destroySet removes a set. One that rules still use is refused, and one that isn't there is fine.
func destroySet(name string) error {
	err := setCommand(nl.IPSET_CMD_DESTROY, name)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

// doing says what each command does, for errors.
var doing = map[uint16]string{nl.IPSET_CMD_CREATE: "create", nl.IPSET_CMD_DESTROY: "destroy", nl.IPSET_CMD_FLUSH: "empty",
	nl.IPSET_CMD_SWAP: "replace", nl.IPSET_CMD_ADD: "add to", nl.IPSET_CMD_DEL: "remove from"}

// setCommand has the kernel do cmd to a set. What is there already is an error only of a new set.
func setCommand(cmd uint16, name string, attrs ...byte) error {
	var flags uint16
	if cmd == nl.IPSET_CMD_CREATE {
		flags = unix.NLM_F_EXCL
	}
	err := nfnetlink.Do(setRequest(cmd, flags, append(nfnetlink.Text(nl.IPSET_ATTR_SETNAME, name), attrs...)))
	return ipsetError(doing[cmd], name, err)
}

func setRequest(cmd, flags uint16, attrs []byte) nfnetlink.Request {
	return nfnetlink.Request{Subsystem: unix.NFNL_SUBSYS_IPSET, Type: cmd, Flags: flags, Family: unix.AF_INET,
		Attrs: append(nfnetlink.Append(nil, nl.IPSET_ATTR_PROTOCOL, nl.IPSET_PROTOCOL), attrs...)}
}

// ipsetError says what was being done to which set, and gives the kernel's own numbers their words.
func ipsetError(doing, name string, err error) error {
	if err == nil {
		return nil
	}
	var errno unix.Errno
	if errors.As(err, &errno) && errno >= nl.IPSET_ERR_PRIVATE {
		err = nl.IPSetError(errno)
		if errno == nl.IPSET_ERR_TYPE_SPECIFIC { // IPSET_ERR_HASH_FULL of ip_set_hash.h
			err = errors.New("it is full")
		}
	}
	var own nl.IPSetError
	if errors.As(err, &own) && slices.Contains([]nl.IPSetError{nl.IPSET_ERR_FIND_TYPE, nl.IPSET_ERR_PROTOCOL}, own) {
		err = fmt.Errorf("%w: the kernel needs ip_set with hash:ip,port, hash:net,port and hash:net (Linux 3.18 or later): %w", nfnetlink.ErrUnsupported, err)
	}
	return fmt.Errorf("%s ipset %s: %w", doing, name, err)
}

// ipsetEntry is what a set holds. An entry of hash:net has neither protocol nor
// port; one of hash:ip,port has a single address.
type ipsetEntry struct {
	plan.Box
	ttl time.Duration // 0: as long as the set
}

// ipsetChunk is the most entries that one message carries: a nested attribute is
// at most 64 KiB long, and an entry at most 60 bytes.
const ipsetChunk = 1000

// setEntries adds entries to a set or takes them out, a message for each thousand. One that is there already gets the
// new time, be it longer or shorter; one that is absent is out.
func setEntries(cmd uint16, d ipset, entries []ipsetEntry) error {
	for c := range slices.Chunk(entries, ipsetChunk) {
		attrs, err := encodeBatch(d, c)
		if err == nil {
			err = setCommand(cmd, d.name, attrs...)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func encodeBatch(d ipset, entries []ipsetEntry) ([]byte, error) {
	var list []byte
	for _, e := range entries {
		if plan.FamilyOf(e.Prefix.Addr()) != d.family || e.Prefix.Bits() == 0 {
			return nil, fmt.Errorf("ipset %s can't hold %v", d.name, e.Prefix)
		}
		list = nfnetlink.Append(list, nl.IPSET_ATTR_DATA|unix.NLA_F_NESTED, e.encode(d)...)
	}
	if len(list)+unix.SizeofNlAttr > 1<<16-1 {
		return nil, fmt.Errorf("%d entries are too many for one message", len(entries))
	}
	out := nfnetlink.Append(nil, nl.IPSET_ATTR_LINENO|unix.NLA_F_NET_BYTEORDER, 0, 0, 0, 0) // the kernel insists
	return nfnetlink.Append(out, nl.IPSET_ATTR_ADT|unix.NLA_F_NESTED, list...), nil
}

func (e ipsetEntry) encode(d ipset) (out []byte) {
	a := e.Prefix.Addr().AsSlice()
	out = nfnetlink.Append(out, nl.IPSET_ATTR_IP|unix.NLA_F_NESTED, nfnetlink.Append(nil, inFamily[d.family].attr|unix.NLA_F_NET_BYTEORDER, a...)...)
	if d.typ != hashIPPort {
		out = nfnetlink.Append(out, nl.IPSET_ATTR_CIDR, byte(e.Prefix.Bits()))
	}
	if d.typ != hashNet {
		out = nfnetlink.Append(out, nl.IPSET_ATTR_PROTO, e.Proto)
		out = nfnetlink.Append(out, nl.IPSET_ATTR_PORT|unix.NLA_F_NET_BYTEORDER, byte(e.Port>>8), byte(e.Port))
	}
	if e.ttl > 0 {
		out = nfnetlink.Append(out, nl.IPSET_ATTR_TIMEOUT|unix.NLA_F_NET_BYTEORDER, binary.BigEndian.AppendUint32(nil, ipsetSeconds(e.ttl))...)
	}
	return out
}

// ipsetSeconds rounds up: the kernel counts in seconds, 0 means for ever, and IPSET_MAX_TIMEOUT is the most.
func ipsetSeconds(ttl time.Duration) uint32 {
	const most = (1<<32 - 1) / 1000
	return uint32(min(max((ttl+time.Second-1)/time.Second, 1), most))
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

func setNames(prefix string) (out []string, err error) {
	flags := nfnetlink.Append(nil, nl.IPSET_ATTR_FLAGS|unix.NLA_F_NET_BYTEORDER, 0, 0, 0, 1<<1) // IPSET_FLAG_LIST_SETNAME of ip_set.h
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
	d.revision = m.Uint8(nl.IPSET_ATTR_REVISION)
	for f, in := range inFamily {
		if m.Uint8(nl.IPSET_ATTR_FAMILY) == in.number {
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

func (d *ipsetDump) is(want ipset) bool { return !d.foreign && d.ipset == want }

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
	b := plan.Box{Prefix: single(a), Proto: m.Uint8(nl.IPSET_ATTR_PROTO), Port: m.Uint16(nl.IPSET_ATTR_PORT)}
	if bits := m[nl.IPSET_ATTR_CIDR]; len(bits) == 1 {
		b.Prefix = netip.PrefixFrom(a, int(bits[0]))
	}
	if flags := m.Uint32(nl.IPSET_ATTR_CADT_FLAGS); flags != 0 { // "nomatch": an entry that says no
		return plan.Box{}, fmt.Errorf("an entry has the flags %#x", flags)
	}
	return b, nil
}
