package sockowner

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// From sock_diag.h and inet_diag.h.
const (
	sockDiagByFamily = 20
	diagReqLen       = 56
	diagMsgLen       = 72
	diagReqBytecode  = 1 // INET_DIAG_REQ_BYTECODE
	bcSourceGE       = 2 // INET_DIAG_BC_S_GE
	bcSourceLE       = 3 // INET_DIAG_BC_S_LE
)

// Socket is a socket of this network namespace.
type Socket struct {
	Inode uint32 // as in socket:[Inode] of /proc/PID/fd
	UID   uint32 // of who made it
}

// ErrNone is what Find returns if no socket is as asked for, or more than one is.
var ErrNone = errors.New("no such socket")

// diagTime is how long the kernel may take, in microseconds.
const diagTime = 20_000

// Open opens what a Finder asks through: a sock_diag(7) socket of this network
// namespace. It can be passed to a process whose seccomp filter forbids to make one.
func Open() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, fmt.Errorf("open sock_diag: %w", err)
	}
	f := os.NewFile(uintptr(fd), "sock_diag")
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: diagTime}); err != nil {
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
}

// NewFinder returns a Finder that asks through f, which Open has made and which
// nobody else may use meanwhile.
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
	family := uint8(unix.AF_INET)
	if local.Addr().Is6() {
		family = unix.AF_INET6
	}
	if proto == unix.IPPROTO_TCP {
		found, err := f.ask(connected(family, local, remote))
		return only(found, err)
	}
	// Who sends UDP over IPv4 may do so from a socket of either family.
	var all []diagnosed
	for _, fam := range []uint8{family, unix.AF_INET6} {
		found, err := f.ask(bound(fam, proto, local.Port()))
		if err != nil {
			return Socket{}, err
		}
		for _, d := range found {
			if d.sends(local, remote) {
				all = append(all, d)
			}
		}
		if fam == unix.AF_INET6 {
			break
		}
	}
	return only(all, nil)
}

func unmap(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

func only(found []diagnosed, err error) (Socket, error) {
	switch {
	case err != nil:
		return Socket{}, err
	case len(found) != 1 || found[0].Inode == 0: // of none, its process has closed it
		return Socket{}, ErrNone
	}
	return found[0].Socket, nil
}

// connected asks for one TCP socket, by all that it is known by.
func connected(family uint8, local, remote netip.AddrPort) []byte {
	b := request(family, unix.IPPROTO_TCP, unix.NLM_F_REQUEST)
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

// bound asks for all sockets at a local port. The kernel picks them, so that many
// others cost no copying: the program accepts ports that are >= and <= port.
func bound(family, proto uint8, port uint16) []byte {
	b := request(family, proto, unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	op := func(code, yes uint8, no uint16) {
		b = append(b, code, yes)
		b = binary.NativeEndian.AppendUint16(b, no)
		b = binary.NativeEndian.AppendUint16(b, 0) // the operand: code and yes of no meaning, and the port
		b = binary.NativeEndian.AppendUint16(b, port)
	}
	b = binary.NativeEndian.AppendUint16(b, 4+16)
	b = binary.NativeEndian.AppendUint16(b, diagReqBytecode)
	op(bcSourceGE, 8, 16+4) // beyond the end: refused
	op(bcSourceLE, 8, 8+4)
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

// maxReplies bounds what is read of one answer.
const maxReplies = 64

func (f *Finder) ask(request []byte) ([]diagnosed, error) {
	f.seq++
	binary.NativeEndian.PutUint32(request[8:], f.seq)
	fd := int(f.file.Fd())
	if err := unix.Sendto(fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, fmt.Errorf("find a socket: %w", err)
	}
	dump := binary.NativeEndian.Uint16(request[6:])&unix.NLM_F_DUMP == unix.NLM_F_DUMP
	buf := make([]byte, 1<<15)
	var found []diagnosed
	for range maxReplies {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err != nil {
			return nil, fmt.Errorf("find a socket: %w", err)
		}
		more, err := parseReplies(buf[:n], f.seq, &found)
		if err != nil || !more || !dump && len(found) > 0 {
			return found, err
		}
	}
	return nil, ErrNone
}

// parseReplies takes the sockets out of what the kernel sent in answer to question
// seq, and says whether more comes.
func parseReplies(b []byte, seq uint32, found *[]diagnosed) (more bool, err error) {
	for len(b) >= unix.NLMSG_HDRLEN {
		size, kind := int(binary.NativeEndian.Uint32(b)), binary.NativeEndian.Uint16(b[4:])
		if size < unix.NLMSG_HDRLEN || size > len(b) {
			return false, errors.New("find a socket: cut short")
		}
		body := b[unix.NLMSG_HDRLEN:size]
		switch {
		case binary.NativeEndian.Uint32(b[8:]) != seq: // nobody waits for it any more
		case kind == unix.NLMSG_DONE:
			return false, nil
		case kind == unix.NLMSG_ERROR && len(body) >= 4:
			errno := unix.Errno(-int32(binary.NativeEndian.Uint32(body)))
			if errno == unix.ENOENT {
				return false, ErrNone
			}
			return false, fmt.Errorf("find a socket: %w", errno)
		case kind == sockDiagByFamily && len(body) >= diagMsgLen:
			*found = append(*found, parseDiag(body))
		}
		b = b[min(len(b), (size+3)&^3):]
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
