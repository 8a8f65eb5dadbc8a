package sockowner

import (
	"net"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// TestKernelBound: a socket is told from the next one at the same port, and only
// those that serve at the very address count.
func TestKernelBound(t *testing.T) {
	loopback(t)
	f := finder(t)
	a := netip.MustParseAddr("127.0.0.11")
	listen := func(at string) (u net.PacketConn, l net.Listener) {
		l, err := net.Listen("tcp", at)
		must(t, err)
		u, err = net.ListenPacket("udp", l.Addr().String())
		must(t, err)
		return u, l
	}
	u, l := listen("127.0.0.11:0")
	at := l.Addr().String()
	other, otherTCP := listen("127.0.0.12:0")
	defer other.Close()
	defer otherTCP.Close()
	c, err := net.Dial("tcp", at) // both ends are at the address, and neither serves
	must(t, err)
	defer c.Close()

	bound, err := f.At(a)
	must(t, err)
	if len(bound) != 2 || bound[0].Proto != unix.IPPROTO_UDP || bound[1].Proto != unix.IPPROTO_TCP || bound[0].At.String() != at || bound[1].At.String() != at {
		t.Fatalf("at %v are %+v", a, bound)
	}
	still := func(want bool) {
		t.Helper()
		for _, b := range bound {
			if got, err := f.Still(b); err != nil || got != want {
				t.Errorf("%+v is still there: %t, %v; want %t", b, got, err, want)
			}
		}
	}
	still(true)
	u.Close()
	l.Close()
	still(false)
	u, l = listen(at) // whoever takes the port is somebody else
	still(false)
	u.Close()
	l.Close()
}
