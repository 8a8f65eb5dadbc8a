package nowait

import (
	"encoding/binary"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Accept takes a connection of a listener of TCP that does not block; nor does the connection.
func Accept(listener int) (fd int, peer netip.AddrPort, errno unix.Errno) {
	var from unix.RawSockaddrAny
	size := uint32(unix.SizeofSockaddrAny)
	n, _, errno := unix.RawSyscall6(unix.SYS_ACCEPT4, uintptr(listener), uintptr(unsafe.Pointer(&from)), uintptr(unsafe.Pointer(&size)),
		unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
	if errno != 0 {
		return -1, peer, errno
	}
	return int(n), addrPort(&from), 0
}

// Local is the address of a socket of TCP; it is not valid if there is none.
func Local(fd int) netip.AddrPort {
	var at unix.RawSockaddrAny
	size := uint32(unix.SizeofSockaddrAny)
	unix.RawSyscall(unix.SYS_GETSOCKNAME, uintptr(fd), uintptr(unsafe.Pointer(&at)), uintptr(unsafe.Pointer(&size)))
	return addrPort(&at)
}

func addrPort(a *unix.RawSockaddrAny) netip.AddrPort {
	switch a.Addr.Family {
	case unix.AF_INET:
		a := (*unix.RawSockaddrInet4)(unsafe.Pointer(a))
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), swapped(a.Port))
	case unix.AF_INET6:
		a := (*unix.RawSockaddrInet6)(unsafe.Pointer(a))
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr), swapped(a.Port))
	}
	return netip.AddrPort{}
}

// swapped is a port between the order of the network and that of this machine.
func swapped(port uint16) uint16 {
	return binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, port))
}

// Connect begins to connect a socket of TCP of to's family. Of one that does not block, EINPROGRESS is the answer.
func Connect(fd int, to netip.AddrPort) unix.Errno {
	if to.Addr().Is4() {
		a := unix.RawSockaddrInet4{Family: unix.AF_INET, Port: swapped(to.Port()), Addr: to.Addr().As4()}
		return connect(fd, unsafe.Pointer(&a), unix.SizeofSockaddrInet4)
	}
	a := unix.RawSockaddrInet6{Family: unix.AF_INET6, Port: swapped(to.Port()), Addr: to.Addr().As16()}
	return connect(fd, unsafe.Pointer(&a), unix.SizeofSockaddrInet6)
}

// Disconnect breaks off what a socket of TCP is connected to, or connects to (connect(2), AF_UNSPEC).
func Disconnect(fd int) unix.Errno {
	var nobody unix.RawSockaddrInet6
	return connect(fd, unsafe.Pointer(&nobody), unix.SizeofSockaddrInet6)
}

func connect(fd int, to unsafe.Pointer, size uintptr) unix.Errno {
	_, _, errno := unix.RawSyscall(unix.SYS_CONNECT, uintptr(fd), uintptr(to), size)
	return errno
}

// Shutdown ends a direction of a connection (SHUT_WR of shutdown(2)).
func Shutdown(fd, how int) unix.Errno {
	_, _, errno := unix.RawSyscall(unix.SYS_SHUTDOWN, uintptr(fd), uintptr(how), 0)
	return errno
}

// Set sets an option of a socket that is a number.
func Set(fd, level, option int, value int32) unix.Errno {
	_, _, errno := unix.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option), uintptr(unsafe.Pointer(&value)), 4, 0)
	return errno
}

// Get returns an option of a socket, as much as b has room for.
func Get(fd, level, option int, b []byte) ([]byte, unix.Errno) {
	size := uint32(len(b))
	_, _, errno := unix.RawSyscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option),
		uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return nil, errno
	}
	return b[:size], 0
}
