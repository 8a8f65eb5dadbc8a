package firewall

import (
	"context"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/firewall/drops"
	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

func TestKernelDropLog(t *testing.T) {
	if !onBackends(t) {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	newLab(t)
	f := open(t, Options{})
	apply(t, f, Config{DropGroup: group})
	file, err := OpenDropLog(group)
	must(t, err)
	defer file.Close()
	if second, err := OpenDropLog(group); err == nil {
		second.Close()
		t.Error("the group was given twice")
	}
	// As another process gets it: a descriptor that blocks.
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	must(t, err)
	given := os.NewFile(uintptr(fd), "given")
	defer given.Close()

	var mu sync.Mutex
	var got []drops.Drop
	ended := make(chan error)
	go func() {
		ended <- drops.Read(ctx, given, func(d drops.Drop) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, d)
		})
	}()
	count := func(dst netip.AddrPort, proto uint8) (n int, last drops.Drop) {
		mu.Lock()
		defer mu.Unlock()
		for _, d := range got {
			if d.Dst == dst && d.Proto == proto {
				n, last = n+1, d
			}
		}
		return n, last
	}
	for _, a := range []netip.Addr{far4, far6} {
		refused(t, "tcp", at(a, 25), agentUID)
		refused(t, "udp", at(a, 443), 77)
		icmp := uint8(unix.IPPROTO_ICMP)
		if a == far6 {
			icmp = unix.IPPROTO_ICMPV6
		}
		typ := map[uint8]byte{unix.IPPROTO_ICMP: 8, unix.IPPROTO_ICMPV6: 128}[icmp]
		raw(t, int(icmp), a, []byte{typ, 0, 0, 0, 0, 1, 0, 1})
		for _, want := range []drops.Drop{
			{Dst: at(a, 25), Proto: unix.IPPROTO_TCP, UID: agentUID},
			{Dst: at(a, 443), Proto: unix.IPPROTO_UDP, UID: 77},
			{Dst: at(a, 0), Proto: icmp, UID: 0},
		} {
			var d drops.Drop
			eventually(t, want.Dst.String(), func() (ok bool) { var n int; n, d = count(want.Dst, want.Proto); return n > 0 })
			if d.UID != want.UID || d.Prefix != plan.TableName || d.Time.IsZero() ||
				time.Since(d.Time).Abs() > time.Minute || d.Src.Addr().Is4() != a.Is4() {
				t.Errorf("%v: got %+v", want.Dst, d)
			}
		}
	}

	// A flood at one destination is limited, and hides no other's.
	start := time.Now()
	for range 2000 {
		udp(t, at(other4, 9))
	}
	refused(t, "udp", at(other4, 10), agentUID)
	eventually(t, "the drop after the flood", func() bool { n, _ := count(at(other4, 10), unix.IPPROTO_UDP); return n > 0 })
	most := 5 + int(time.Since(start)/time.Second+1) // five at once, then one a second
	if n, _ := count(at(other4, 9), unix.IPPROTO_UDP); n < 1 || n > most {
		t.Errorf("%d drops of the flood were told, not 1 to %d", n, most)
	}

	// With no room left the kernel tells of it once, and goes on.
	mu.Lock()
	must(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 2048))
	for i := range 300 {
		udp(t, at(other4, uint16(1000+i)))
	}
	mu.Unlock()
	time.Sleep(2 * dropDelay) // the kernel's delay, or else nothing was lost
	eventually(t, "a drop after the loss", func() bool {
		udp(t, at(other6, 10))
		n, _ := count(at(other6, 10), unix.IPPROTO_UDP)
		return n > 0
	})
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// udp sends one datagram, which may be refused.
func udp(t testing.TB, ap netip.AddrPort) {
	c, err := net.Dial("udp", ap.String())
	must(t, err)
	c.Write([]byte("x"))
	c.Close()
}
