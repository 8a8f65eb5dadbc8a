package main

import (
	"fmt"
	"strings"
	"testing"
)

func TestParseResolvConf(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"docker":         {"nameserver 127.0.0.11\noptions ndots:0\n", "[127.0.0.11:53] []"},
		"kubernetes":     {"search ns.svc.cluster.local svc.cluster.local\nnameserver 10.96.0.10\noptions ndots:5\n", "[10.96.0.10:53] [ns.svc.cluster.local svc.cluster.local]"},
		"last search":    {"domain a.example\nsearch B.Example. c.example\n", "[] [b.example c.example]"},
		"both families":  {"nameserver 192.0.2.1\nnameserver 2001:db8::1\nnameserver 192.0.2.1\n", "[192.0.2.1:53 [2001:db8::1]:53] []"},
		"zone is kept":   {"nameserver fe80::1%eth0\n", "[[fe80::1%eth0]:53] []"},
		"comments, junk": {"# nameserver 192.0.2.1\n; x\nnameserver\nnameserver example.com\n\x00\xff\n", "[] []"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := parseResolvConf(strings.NewReader(tc.text))
			if got := fmt.Sprint(c.servers, " ", c.search); err != nil || got != tc.want {
				t.Errorf("got %s, %v; want %s", got, err, tc.want)
			}
		})
	}
}
