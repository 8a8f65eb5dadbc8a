package resolver

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/miekg/dns"
	"golang.org/x/net/dns/dnsmessage"
)

// packet builds a query by hand: header counts, then the rest as given.
func packet(flags uint16, counts [4]uint16, rest string) []byte {
	b := []byte{0x12, 0x34, byte(flags >> 8), byte(flags)}
	for _, c := range counts {
		b = append(b, byte(c>>8), byte(c))
	}
	return append(b, rest...)
}

const (
	flagQR = 1 << 15
	flagTC = 1 << 9
	flagRD = 1 << 8

	okA   = "\x02ok\x04test\x00\x00\x01\x00\x01"
	optRR = "\x00\x00\x29\x10\x00\x00\x00\x00\x00\x00\x00"
)

func TestParseQuery(t *testing.T) {
	long := strings.Repeat("\x3f"+strings.Repeat("a", 63), 3)
	tests := []struct {
		what  string
		pkt   []byte
		rcode int // -1: no reply
		name  string
	}{
		{"a question", packet(flagRD, [4]uint16{1}, okA), dns.RcodeSuccess, "ok.test"},
		{"with EDNS", packet(flagRD, [4]uint16{1, 0, 0, 1}, okA+optRR), dns.RcodeSuccess, "ok.test"},
		{"case", packet(0, [4]uint16{1}, "\x02oK\x04TeSt\x00\x00\x01\x00\x01"), dns.RcodeSuccess, "ok.test"},
		{"the root", packet(0, [4]uint16{1}, "\x00\x00\x01\x00\x01"), dns.RcodeSuccess, ""},
		{"a name of 255 bytes", packet(0, [4]uint16{1}, long+"\x3d"+strings.Repeat("a", 61)+"\x00\x00\x01\x00\x01"), dns.RcodeSuccess,
			strings.Repeat(strings.Repeat("a", 63)+".", 3) + strings.Repeat("a", 61)},
		{"a dot in a label", packet(0, [4]uint16{1}, "\x07ok.test\x00\x00\x01\x00\x01"), dns.RcodeSuccess, `ok\046test`},
		{"bytes behind the question", packet(0, [4]uint16{1}, okA+"padding"), dns.RcodeSuccess, "ok.test"},

		{"empty", nil, -1, ""},
		{"half a header", packet(0, [4]uint16{1}, "")[:11], -1, ""},
		{"a response", packet(flagQR, [4]uint16{1}, okA), -1, ""},
		{"E08 notify", packet(4<<11, [4]uint16{1}, okA), dns.RcodeNotImplemented, ""},
		{"E08 update", packet(5<<11, [4]uint16{1}, okA), dns.RcodeNotImplemented, ""},
		{"E08 opcode 15", packet(15<<11, [4]uint16{1}, okA), dns.RcodeNotImplemented, ""},
		{"E08 no question", packet(0, [4]uint16{}, ""), dns.RcodeFormatError, ""},
		{"E08 two questions", packet(0, [4]uint16{2}, okA+"\x04evil\x04test\x00\x00\x01\x00\x01"), dns.RcodeFormatError, ""},
		{"E08 an answer in the query", packet(0, [4]uint16{1, 1}, okA), dns.RcodeFormatError, ""},
		{"E08 an authority in the query", packet(0, [4]uint16{1, 0, 1}, okA), dns.RcodeFormatError, ""},
		{"E08 class CH", packet(0, [4]uint16{1}, "\x02ok\x04test\x00\x00\x01\x00\x03"), dns.RcodeRefused, "ok.test"},
		{"E08 class ANY", packet(0, [4]uint16{1}, "\x02ok\x04test\x00\x00\x01\x00\xff"), dns.RcodeRefused, "ok.test"},
		{"E08 an answer that is only counted", packet(0, [4]uint16{1, 65535}, okA), dns.RcodeFormatError, ""},
		{"a question that is only counted", packet(0, [4]uint16{1}, ""), dns.RcodeFormatError, ""},
		{"no type", packet(0, [4]uint16{1}, okA[:len(okA)-4]), dns.RcodeFormatError, ""},
		{"no class at all", packet(0, [4]uint16{1}, okA[:len(okA)-2]), dns.RcodeFormatError, ""},
		{"half a class", packet(0, [4]uint16{1}, okA[:len(okA)-1]), dns.RcodeFormatError, ""},
		{"a compressed question", packet(0, [4]uint16{1}, "\xc0\x0c\x00\x01\x00\x01"), dns.RcodeFormatError, ""},
		{"a question that ends in the header", packet(0, [4]uint16{1}, "\x02ok\xc0\x04\x00\x01\x00\x01"), dns.RcodeFormatError, ""},
		{"a label of 64 bytes", packet(0, [4]uint16{1}, "\x40"+strings.Repeat("a", 64)+"\x00\x00\x01\x00\x01"), dns.RcodeFormatError, ""},
		{"a name of 256 bytes", packet(0, [4]uint16{1}, long+"\x3e"+strings.Repeat("a", 62)+"\x00\x00\x01\x00\x01"), dns.RcodeFormatError, ""},
		{"a name without end", packet(0, [4]uint16{1}, "\x02ok"), dns.RcodeFormatError, ""},
		{"an additional record that is only counted", packet(0, [4]uint16{1, 0, 0, 2}, okA+optRR), dns.RcodeFormatError, ""},
		{"two OPT records", packet(0, [4]uint16{1, 0, 0, 2}, okA+optRR+optRR), dns.RcodeFormatError, ""},
		{"an OPT record with a name", packet(0, [4]uint16{1, 0, 0, 1}, okA+"\x01a"+optRR), dns.RcodeFormatError, ""},
		{"an OPT record cut short", packet(0, [4]uint16{1, 0, 0, 1}, okA+optRR[:10]), dns.RcodeFormatError, ""},
		{"options cut short", packet(0, [4]uint16{1, 0, 0, 1}, okA+optRR[:10]+"\x09"), dns.RcodeFormatError, ""},
		{"many additional records", packet(0, [4]uint16{1, 0, 0, 9}, okA+strings.Repeat(optRR, 9)), dns.RcodeFormatError, ""},
		{"EDNS version 1", packet(0, [4]uint16{1, 0, 0, 1}, okA+"\x00\x00\x29\x10\x00\x00\x01\x00\x00\x00\x00"), dns.RcodeBadVers, "ok.test"},
	}
	for _, tt := range tests {
		t.Run(tt.what, func(t *testing.T) {
			q, got, reply := parseQuery(tt.pkt)
			if !reply {
				got = -1
			}
			if got != tt.rcode {
				t.Fatalf("code %d, want %d", got, tt.rcode)
			}
			if tt.name != "" && q.name != tt.name {
				t.Errorf("name %q, want %q", q.name, tt.name)
			}
			if !reply {
				return
			}
			// Whatever came in, what goes out is a message with the same identifier.
			m := new(dns.Msg)
			if err := m.Unpack(q.reply(&answer{rcode: got}, 0, 0, q.size, nil)); err != nil {
				t.Fatal(err)
			}
			if m.Id != 0x1234 || !m.Response || m.Rcode != tt.rcode {
				t.Errorf("reply %v", m)
			}
		})
	}
}

