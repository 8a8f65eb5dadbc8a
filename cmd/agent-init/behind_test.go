package main

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/agent-init/agent-init/internal/fault"
)

// TestBehindPlan: what a self-test behind a gateway is told is read whole, or refused.
func TestBehindPlan(t *testing.T) {
	plan := func(gateway, reach, allowed []string) behind {
		return behind{gateway: given{items: gateway}, reach: given{items: reach}, allowed: given{items: allowed}}
	}
	list := func(s ...string) []string { return s }
	for name, b := range map[string]behind{
		"no name":           plan(list("172.30.5.2"), nil, nil),
		"no gateway":        plan(nil, list("ok.test"), nil),
		"allowed alone":     plan(nil, nil, list("example.com")),
		"a name as gateway": plan(list("gateway"), list("ok.test"), nil),
		"a zone":            plan(list("fe80::1%eth0"), list("ok.test"), nil),
		"a pattern":         plan(list("172.30.5.2"), list("*.ok.test"), nil),
		"a URL":             plan(list("172.30.5.2"), list("https://ok.test"), nil),
		"no port":           plan(list("172.30.5.2"), list("ok.test:"), nil),
		"port 0":            plan(list("172.30.5.2"), list("ok.test:0"), nil),
		"a port too large":  plan(list("172.30.5.2"), list("ok.test:65536"), nil),
	} {
		var f *fault.Fault
		if _, err := b.plan(); !errors.As(err, &f) || f.Code != fault.Usage {
			t.Errorf("%s: %v", name, err)
		}
	}
	b := plan(list("172.30.5.2", "fd00:5::2"), list("ok.test", "ok.test:80", "10.0.0.5:11434"), list("Example.com", "1.1.1.1", "2606:4700::/32"))
	p, err := b.plan()
	if err != nil || len(p.Missing()) > 0 {
		t.Fatal(err, p.Missing())
	}
	if got := fmt.Sprint(p.Gateways, p.Reach); got != "[172.30.5.2 fd00:5::2] [ok.test:443 ok.test:80 10.0.0.5:11434]" || !p.Reach[0].TLS || p.Reach[1].TLS {
		t.Errorf("%s", got)
	}
	tried := slices.Clone(p.Denied)
	for _, a := range slices.Concat(p.TCP, p.UDP) {
		tried = append(tried, a.Addr().String())
	}
	for _, a := range p.Ping {
		tried = append(tried, a.String())
	}
	for _, not := range []string{"example.com", "1.1.1.1", "2606:4700:4700::1111"} {
		if slices.Contains(tried, not) {
			t.Errorf("%s is tried, although it is allowed", not)
		}
	}
	if !slices.Contains(tried, "example.net") || !slices.Contains(tried, "8.8.8.8") || len(p.Metadata) == 0 {
		t.Errorf("tried are only %v", tried)
	}
}
