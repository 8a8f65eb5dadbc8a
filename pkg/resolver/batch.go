package resolver

import (
	"net"
	"net/netip"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
)

// batchSize is how many queries are taken from a socket, and answered, in one
// system call each. Under load those calls are most of what an answer costs.
const batchSize = 32

// batch is one reader's place for queries and their replies.
type batch struct {
	conn    *ipv4.PacketConn // its calls do for IPv6 as well
	in, out []ipv4.Message
	replies int
}

func newBatch(conn *net.UDPConn) *batch {
	b := &batch{conn: ipv4.NewPacketConn(conn), in: make([]ipv4.Message, batchSize), out: make([]ipv4.Message, batchSize)}
	for i := range b.in {
		b.in[i].Buffers, b.out[i].Buffers = [][]byte{make([]byte, maxQuery)}, make([][]byte, 1)
	}
	return b
}

// read waits for queries and returns how many came. A longer one is cut.
func (b *batch) read() (int, error) {
	b.replies = 0
	return b.conn.ReadBatch(b.in, 0)
}

// query is the i-th message that read has brought.
func (b *batch) query(i int) []byte { return b.in[i].Buffers[0][:b.in[i].N] }

// client is who sent it, without a zone, as the kernel lists sockets.
func (b *batch) client(i int) netip.AddrPort {
	from := b.in[i].Addr.(*net.UDPAddr).AddrPort()
	return netip.AddrPortFrom(from.Addr().WithZone(""), from.Port())
}

// reply puts an answer to the i-th query beside those to be written. It must stay as it is until then.
func (b *batch) reply(i int, msg []byte) {
	m := &b.out[b.replies]
	m.Buffers[0], m.Addr = msg, b.in[i].Addr
	b.replies++
}

// write sends the replies. One that can't be sent is left out: a client that is
// gone, or does not read, is no concern of ours.
func (b *batch) write() {
	for left := b.out[:b.replies]; len(left) > 0; {
		n, err := b.conn.WriteBatch(left, unix.MSG_DONTWAIT)
		if err != nil {
			n = 1
		}
		left = left[n:]
	}
}
