package firewall

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/mustrun"
	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

// A restart with another backend leaves nothing of the first, and lets nothing
// through that is denied: here under a flood of both kinds, for every pair.
func TestKernelSwitchBackend(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	ctx := context.Background()
	l := newLab(t)
	l.serve(443)
	l.serve(9)
	c := Config{DropGroup: group, GatePort4: 1, DNSPort4: 2,
		Allow: []Entry{{Prefix: single(other4), Proto: unix.IPPROTO_UDP, Port: 443}, {Prefix: single(other6), Proto: unix.IPPROTO_UDP, Port: 443}}, Deny: []Entry{{Prefix: single(far4)}}}

	stop := make(chan struct{})
	var wg sync.WaitGroup
	flood := func(ap netip.AddrPort) {
		conn, err := net.Dial("udp", ap.String())
		must(t, err)
		wg.Go(func() {
			defer conn.Close()
			for n := uint32(0); ; n++ {
				select {
				case <-stop:
					return
				case <-time.After(100 * time.Microsecond):
				}
				conn.Write(binary.BigEndian.AppendUint32([]byte("flood"), n))
			}
		})
	}
	var first *Firewall
	names := []string{"nftables", "xtables-legacy", "nftables", "xtables-legacy", "xtables-legacy", "nftables", "nftables"}
	for i, name := range names {
		f := open(t, Options{Backend: name})
		must(t, f.Seal(ctx))
		if i == 0 {
			for _, a := range []netip.Addr{far4, far6} {
				flood(at(a, 9))
				flood(at(a, 443))
			}
			for _, a := range []netip.Addr{other4, other6} {
				flood(at(a, 443))
				flood(at(a, 9))
			}
		}
		apply(t, f, c, leaseOf(other4, unix.IPPROTO_TCP, 443, time.Hour))
		must(t, f.Verify(ctx))
		if f.Backend != name {
			t.Errorf("the backend is %s, not %s", f.Backend, name)
		}
		if first != nil {
			first.Close()
		}
		first = f
		reached(t, "tcp", at(other4, 443), agentUID)
		reached(t, "udp", at(other6, 443), agentUID)
		leftovers(t, name)
		if t.Failed() {
			t.Fatalf("with %s after %q", name, names[:i])
		}
	}
	close(stop)
	wg.Wait()
	l.settle()
	passed := 0
	for _, p := range l.wire.arrived("flood") {
		if p.dst != at(other4, 443) && p.dst != at(other6, 443) {
			t.Fatalf("a denied packet to %v arrived", p.dst)
		}
		passed++
	}
	if passed == 0 {
		t.Error("nothing arrived at all")
	}
}

// leftovers fails the test if rules of another backend than name are there.
func leftovers(t *testing.T, name string) {
	t.Helper()
	out, err := exec.Command("nft", "list", "tables").Output()
	must(t, err)
	if got := strings.Contains(string(out), "table inet agent-init"); got != (name == "nftables") {
		t.Errorf("%s: nft has:\n%s", name, out)
	}
	for _, v := range []string{"nft", "legacy"} {
		for _, f := range []plan.Family{plan.IPv4, plan.IPv6} {
			out := iptablesOf(t, v, f, "-save", "")
			ours := name == "xtables-"+v
			if strings.Contains(out, prefixXT) != ours || strings.Contains(out, "OUTPUT DROP") != ours {
				t.Errorf("%s: iptables-%s has:\n%s", name, v, out)
			}
		}
	}
	if got := strings.Contains(ipsetCommand(t, "list", "-n"), prefixXT); got != (name != "nftables") {
		t.Errorf("%s: ipset has:\n%s", name, ipsetCommand(t, "list", "-n"))
	}
}

// Ours win over the engine's rules, be those in the same tables or in those of iptables on nf_tables, as long as ours
// came last; and the engine's never win.
func TestKernelXTBesideEngine(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	ctx := context.Background()
	newLab(t)
	echo(t, netip.MustParseAddrPort("127.0.0.1:4053"), "guard ")
	echo(t, netip.MustParseAddrPort("127.0.0.11:40053"), "engine ")
	c := Config{GuardUID: guardUID, GuardGID: guardGID, DNSPort4: 4053, Upstreams: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.11:53")}}
	check := func(what, want string) {
		t.Helper()
		for _, network := range []string{"udp", "tcp"} {
			if got, err := ask(network, netip.MustParseAddrPort("127.0.0.11:53"), agentUID, "q"); got != want {
				t.Errorf("%s, %s: the agent got %q, %v; want %q", what, network, got, err, want)
			}
		}
	}
	for _, v := range []string{"nft", "legacy"} {
		engine(t, v)
		check(v, "engine q")
		f := open(t, Options{Backend: "xtables"})
		if f.Backend != "xtables-legacy" || !strings.HasSuffix(f.Why, " (legacy): it was asked for") {
			t.Errorf("%s (%s)", f.Backend, f.Why)
		}
		must(t, f.Seal(ctx))
		apply(t, f, c)
		must(t, f.FlushConntrack(ctx))
		check(v, "guard q")
		// An engine that attaches the container to another network puts its rules first again.
		if engine(t, v); v == "legacy" {
			must(t, f.Repair(ctx))
		}
		must(t, f.FlushConntrack(ctx))
		check(v+", again", "guard q")
		apply(t, open(t, Options{Backend: "nftables"}), c)
		iptablesOf(t, v, plan.IPv4, "", "", "-t", "nat", "-F")
		iptablesOf(t, v, plan.IPv4, "", "", "-t", "nat", "-X")
		must(t, nftScript(t, "delete table inet agent-init"))
	}
}

// Rules of an earlier agent-init, over iptables on nf_tables, that nothing here can remove: all stays closed, and it is
// said.
func TestKernelRulesLeft(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	ctx := context.Background()
	l := newLab(t)
	l.serve(443)
	ipsetCommand(t, "create", prefixXT+"lease4", "hash:ip,port", "timeout", "60")
	iptablesOf(t, "nft", plan.IPv4, "", "", "-A", "OUTPUT", "-m", "set", "--match-set", prefixXT+"lease4", "dst,dst", "-j", "ACCEPT")
	f := open(t, Options{Backend: "auto", Seal: true})
	p, err := NewPlan(Config{GuardUID: guardUID, GuardGID: guardGID, Allow: []Entry{{Prefix: single(other4), Proto: unix.IPPROTO_TCP, Port: 443}}})
	must(t, err)
	if err := f.Apply(ctx, p, nil); !errors.Is(err, ErrLeft) || !strings.Contains(err.Error(), prefixXT+"lease4") {
		t.Errorf("%s: %v", f.Backend, err)
	}
	refused(t, "tcp", at(far4, 443), agentUID)
}

// ipsetCommand runs ipset(8), as someone else would.
func ipsetCommand(t testing.TB, args ...string) string {
	t.Helper()
	out, err := exec.Command("ipset", args...).CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		mustrun.Lacks(t, "needs ipset(8)")
	}
	if err != nil {
		t.Fatalf("ipset %v: %v: %s", args, err, out)
	}
	return string(out)
}

// prefixXT is what the names of our chains and sets of iptables begin with.
const prefixXT = "agent-init-"
