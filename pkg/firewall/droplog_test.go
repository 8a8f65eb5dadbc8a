package firewall

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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
	var got []Drop
	ended := make(chan error)
	go func() {
		ended <- ReadDrops(ctx, given, func(d Drop) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, d)
		})
	}()
	count := func(dst netip.AddrPort, proto uint8) (n int, last Drop) {
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
		icmp := uint8(plan.ProtoICMP)
		if a == far6 {
			icmp = plan.ProtoICMPv6
		}
		typ := map[uint8]byte{plan.ProtoICMP: 8, plan.ProtoICMPv6: 128}[icmp]
		raw(t, int(icmp), a, []byte{typ, 0, 0, 0, 0, 1, 0, 1})
		for _, want := range []Drop{
			{Dst: at(a, 25), Proto: plan.ProtoTCP, UID: agentUID},
			{Dst: at(a, 443), Proto: plan.ProtoUDP, UID: 77},
			{Dst: at(a, 0), Proto: icmp, UID: 0, ICMPType: typ},
		} {
			var d Drop
			eventually(t, want.Dst.String(), func() (ok bool) { var n int; n, d = count(want.Dst, want.Proto); return n > 0 })
			if d.UID != want.UID || d.Prefix != plan.LogPrefix || d.ICMPType != want.ICMPType || d.Len < 28 || d.Time.IsZero() ||
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
	eventually(t, "the drop after the flood", func() bool { n, _ := count(at(other4, 10), plan.ProtoUDP); return n > 0 })
	most := plan.DropBurst + plan.DropRate*int(time.Since(start)/time.Second+1)
	if n, _ := count(at(other4, 9), plan.ProtoUDP); n < 1 || n > most {
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
		n, _ := count(at(other6, 10), plan.ProtoUDP)
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

func TestParsePacket(t *testing.T) {
	ip4 := func(proto byte, payload ...byte) []byte {
		return append([]byte{0x45, 0, 0, byte(20 + len(payload)), 0, 0, 0, 0, 64, proto, 0, 0, 192, 0, 2, 2, 198, 51, 100, 7}, payload...)
	}
	ip6 := func(next byte, payload ...byte) []byte {
		b := append([]byte{0x60, 0, 0, 0, 0, byte(len(payload)), next, 64}, near6.AsSlice()...)
		return append(append(b, far6.AsSlice()...), payload...)
	}
	ports := []byte{0x12, 0x34, 0x01, 0xbb, 0, 0, 0, 0}
	later := ip4(17, ports...)
	later[7] = 1
	for name, x := range map[string]struct {
		in   []byte
		want Drop
		bad  bool
	}{
		"empty":           {nil, Drop{}, true},
		"version":         {[]byte{0x75}, Drop{}, true},
		"short":           {ip4(6)[:19], Drop{}, true},
		"short header":    {append([]byte{0x44}, ip4(6)[1:]...), Drop{}, true},
		"short v6":        {ip6(6)[:39], Drop{}, true},
		"tcp":             {ip4(6, ports...), Drop{UID: -1, Proto: 6, Src: at(near4, 0x1234), Dst: at(other4, 443), Len: 28}, false},
		"no ports":        {ip4(6, 1, 2, 3), Drop{UID: -1, Proto: 6, Src: at(near4, 0), Dst: at(other4, 0), Len: 23}, false},
		"later fragment":  {later, Drop{UID: -1, Proto: 17, Src: at(near4, 0), Dst: at(other4, 0), Len: 28}, false},
		"options missing": {append([]byte{0x4f}, ip4(6)[1:]...), Drop{UID: -1, Proto: 6, Src: at(near4, 0), Dst: at(other4, 0), Len: 20}, false},
		"icmp":            {ip4(1, 8, 0), Drop{UID: -1, Proto: 1, ICMPType: 8, Src: at(near4, 0), Dst: at(other4, 0), Len: 22}, false},
		"gre":             {ip4(47, ports...), Drop{UID: -1, Proto: 47, Src: at(near4, 0), Dst: at(other4, 0), Len: 28}, false},
		"udp v6":          {ip6(17, ports...), Drop{UID: -1, Proto: 17, Src: at(near6, 0x1234), Dst: at(far6, 443), Len: 48}, false},
		"extensions":      {ip6(0, append([]byte{44, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 1, 0, 0, 0, 0}, ports...)...), Drop{UID: -1, Proto: 6, Src: at(near6, 0x1234), Dst: at(far6, 443), Len: 64}, false},
		"later v6":        {ip6(44, append([]byte{6, 0, 1, 0, 0, 0, 0, 0}, ports...)...), Drop{UID: -1, Proto: 6, Src: at(near6, 0), Dst: at(far6, 0), Len: 56}, false},
		"endless":         {ip6(0, 0, 255, 0, 0, 0, 0, 0, 0), Drop{UID: -1, Proto: 0, Src: at(near6, 0), Dst: at(far6, 0), Len: 48}, false},
	} {
		got, ok := parsePacket(x.in)
		if ok == x.bad || ok && got != x.want {
			t.Errorf("%s: %+v, %v; want %+v", name, got, ok, x.want)
		}
	}
}

// nflog returns a datagram as the kernel makes it.
func nflog(attrs ...[]byte) []byte {
	body := []byte{2, 0, 0, 7}
	for _, a := range attrs {
		body = append(append(body, a...), make([]byte, -len(a)&3)...)
	}
	head := binary.NativeEndian.AppendUint32(nil, uint32(16+len(body)))
	head = binary.NativeEndian.AppendUint16(head, unix.NFNL_SUBSYS_ULOG<<8)
	return append(append(head, make([]byte, 10)...), body...)
}

func nflogAttr(typ uint16, value []byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
	return append(binary.NativeEndian.AppendUint16(b, typ), value...)
}

func FuzzParseDrops(f *testing.F) {
	packet := append([]byte{0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 2, 198, 51, 100, 7}, 1, 2, 3, 4, 0, 8, 0, 0)
	one := nflog(nflogAttr(nfulaPrefix, []byte("agent-init\x00")), nflogAttr(nfulaUID, []byte{0, 0, 3, 232}),
		nflogAttr(nfulaTimestamp, make([]byte, 16)), nflogAttr(nfulaPayload, packet))
	f.Add(one)
	f.Add(append(one, one...))
	f.Add(one[:len(one)-9])
	f.Add([]byte{})
	n := 0
	parseDrops(append(one, one...), func(d Drop) {
		n++
		if d.UID != 1000 || d.Prefix != "agent-init" || d.Dst != at(other4, 0x304) {
			f.Errorf("got %+v", d)
		}
	})
	if n != 2 {
		f.Errorf("%d drops, not 2", n)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		n := 0
		parseDrops(b, func(d Drop) {
			n++
			if !d.Dst.Addr().IsValid() || !d.Src.Addr().IsValid() || d.UID < -1 {
				t.Errorf("got %+v", d)
			}
		})
		if n > len(b)/40 {
			t.Errorf("%d drops in %d bytes", n, len(b))
		}
	})
}
