package nfnetlink

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Stream sends m, which asks for a listing, and calls do with one answer after
// another. What do is given is only good until it returns: a listing may be as long
// as who fills a table of the kernel's likes, and takes no more memory for that.
func Stream(m netlink.Message, do func(Attrs) error) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	patience := unix.NsecToTimeval(Timeout.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience); err != nil {
		return err
	}
	if err := unix.Sendto(fd, encodeMessage(m), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	buf := make([]byte, 1<<16) // the kernel sends no more at once (af_netlink.c, netlink_recvmsg)
	for {
		n, _, err := unix.Recvfrom(fd, buf, unix.MSG_TRUNC)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return err
		case n > len(buf):
			return errors.New("an answer does not fit")
		}
		if done, err := eachMessage(buf[:n], do); done || err != nil {
			return err
		}
	}
}

// encodeMessage returns m as netlink(7) has it.
func encodeMessage(m netlink.Message) []byte {
	b := binary.NativeEndian.AppendUint32(nil, uint32(unix.NLMSG_HDRLEN+len(m.Data)))
	b = binary.NativeEndian.AppendUint16(b, uint16(m.Header.Type))
	b = binary.NativeEndian.AppendUint16(b, uint16(m.Header.Flags))
	b = binary.NativeEndian.AppendUint32(b, m.Header.Sequence)
	b = binary.NativeEndian.AppendUint32(b, 0)
	return append(b, m.Data...)
}

// eachMessage calls do with the attributes of each message in b, and says whether
// the last of a listing was among them.
func eachMessage(b []byte, do func(Attrs) error) (done bool, err error) {
	for len(b) >= unix.NLMSG_HDRLEN {
		size := int(binary.NativeEndian.Uint32(b))
		if size < unix.NLMSG_HDRLEN || size > len(b) {
			return false, fmt.Errorf("a netlink message has %d bytes of %d", size, len(b))
		}
		typ, data := binary.NativeEndian.Uint16(b[4:]), b[unix.NLMSG_HDRLEN:size]
		switch typ {
		case unix.NLMSG_DONE:
			return true, errnoOf(data)
		case unix.NLMSG_ERROR:
			return true, errnoOf(data)
		}
		if len(data) < 4 {
			return false, errors.New("a netfilter message was cut short")
		}
		m, err := ParseAttrs(data[4:])
		if err == nil {
			err = do(m)
		}
		if err != nil {
			return false, err
		}
		b = b[min((size+unix.NLMSG_ALIGNTO-1)&^(unix.NLMSG_ALIGNTO-1), len(b)):]
	}
	return false, nil
}

// errnoOf returns the error that begins an answer, nil if it is none.
func errnoOf(b []byte) error {
	if len(b) < 4 {
		return nil
	}
	if n := int32(binary.NativeEndian.Uint32(b)); n < 0 {
		return unix.Errno(-n)
	}
	return nil
}
