package policy

import (
	"fmt"
	"net/netip"
	"testing"
)

// String returns the class in words, for failures to be read.
func (c Class) String() string {
	return map[Class]string{Public: "public", Private: "private", Loopback: "loopback", Never: "never"}[c]
}

func TestClassify(t *testing.T) {
	for _, tt := range []struct {
		addr string
		want Class
	}{
		{"8.8.8.8", Public}, {"203.0.113.1", Public}, {"2606:4700::1111", Public}, {"2001:db8::1", Public},
		{"100.63.255.255", Public}, {"172.32.0.1", Public}, {"169.253.0.1", Public}, {"168.63.129.17", Public},
		{"10.0.0.1", Private}, {"172.16.0.1", Private}, {"172.31.255.255", Private}, {"192.168.1.1", Private},
		{"100.64.0.1", Private}, {"198.18.0.1", Private},
		{"fc00::1", Private}, {"fd12:3456::1", Private}, {"fe80::1", Private}, {"fe80::1%eth0", Private}, {"fec0::1", Private},
		{"2001:2::1", Private}, {"64:ff9b:1::808:808", Private},
		{"127.0.0.1", Loopback}, {"127.255.255.255", Loopback}, {"::1", Loopback},
		{"169.254.169.254", Never}, {"169.254.170.2", Never}, {"169.254.0.1", Never}, {"168.63.129.16", Never},
		{"100.100.100.200", Never}, {"192.0.0.192", Never}, {"192.88.99.1", Never},
		{"0.0.0.0", Never}, {"0.1.2.3", Never}, {"224.0.0.1", Never}, {"239.255.255.250", Never}, {"240.0.0.1", Never}, {"255.255.255.255", Never},
		{"fd00:ec2::254", Never}, {"fd00:ec2::23", Never}, {"fd20:ce::254", Never},
		{"::", Never}, {"ff02::1", Never}, {"100::1", Never}, {"2001:10::1", Never}, {"2001:20::1", Never}, {"4000::1", Never}, {"5f00::1", Never}, {"::ffff:0:1", Never},
	} {
		if got := Classify(addr(tt.addr)); got != tt.want {
			t.Errorf("%s is %v, want %v", tt.addr, got, tt.want)
		}
	}
	if got := Classify(netip.Addr{}); got != Never {
		t.Errorf("no address is %v, want never", got)
	}
}

// E10: IPv4 addresses wrapped in IPv6.
func TestClassifyWrapped(t *testing.T) {
	for _, inner := range []string{"169.254.169.254", "127.0.0.1", "10.1.2.3", "8.8.8.8", "224.0.0.1", "168.63.129.16", "100.64.1.1"} {
		a := addr(inner).As4()
		b := fmt.Sprintf("%02x%02x:%02x%02x", a[0], a[1], a[2], a[3])
		want := Classify(addr(inner))
		for _, wrapped := range []string{
			"::ffff:" + inner,
			"::" + inner,
			"::ffff:0:" + inner,
			"64:ff9b::" + inner,
			"2002:" + b + "::1",
		} {
			if got := Classify(addr(wrapped)); got != want {
				t.Errorf("%s, which wraps %s, is %v, want %v", wrapped, inner, got, want)
			}
		}
		// The site's own NAT64 (RFC 8215) with each length of its prefix (RFC 6052).
		for _, wrapped := range []string{
			"64:ff9b:1::" + inner,
			fmt.Sprintf("64:ff9b:1:%02x%02x:%02x:%02x00::", a[0], a[1], a[2], a[3]),
			fmt.Sprintf("64:ff9b:1:%02x:%02x:%02x%02x::", a[0], a[1], a[2], a[3]),
			fmt.Sprintf("64:ff9b:1:0:%02x:%02x%02x:%02x00::", a[0], a[1], a[2], a[3]),
		} {
			if got := Classify(addr(wrapped)); got < max(want, Private) {
				t.Errorf("%s, which wraps %s, is %v, want at least %v", wrapped, inner, got, max(want, Private))
			}
		}
	}
}

func TestNeverPrefixes(t *testing.T) {
	covers := func(a netip.Addr) bool {
		for _, p := range NeverPrefixes() {
			if p.Contains(a) {
				return true
			}
		}
		return false
	}
	for _, s := range []string{"169.254.169.254", "168.63.129.16", "fd00:ec2::254", "64:ff9b::169.254.169.254", "2002:a9fe:a9fe::1", "64:ff9b::127.0.0.1", "2001:0:808:808::f7f7:f7f7", "0.0.0.0", "224.0.0.1", "255.255.255.255"} {
		if !covers(addr(s)) {
			t.Errorf("%s is not covered", s)
		}
	}
	for _, s := range []string{"8.8.8.8", "10.0.0.1", "127.0.0.1", "::1", "fe80::1", "ff02::1", "2001:db8::1", "64:ff9b::808:808"} {
		if covers(addr(s)) {
			t.Errorf("%s is covered", s)
		}
	}
	for _, p := range NeverPrefixes() {
		if c := Classify(p.Addr()); c < Loopback && p.Addr().Is4() || p != p.Masked() {
			t.Errorf("%v is %v", p, c)
		}
	}
}