func TestReplySizes(t *testing.T) {
	var many []netip.Addr
	for i := range 100 {
		many = append(many, netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}))
	}
	for _, tt := range []struct {
		size  int // 0: no EDNS
		addrs int
		tc    bool
		most  int
	}{
		{0, 20, false, 512}, {0, 100, true, 512},
		{100, 100, true, 512}, {512, 29, false, 512}, {600, 100, true, 600},
		{1232, 60, false, 1232}, {4096, 100, true, 1232}, {65535, 100, true, 1232},
	} {
		t.Run(fmt.Sprintf("%d addresses in %d bytes", tt.addrs, tt.size), func(t *testing.T) {
			req := new(dns.Msg)
			req.SetQuestion("ok.test.", dns.TypeA)
			if tt.size > 0 {
				req.SetEdns0(uint16(tt.size), false)
			}
			pkt, err := req.Pack()
			if err != nil {
				t.Fatal(err)
			}
			q, rcode, ok := parseQuery(pkt)
			if rcode != dns.RcodeSuccess || !ok {
				t.Fatalf("code %d, %v", rcode, ok)
			}
			b := q.reply(&answer{addrs: many[:tt.addrs]}, 60, 7, q.size, nil)
			m := new(dns.Msg)
			if err := m.Unpack(b); err != nil {
				t.Fatal(err)
			}
			if len(b) > tt.most || m.Truncated != tt.tc || !tt.tc && len(m.Answer) != tt.addrs {
				t.Errorf("%d bytes, %d records, truncated %v; want at most %d bytes, %d records, truncated %v",
					len(b), len(m.Answer), m.Truncated, tt.most, tt.addrs, tt.tc)
			}
			if len(m.Answer) > 0 && m.Answer[0].(*dns.A).A.String() != "192.0.2.7" {
				t.Errorf("the first record is %v", m.Answer[0])
			}
			if (m.IsEdns0() != nil) != (tt.size > 0) {
				t.Errorf("EDNS in the reply: %v", m.IsEdns0())
			}
		})
	}
}

