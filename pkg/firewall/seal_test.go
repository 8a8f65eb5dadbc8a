package firewall

import (
	"context"
	"net/netip"
	"os/exec"
	"testing"
)

func TestKernelSeal(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	l := newLab(t)
	l.serve(443)
	for _, a := range []netip.Addr{far4, far6, other4, other6} {
		must(t, reach("tcp", netip.AddrPortFrom(a, 443), agentUID))
		must(t, reach("udp", netip.AddrPortFrom(a, 443), agentUID))
	}
	f := open(t, Options{})
	must(t, f.Seal(context.Background()))
	out, _ := exec.Command("nft", "list", "ruleset").CombinedOutput()
	t.Logf("%s", out)
	apply(t, f, Config{DropGroup: 5, DNSPort4: 4000, Allow: []Entry{{netip.MustParsePrefix("10.0.0.0/8"), 6, 443}}})
	out, _ = exec.Command("nft", "list", "ruleset").CombinedOutput()
	t.Logf("%s", out)
	must(t, f.Verify(context.Background()))
}
