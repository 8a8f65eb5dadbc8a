package lab

import (
	"encoding/binary"
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

func getsockopt(fd, level, name int, sa *unix.RawSockaddrAny, size *uint32) syscall.Errno {
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(name),
		uintptr(unsafe.Pointer(sa)), uintptr(unsafe.Pointer(size)), 0)
	return errno
}

func rawAddrPort(sa *unix.RawSockaddrAny, v4 bool) netip.AddrPort {
	if v4 {
		in := (*unix.RawSockaddrInet4)(unsafe.Pointer(sa))
		port := binary.BigEndian.Uint16((*[2]byte)(unsafe.Pointer(&in.Port))[:])
		return netip.AddrPortFrom(netip.AddrFrom4(in.Addr), port)
	}
	in := (*unix.RawSockaddrInet6)(unsafe.Pointer(sa))
	port := binary.BigEndian.Uint16((*[2]byte)(unsafe.Pointer(&in.Port))[:])
	return netip.AddrPortFrom(netip.AddrFrom16(in.Addr), port)
}
