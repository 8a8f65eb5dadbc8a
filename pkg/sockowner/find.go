// Package sockowner says which process an internet socket belongs to: Find asks the kernel for the socket, which needs
// no privilege, and a Scanner looks for it among the open files of one user's processes.
//
// What it says is for a person to read, and decides nothing. A process can pass its sockets on,
// or close one before it is looked for, and its name is what it calls itself.
package sockowner

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// From sock_diag.h, inet_diag.h and tcp_states.h.
const (
	sockDiagByFamily = 20
	diagReqLen       = 56
	diagMsgLen       = 72
	diagReqBytecode  = 1 // INET_DIAG_REQ_BYTECODE
	bcSourceCond     = 7 // INET_DIAG_BC_S_COND
	tcpListen        = 10
	anyPort          = ^uint32(0)
)

// Socket is a socket of this network namespace.
type Socket struct {
	Inode uint32 // as in socket:[Inode] of /proc/PID/fd
	UID   uint32 // of who made it
}

// ErrNone is what Find returns if no socket is as asked for, or more than one is.
var ErrNone = errors.New("no such socket")

// Open opens what a Finder asks through: a sock_diag(7) socket of this network
// namespace. It can be passed to a process whose seccomp filter forbids to make one.
func Open() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, fmt.Errorf("open sock_diag: %w", err)
	}
	f := os.NewFile(uintptr(fd), "sock_diag") // from which an answer may take 20 ms
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 20_000}); err != nil {
		f.Close()
		return nil, fmt.Errorf("open sock_diag: %w", err)
	}
	return f, nil
}

// Finder finds sockets. It is safe for concurrent use.
type Finder struct {
	mu   sync.Mutex
	file *os.File
	seq  uint32 // of the last question
	buf  []byte // for answers
}

// NewFinder returns a Finder that asks through f, which Open has made and which nobody else may use meanwhile.
func NewFinder(f *os.File) *Finder {
	// What an earlier user left unread is told by its number.
	return &Finder{file: f, seq: uint32(time.Now().UnixNano())}
}

// Find returns the socket that sends from local to remote, over TCP or UDP
// (their IP protocol numbers). For UDP, remote may be unknown.
func (f *Finder) Find(proto uint8, local, remote netip.AddrPort) (Socket, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	local, remote = unmap(local), unmap(remote)
	var all []diagnosed
	if proto == unix.IPPROTO_TCP {
		found, err := f.list(connected(local, remote))
		if err != nil {
			return Socket{}, err
		}
		all = found
	} else {
		// Who sends UDP over IPv4 may do so from a socket of either family.
		for _, family := range slices.Compact([]uint8{familyOf(local.Addr()), unix.AF_INET6}) {
			found, err := f.list(bound(family, proto, netip.Addr{}, uint32(local.Port())))
			if err != nil {
				return Socket{}, err
			}
			all = append(all, slices.DeleteFunc(found, func(d diagnosed) bool { return !d.sends(local, remote) })...)
		}
	}
	if len(all) != 1 || all[0].Inode == 0 { // of none, its process has closed it
		return Socket{}, ErrNone
	}
	return all[0].Socket, nil
}

// Bound is a socket at an address of this namespace.
type Bound struct {
	Proto uint8          `json:"proto"` // IP protocol number: TCP, listening, or UDP
	At    netip.AddrPort `json:"at"`

	// Cookie is the kernel's number for this very socket: no other ever gets it (sock_diag(7), SO_COOKIE of socket(7)).
	Cookie uint64 `json:"cookie"`
}

