package nfnetlink

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Timeout bounds the wait for each answer of the kernel, which comes
// within microseconds.
const Timeout = 5 * time.Second

// Exchange sends m to netfilter and returns the attributes of the answers.
func Exchange(c *netlink.Conn, m netlink.Message) ([]Attrs, error) {
	if err := c.SetDeadline(time.Now().Add(Timeout)); err != nil {
		return nil, err
	}
	msgs, err := c.Execute(m)
	if err != nil {
		Discard(c)
		return nil, err
	}
	var out []Attrs
	for _, m := range msgs {
		if m.Header.Type == netlink.Error || len(m.Data) < 4 { // an acknowledgement
			continue
		}
		a, err := ParseAttrs(m.Data[4:])
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, nil
}

// Discard takes what an exchange that failed has left on the socket, else each
// answer would come to the question after its own, and every exchange fail. A
// process that was frozen for longer than the deadline finds its answer late. All
// of it is there: the kernel answers while it is asked, and goes on with a listing
// while it is read (af_netlink.c, netlink_dump).
func Discard(c *netlink.Conn) {
	raw, err := c.SyscallConn()
	if err != nil {
		return // it is closed
	}
	buf := make([]byte, 1<<16)
	_ = raw.Control(func(fd uintptr) {
		for err := error(nil); err == nil || err == unix.ENOBUFS; {
			_, _, err = unix.Recvfrom(int(fd), buf, unix.MSG_DONTWAIT)
		}
	})
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

// EachAttr calls do with each attribute of one level of a netlink message
// (netlink(7), struct nlattr), until it fails.
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

// Uint32 returns the attribute of a type, 0 if it has not that size.
func (a Attrs) Uint32(typ uint16) uint32 {
	if b := a[typ]; len(b) == 4 {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

// Uint64 returns the attribute of a type, 0 if it has not that size.
func (a Attrs) Uint64(typ uint16) uint64 {
	if b := a[typ]; len(b) == 8 {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// String returns the attribute of a type without the zeros at its end.
func (a Attrs) String(typ uint16) string {
	b := a[typ]
	for len(b) > 0 && b[len(b)-1] == 0 {
		b = b[:len(b)-1]
	}
	return string(b)
}

// Nested returns the attribute inner of the attribute outer.
func (a Attrs) Nested(outer, inner uint16) []byte { return Within(a[outer], inner) }

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

// Attr returns one attribute that holds a string.
func Attr(typ uint16, value string) []byte {
	b, err := netlink.MarshalAttributes([]netlink.Attribute{{Type: typ, Data: append([]byte(value), 0)}})
	if err != nil {
		panic("firewall: a name too long for netlink: " + value)
	}
	return b
}
