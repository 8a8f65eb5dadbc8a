package container

import (
	"strings"
	"testing"
)

// testXtables is testAgent with the other backend: on kernel ipsets, and iptables-legacy. The image has iptables, and
// the container one capability more.
func testXtables(t *testing.T, e *engine, n *internet) {
	x := &engine{base: e.base, claude: e.xtables, netns: e.netns}
	raw := []string{"--cap-add=NET_RAW"}
	for _, test := range []struct {
		name    string
		network bool
		options []string
	}{
		{name: "bridge"},
		{name: "user-network", network: true},
		{name: "read-only", options: []string{"--read-only", "--tmpfs", "/tmp", "--tmpfs", "/home/agent:uid=1000,gid=1000", "--security-opt", "no-new-privileges"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			options, gateway, denied := args(test.options, raw, []string{"-e", "AGENT_INIT_BACKEND=xtables"}), bridgeGateway, []string(nil)
			if test.network {
				var network string
				network, gateway = newNetwork(t, x)
				options = args(options, []string{"--network", network})
			} else {
				denied = denied6() // a user-defined network has no IPv6
			}
			denied = args(denied4(gateway), denied)
			r := sayHello(t, x, n, args(options, allow(t, "api.anthropic.com required\n")), denied)
			t.Logf("slowest refusal: %v", r.slowest(denied))
			arrivals, _ := n.seen()
			for _, a := range arrivals {
				if s := a.String(); s != "160.79.104.10:443" && s != "[2607:6bc0::10]:443" {
					t.Errorf("something arrived at %s", s)
				}
			}
		})
	}
	t.Run("no-net-raw", func(t *testing.T) {
		r := x.docker(args([]string{"run", "--name", x.name(t)}, privileges(), []string{"-e", "AGENT_INIT_BACKEND=xtables", x.claude, "echo", "started"})...)
		if r.code != 77 || !strings.Contains(r.stderr, "--cap-add=NET_RAW") || strings.Contains(r.stdout, "started") {
			t.Errorf("exit %d, want 77 and the capability\n%s%s", r.code, r.stdout, r.stderr)
		}
	})
	t.Run("no-iptables", func(t *testing.T) {
		r := x.docker(args([]string{"run", "--name", x.name(t)}, privileges(), raw, []string{"-e", "AGENT_INIT_BACKEND=xtables", e.base, "echo", "started"})...)
		if r.code != 71 || !strings.Contains(r.stderr, "iptables") || strings.Contains(r.stdout, "started") {
			t.Errorf("exit %d, want 71 and what is missing\n%s%s", r.code, r.stdout, r.stderr)
		}
	})
}
