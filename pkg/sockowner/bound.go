package sockowner

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// From inet_diag.h and tcp_states.h.
const (
	bcSourceCond = 7 // INET_DIAG_BC_S_COND
	tcpListen    = 10
	noPort       = ^uint32(0) // any
)

// Bound is a socket at an address of this namespace.
type Bound struct {
	Proto uint8          `json:"proto"` // IP protocol number: TCP, listening, or UDP
	At    netip.AddrPort `json:"at"`

	// Cookie is the kernel's number for this very socket: no other ever gets it
	// (sock_diag(7), SO_COOKIE of socket(7)).
	Cookie uint64 `json:"cookie"`
}

// At returns the sockets that are bound to exactly this address, on any port: UDP,
// and listening TCP.
func (f *Finder) At(a netip.Addr) ([]Bound, error) {
	a = a.Unmap()
	var out []Bound
	for _, proto := range []uint8{unix.IPPROTO_UDP, unix.IPPROTO_TCP} {
		found, err := f.locked(at(proto, a))
		if err != nil {
			return nil, err
		}
		for _, d := range found {
			if d.serves(proto) && d.local.Addr() == a {
				out = append(out, Bound{proto, d.local, d.cookie})
			}
		}
	}
	return out, nil
}

// Still says whether this very socket is still there, and serves.
func (f *Finder) Still(b Bound) (bool, error) {
	family := uint8(unix.AF_INET)
	if b.At.Addr().Is6() {
		family = unix.AF_INET6
	}
	found, err := f.locked(bound(family, b.Proto, b.At.Port()))
	if err != nil {
		return false, err
	}
	for _, d := range found {
		if d.cookie == b.Cookie && d.local == b.At && d.serves(b.Proto) {
			return true, nil
		}
	}
	return false, nil
}

func (f *Finder) locked(request []byte) ([]diagnosed, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ask(request)
}

// serves says whether the socket takes what comes from anybody.
func (d diagnosed) serves(proto uint8) bool { return proto == unix.IPPROTO_UDP || d.state == tcpListen }

// at asks for all sockets at an address; see bound.
func at(proto uint8, a netip.Addr) []byte {
	family, addr := uint8(unix.AF_INET), a.AsSlice()
	if a.Is6() {
		family = unix.AF_INET6
	}
	b := request(family, proto, unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	op := 4 + 8 + len(addr) // struct inet_diag_bc_op, and struct inet_diag_hostcond
	b = binary.NativeEndian.AppendUint16(b, uint16(4+op))
	b = binary.NativeEndian.AppendUint16(b, diagReqBytecode)
	b = append(b, bcSourceCond, uint8(op))
	b = binary.NativeEndian.AppendUint16(b, uint16(op+4)) // beyond the end: refused
	b = append(b, family, uint8(8*len(addr)), 0, 0)
	b = binary.NativeEndian.AppendUint32(b, noPort)
	b = append(b, addr...)
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	return b
}
