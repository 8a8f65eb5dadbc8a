package guard

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/agent-init/agent-init/internal/mustrun"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/sockowner"
)

// TestBeliever: in a sidecar the engine's server is believed as long as its sockets
// are those of the start.
func TestBeliever(t *testing.T) {
	f, err := sockowner.Open()
	if err != nil {
		mustrun.Lacks(t, "the kernel does not tell of sockets: %v", err)
	}
	defer f.Close()
	find := sockowner.NewFinder(f)
	here := netip.MustParseAddr("127.81.7.3") // where no other test has sockets, which would be listed too
	l, err := net.Listen("tcp", netip.AddrPortFrom(here, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	bound, err := find.At(here)
	if err != nil {
		t.Fatal(err)
	}
	var mine []sockowner.Bound
	for _, b := range bound {
		if b.At.String() == l.Addr().String() {
			mine = append(mine, b)
		}
	}
	if len(mine) != 1 {
		t.Fatalf("of %v, %v are at %v", bound, mine, l.Addr())
	}
	engine := policy.Upstream{Addr: netip.AddrPortFrom(policy.EngineDNS(), 53)}
	other := policy.Upstream{Addr: netip.MustParseAddrPort("192.0.2.1:53")}
	if err := believer(find, mine)(engine); err != nil {
		t.Error(err)
	}
	if err := believer(find, nil)(engine); !errors.Is(err, errOtherEngine) {
		t.Errorf("without a socket: %v", err)
	}
	l.Close()
	if err := believer(find, mine)(engine); !errors.Is(err, errOtherEngine) {
		t.Errorf("after its end: %v", err)
	}
	if err := believer(find, mine)(other); err != nil {
		t.Errorf("a server elsewhere: %v", err)
	}
}
