package attack

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab"
)

// TestGatewayTwo: two gateways side by side, each with a policy and an agent of its own. Neither agent reaches what
// only the other's policy allows, not even while it is leased there, and neither reaches the other gateway or the agent
// behind it. What is granted or denied at one gateway changes nothing at the other.
func TestGatewayTwo(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	type side struct {
		*kept
		name  string
		fixed netip.AddrPort
	}
	alpha := &side{keptIn(t, l, "ok.test\nok.test:8444\n45.30.9.9:8443\n"), "ok.test", netip.MustParseAddrPort("45.30.9.9:8443")}
	beta := &side{keptIn(t, l, "ok2.test\nok2.test:8444\n45.30.9.10:8443\n"), "ok2.test", netip.MustParseAddrPort("45.30.9.10:8443")}
	for _, x := range []*side{alpha, beta} {
		addr4, addr6 := named(x.name)
		x.works("http", "https://"+x.name+"/")
		x.works("tcp", "-send", "hello", at(addr4, 8444))
		x.works("tcp", "-send", "hello", at(addr6, 8444))
		x.works("tcp", "-send", "hello", x.fixed.String())
	}
	// Each has its own leased and open now.
	for _, pair := range [][2]*side{{alpha, beta}, {beta, alpha}} {
		x, other := pair[0], pair[1]
		if leases := x.root("cat", "/run/agent-init/leases.json").Stdout; !strings.Contains(leases, `"`+x.name+`"`) || strings.Contains(leases, `"`+other.name+`"`) {
			t.Errorf("the leases of who has %s: %s", x.name, leases)
		}
		x.box.ForgetPackets()
		other4, other6 := named(other.name)
		x.blocked("resolve", other.name)
		for _, target := range []string{
			at(other4, 443), at(other6, 443), at(other4, 8444), at(other6, 8444), other.fixed.String(),
			at(other.box.Addr4(), 443), at(other.box.Inside4(), 443), at(other.box.Inside6(), 443), at(other.agent.Addr4(), 22),
		} {
			if p := x.blocked("tcp", target); !refusedAtOnce(p.Errno) {
				t.Errorf("%s: not refused at once: %s", target, p)
			}
		}
		for _, dns := range []netip.Addr{other.box.Addr4(), other.box.Inside4()} { // it is the own gateway that answers
			x.blocked("dns", at(dns, 53), other.name, "A")
		}
		for _, to := range []netip.Addr{other4, other6, other.fixed.Addr(), other.box.Addr4(), other.box.Inside4(), other.box.Inside6(), other.agent.Addr4()} {
			if got := x.escaped(lab.ToAddr(to.String())); len(got) > 0 {
				t.Errorf("%d packets got to what is the other's, the first of them %s", len(got), got[0])
			}
		}
	}
	beta.did("allow", "--for", "10m", alpha.name)
	beta.works("http", "https://"+alpha.name+"/")
	if out := alpha.did("grants"); strings.Contains(out, alpha.name) {
		t.Errorf("a grant of the other gateway's: %s", out)
	}
	alpha.did("deny", alpha.name)
	alpha.blocked("http", "https://"+alpha.name+"/")
	beta.works("http", "https://"+alpha.name+"/")
	for _, x := range []*side{alpha, beta} {
		if s, code := x.status(); code != 0 {
			t.Errorf("not healthy: %v", s["why"])
		}
	}
}
