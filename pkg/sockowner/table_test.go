package sockowner

import (
	"cmp"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// pair is a TCP connection over the loopback, from both ends.
func pair(t testing.TB, l net.Listener) (dialled, accepted net.Conn) {
	t.Helper()
	dialled, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if accepted, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dialled.Close(); accepted.Close() })
	return dialled, accepted
}

func listen(t testing.TB, at string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// TestKernelTable: a table has each connection once from each end, with the bytes that went over it, and proc(5) tells
// the same but for these.
func TestKernelTable(t *testing.T) {
	loopback(t)
	for _, at := range []string{"127.0.0.1:0", "[::1]:0"} {
		l := listen(t, at)
		dialled, accepted := pair(t, l)
		u, err := net.Dial("udp", l.Addr().String())
		must(t, err)
		defer u.Close()
		f := finder(t)
		var table, proc Table
		must(t, f.Read(&table))
		before := of(t, &table, dialled)
		_, err = dialled.Write(make([]byte, 1000))
		must(t, err)
		_, err = io.ReadFull(accepted, make([]byte, 1000))
		must(t, err)
		_, err = accepted.Write(make([]byte, 30_000))
		must(t, err)
		_, err = io.ReadFull(dialled, make([]byte, 30_000))
		must(t, err)
		must(t, f.Read(&table))
		after := of(t, &table, dialled)
		if before.Sent != 0 || before.Received != 0 || after.Sent != 1000 || after.Received != 30_000 || !table.Counted {
			t.Errorf("%s: %+v, and then %+v", at, before, after)
		}
		if uid, ok := table.Listening[l.Addr().(*net.TCPAddr).AddrPort()]; !ok || uid != uint32(os.Getuid()) {
			t.Errorf("%s: listening are %v", at, table.Listening)
		}
		must(t, proc.ReadProc())
		for _, c := range []*Table{&table, &proc} {
			for i := range c.Conns {
				c.Conns[i].Cookie, c.Conns[i].Sent, c.Conns[i].Received = 0, 0, 0
			}
			slices.SortFunc(c.Conns, func(a, b Conn) int { return cmp.Compare(a.Inode, b.Inode) })
		}
		if !slices.Equal(table.Conns, proc.Conns) || proc.Counted || len(table.Conns) < 3 {
			t.Errorf("%s: the kernel tells %+v, and proc(5) %+v", at, table.Conns, proc.Conns)
		}
	}
}

// of is the one that c is in a table.
func of(t *testing.T, table *Table, c net.Conn) Conn {
	t.Helper()
	local := c.LocalAddr().(*net.TCPAddr).AddrPort()
	i := slices.IndexFunc(table.Conns, func(c Conn) bool { return c.Local == local })
	if i < 0 {
		t.Fatalf("%v is not in %+v", local, table.Conns)
	}
	return table.Conns[i]
}

// TestKernelTableAfterASkippedAnswer: what was left of an earlier answer is not taken for the present one.
func TestKernelTableAfterASkippedAnswer(t *testing.T) {
	loopback(t)
	l := listen(t, "127.0.0.1:0")
	for range 50 {
		pair(t, l)
	}
	f := finder(t)
	old := listing(unix.AF_INET, unix.IPPROTO_TCP)
	must(t, unix.Sendto(int(f.file.Fd()), old, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}))
	var table Table
	must(t, f.Read(&table))
	if len(table.Conns) != 100 {
		t.Errorf("%d connections", len(table.Conns))
	}
}

func TestTableIsBounded(t *testing.T) {
	var table Table
	table.clear()
	for i := range maxConns + 7 {
		table.add(diagnosed{Socket: Socket{Inode: uint32(i) + 1}, remote: netip.MustParseAddrPort("192.0.2.1:1")}, unix.IPPROTO_TCP, nil)
		table.add(diagnosed{state: tcpListen, local: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 1)}, unix.IPPROTO_TCP, nil)
	}
	if len(table.Conns) != maxConns || table.More != 7 || len(table.Listening) > maxConns {
		t.Errorf("%d connections and %d more, %d listening", len(table.Conns), table.More, len(table.Listening))
	}
}

func TestParseProc(t *testing.T) {
	d, ok := parseProc([]byte("   7: 02001EAC:D08C 07321E2D:01BB 01 00000000:00000000 02:000004AA 00000000 64902        0 201593797 3 000000003a774390 20 4 1 16 -1"))
	if !ok || d.local.String() != "172.30.0.2:53388" || d.remote.String() != "45.30.50.7:443" || d.UID != 64902 || d.Inode != 201593797 || d.state != tcpOpen {
		t.Errorf("%+v, %t", d, ok)
	}
	d, ok = parseProc([]byte("0: 0000000000000000FFFF00000100007F:0016 000080FE00000000FF005450B6AD1D2E:D9E2 0A 0:0 0:0 0 0 0 5"))
	if !ok || d.local.String() != "127.0.0.1:22" || d.remote.String() != "[fe80::5054:ff:2e1d:adb6]:55778" || d.state != tcpListen || d.Inode != 5 {
		t.Errorf("%+v, %t", d, ok)
	}
	for _, line := range []string{"", "  sl  local_address rem_address   st", strings.Repeat("x ", 12), "0: 0:0 0:0 0A 0 0 0 0 0 5", "0: 00000000:0 00000000:0 FF 0 0 0 0 0 5"} {
		if d, ok := parseProc([]byte(line)); ok {
			t.Errorf("%q is %+v", line, d)
		}
	}
}

// FuzzTable: whatever the kernel or a file says, there is an end to reading it.
func FuzzTable(f *testing.F) {
	f.Add(listing(unix.AF_INET, unix.IPPROTO_TCP))
	f.Add([]byte("0: 0100007F:9427 00000000:0000 0A 0:0 0:0 0 0 0 5"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var table Table
		table.clear()
		_, _ = replies(b, 0, func(d diagnosed, attributes []byte) { table.add(d, unix.IPPROTO_TCP, attributes) })
		counted(b)
		_ = table.readLines(strings.NewReader(string(b)), unix.IPPROTO_TCP)
		if len(table.Conns) > len(b) {
			t.Errorf("%d connections of %d bytes", len(table.Conns), len(b))
		}
	})
}
