package resolver

import (
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/miekg/dns"
)

// TestOwn: who asks at an address of Own is answered with it, for what there is; what was found is leased all the same.
func TestOwn(t *testing.T) {
	own := []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("fd00::1")}
	r := newRigWith(t, func(c *Config) { c.Own = own }, policyOf(t, "", "10.9.9.9 box.test", "ok.test", "four.test", "box.test"))
	r.up.set(t, "ok.test.", "A", "ok.test. 60 A 192.0.2.1", "ok.test. 60 A 192.0.2.2")
	r.up.set(t, "ok.test.", "AAAA", "ok.test. 60 AAAA 2001:db8::1")
	r.up.set(t, "four.test.", "A", "four.test. 60 A 192.0.2.4")
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	elsewhere, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 2)})
	if err != nil {
		t.Fatal(err)
	}
	defer elsewhere.Close()
	ask := func(at *net.UDPConn, name string, qtype uint16) []string {
		pkt, err := asks(name, qtype).Pack()
		if err != nil {
			t.Fatal(err)
		}
		answers := make(chan []byte, 1)
		reply, later := r.handle(pkt, nil, client{answers: answers, instead: r.insteadAt(at.LocalAddr())})
		if later {
			reply = <-answers
		}
		m := new(dns.Msg)
		if err := m.Unpack(reply); err != nil || m.Rcode != dns.RcodeSuccess && name != "evil.test." {
			t.Fatalf("%s: %v %v", name, m, err)
		}
		return addresses(m)
	}
	for range 2 { // asked upstream, and out of the cache
		for _, tt := range []struct {
			at    *net.UDPConn
			name  string
			qtype uint16
			want  []string
		}{
			{conn, "ok.test.", dns.TypeA, []string{"127.0.0.1"}},
			{conn, "ok.test.", dns.TypeAAAA, []string{"fd00::1"}},
			{conn, "four.test.", dns.TypeAAAA, nil},
			{conn, "box.test.", dns.TypeA, []string{"127.0.0.1"}},
			{conn, "evil.test.", dns.TypeA, nil},
			{elsewhere, "four.test.", dns.TypeA, []string{"192.0.2.4"}},
			{elsewhere, "ok.test.", dns.TypeAAAA, []string{"2001:db8::1"}},
		} {
			if got := ask(tt.at, tt.name, tt.qtype); !slices.Equal(got, tt.want) {
				t.Errorf("%s at %v: %v, want %v", tt.name, tt.at.LocalAddr(), got, tt.want)
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.leases {
		for _, a := range l.addrs {
			if slices.Contains(own, a) {
				t.Errorf("%v is leased to %s", a, l.name)
			}
		}
	}
}
