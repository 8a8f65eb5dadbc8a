package xtables

import (
	"net/netip"
	"testing"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Addresses that nobody has.
var far4, far6, other6 = netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8:7::7")

// ipsetNameMax is the longest name that a set can have: IPSET_MAXNAMELEN of
// ip_set.h, less the zero at its end.
const ipsetNameMax = 31
