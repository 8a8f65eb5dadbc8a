// Package nfnetlink speaks to netfilter over netlink for what no library says with
// deadlines or in bounded memory, and explains the kernel's errors.
package nfnetlink

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Timeout bounds the wait for each answer of the kernel, which comes within microseconds.
const Timeout = 5 * time.Second

// Request is a message to netfilter (struct nlmsghdr and struct nfgenmsg).
type Request struct {
	Subsystem, Type uint16 // NFNL_SUBSYS_NFTABLES, NFT_MSG_GETTABLE
	Flags           uint16 // NLM_F_DUMP asks for a listing
	Family          byte
	Group           uint16 // of a log
	Attrs           []byte
}

// Encode returns r as netlink(7) has it. The kernel is asked to acknowledge what is no listing.
func (r Request) Encode() []byte {
	flags := r.Flags | unix.NLM_F_REQUEST
	if flags&unix.NLM_F_DUMP != unix.NLM_F_DUMP {
		flags |= unix.NLM_F_ACK
	}
	b := binary.NativeEndian.AppendUint32(nil, uint32(unix.NLMSG_HDRLEN+4+len(r.Attrs)))
	b = binary.NativeEndian.AppendUint16(b, r.Subsystem<<8|r.Type)
	b = binary.NativeEndian.AppendUint16(b, flags)
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0) // sequence number, and port: a socket has one exchange at a time
	b = append(b, r.Family, unix.NFNETLINK_V0, byte(r.Group>>8), byte(r.Group))
	return append(b, r.Attrs...)
}

// Socket opens a socket to netfilter, which blocks for no longer than Timeout: the
// runtime's poller, which wakes a process up, watches all others.
func Socket() (int, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return -1, err
	}
	patience := unix.NsecToTimeval(Timeout.Nanoseconds())
	err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience)
	if err == nil { // else each refusal would carry the whole request
		err = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// Conn is a socket to netfilter for one exchange after another. The zero value opens it
// for the first. It is not safe for concurrent use.
//
// To close one waits until the kernel has let go of all that was deleted from nf_tables,
// by anybody (nf_tables_api.c, nft_rcv_nl_event): 12 to 20 ms after a probe.
type Conn struct {
	fd   int
	open bool
	buf  []byte // of a listing: a new one for each would be as many new pages
}

// Stream sends r and calls do with one answer after another. What do is given is only good until it returns: a listing
// may be as long as who fills a table of the kernel's likes, and takes no more memory for that.
func (c *Conn) Stream(r Request, do func(Attrs) error) error {
	if !c.open {
		fd, err := Socket()
		if err != nil {
			return err
		}
		c.fd, c.open = fd, true
	}
	ended, err := c.stream(r, do)
	if !ended { // an answer that comes too late must not be taken for one of the next exchange
		c.Close()
	}
	return err
}

func (c *Conn) Close() {
	if c.open {
		unix.Close(c.fd)
		c.open = false
	}
}

// Stream is Conn.Stream on a socket for this exchange alone.
func Stream(r Request, do func(Attrs) error) error {
	var c Conn
	defer c.Close()
	return c.Stream(r, do)
}

// StreamOn is Stream on a socket that nobody else uses.
func StreamOn(fd int, r Request, do func(Attrs) error) error {
	c := Conn{fd: fd, open: true}
	_, err := c.stream(r, do)
	return err
}

// stream says, besides the error, whether the kernel has said all that it had to say.
func (c *Conn) stream(r Request, do func(Attrs) error) (ended bool, err error) {
	if err := unix.Sendto(c.fd, r.Encode(), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return false, err
	}
	// The kernel sends no more at once of a listing (af_netlink.c, netlink_recvmsg), nor of a single answer (NLMSG_GOODSIZE).
	size := 1 << 13
	if r.Flags&unix.NLM_F_DUMP == unix.NLM_F_DUMP {
		size = 1 << 16
	}
	if len(c.buf) < size {
		c.buf = make([]byte, size)
	}
	for !ended {
		n, from, err := unix.Recvfrom(c.fd, c.buf, unix.MSG_TRUNC)
		kernel, ok := from.(*unix.SockaddrNetlink)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return false, err
		case !ok || kernel.Pid != 0: // another process with NET_ADMIN may write here
			continue
		case n > len(c.buf):
			return false, errors.New("an answer does not fit")
		}
		err = EachMessage(c.buf[:n], func(typ uint16, data []byte) error {
			if typ == unix.NLMSG_DONE || typ == unix.NLMSG_ERROR {
				ended = true
				if len(data) >= 4 && int32(binary.NativeEndian.Uint32(data)) < 0 {
					return unix.Errno(-int32(binary.NativeEndian.Uint32(data)))
				}
				return nil
			}
			if len(data) < 4 {
				return errors.New("a netfilter message was cut short")
			}
			m, err := ParseAttrs(data[4:])
			if err != nil {
				return err
			}
			return do(m)
		})
		if err != nil {
			return ended, err
		}
	}
	return true, nil
}

// Do sends r, which no answer but an error is wanted of.
func Do(r Request) error { return Stream(r, func(Attrs) error { return nil }) }

