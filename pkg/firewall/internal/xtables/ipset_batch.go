package xtables

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/firewall/internal/nfnetlink"
	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

// ipsetEntry is what a set holds. An entry of hash:net has neither protocol nor
// port; one of hash:ip,port has a single address.
type ipsetEntry struct {
	plan.Box
	ttl time.Duration // 0: as long as the set
}

// ipsetChunk is the most entries that one message carries: a nested attribute is
// at most 64 KiB long, and an entry at most 60 bytes.
const ipsetChunk = 1000

// add puts entries into a set, a message for each thousand. One that is there
// already gets the new time, be it longer or shorter.
func (s *ipsets) add(d ipset, entries []ipsetEntry) error {
	return s.batch(nl.IPSET_CMD_ADD, "add to", d, entries)
}

// del takes entries out of a set; absent ones are fine.
func (s *ipsets) del(d ipset, entries []ipsetEntry) error {
	return s.batch(nl.IPSET_CMD_DEL, "remove from", d, entries)
}

func (s *ipsets) batch(cmd int, doing string, d ipset, entries []ipsetEntry) error {
	for c := range slices.Chunk(entries, ipsetChunk) {
		data, err := encodeBatch(d, c)
		if err != nil {
			return err
		}
		// Without NLM_F_EXCL, what is there already is no error.
		if _, err := nfnetlink.Exchange(s.conn, ipsetMessage(cmd, netlink.Acknowledge, data)); err != nil {
			return ipsetError(doing, d.name, err)
		}
	}
	return nil
}

func ipsetMessage(cmd int, flags netlink.HeaderFlags, data []byte) netlink.Message {
	head := []byte{unix.AF_INET, unix.NFNETLINK_V0, 0, 0}
	head = appendAttr(head, nl.IPSET_ATTR_PROTOCOL, nl.IPSET_PROTOCOL)
	return netlink.Message{
		Header: netlink.Header{Type: netlink.HeaderType(unix.NFNL_SUBSYS_IPSET<<8 | cmd), Flags: netlink.Request | flags},
		Data:   append(head, data...),
	}
}

// encodeBatch returns the attributes that add or remove entries.
func encodeBatch(d ipset, entries []ipsetEntry) ([]byte, error) {
	out := nfnetlink.Attr(nl.IPSET_ATTR_SETNAME, d.name)
	out = appendAttr(out, nl.IPSET_ATTR_LINENO|unix.NLA_F_NET_BYTEORDER, 0, 0, 0, 0) // the kernel insists
	start := len(out)
	out = appendAttr(out, nl.IPSET_ATTR_ADT|unix.NLA_F_NESTED)
	for _, e := range entries {
		if plan.FamilyOf(e.Prefix.Addr()) != d.family || e.Prefix.Bits() == 0 {
			return nil, fmt.Errorf("ipset %s can't hold %v", d.name, e.Prefix)
		}
		begin := len(out)
		out = appendAttr(out, nl.IPSET_ATTR_DATA|unix.NLA_F_NESTED)
		out = e.append(out, d)
		binary.NativeEndian.PutUint16(out[begin:], uint16(len(out)-begin))
	}
	if len(out)-start > 1<<16-1 {
		return nil, fmt.Errorf("%d entries are too many for one message", len(entries))
	}
	binary.NativeEndian.PutUint16(out[start:], uint16(len(out)-start))
	return out, nil
}

func (e ipsetEntry) append(out []byte, d ipset) []byte {
	a := e.Prefix.Addr().AsSlice()
	typ := uint16(nl.IPSET_ATTR_IPADDR_IPV4)
	if d.family == plan.IPv6 {
		typ = nl.IPSET_ATTR_IPADDR_IPV6
	}
	out = appendAttr(out, nl.IPSET_ATTR_IP|unix.NLA_F_NESTED, appendAttr(nil, typ|unix.NLA_F_NET_BYTEORDER, a...)...)
	if d.typ != hashIPPort {
		out = appendAttr(out, nl.IPSET_ATTR_CIDR, byte(e.Prefix.Bits()))
	}
	if d.typ != hashNet {
		out = appendAttr(out, nl.IPSET_ATTR_PROTO, e.Proto)
		out = appendAttr(out, nl.IPSET_ATTR_PORT|unix.NLA_F_NET_BYTEORDER, byte(e.Port>>8), byte(e.Port))
	}
	if e.ttl > 0 {
		out = appendAttr(out, nl.IPSET_ATTR_TIMEOUT|unix.NLA_F_NET_BYTEORDER, binary.BigEndian.AppendUint32(nil, ipsetSeconds(e.ttl))...)
	}
	return out
}

// ipsetSeconds rounds up: the kernel counts these in seconds, and 0 means for
// ever. It refuses more than IPSET_MAX_TIMEOUT.
func ipsetSeconds(ttl time.Duration) uint32 {
	const most = (1<<32 - 1) / 1000
	return uint32(min(max((ttl+time.Second-1)/time.Second, 1), most))
}

// appendAttr appends a netlink attribute, padded.
func appendAttr(out []byte, typ uint16, value ...byte) []byte {
	out = binary.NativeEndian.AppendUint16(out, uint16(4+len(value)))
	out = binary.NativeEndian.AppendUint16(out, typ)
	out = append(out, value...)
	return append(out, make([]byte, -len(value)&3)...)
}
