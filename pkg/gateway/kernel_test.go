package gateway

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/mustrun"
	"github.com/agent-init/agent-init/internal/netns"
	"github.com/agent-init/agent-init/pkg/audit"
)

func run(t testing.TB, stdin string, args ...string) {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// TestKernelOriginalDestination has the kernel redirect connections, IPv4 and
// IPv6, TCP and MPTCP clients, and makes some to the gate itself.
func TestKernelOriginalDestination(t *testing.T) {
	mustrun.Tool(t, "nft")
	netns.Enter(t)
	run(t, "", "ip", "link", "set", "lo", "up")
	run(t, "", "ip", "addr", "add", "198.51.100.1/32", "dev", "lo")
	run(t, "", "ip", "addr", "add", "2001:db8:1::1/128", "dev", "lo", "nodad")
	run(t, "", "ip", "route", "add", "192.0.2.0/24", "dev", "lo", "src", "198.51.100.1")
	run(t, "", "ip", "route", "add", "2001:db8::/64", "dev", "lo", "src", "2001:db8:1::1")

	site6 := netip.MustParseAddr("2001:db8::1")
	upstream := make(chan netip.AddrPort, 16)
	r := newRig(t, func(c *settings) {
		c.original = OriginalDestination
		c.LeasedTo = func(_ context.Context, _ string, a netip.AddrPort) (bool, error) {
			return a.Addr() == site || a.Addr() == site6, nil
		}
		// The servers are outside of the namespace.
		outside := c.dial
		c.dial = func(ctx context.Context, to netip.AddrPort) (*net.TCPConn, error) {
			upstream <- to
			return outside(ctx, siteTLS)
		}
	})
	var lc net.ListenConfig
	lc.SetMultipathTCP(false)
	var ports []int
	var listeners []net.Listener
	for _, a := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := lc.Listen(context.Background(), "tcp", a)
		if err != nil {
			t.Fatal(err)
		}
		listeners = append(listeners, l)
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	gate, err := New(r.Server.config)
	if err != nil {
		t.Fatal(err)
	}
	gate.dial = r.Server.dial
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- gate.Serve(ctx, listeners) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	run(t, fmt.Sprintf(`table inet test {
		chain out {
			type nat hook output priority -100;
			ip daddr 192.0.2.0/24 tcp dport 443 redirect to :%d
			ip6 daddr 2001:db8::/64 tcp dport 443 redirect to :%d
		}
	}`, ports[0], ports[1]), "nft", "-f", "-")

	// A goroutine of its own is outside of the namespace, like those that dial.
	done := make(chan struct{})
	go func() { defer close(done); r.echo(r.config()) }()
	<-done

	for i, tt := range []struct {
		to        string
		multipath bool
	}{{"192.0.2.1:443", false}, {"[2001:db8::1]:443", false}, {"192.0.2.1:443", true}, {"[2001:db8::1]:443", true}} {
		d := net.Dialer{}
		d.SetMultipathTCP(tt.multipath)
		c, err := d.Dial("tcp", tt.to)
		if err != nil {
			t.Fatalf("%s: %v", tt.to, err)
		}
		c.SetDeadline(time.Now().Add(waitTime))
		s := tls.Client(c, insecure("ok.test"))
		if err := talk(s, "ok.test"); err != nil {
			t.Errorf("%s, multipath %v: %v", tt.to, tt.multipath, err)
		}
		c.Close()
		if got := <-upstream; got.String() != tt.to {
			t.Errorf("connected to %v, want %s", got, tt.to)
		}
		if e := r.event(audit.Connect, i); e.IP != netip.MustParseAddrPort(tt.to).Addr().String() || e.Port != 443 {
			t.Errorf("recorded %+v", e)
		}
	}
	for i, l := range listeners {
		c, err := net.Dial("tcp", l.Addr().String())
		if err == nil {
			c.SetDeadline(time.Now().Add(waitTime))
			c.Write(helloFor("ok.test"))
			if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
				t.Errorf("%v answers", l.Addr())
			}
			c.Close()
		}
		e := r.event(audit.Connect, 4+i)
		if e.Verdict != audit.Deny || e.Reason != refusedDirect.Error() && e.Reason != refusedNoOriginal.Error() {
			t.Errorf("recorded %+v", e)
		}
	}
}
