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
func nftSet(t *nftables.Table, s plan.Set) (*nftables.Set, error) {
	if s.Kind == plan.Asked {
		return &nftables.Set{Table: t, Name: s.Name, KeyType: nftables.TypeInetService,
			Dynamic: true, HasTimeout: true, Timeout: plan.AskedLife, Size: plan.MaxAsked}, nil
	}
	if s.Kind == plan.Guessed {
		return &nftables.Set{Table: t, Name: s.Name, KeyType: nftables.TypeInetService,
			Dynamic: true, HasTimeout: true, Timeout: plan.GuessLife, Size: 1}, nil
	}
	addr := nftables.TypeIPAddr
	if s.Family == plan.IPv6 {
		addr = nftables.TypeIP6Addr
	}
	key, err := nftables.ConcatSetType(addr, nftables.TypeInetProto, nftables.TypeInetService)
	if err != nil {
		return nil, err
	}
	out := &nftables.Set{Table: t, Name: s.Name, KeyType: key, Concatenation: true}
	switch s.Kind {
	case plan.Static:
		out.Interval, out.HasTimeout = true, !s.Until.IsZero()
	case plan.Leased:
		out.HasTimeout, out.Size = true, plan.MaxLeases
	case plan.Living:
		out.Dynamic, out.HasTimeout, out.Timeout, out.Size = true, true, plan.LiveFor, plan.MaxLive
	case plan.Meter:
		out.Dynamic, out.HasTimeout, out.Timeout, out.Size = true, true, plan.MeterLife, plan.MaxMeter
	}
	return out, nil
}

// key returns the fields of an element, each padded to four bytes.
func key(a netip.Addr, proto uint8, port uint16) []byte {
	b := append(a.AsSlice(), proto, 0, 0, 0)
	b = binary.BigEndian.AppendUint16(b, port)
	return append(b, 0, 0)
}

// leaseOfKey is the reverse of key.
func leaseOfKey(key []byte) (plan.Element, error) {
	n := len(key) - 8
	if n < 0 {
		return plan.Element{}, fmt.Errorf("a lease has the key %x", key)
	}
	a, ok := netip.AddrFromSlice(key[:n])
	if !ok {
		return plan.Element{}, fmt.Errorf("a lease has the key %x", key)
	}
	return plan.Element{Addr: a, Proto: key[n], Port: binary.BigEndian.Uint16(key[n+4:])}, nil
}

// rangeElement returns the element of a static set for b.
func rangeElement(b plan.Box) nftables.SetElement {
	lowProto, highProto, lowPort, highPort := b.Proto, b.Proto, b.Port, b.Port
	if b.Proto == 0 {
		highProto = 255
	}
	if b.Port == 0 {
		highPort = 65535
	}
	return nftables.SetElement{
		Key:    key(b.Prefix.Addr(), lowProto, lowPort),
		KeyEnd: key(plan.LastAddr(b.Prefix), highProto, highPort),
	}
}

// leaseElement returns the element of a lease set for e. A ttl of 0 leaves
// the time out, as is right for deleting.
func leaseElement(e plan.Element, ttl time.Duration) nftables.SetElement {
	if ttl > 0 {
		ttl = max(ttl.Round(time.Millisecond), time.Second)
	}
	return nftables.SetElement{Key: key(e.Addr, e.Proto, e.Port), Timeout: ttl}
}
