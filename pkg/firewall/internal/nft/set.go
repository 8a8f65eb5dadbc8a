package nft

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"github.com/google/nftables"

	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

// nftSet returns what the kernel is told about s.
func nftSet(t *nftables.Table, s plan.Set) *nftables.Set {
	out := &nftables.Set{Table: t, Name: s.Name, KeyType: nftables.TypeInetService, Interval: s.Static,
		Dynamic: s.Dynamic, HasTimeout: !s.Static || !s.Until.IsZero(), Timeout: s.Timeout, Size: s.Size}
	if s.Family != 0 {
		addr := map[plan.Family]nftables.SetDatatype{plan.IPv4: nftables.TypeIPAddr, plan.IPv6: nftables.TypeIP6Addr}[s.Family]
		out.KeyType, out.Concatenation = nftables.MustConcatSetType(addr, nftables.TypeInetProto, nftables.TypeInetService), true
	}
	return out
}

// key returns the fields of an element, each padded to four bytes.
func key(a netip.Addr, proto uint8, port uint16) []byte {
	b := append(a.AsSlice(), proto, 0, 0, 0)
	b = binary.BigEndian.AppendUint16(b, port)
	return append(b, 0, 0)
}

// leaseOfKey is the reverse of key.
func leaseOfKey(key []byte) (plan.Element, error) {
	n := max(len(key)-8, 0)
	a, ok := netip.AddrFromSlice(key[:n])
	if !ok {
		return plan.Element{}, fmt.Errorf("a lease has the key %x", key)
	}
	return plan.Element{Addr: a, Proto: key[n], Port: binary.BigEndian.Uint16(key[n+4:])}, nil
}

// rangeElement returns the element of a static set for b.
func rangeElement(b plan.Box) nftables.SetElement {
	highProto, highPort := b.Proto, b.Port
	if b.Proto == 0 {
		highProto = 255
	}
	if b.Port == 0 {
		highPort = 65535
	}
	return nftables.SetElement{Key: key(b.Prefix.Addr(), b.Proto, b.Port), KeyEnd: key(b.Last(), highProto, highPort)}
}

// leaseElement returns the element of a lease set for e. A ttl of 0 leaves
// the time out, as is right for deleting.
func leaseElement(e plan.Element, ttl time.Duration) nftables.SetElement {
	if ttl > 0 {
		ttl = max(ttl.Round(time.Millisecond), time.Second)
	}
	return nftables.SetElement{Key: key(e.Addr, e.Proto, e.Port), Timeout: ttl}
}
