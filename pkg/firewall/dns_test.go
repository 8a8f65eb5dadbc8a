package firewall

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

// engine makes these NAT rules by a variant of iptables, or if that is "nftables",
// by nft(8). They come first in their chain, as the engine's do.
func engine(t testing.TB, variant string) {
	t.Helper()
	if variant == "nftables" {
		must(t, nftScript(t, engineRules))
		return
	}
	iptablesOf(t, variant, plan.IPv4, "-restore", `*nat
:DOCKER_OUTPUT - [0:0]
-I OUTPUT 1 -d 127.0.0.11/32 -j DOCKER_OUTPUT
-A DOCKER_OUTPUT -d 127.0.0.11/32 -p tcp -m tcp --dport 53 -j DNAT --to-destination 127.0.0.11:40053
-A DOCKER_OUTPUT -d 127.0.0.11/32 -p udp -m udp --dport 53 -j DNAT --to-destination 127.0.0.11:40053
COMMIT
`, "--noflush", "-w")
}

// engineRules are the NAT rules that a container engine makes for its DNS.
const engineRules = `table ip nat {
	chain DOCKER_OUTPUT {
		ip daddr 127.0.0.11 tcp dport 53 dnat to 127.0.0.11:40053
		ip daddr 127.0.0.11 udp dport 53 dnat to 127.0.0.11:40053
	}
	chain OUTPUT {
		type nat hook output priority -100; policy accept;
		ip daddr 127.0.0.11 jump DOCKER_OUTPUT
	}
}
`

// E19: port 53 of any address is the guard's, whoever's NAT rules came first;
// only the guard reaches the engine's DNS, on whatever port it is.
func TestKernelDNSRedirect(t *testing.T) {
	if !onBackends(t) {
		return
	}
	ctx := context.Background()
	l := newLab(t)
	l.serve(53)
	l.serve(443)
	echo(t, netip.MustParseAddrPort("127.0.0.1:4053"), "guard ")
	echo(t, netip.MustParseAddrPort("[::1]:6053"), "guard ")
	echo(t, netip.MustParseAddrPort("127.0.0.11:40053"), "engine ")
	engineAt := netip.MustParseAddrPort("127.0.0.11:53")
	var f *Firewall
	c := Config{
		GuardUID: guardUID, GuardGID: guardGID, DNSPort4: 4053, DNSPort6: 6053, DropGroup: group,
		Upstreams: []netip.AddrPort{engineAt, at(other4, 53), at(other6, 53)},
		// An entry for port 53 changes nothing.
		Allow: []Entry{{Prefix: single(far4), Proto: unix.IPPROTO_UDP, Port: 53}, {Prefix: single(far4), Proto: unix.IPPROTO_TCP, Port: 443}},
	}
	check := func(t *testing.T) {
		t.Helper()
		if backendInUse() != "nftables" { // where root may ask for a while after the guard
			wayEnds(t, f)
			l.forget()
		}
		must(t, f.Lease(ctx, []Lease{leaseOf(far6, unix.IPPROTO_UDP, 53, time.Minute)}))
		for _, network := range []string{"udp", "tcp"} {
			for _, uid := range []int{0, agentUID} {
				for _, ap := range []netip.AddrPort{
					engineAt, at(far4, 53), at(far6, 53), at(other4, 53), at(other6, 53), at(near4, 53),
					netip.MustParseAddrPort("8.8.8.8:53"), netip.MustParseAddrPort("[2001:4860:4860::8888]:53"),
					netip.MustParseAddrPort("169.254.169.254:53"), netip.MustParseAddrPort("127.0.0.53:53"),
				} {
					if got, err := ask(network, ap, uid, "q"); got != "guard q" {
						t.Errorf("%s %v as uid %d: answer %q, %v", network, ap, uid, got, err)
					}
				}
				refused(t, network, netip.MustParseAddrPort("127.0.0.11:40053"), uid)
				refused(t, network, netip.MustParseAddrPort("127.0.0.11:443"), uid)
			}
			if got, err := ask(network, engineAt, guardUID, "q"); got != "engine q" {
				t.Errorf("%s %v as the guard: answer %q, %v", network, engineAt, got, err)
			}
			reached(t, network, at(other4, 53), guardUID)
			reached(t, network, at(other6, 53), guardUID)
			refused(t, network, at(other4, 443), guardUID)
			refused(t, network, netip.MustParseAddrPort("8.8.8.8:53"), guardUID)
			// Those that don't go out by the guard's uid have gone nowhere.
			refused(t, network, at(other6, 443), agentUID)
		}
		refused(t, "tcp", at(far4, 53), guardUID)
		reached(t, "tcp", at(far4, 443), guardUID)
	}
	engine(t, enginesVariant())
	f = open(t, Options{})
	apply(t, f, c)
	t.Run("engine first", check)
	if backendInUse() == "nftables" {
		must(t, nftScript(t, "delete table ip nat\n"+engineRules))
	} else {
		// The engine's come ahead of ours, until that is noticed: then names
		// can't be asked for, by anyone but the guard.
		iptables(t, plan.IPv4, "-t", "nat", "-D", "OUTPUT", "-d", "127.0.0.11", "-j", "DOCKER_OUTPUT")
		iptables(t, plan.IPv4, "-t", "nat", "-F", "DOCKER_OUTPUT")
		engine(t, enginesVariant())
		refused(t, "udp", engineAt, agentUID)
		refused(t, "tcp", engineAt, 0)
		if err := f.Verify(ctx); err == nil {
			t.Error("verified with the engine's rules ahead")
		}
		must(t, f.Repair(ctx))
		must(t, f.FlushConntrack(ctx))
		must(t, f.Verify(ctx))
	}
	t.Run("engine last", check)
	for _, p := range l.wire.arrived("") {
		if p.dst.Port() == 53 && p.dst.Addr() != other4 && p.dst.Addr() != other6 {
			t.Errorf("arrived: protocol %d to %v", p.proto, p.dst)
		}
	}

	// Without a listener, port 53 is refused, and without the engine among
	// the upstreams, the guard doesn't reach it either.
	c.DNSPort4, c.DNSPort6, c.Upstreams = 0, 0, nil
	apply(t, f, c)
	must(t, f.FlushConntrack(ctx))
	for _, network := range []string{"udp", "tcp"} {
		for _, uid := range []int{0, agentUID, guardUID} {
			for _, ap := range []netip.AddrPort{engineAt, netip.MustParseAddrPort("127.0.0.11:40053"), at(far4, 53), at(far6, 53)} {
				refused(t, network, ap, uid)
			}
		}
	}
}

