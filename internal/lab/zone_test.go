package lab_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/miekg/dns"
)

func TestKernelAnswers(t *testing.T) {
	l, b := open(t, lab.BoxOptions{})
	ask := func(args ...string) lab.Poke { return b.Poke(lab.AgentUID, append([]string{"dns"}, args...)...) }
	server := lab.Upstream4.String() + ":53"
	var many []netip.Addr
	for i := range 4000 {
		many = append(many, netip.AddrFrom4([4]byte{45, 31, byte(i >> 8), byte(i)}))
	}
	l.DNS.Set("many.test", lab.Answer{Addrs: many})
	l.DNS.Set("chain.test", lab.Answer{CNAME: "mid.test"})
	l.DNS.Set("mid.test", lab.Answer{CNAME: "ok.test"})
	l.DNS.Set("loop.test", lab.Answer{CNAME: "loop.test"})
	l.DNS.Set("rotate.test", lab.Answer{Addrs: many[:3], Rotate: 1})
	l.DNS.Set("meta.test", lab.Answer{Addrs: []netip.Addr{netip.MustParseAddr("169.254.169.254"), netip.MustParseAddr("::ffff:169.254.169.254")}})
	l.DNS.Set("fail.test", lab.Answer{Rcode: dns.RcodeServerFailure})
	l.DNS.Set("mute.test", lab.Answer{Silent: true})
	l.DNS.Set("short.test", lab.Answer{Addrs: many[:1], Trunc: true})
	l.DNS.Set("zero.test", lab.Answer{Addrs: many[:1], ZeroTTL: true})
	l.DNS.Set("slow.test", lab.Answer{Addrs: many[:1], Latency: 150 * time.Millisecond})
	l.DNS.Set("ech.test", lab.Answer{Records: []dns.RR{lab.ECH("ech.test", many[0])}})
	l.DNS.Set("*.wild.test", lab.Answer{Addrs: many[:1]})
	l.DNS.Set("raw.test", lab.Answer{Raw: func(q lab.Query) []byte { return append(q.Raw[:2:2], 0x81, 0x85, 0, 0, 0, 0, 0, 0, 0, 0) }})
	l.DNS.Set("func.test", lab.Answer{Func: func(q lab.Query) *dns.Msg { return new(dns.Msg).SetRcode(q.Msg, dns.RcodeYXDomain) }})

	tests := []struct {
		args []string
		ok   bool
		want string // in the detail
	}{
		{[]string{server, "many.test", "A"}, true, "truncated:true"},
		{[]string{"-tcp", server, "many.test", "A"}, true, "45.31.15.159]"},
		{[]string{server, "chain.test", "A"}, true, "45.30.0.10"},
		{[]string{server, "chain.test", "AAAA"}, true, "2a0f:30::10"},
		{[]string{server, "loop.test", "A"}, true, "CNAME loop.test."},
		{[]string{server, "rotate.test", "A"}, true, "addrs:[45.31.0.0]"},
		{[]string{server, "rotate.test", "A"}, true, "addrs:[45.31.0.1]"},
		{[]string{server, "meta.test", "A"}, true, "169.254.169.254"},
		{[]string{server, "meta.test", "AAAA"}, true, "::ffff:169.254.169.254"},
		{[]string{server, "fail.test", "A"}, false, "SERVFAIL"},
		{[]string{server, "nowhere.test", "A"}, false, "NXDOMAIN"},
		{[]string{server, "short.test", "A"}, false, "truncated:true"},
		{[]string{"-tcp", server, "short.test", "A"}, true, "45.31.0.0"},
		{[]string{server, "zero.test", "A"}, true, "ttls:[0]"},
		{[]string{server, "ech.test", "HTTPS"}, true, "ech="},
		{[]string{server, "a.b.wild.test", "A"}, true, "45.31.0.0"},
		{[]string{server, "wild.test", "A"}, false, "NXDOMAIN"},
		{[]string{server, "raw.test", "A"}, false, "REFUSED"},
		{[]string{server, "func.test", "A"}, false, "YXDOMAIN"},
		{[]string{"-n", "50", "-c", "4", server, "n{n}.wild.test", "A"}, true, "NOERROR:50"},
	}
	for _, tt := range tests {
		if p := ask(tt.args...); p.OK != tt.ok || !strings.Contains(fmt.Sprint(p.Detail), tt.want) {
			t.Errorf("dns %v: want ok=%t with %q: %s", tt.args, tt.ok, tt.want, p)
		}
	}
	if p := ask("-timeout", "200ms", server, "mute.test", "A"); p.OK || !strings.Contains(p.Err, "timeout") {
		t.Errorf("silent: %s", p)
	}
	if p := ask(server, "slow.test", "A"); !p.OK || p.Ms < 150 {
		t.Errorf("slow: %s", p)
	}
	ask("-edns", "65001:c0ffee", server, "OpTiOn.test", "A")
	q := l.Queries("option.test")
	if len(q) != 1 || q[0].Name != "OpTiOn.test" || len(q[0].Options()) != 1 || q[0].Options()[0].Option() != 65001 {
		t.Errorf("query log: %+v", q)
	}
}