// FuzzQuery: no bytes from a client make the server panic, answer something
// that can't be read, or ask upstream for anything but the one allowed name.
func FuzzQuery(f *testing.F) {
	f.Add(packet(flagRD, [4]uint16{1}, okA))
	f.Add(packet(flagRD, [4]uint16{1, 0, 0, 1}, okA+optRR))
	f.Add(packet(0, [4]uint16{2}, okA+"\x04evil\x04test\x00\x00\x01\x00\x01"))
	f.Add(packet(0, [4]uint16{1}, "\x04evil\x04test\x00\x00\x01\x00\x01"))
	f.Add(packet(0, [4]uint16{1}, "\x07ok.test\x00\x00\x01\x00\x01"))
	f.Add(packet(0, [4]uint16{1}, "\x02ok\x04test\xc0\x0c\x00\x01\x00\x01"))
	f.Add(packet(0, [4]uint16{1, 0, 0, 1}, okA+"\x00\x00\x29\x10\x00\x00\x01\x00\x00\x00\x04\xfd\xe9\x00\x00"))
	f.Add(packet(0, [4]uint16{1}, "\x09localhost\x00\x00\x1c\x00\x01"))
	f.Add(packet(0, [4]uint16{1}, "\x01x\x04corp\x04test\x00\x00\x01\x00\x01"))

	r := newRig(f, "ok.test", "!no.ok.test")
	asked := make(chan string, 100)
	r.exchange = func(_ context.Context, q question) (*dns.Msg, error) {
		name, qtype := q.name, q.qtype
		asked <- fmt.Sprintf("%s %d", name, qtype)
		m := new(dns.Msg)
		m.SetQuestion(dns.Fqdn(name), qtype)
		if rr, err := dns.NewRR(name + ". 60 A 192.0.2.1"); err == nil {
			m.Answer = []dns.RR{rr}
		}
		return m, nil
	}
	f.Fuzz(func(t *testing.T, pkt []byte) {
		r.expire()
		r.forget()
		in := bytes.Clone(pkt)
		reply := r.raw(pkt)
		if !bytes.Equal(in, pkt) {
			t.Error("the query was changed")
		}
		for len(asked) > 0 {
			if q := <-asked; q != "ok.test 1" && q != "ok.test 28" {
				t.Errorf("asked upstream for %q because of %s", q, hex.EncodeToString(in))
			}
		}
		if reply == nil {
			return
		}
		m := new(dns.Msg)
		if err := m.Unpack(reply); err != nil {
			t.Fatalf("the reply %x to %x can't be read: %v", reply, in, err)
		}
		if !bytes.Equal(reply[:2], in[:2]) || !m.Response {
			t.Errorf("%x is no reply to %x", reply, in)
		}
		if len(m.Answer) > 0 && !strings.EqualFold(m.Question[0].Name, "ok.test.") &&
			!strings.HasSuffix(dns.CanonicalName(m.Question[0].Name), "localhost.") {
			t.Errorf("an answer for %v", m.Question[0].Name)
		}
		if m.Rcode != dns.RcodeSuccess {
			return
		}
		var other dnsmessage.Parser
		if _, err := other.Start(in); err != nil {
			t.Errorf("answered %v, and another parser can't read %x: %v", m.Question[0], in, err)
		}
		if q, err := other.Question(); err != nil || q.Name.String() != m.Question[0].Name || uint16(q.Type) != m.Question[0].Qtype {
			t.Errorf("answered %v, another parser has %v: %v", m.Question[0], q, err)
		}
	})
}
