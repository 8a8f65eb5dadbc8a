package drops

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

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
		"tcp":             {ip4(6, ports...), Drop{UID: -1, Proto: 6, Src: at(near4, 0x1234), Dst: at(other4, 443)}, false},
		"no ports":        {ip4(6, 1, 2, 3), Drop{UID: -1, Proto: 6, Src: at(near4, 0), Dst: at(other4, 0)}, false},
		"later fragment":  {later, Drop{UID: -1, Proto: 17, Src: at(near4, 0), Dst: at(other4, 0)}, false},
		"options missing": {append([]byte{0x4f}, ip4(6)[1:]...), Drop{UID: -1, Proto: 6, Src: at(near4, 0), Dst: at(other4, 0)}, false},
		"icmp":            {ip4(1, 8, 0), Drop{UID: -1, Proto: 1, Src: at(near4, 0), Dst: at(other4, 0)}, false},
		"gre":             {ip4(47, ports...), Drop{UID: -1, Proto: 47, Src: at(near4, 0), Dst: at(other4, 0)}, false},
		"udp v6":          {ip6(17, ports...), Drop{UID: -1, Proto: 17, Src: at(near6, 0x1234), Dst: at(far6, 443)}, false},
		"extensions":      {ip6(0, append([]byte{44, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 1, 0, 0, 0, 0}, ports...)...), Drop{UID: -1, Proto: 6, Src: at(near6, 0x1234), Dst: at(far6, 443)}, false},
		"later v6":        {ip6(44, append([]byte{6, 0, 1, 0, 0, 0, 0, 0}, ports...)...), Drop{UID: -1, Proto: 6, Src: at(near6, 0), Dst: at(far6, 0)}, false},
		"endless":         {ip6(0, 0, 255, 0, 0, 0, 0, 0, 0), Drop{UID: -1, Proto: 0, Src: at(near6, 0), Dst: at(far6, 0)}, false},
	} {
		got, ok := ParsePacket(x.in)
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

var (
	near4, other4 = netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("198.51.100.7")
	near6, far6   = netip.MustParseAddr("2001:db8::2"), netip.MustParseAddr("2001:db8::1")
)

func at(a netip.Addr, port uint16) netip.AddrPort { return netip.AddrPortFrom(a, port) }