// At returns the sockets that are bound to exactly this address, on any port: UDP, and listening TCP.
func (f *Finder) At(a netip.Addr) (out []Bound, err error) {
	for _, proto := range []uint8{unix.IPPROTO_UDP, unix.IPPROTO_TCP} {
		found, err := f.serving(proto, a.Unmap(), anyPort)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}

// Still says whether this very socket is still there, and serves.
func (f *Finder) Still(b Bound) (bool, error) {
	found, err := f.serving(b.Proto, b.At.Addr(), uint32(b.At.Port()))
	return slices.Contains(found, b), err
}

// serving are the sockets at an address and a port that take what comes from anybody.
func (f *Finder) serving(proto uint8, a netip.Addr, port uint32) (out []Bound, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	found, err := f.list(bound(familyOf(a), proto, a, port))
	for _, d := range found {
		if d.local.Addr() == a && (proto == unix.IPPROTO_UDP || d.state == tcpListen) {
			out = append(out, Bound{proto, d.local, d.cookie})
		}
	}
	return out, err
}

func unmap(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

func familyOf(a netip.Addr) uint8 {
	if a.Is6() {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

// connected asks for one TCP socket, by all that it is known by.
func connected(local, remote netip.AddrPort) []byte {
	b := request(familyOf(local.Addr()), unix.IPPROTO_TCP, unix.NLM_F_REQUEST)
	id := b[unix.NLMSG_HDRLEN+8:]
	binary.BigEndian.PutUint16(id[0:], local.Port())
	binary.BigEndian.PutUint16(id[2:], remote.Port())
	copy(id[4:20], local.Addr().AsSlice())
	copy(id[20:36], remote.Addr().AsSlice())
	for i := 40; i < 48; i++ {
		id[i] = 0xff // INET_DIAG_NOCOOKIE
	}
	return b
}

// bound asks for all sockets of a family at a local address, if that is valid, and port. The
// kernel picks them (struct inet_diag_hostcond), so that many others cost no copying.
func bound(family, proto uint8, a netip.Addr, port uint32) []byte {
	b := request(family, proto, unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	addr, of := a.AsSlice(), uint8(unix.AF_UNSPEC)
	if a.IsValid() {
		of = familyOf(a)
	}
	op := 4 + 8 + len(addr) // struct inet_diag_bc_op, and the condition
	b = binary.NativeEndian.AppendUint16(b, uint16(4+op))
	b = binary.NativeEndian.AppendUint16(b, diagReqBytecode)
	b = append(b, bcSourceCond, uint8(op))
	b = binary.NativeEndian.AppendUint16(b, uint16(op+4)) // beyond the end: refused
	b = append(b, of, uint8(8*len(addr)), 0, 0)
	b = binary.NativeEndian.AppendUint32(b, port)
	b = append(b, addr...)
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	return b
}

func request(family, proto uint8, flags uint16) []byte {
	b := make([]byte, unix.NLMSG_HDRLEN+diagReqLen, 128)
	binary.NativeEndian.PutUint32(b[0:], uint32(len(b)))
	binary.NativeEndian.PutUint16(b[4:], sockDiagByFamily)
	binary.NativeEndian.PutUint16(b[6:], flags)
	b[unix.NLMSG_HDRLEN], b[unix.NLMSG_HDRLEN+1] = family, proto
	binary.NativeEndian.PutUint32(b[unix.NLMSG_HDRLEN+4:], ^uint32(0)) // in every state
	return b
}

// maxReplies bounds what is read of one answer of list.
const maxReplies = 64

// list are the sockets that a question is about.
func (f *Finder) list(request []byte) (found []diagnosed, err error) {
	err = f.ask(request, maxReplies, func(d diagnosed, _ []byte) { found = append(found, d) })
	return found, err
}

// ask has each socket of the answer to a question, with its attributes, of as many replies at most. Of what is no dump,
// the first one is all.
func (f *Finder) ask(request []byte, most int, each func(d diagnosed, attributes []byte)) error {
	f.seq++
	binary.NativeEndian.PutUint32(request[8:], f.seq)
	fd := int(f.file.Fd())
	if err := unix.Sendto(fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("find a socket: %w", err)
	}
	dump := binary.NativeEndian.Uint16(request[6:])&unix.NLM_F_DUMP == unix.NLM_F_DUMP
	if f.buf == nil {
		f.buf = make([]byte, 1<<15)
	}
	for range most {
		n, _, err := unix.Recvfrom(fd, f.buf, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("find a socket: %w", err)
		}
		some := false
		more, err := replies(f.buf[:n], f.seq, func(d diagnosed, attributes []byte) { some = true; each(d, attributes) })
		if err != nil || !more || !dump && some {
			return err
		}
	}
	return ErrNone
}

// replies takes the sockets out of what the kernel sent in answer to question seq, and says whether more comes.
func replies(b []byte, seq uint32, each func(d diagnosed, attributes []byte)) (more bool, err error) {
	messages, err := syscall.ParseNetlinkMessage(b)
	if err != nil {
		return false, fmt.Errorf("find a socket: %w", err)
	}
	for _, m := range messages {
		switch {
		case m.Header.Seq != seq: // nobody waits for it any more
		case m.Header.Type == unix.NLMSG_DONE:
			return false, nil
		case m.Header.Type == unix.NLMSG_ERROR && len(m.Data) >= 4:
			errno := unix.Errno(-int32(binary.NativeEndian.Uint32(m.Data)))
			if errno == unix.ENOENT {
				return false, ErrNone
			}
			return false, fmt.Errorf("find a socket: %w", errno)
		case m.Header.Type == sockDiagByFamily && len(m.Data) >= diagMsgLen:
			each(parseDiag(m.Data), m.Data[diagMsgLen:])
		}
	}
	return true, nil
}

// diagnosed is a socket as the kernel tells of it.
type diagnosed struct {
	Socket
	local, remote netip.AddrPort
	state         uint8
	cookie        uint64
}

func parseDiag(b []byte) diagnosed {
	addr := func(at []byte) netip.Addr {
		if b[0] == unix.AF_INET {
			return netip.AddrFrom4([4]byte(at[:4]))
		}
		return netip.AddrFrom16([16]byte(at[:16])).Unmap()
	}
	return diagnosed{
		Socket: Socket{UID: binary.NativeEndian.Uint32(b[64:]), Inode: binary.NativeEndian.Uint32(b[68:])},
		local:  netip.AddrPortFrom(addr(b[8:]), binary.BigEndian.Uint16(b[4:])),
		remote: netip.AddrPortFrom(addr(b[24:]), binary.BigEndian.Uint16(b[6:])),
		state:  b[1],
		cookie: binary.NativeEndian.Uint64(b[44:]),
	}
}

// sends says whether a datagram from local to remote may be of this socket.
func (d diagnosed) sends(local, remote netip.AddrPort) bool {
	if d.local.Port() != local.Port() || !d.local.Addr().IsUnspecified() && d.local.Addr() != local.Addr() {
		return false
	}
	anywhere := d.remote.Port() == 0 // not connected
	return anywhere || !remote.IsValid() || d.remote == remote
}
