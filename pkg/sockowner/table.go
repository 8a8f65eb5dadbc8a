package sockowner

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"io"
	"math"
	"net/netip"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Conn is a socket that has another end: a TCP connection, or UDP that is connected.
type Conn struct {
	Socket
	Cookie        uint64 // the kernel's number for this very socket; 0: not told
	Proto         uint8  // IP protocol number
	Opening       bool   // nobody has answered yet
	Local, Remote netip.AddrPort

	// What has arrived there, and here; TCP only. A connection that was redirected still has whom it was opened to as
	// its Remote: the sockets of both ends know nothing of the translation between them.
	Sent, Received uint64
}

// Table is what sockets of this network namespace are connected, and where others can be connected to.
type Table struct {
	Conns     []Conn
	Listening map[netip.AddrPort]uint32 // whose
	More      int                       // connections that are left out
	Counted   bool                      // bytes are told
}

// maxConns is how many connections a Table holds. A person looks at some of them.
const maxConns = 1 << 14

// From inet_diag.h and tcp.h (struct tcp_info: two 64-bit counters behind its 104 bytes and two rates).
const (
	diagInfo     = 2 // INET_DIAG_INFO, asked for as a bit of idiag_ext
	infoAcked    = 120
	infoReceived = 128
	infoLen      = 136
	tcpOpen      = 1
	tcpSynSent   = 2
	tcpCloseWait = 8
)

// tcpShown are the states in which somebody still has a connection: not those in which only the kernel closes it.
const tcpShown = 1<<tcpOpen | 1<<tcpSynSent | 1<<tcpCloseWait | 1<<tcpListen

// Read reads the table into t, in place of what was there. The kernel tells bytes to everybody who may ask it.
func (f *Finder) Read(t *Table) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	t.clear()
	t.Counted = true
	for n := 1; n > 0; { // what an earlier question left unread: until then the kernel takes no other (EBUSY)
		n, _, _ = unix.Recvfrom(int(f.file.Fd()), make([]byte, 1), unix.MSG_DONTWAIT)
	}
	for _, proto := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
		for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
			each := func(d diagnosed, attributes []byte) { t.add(d, proto, attributes) }
			if err := f.ask(listing(family, proto), math.MaxInt, each); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *Table) clear() {
	if t.Listening == nil {
		t.Listening = map[netip.AddrPort]uint32{}
	}
	clear(t.Listening)
	t.Conns, t.More, t.Counted = t.Conns[:0], 0, false
}

// listing asks for all sockets that a Table has.
func listing(family, proto uint8) []byte {
	b := request(family, proto, unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	states := uint32(1 << tcpOpen) // of UDP: those that are connected
	if proto == unix.IPPROTO_TCP {
		b[unix.NLMSG_HDRLEN+2] = 1 << (diagInfo - 1)
		states = tcpShown
	}
	binary.NativeEndian.PutUint32(b[unix.NLMSG_HDRLEN+4:], states)
	return b
}

func (t *Table) add(d diagnosed, proto uint8, attributes []byte) {
	c := Conn{Socket: d.Socket, Cookie: d.cookie, Proto: proto, Opening: d.state == tcpSynSent, Local: d.local, Remote: d.remote}
	if proto == unix.IPPROTO_TCP && d.state == tcpListen {
		if len(t.Listening) < maxConns {
			t.Listening[d.local] = d.UID
		}
		return
	}
	if c.Inode == 0 || d.remote.Port() == 0 { // no process has it any more, or it has no other end
		return
	}
	if len(t.Conns) >= maxConns {
		t.More++
		return
	}
	c.Sent, c.Received = counted(attributes)
	t.Conns = append(t.Conns, c)
}

// counted are the bytes that INET_DIAG_INFO tells of. The first acknowledgement is of the SYN, which is no byte.
func counted(b []byte) (sent, received uint64) {
	for len(b) >= unix.SizeofRtAttr {
		size, kind := int(binary.NativeEndian.Uint16(b)), binary.NativeEndian.Uint16(b[2:])
		if size < unix.SizeofRtAttr || size > len(b) {
			break
		}
		if info := b[unix.SizeofRtAttr:size]; kind == diagInfo && len(info) >= infoLen {
			sent, received = binary.NativeEndian.Uint64(info[infoAcked:]), binary.NativeEndian.Uint64(info[infoReceived:])
			return max(sent, 1) - 1, received
		}
		b = b[min(len(b), (size+unix.RTA_ALIGNTO-1)&^(unix.RTA_ALIGNTO-1)):]
	}
	return 0, 0
}

// ReadProc reads the table from proc(5), for those to whom sock_diag is closed: an agent's seccomp filter forbids it, and
// gVisor has none. Bytes are not told there.
func (t *Table) ReadProc() error {
	t.clear()
	for _, from := range []struct {
		name  string
		proto uint8
	}{{"tcp", unix.IPPROTO_TCP}, {"tcp6", unix.IPPROTO_TCP}, {"udp", unix.IPPROTO_UDP}, {"udp6", unix.IPPROTO_UDP}} {
		f, err := os.Open("/proc/thread-self/net/" + from.name)
		if err != nil && from.name != "tcp" {
			continue // without IPv6 there is none
		}
		if err != nil {
			return err
		}
		err = t.readLines(f, from.proto)
		f.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *Table) readLines(r io.Reader, proto uint8) error {
	lines := bufio.NewScanner(bufio.NewReaderSize(r, 1<<16))
	for lines.Scan() {
		d, ok := parseProc(lines.Bytes())
		switch {
		case !ok: // the head
		case proto == unix.IPPROTO_TCP && tcpShown&(1<<d.state) == 0 || proto == unix.IPPROTO_UDP && d.state != tcpOpen:
		default:
			t.add(d, proto, nil)
		}
	}
	return lines.Err()
}

// parseProc reads a line of /proc/net/tcp: number, both ends, state, queues, timer, retransmissions, uid, timeout, inode.
func parseProc(line []byte) (d diagnosed, ok bool) {
	var fields [10][]byte
	n := 0
	for field := range bytes.FieldsSeq(line) {
		if n == len(fields) {
			break
		}
		fields[n] = field
		n++
	}
	if n < len(fields) {
		return d, false
	}
	var ok1, ok2 bool
	d.local, ok1 = procAddr(fields[1])
	d.remote, ok2 = procAddr(fields[2])
	state, err1 := strconv.ParseUint(string(fields[3]), 16, 5)
	uid, err2 := strconv.ParseUint(string(fields[7]), 10, 32)
	inode, err3 := strconv.ParseUint(string(fields[9]), 10, 32)
	d.state, d.UID, d.Inode = uint8(state), uint32(uid), uint32(inode)
	return d, ok1 && ok2 && err1 == nil && err2 == nil && err3 == nil
}

// procAddr reads an address and a port. The address is in words of the machine's order.
func procAddr(b []byte) (netip.AddrPort, bool) {
	host, port, found := bytes.Cut(b, []byte(":"))
	var raw [16]byte
	if !found || len(host) != 8 && len(host) != 32 {
		return netip.AddrPort{}, false
	}
	n, err := hex.Decode(raw[:], host)
	number, err2 := strconv.ParseUint(string(port), 16, 16)
	if err != nil || err2 != nil {
		return netip.AddrPort{}, false
	}
	for i := 0; i < n; i += 4 {
		binary.NativeEndian.PutUint32(raw[i:], binary.BigEndian.Uint32(raw[i:]))
	}
	a, _ := netip.AddrFromSlice(raw[:n])
	return netip.AddrPortFrom(a.Unmap(), uint16(number)), true
}
