package firewall

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"

	"github.com/google/nftables"
)

// nftSet returns what the kernel is told about s.
func nftSet(t *nftables.Table, s set) (*nftables.Set, error) {
	if s.kind == asked {
		return &nftables.Set{Table: t, Name: s.name, KeyType: nftables.TypeInetService,
			Dynamic: true, HasTimeout: true, Timeout: askedLife, Size: maxAsked}, nil
	}
	if s.kind == guessed {
		return &nftables.Set{Table: t, Name: s.name, KeyType: nftables.TypeInetService,
			Dynamic: true, HasTimeout: true, Timeout: guessLife, Size: 1}, nil
	}
	addr := nftables.TypeIPAddr
	if s.family == ipv6 {
		addr = nftables.TypeIP6Addr
	}
	key, err := nftables.ConcatSetType(addr, nftables.TypeInetProto, nftables.TypeInetService)
	if err != nil {
		return nil, err
	}
	out := &nftables.Set{Table: t, Name: s.name, KeyType: key, Concatenation: true}
	switch s.kind {
	case static:
		out.Interval, out.HasTimeout = true, !s.until.IsZero()
	case leased:
		out.HasTimeout, out.Size = true, maxLeases
	case living:
		out.Dynamic, out.HasTimeout, out.Timeout, out.Size = true, true, liveFor, maxLive
	case meter:
		out.Dynamic, out.HasTimeout, out.Timeout, out.Size = true, true, meterLife, maxMeter
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
func leaseOfKey(key []byte) (Element, error) {
	n := len(key) - 8
	if n < 0 {
		return Element{}, fmt.Errorf("a lease has the key %x", key)
	}
	a, ok := netip.AddrFromSlice(key[:n])
	if !ok {
		return Element{}, fmt.Errorf("a lease has the key %x", key)
	}
	return Element{Addr: a, Proto: key[n], Port: binary.BigEndian.Uint16(key[n+4:])}, nil
}

// rangeElement returns the element of a static set for b.
func rangeElement(b box) nftables.SetElement {
	lowProto, highProto, lowPort, highPort := b.proto, b.proto, b.port, b.port
	if b.proto == 0 {
		highProto = 255
	}
	if b.port == 0 {
		highPort = 65535
	}
	return nftables.SetElement{
		Key:    key(b.prefix.Addr(), lowProto, lowPort),
		KeyEnd: key(lastAddr(b.prefix), highProto, highPort),
	}
}

// leaseElement returns the element of a lease set for e. A ttl of 0 leaves
// the time out, as is right for deleting.
func leaseElement(e Element, ttl time.Duration) nftables.SetElement {
	if ttl > 0 {
		ttl = max(ttl.Round(time.Millisecond), time.Second)
	}
	return nftables.SetElement{Key: key(e.Addr, e.Proto, e.Port), Timeout: ttl}
}
