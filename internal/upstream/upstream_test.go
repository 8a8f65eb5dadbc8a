package upstream

import (
	"fmt"
	"net/netip"
	"testing"
)

func TestParseResolvConf(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"docker":         {"nameserver 127.0.0.11\noptions ndots:0\n", "[127.0.0.11:53] [] 0"},
		"kubernetes":     {"search ns.svc.cluster.local svc.cluster.local\nnameserver 10.96.0.10\noptions ndots:5\n", "[10.96.0.10:53] [ns.svc.cluster.local svc.cluster.local] 5"},
		"last search":    {"domain a.example\nsearch B.Example. c.example\n", "[] [b.example c.example] 1"},
		"both families":  {"nameserver 192.0.2.1\nnameserver 2001:db8::1\nnameserver 192.0.2.1\n", "[192.0.2.1:53 [2001:db8::1]:53] [] 1"},
		"zone is kept":   {"nameserver fe80::1%eth0\n", "[[fe80::1%eth0]:53] [] 1"},
		"comments, junk": {"# nameserver 192.0.2.1\n; x\nnameserver\nnameserver example.com\n\x00\xff\n", "[] [] 1"},
		"many dots":      {"options timeout:1 ndots:99 edns0\n", "[] [] 15"},
		"no number":      {"options ndots:x\n", "[] [] 0"},
	} {
		t.Run(name, func(t *testing.T) {
			c := parse(tc.text)
			if got := fmt.Sprint(c.Servers, " ", c.Search, c.Ndots); got != tc.want {
				t.Errorf("got %s; want %s", got, tc.want)
			}
		})
	}
}

func TestPassOver(t *testing.T) {
	own := map[netip.Addr]bool{netip.MustParseAddr("172.30.0.2"): true, netip.MustParseAddr("fe80::5"): true}
	for text, tc := range map[string]struct {
		engine string // why the engine's is not asked
		want   string
	}{
		"nameserver 127.0.0.53\nnameserver 192.0.2.1\n": {"", "[192.0.2.1:53] 1"},
		"nameserver ::1\n": {"", "[] 1"},
		"nameserver ::ffff:127.0.0.53\nnameserver 127.1.2.3\n":                      {"", "[] 2"},
		"nameserver 0.0.0.0\nnameserver ::\n":                                       {"", "[] 2"},
		"nameserver 172.30.0.2\nnameserver fe80::5%eth0\nnameserver fe80::6%eth0\n": {"", "[[fe80::6%eth0]:53] 2"},
		"nameserver 127.0.0.11\n":                                                   {"", "[127.0.0.11:53] 0"},
		"nameserver 127.0.0.11\nnameserver 192.0.2.2\n":                             {"nobody knows whose", "[192.0.2.2:53] 1"},
	} {
		c := parse(text)
		PassOver(&c, own, tc.engine)
		if got := fmt.Sprint(c.Servers, len(c.PassedOver)); got != tc.want {
			t.Errorf("%q: %s, want %s (%q)", text, got, tc.want, c.PassedOver)
		}
	}
}
