package firewall

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// netlinkTimeout bounds the wait for each answer of the kernel, which comes
// within microseconds.
const netlinkTimeout = 5 * time.Second

// exchange sends m to netfilter and returns the attributes of the answers.
func exchange(c *netlink.Conn, m netlink.Message) ([]attrs, error) {
	if err := c.SetDeadline(time.Now().Add(netlinkTimeout)); err != nil {
		return nil, err
	}
	msgs, err := c.Execute(m)
	if err != nil {
		discard(c)
		return nil, err
	}
	var out []attrs
	for _, m := range msgs {
		if m.Header.Type == netlink.Error || len(m.Data) < 4 { // an acknowledgement
			continue
		}
		a, err := parseAttrs(m.Data[4:])
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, nil
}

// discard takes what an exchange that failed has left on the socket, else each
// answer would come to the question after its own, and every exchange fail. A
// process that was frozen for longer than the deadline finds its answer late. All
// of it is there: the kernel answers while it is asked, and goes on with a listing
// while it is read (af_netlink.c, netlink_dump).
func discard(c *netlink.Conn) {
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

// attrs are the attributes of one level of a netlink message.
type attrs map[uint16][]byte

// parseAttrs returns the attributes in b, whose bytes they share.
func parseAttrs(b []byte) (attrs, error) {
	out := attrs{}
	err := eachAttr(b, func(typ uint16, data []byte) error {
		out[typ] = data
		return nil
	})
	return out, err
}

// eachAttr calls do with each attribute of one level of a netlink message
// (netlink(7), struct nlattr), until it fails.
func eachAttr(b []byte, do func(typ uint16, data []byte) error) error {
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

func (a attrs) uint32(typ uint16) uint32 {
	if b := a[typ]; len(b) == 4 {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (a attrs) uint64(typ uint16) uint64 {
	if b := a[typ]; len(b) == 8 {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (a attrs) string(typ uint16) string {
	b := a[typ]
	for len(b) > 0 && b[len(b)-1] == 0 {
		b = b[:len(b)-1]
	}
	return string(b)
}

// nested returns the attribute inner of the attribute outer.
func (a attrs) nested(outer, inner uint16) []byte { return within(a[outer], inner) }

// within returns the attribute of a type among those in b, nil if it isn't there.
func within(b []byte, want uint16) (found []byte) {
	err := eachAttr(b, func(typ uint16, data []byte) error {
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

// attr returns one attribute that holds a string.
func attr(typ uint16, value string) []byte {
	b, err := netlink.MarshalAttributes([]netlink.Attribute{{Type: typ, Data: append([]byte(value), 0)}})
	if err != nil {
		panic("firewall: a name too long for netlink: " + value)
	}
	return b
}