// wayEnds waits until root's questions are the guard's again: with iptables, the
// way is open for a while after each question of the guard.
func wayEnds(t *testing.T, f *Firewall) {
	t.Helper()
	eventually(t, "the end of the way for root", func() bool {
		// Else a question could come from a port that one of before had, and be
		// part of its flow.
		must(t, f.FlushConntrack(context.Background()))
		got, _ := ask("udp", at(far4, 53), 0, "early")
		return got == "guard early"
	})
	must(t, f.FlushConntrack(context.Background()))
}

// enginesVariant is what the engine makes its rules with, on the host: here in the tables of the backend in use.
func enginesVariant() string {
	if backendInUse() == "nftables" {
		return "nftables"
	}
	return "legacy"
}

// Docker's daemon passes the guard's questions on from within this namespace, as
// root: those pass, and no others of root, nor any of the agent.
func TestKernelEngineForwards(t *testing.T) {
	if !onBackends(t) {
		return
	}
	l := newLab(t)
	l.serve(53)
	l.serve(443)
	echo(t, netip.MustParseAddrPort("127.0.0.1:4053"), "guard ")
	echo(t, netip.MustParseAddrPort("[::1]:6053"), "guard ")
	echo(t, netip.MustParseAddrPort("127.0.0.11:40053"), "engine ")
	engineAt := netip.MustParseAddrPort("127.0.0.11:53")
	engine(t, enginesVariant())
	f := open(t, Options{})
	c := Config{GuardUID: guardUID, GuardGID: guardGID, DNSPort4: 4053, DNSPort6: 6053, DropGroup: group, Upstreams: []netip.AddrPort{engineAt}}
	apply(t, f, c)

	mine := func(uid int, ap netip.AddrPort, msg string) bool {
		t.Helper()
		got, err := ask("udp", ap, uid, msg)
		if err != nil {
			t.Fatalf("uid %d %v: %v", uid, ap, err)
		}
		return got == "guard "+msg
	}
	if got, err := ask("udp", engineAt, guardUID, "AB question"); got != "engine AB question" {
		t.Fatalf("the guard got %q, %v", got, err)
	}
	for _, ap := range []netip.AddrPort{at(far4, 53), at(far6, 53)} {
		// iptables knows no identifiers, and no IPv6 here: see xtRenderer.asked.
		weak := backendInUse() != "nftables"
		if mine(0, ap, "AB question") != (weak && ap.Addr().Is6()) {
			t.Errorf("%v: what the engine passes on came back to the guard", ap)
		}
		if !mine(agentUID, ap, "AB question") {
			t.Errorf("%v: the agent got through with the guard's identifier", ap)
		}
		refused(t, "udp", at(ap.Addr(), 443), 0)
	}
	// Root's own questions to the engine are no guesses; one with another identifier
	// is, and ends it for all of them.
	if backendInUse() == "nftables" {
		if !mine(0, engineAt, "AD question") || mine(0, at(far4, 53), "AB question") {
			t.Error("a question to the engine was taken for a guess")
		}
		must(t, f.FlushConntrack(context.Background()))
		if !mine(0, at(far4, 53), "AC question") {
			t.Error("root got through with another identifier")
		}
		for _, ap := range []netip.AddrPort{at(far4, 53), at(far6, 53)} {
			if !mine(0, ap, "AB question") {
				t.Errorf("%v: root got through after a guess", ap)
			}
		}
	}
	// Another uid's question to the engine is no question of the guard's.
	if backendInUse() != "nftables" {
		wayEnds(t, f)
	}
	if !mine(agentUID, engineAt, "XY question") || !mine(0, at(far4, 53), "XY question") {
		t.Error("the agent opened the way for root")
	}
	must(t, f.Verify(context.Background()))
	for _, p := range l.wire.arrived("AC question") {
		t.Errorf("arrived: %v", p.dst)
	}

	// Without the engine among the upstreams there is no such way.
	c.Upstreams = []netip.AddrPort{at(other4, 53)}
	apply(t, f, c)
	if _, err := ask("udp", at(other4, 53), guardUID, "ZZ question"); err != nil {
		t.Fatal(err)
	}
	if !mine(0, at(far4, 53), "ZZ question") {
		t.Error("root got through without an engine")
	}
}

