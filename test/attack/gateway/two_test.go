package gateway

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// TestGatewayTwo: two gateways side by side, each with a policy and an agent of its own. Neither agent reaches what
// only the other's policy allows, not even while it is leased there, and neither reaches the other gateway or the agent
// behind it. What is granted or denied at one gateway changes nothing at the other.
func TestGatewayTwo(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	type side struct {
		*rig.Kept
		name  string
		fixed netip.AddrPort
	}
	alpha := &side{keptIn(t, l, "ok.test\nok.test:8444\n45.30.9.9:8443\n"), "ok.test", netip.MustParseAddrPort("45.30.9.9:8443")}
	beta := &side{keptIn(t, l, "ok2.test\nok2.test:8444\n45.30.9.10:8443\n"), "ok2.test", netip.MustParseAddrPort("45.30.9.10:8443")}
	for _, x := range []*side{alpha, beta} {
		addr4, addr6 := rig.Named(x.name)
		x.Works("http", "https://"+x.name+"/")
		x.Works("tcp", "-send", "hello", rig.At(addr4, 8444))
		x.Works("tcp", "-send", "hello", rig.At(addr6, 8444))
		x.Works("tcp", "-send", "hello", x.fixed.String())
	}
	// Each has its own leased and open now.
	for _, pair := range [][2]*side{{alpha, beta}, {beta, alpha}} {
		x, other := pair[0], pair[1]
		if leases := x.Root("cat", "/run/agent-init/leases.json").Stdout; !strings.Contains(leases, `"`+x.name+`"`) || strings.Contains(leases, `"`+other.name+`"`) {
			t.Errorf("the leases of who has %s: %s", x.name, leases)
		}
		x.Box.ForgetPackets()
		other4, other6 := rig.Named(other.name)
		x.Blocked("resolve", other.name)
		for _, target := range []string{
			rig.At(other4, 443), rig.At(other6, 443), rig.At(other4, 8444), rig.At(other6, 8444), other.fixed.String(),
			rig.At(other.Box.Addr4(), 443), rig.At(other.Box.Inside4(), 443), rig.At(other.Box.Inside6(), 443), rig.At(other.Agent.Addr4(), 22),
		} {
			if p := x.Blocked("tcp", target); !rig.RefusedAtOnce(p.Errno) {
				t.Errorf("%s: not refused at once: %s", target, p)
			}
		}
		for _, dns := range []netip.Addr{other.Box.Addr4(), other.Box.Inside4()} { // it is the own gateway that answers
			x.Blocked("dns", rig.At(dns, 53), other.name, "A")
		}
		for _, to := range []netip.Addr{other4, other6, other.fixed.Addr(), other.Box.Addr4(), other.Box.Inside4(), other.Box.Inside6(), other.Agent.Addr4()} {
			if got := escaped(x.Kept, lab.ToAddr(to.String())); len(got) > 0 {
				t.Errorf("%d packets got to what is the other's, the first of them %s", len(got), got[0])
			}
		}
	}
	beta.Did("allow", "--for", "10m", alpha.name)
	beta.Works("http", "https://"+alpha.name+"/")
	if out := alpha.Did("grants"); strings.Contains(out, alpha.name) {
		t.Errorf("a grant of the other gateway's: %s", out)
	}
	alpha.Did("deny", alpha.name)
	alpha.Blocked("http", "https://"+alpha.name+"/")
	beta.Works("http", "https://"+alpha.name+"/")
	for _, x := range []*side{alpha, beta} {
		if s, code := x.Status(); code != 0 {
			t.Errorf("not healthy: %v", s["why"])
		}
	}
}
