package keeper

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// TestInsideOf: which interface and which networks words lead to.
func TestInsideOf(t *testing.T) {
	p := netip.MustParsePrefix
	links := []link{
		{"eth0", 2, []netip.Prefix{p("10.0.0.2/24"), p("2001:db8::2/64")}},
		{"eth1", 3, []netip.Prefix{p("172.30.5.2/24"), p("172.30.5.9/24"), p("fd00:5::2/64")}},
		{"eth2", 4, nil},
	}
	for words, want := range map[string]string{
		"eth1":                      "3 [172.30.5.0/24 fd00:5::/64] [172.30.5.2 fd00:5::2]",
		"172.30.5.0/24":             "3 [172.30.5.0/24] [172.30.5.2]",
		"172.30.5.0/24 fd00:5::/64": "3 [172.30.5.0/24 fd00:5::/64] [172.30.5.2 fd00:5::2]",
		"172.30.0.0/16":             "3 [172.30.0.0/16] [172.30.5.2]",
		"172.30.5.77/24":            "3 [172.30.5.0/24] [172.30.5.2]",
		"eth1 172.30.5.0/24":        "3 [172.30.5.0/24 fd00:5::/64] [172.30.5.2 fd00:5::2]",
		"eth0":                      "2 [10.0.0.0/24 2001:db8::/64] [10.0.0.2 2001:db8::2]",
		"eth2":                      "error: eth2 has no address",
		"eth9":                      "error: there is no interface eth9",
		"192.168.0.0/16":            "error: no interface has an address in 192.168.0.0/16",
		"172.30.5.2":                "error: there is no interface 172.30.5.2",
		"eth1 eth0":                 "error: eth1 and eth0 are behind two interfaces, and a gateway has the agents of one",
		"172.30.5.0/24 10.0.0.0/8":  "error: eth1 and eth0 are behind two interfaces, and a gateway has the agents of one",
		"":                          "error: nothing is named",
	} {
		in, err := insideOf(links, strings.Fields(words))
		got := fmt.Sprintf("error: %v", err)
		if err == nil {
			got = fmt.Sprint(in.link, " ", in.networks, " ", in.own)
		}
		if got != want {
			t.Errorf("%q: %s, want %s", words, got, want)
		}
	}
}

// TestInsideAnswers: only where nothing is forwarded are names answered with the gateway's own addresses.
func TestInsideAnswers(t *testing.T) {
	own := addrs("172.30.5.2")
	if a := (&inside{own: own, onward: true}).answers(); a != nil {
		t.Errorf("a route's names are answered with %v", a)
	}
	if a := (&inside{own: own}).answers(); len(a) != 1 {
		t.Errorf("names are answered with %v", a)
	}
	var none *inside
	if none.answers() != nil || none.hosts() != nil || none.plan(nil, nil, nil).Link != 0 || none.forward() != nil {
		t.Error("what is no gateway has something of one")
	}
}