// Flows of loopback and the engine's DNS survive FlushConntrack; others end
// up at today's rules.
func TestKernelFlushConntrack(t *testing.T) {
	if !onBackends(t) {
		return
	}
	ctx := context.Background()
	l := newLab(t)
	l.serve(443)
	must(t, nftScript(t, engineRules))
	echo(t, netip.MustParseAddrPort("127.0.0.11:40053"), "")
	echo(t, netip.MustParseAddrPort("127.0.0.1:8000"), "")
	for _, ap := range []string{"127.0.0.11:53", "127.0.0.1:8000"} {
		must(t, reach("udp", netip.MustParseAddrPort(ap), agentUID))
	}
	must(t, reach("udp", at(far4, 443), agentUID))
	must(t, reach("tcp", at(far6, 443), agentUID))
	f := open(t, Options{})
	must(t, f.FlushConntrack(ctx))
	want := map[Element]bool{
		{Addr: netip.MustParseAddr("127.0.0.11"), Proto: unix.IPPROTO_UDP, Port: 53}:  true,
		{Addr: netip.MustParseAddr("127.0.0.1"), Proto: unix.IPPROTO_UDP, Port: 8000}: true,
	}
	fs := flowsOf(t, f)
	// The last segments of a connection that ends begin a flow anew where, as
	// here, nothing is sealed.
	if slices.Contains(fs, Element{Addr: far6, Proto: unix.IPPROTO_TCP, Port: 443}) {
		eventually(t, "no more segments", func() bool {
			must(t, f.FlushConntrack(ctx))
			fs = flowsOf(t, f)
			return !slices.Contains(fs, Element{Addr: far6, Proto: unix.IPPROTO_TCP, Port: 443})
		})
	}
	for _, e := range fs {
		if !want[e] {
			t.Errorf("a flow to %v lives on", e)
		}
		delete(want, e)
	}
	if len(want) > 0 {
		t.Errorf("flows to %v are gone", want)
	}
}

// flowsOf are the destinations of all flows that the kernel tracks.
func flowsOf(t *testing.T, f *Firewall) (out []Element) {
	t.Helper()
	must(t, eachFlow(func(fl flow) error {
		out = append(out, fl.dst)
		return nil
	}))
	return out
}
