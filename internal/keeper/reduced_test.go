package keeper

import (
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/lease"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/firewall"
	"github.com/agent-init/agent-init/pkg/policy"
)

func TestReducible(t *testing.T) {
	fine := parseList(t, "ok.test\ngithub.com:22\n10.0.0.0/8:5432\n!ntp.test:123/udp\n!10.1.0.0/16")
	if err := reducible(fine); err != nil {
		t.Errorf("refused: %v", err)
	}
	for _, line := range []string{"ntp.test:123/udp private", "10.0.0.1:123/udp", "*.ntp.test:123/udp"} {
		err := reducible(parseList(t, "ok.test\n"+line))
		if err == nil {
			t.Errorf("%s: not refused", line)
			continue
		}
		entry := strings.Fields(line)[0]
		if !strings.Contains(err.Error(), entry) || !strings.Contains(err.Error(), ":2: ") {
			t.Errorf("the error does not say which entry of which line: %v", err)
		}
	}
	if err := reducible(parsePolicy(t, "inbound: [\"53/udp\", 3000]\n")); err == nil || !strings.Contains(err.Error(), "53/udp") || strings.Contains(err.Error(), "3000") {
		t.Errorf("inbound: %v", err)
	}
}

func TestGatedPorts(t *testing.T) {
	p := parseList(t, "ok.test\ngithub.com:22\n*.git.test:9418\n!evil.test:25\n10.0.0.0/8:5432\n[2001:db8::]/32:5433\n192.0.2.1:5434")
	if got, want := gatedPorts(p), []uint16{22, 80, 443, 9418}; !slices.Equal(got, want) {
		t.Errorf("of names: %v, want %v", got, want)
	}
	if got, want := relayedPorts(p), []uint16{22, 80, 443, 5432, 5433, 5434, 9418}; !slices.Equal(got, want) {
		t.Errorf("all: %v, want %v", got, want)
	}
}

// The keeper judges by its own policy and its own book.
func TestDirect(t *testing.T) {
	p := parseList(t, "github.com:22\nok.test\n10.0.0.0/8:5432\n!10.9.0.0/16")
	k := &leases{book: newBook(nil, p), books: lease.NewBooks(p, &wire.Edition{Uint64: new(atomic.Uint64)})}
	addr := netip.MustParseAddr("192.0.2.1")
	k.books.Of(firewall.Agent).Lease("github.com", []netip.Addr{addr}, lease.MaxLease)
	k.books.Of(firewall.Agent).Lease("ok.test", []netip.Addr{addr}, lease.MaxLease)
	for _, tt := range []struct {
		to   string
		ok   bool
		name string
	}{
		{"192.0.2.1:22", true, "github.com"},
		{"192.0.2.1:443", true, "ok.test"},
		{"192.0.2.1:23", false, ""},
		{"192.0.2.2:22", false, ""},
		{"10.1.2.3:5432", true, ""},
		{"10.1.2.3:22", false, ""},
		{"10.9.2.3:5432", false, ""},
		{"127.0.0.1:22", false, ""},
		{"169.254.169.254:80", false, ""},
	} {
		to := netip.MustParseAddrPort(tt.to)
		r := k.direct(wire.Message{Addrs: []netip.Addr{to.Addr()}, Port: to.Port()}, wire.Message{Op: wire.OpDirect, ID: 7})
		if r.Op != wire.OpDirect || r.ID != 7 || r.Err == tt.ok || r.Name != tt.name {
			t.Errorf("%s: %+v, want %v %q", tt.to, r, tt.ok, tt.name)
		}
	}
	if r := k.direct(wire.Message{Port: 5432}, wire.Message{}); !r.Err {
		t.Error("a question without an address got a yes")
	}
	k.books.Begin(parseList(t, "ok.test"))
	if r := k.direct(wire.Message{Addrs: []netip.Addr{addr}, Port: 22}, wire.Message{}); !r.Err {
		t.Error("a revoked lease still opens")
	}
	if got := k.books.Of(firewall.Agent).Holder(firewall.Element{Addr: addr, Proto: 6, Port: 443}); got != "ok.test" {
		t.Errorf("the other name lost its lease: %q", got)
	}
}

func parseList(t *testing.T, text string) *policy.Policy {
	t.Helper()
	p, err := policy.Parse(&policy.Bundle{Files: []policy.File{{Name: "allowlist.txt", Data: []byte(text)}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestReducedInspected: nor are there inspected names.
func TestReducedInspected(t *testing.T) {
	p := parseList(t, "ok.test\napi.test GET /open/**")
	for _, r := range []*rules{{reduced: true}, {}} {
		_, err := r.plan(&inForce{policy: p})
		f, ok := errors.AsType[*fault.Fault](err)
		if !ok || f.Code != fault.Policy || !strings.Contains(f.Error(), "api.test:443") || f.Remedy == "" || r.reduced != strings.Contains(f.Error(), "gVisor") {
			t.Errorf("reduced %v: %v", r.reduced, err)
		}
	}
	with := &rules{broker: identity{uid: 64901}}
	if err := with.inspectable(p.Settings.Inspected); err != nil {
		t.Error(err)
	}
}

// TestReducedRoutes: where nothing can tell the broker's connections, a route is refused with what to do, and an optional
// one is absent and says why.
func TestReducedRoutes(t *testing.T) {
	read := func(text string) (*policy.Policy, *credentials, error) {
		b := &base{publisher: &publisher{log: slog.New(slog.DiscardHandler)}, config: Config{Environ: map[string]string{"KEY": "sk-ant-1234567890"}}}
		c := newCredentials(b, insideGVisor)
		p, err := new(policy.Policy).NextWith(&policy.Bundle{Files: []policy.File{{Name: "policy.yaml", Data: []byte(text)}}}, nil, c.absent)
		return p, c, err
	}
	_, c, err := read("domains: [ok.test]\nbroker:\n  anthropic: {credential: 'env:KEY'}\n")
	if err == nil || !strings.Contains(err.Error(), "policy.yaml:3:") || !strings.Contains(err.Error(), "gVisor") || !strings.Contains(c.remedy(), "another runtime") {
		t.Errorf("%v; %s", err, c.remedy())
	}
	p, c, err := read("domains: [ok.test]\nbroker:\n  anthropic: {credential: 'env:KEY', optional: true}\n")
	if err != nil || p.Broker != nil || !slices.Equal(p.AbsentRoutes, []string{"anthropic"}) || !strings.Contains(c.why["anthropic"], "gVisor") {
		t.Errorf("%v, %+v, %v", err, p, c.why)
	}
}
