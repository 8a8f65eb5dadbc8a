package plan

import (
	"fmt"
	"net/netip"
	"time"
)

// Element is one destination: an address, an IP protocol number (6 or 17) and
// a port.
type Element struct {
	Addr  netip.Addr
	Proto uint8
	Port  uint16
}

// String returns, for example, "tcp 192.0.2.1:443".
func (e Element) String() string {
	return fmt.Sprintf("%s %s", protoName(e.Proto), netip.AddrPortFrom(e.Addr, e.Port))
}

// Lease is an Element that may be reached for TTL from now on. The kernel
// counts in milliseconds; TTL is rounded up to at least a second.
type Lease struct {
	Element
	TTL time.Duration
}

// Clean returns e as the kernel knows it, or an error if e can't be leased.
func (e Element) Clean() (Element, error) {
	e.Addr = e.Addr.Unmap().WithZone("")
	if !e.Addr.IsValid() || e.Port == 0 || !hasPorts(e.Proto) {
		return e, fmt.Errorf("%v: want an address, tcp or udp, and a port", e)
	}
	return e, nil
}