// EachMessage calls do with the type of each message in b and what follows its header, until it fails.
func EachMessage(b []byte, do func(typ uint16, data []byte) error) error {
	for len(b) >= unix.NLMSG_HDRLEN {
		size := int(binary.NativeEndian.Uint32(b))
		if size < unix.NLMSG_HDRLEN || size > len(b) {
			return fmt.Errorf("a netlink message has %d bytes of %d", size, len(b))
		}
		if err := do(binary.NativeEndian.Uint16(b[4:]), b[unix.NLMSG_HDRLEN:size]); err != nil {
			return err
		}
		b = b[min((size+unix.NLMSG_ALIGNTO-1)&^(unix.NLMSG_ALIGNTO-1), len(b)):]
	}
	return nil
}

// Attrs are the attributes of one level of a netlink message.
type Attrs map[uint16][]byte

// ParseAttrs returns the attributes in b, whose bytes they share.
func ParseAttrs(b []byte) (Attrs, error) {
	out := Attrs{}
	err := EachAttr(b, func(typ uint16, data []byte) error {
		out[typ] = data
		return nil
	})
	return out, err
}

// EachAttr calls do with each attribute of one level of a netlink message (netlink(7), struct nlattr), until it fails.
func EachAttr(b []byte, do func(typ uint16, data []byte) error) error {
	for len(b) > 0 {
		if len(b) < unix.SizeofNlAttr {
			return errors.New("a netlink attribute was cut short")
		}
		size := int(binary.NativeEndian.Uint16(b))
		typ := binary.NativeEndian.Uint16(b[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
		if size < unix.SizeofNlAttr || size > len(b) {
			return errors.New("a netlink attribute has an impossible length")
		}
		if err := do(typ, b[unix.SizeofNlAttr:size:size]); err != nil {
			return err
		}
		b = b[min((size+unix.NLA_ALIGNTO-1)&^(unix.NLA_ALIGNTO-1), len(b)):]
	}
	return nil
}

// Numbers are in the network's order; one that has not the size is 0.

func (a Attrs) Uint8(typ uint16) uint8   { return uint8(a.number(typ, 1)) }
func (a Attrs) Uint16(typ uint16) uint16 { return uint16(a.number(typ, 2)) }
func (a Attrs) Uint32(typ uint16) uint32 { return uint32(a.number(typ, 4)) }
func (a Attrs) Uint64(typ uint16) uint64 { return a.number(typ, 8) }

func (a Attrs) number(typ uint16, size int) (n uint64) {
	if b := a[typ]; len(b) == size {
		for _, x := range b {
			n = n<<8 | uint64(x)
		}
	}
	return n
}

// String returns the attribute of a type without the zeros at its end.
func (a Attrs) String(typ uint16) string { return string(bytes.TrimRight(a[typ], "\x00")) }

// Within returns the attribute of a type among those in b, nil if it isn't there.
func Within(b []byte, want uint16) (found []byte) {
	err := EachAttr(b, func(typ uint16, data []byte) error {
		if typ == want {
			found = data
		}
		return nil
	})
	if err != nil {
		return nil
	}
	return found
}

// Append appends an attribute, padded.
func Append(out []byte, typ uint16, value ...byte) []byte {
	out = binary.NativeEndian.AppendUint16(out, uint16(unix.SizeofNlAttr+len(value)))
	out = binary.NativeEndian.AppendUint16(out, typ)
	out = append(out, value...)
	return append(out, make([]byte, -len(value)&3)...)
}

func Text(typ uint16, value string) []byte { return Append(nil, typ, append([]byte(value), 0)...) }

var (
	ErrPermission = errors.New("the capability NET_ADMIN is missing in this network namespace")
	ErrRaw        = errors.New("the capability NET_RAW is missing, which iptables needs")

	// ErrUnsupported says that the kernel, or this network namespace, can't hold the plan.
	ErrUnsupported = errors.New("the rules can't be held here")

	// ErrLeft says that another backend's rules are there, which this process can't remove.
	ErrLeft = errors.New("rules of an earlier agent-init, over iptables, are left")
)

// Explain adds to err, which came from the kernel while doing what, the
// sentinel that a caller can act on. It keeps err for errors.Is.
func Explain(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrPermission), errors.Is(err, ErrRaw), errors.Is(err, ErrUnsupported):
		return fmt.Errorf("%s: %w", what, err)
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return fmt.Errorf("%s: %w: %w", what, ErrPermission, err)
	case errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.EAFNOSUPPORT),
		errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ESOCKTNOSUPPORT):
		return fmt.Errorf("%s: %w: the kernel lacks a part of netfilter (nf_tables with inet tables and sets of intervals, Linux 5.6 or later; or ip_set and iptables; and conntrack with netlink): %w", what, ErrUnsupported, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Absent says whether err is that of a kernel without the part of netfilter that was spoken to (nfnetlink_rcv_msg).
func Absent(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT)
}

// Supported returns the error of a kernel that can't be spoken to about
// netfilter: no nf_tables, no ipsets, no conntrack, no log.
func Supported() error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return err
	}
	if err == nil {
		unix.Close(fd)
	}
	return nil // any other error comes again, from whoever needs the socket
}
