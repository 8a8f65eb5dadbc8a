package container

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestContainerPlacesPodman runs the base image under root's Podman.
func TestContainerPlacesPodman(t *testing.T) {
	e := needEngine(t)
	p := newPlace(t)
	n := p.internet(t)
	c := newPodman(t, p, nil, archive(t, e, e.base, claudeImage(t, e)), e.base)
	// Without agent-init all gets through, and is seen to arrive.
	t.Run("probes-can-fail", func(t *testing.T) { c.unconfined(t, n) })
	t.Run("bridge", func(t *testing.T) { c.confined(t, n, nil, denied4(c.gateway)) })
	t.Run("claude", func(t *testing.T) { c.saysHello(t, e, n) })
	t.Run("link-local-dns", func(t *testing.T) { c.confined(t, n, []string{"--dns=" + nodeLocal}, denied4(c.gateway)) })
	t.Run("user-network", func(t *testing.T) {
		const subnet, gateway = "10.91.0.0/24", "10.91.0.1"
		c.must(t, "network", "create", "--subnet", subnet, "--ipv6", "--subnet", "2001:db8:91::/64", "dual")
		t.Cleanup(func() { c.do("network", "rm", "-f", "dual") })
		c.confined(t, n, []string{"--network=dual"}, args(denied4(gateway), denied6()))
		c.neighbours(t, n, "dual")
	})
	t.Run("read-only", func(t *testing.T) {
		c.confined(t, n, []string{"--read-only", "--tmpfs=/tmp", "--tmpfs=/home/agent"}, denied4(c.gateway))
	})
	t.Run("lifecycle", func(t *testing.T) { c.lifecycle(t, n) })
	t.Run("attacks", func(t *testing.T) { c.attacks(t, n) })
	t.Run("gateway", func(t *testing.T) { c.behindGateway(t, n) })
	t.Run("refusals", func(t *testing.T) { c.refusals(t, n) })
	t.Run("launch", func(t *testing.T) { c.launches(t, e, nil) })
}

// behindGateway: an agent on a network of the driver macvlan is root, may send any frame, and reaches what the policy allows
// by the gateway alone.
func (c *tenant) behindGateway(t *testing.T, n *internet) {
	const there = "172.30.5.2"
	c.must(t, "network", "create", "-d", "macvlan", "--internal", "-o", "parent="+lonelyLink(t, c.netns), "--subnet", "172.30.5.0/24", "--ip-range", "172.30.5.128/25", "agents")
	t.Cleanup(func() { c.do("network", "rm", "-f", "agents") })
	options := c.options(t, n, "api.anthropic.com\n")
	gate := c.name(t)
	c.must(t, args([]string{"run", "-d", "--name", gate}, options, []string{"--network", "podman", "--network", "agents:ip=" + there, "--sysctl=net.ipv4.ip_forward=0",
		"--entrypoint=/usr/local/bin/agent-init", c.image, "gateway", "--inside", "172.30.5.0/24", "--answer", "own"})...)
	c.must(t, "exec", gate, "agent-init", "wait", "--timeout", within.String())
	behind := []string{"run", "--network=agents", "--dns=" + there, "--no-healthcheck", "-e", "SSL_CERT_FILE=/test/ca.pem",
		"-v", c.copied(t, "testdata/agent.sh") + ":/test/agent.sh:ro", "-v", c.copied(t, n.authority) + ":/test/ca.pem:ro"}
	n.forget()
	out := c.do(args(behind, []string{"--name", c.name(t), "--user=65534", "--cap-drop=ALL", "--entrypoint=/usr/local/bin/agent-init", c.image,
		"selftest", "--gateway", there, "--reach", "api.anthropic.com"})...)
	if out.code != 0 {
		t.Errorf("the proof: exit %d\n%s%s", out.code, out.stdout, out.stderr)
	}
	allowed := target("tcp", "api.anthropic.com", 443)
	denied := append(denied4(c.gateway), target("tcp", c.gateway, 443), target("udp", c.gateway, 443), target("tcp", "9.9.9.9", 53), target("udp", there, 443), target("tcp", there, 22))
	out = c.do(args(behind, []string{"--name", c.name(t), "--cap-add=NET_RAW", "--entrypoint=bash", c.image, "/test/agent.sh", "--"}, denied, []string{allowed})...)
	r := parseReport(t, out.stdout)
	if r.probes[allowed].verdict != "open" || !strings.HasPrefix(r.status["Uid:"], "0 ") {
		t.Errorf("the allowed name is %q, for %q\n%s%s", r.probes[allowed].verdict, r.status["Uid:"], out.stdout, out.stderr)
	}
	for _, target := range denied {
		if p, tried := r.probes[target]; !tried || p.verdict == "open" {
			t.Errorf("%s is %q", target, p.verdict)
		}
	}
	c.onlyAllowed(t, n)
}

// unconfined shows that the probes of the other tests get through where nothing holds them.
func (c *tenant) unconfined(t *testing.T, n *internet) {
	n.forget()
	targets := denied4(c.gateway)
	if c.owner != 0 { // slirp4netns lets nobody to the host's loopback, and nobody is behind the bridge of a rootless engine
		targets = targets[:len(targets)-1]
	}
	out := c.do(args([]string{"run", "--name", c.name(t), "--no-healthcheck"}, c.options(t, n, ""),
		[]string{"--entrypoint=setpriv", c.image, "--reuid=1000", "--regid=1000", "--clear-groups", "bash", "/test/agent.sh", "--"}, targets)...)
	r := parseReport(t, out.stdout)
	for _, target := range targets {
		if v := r.probes[target].verdict; v != "open" {
			t.Errorf("unconfined, %s is %q, want open", target, v)
		}
	}
	if arrivals, queries := n.seen(); len(arrivals) == 0 || !slices.Contains(queries, "evil.example.net.") {
		t.Errorf("seen on the far side: %v, %q", arrivals, queries)
	}
	if t.Failed() {
		t.Logf("run: exit %d\n%s%s", out.code, out.stdout, out.stderr)
	}
}

// confined runs the probes as the agent, and judges by what arrived.
func (c *tenant) confined(t *testing.T, n *internet, options, denied []string) {
	t.Helper()
	n.forget()
	allowed := target("tcp", "api.anthropic.com", 443)
	out := c.do(args([]string{"run", "--name", c.name(t)}, c.options(t, n, "api.anthropic.com required\n"), options,
		[]string{c.image, "bash", "/test/agent.sh", "agent-init", "selftest", "--"}, denied, []string{allowed})...)
	r := parseReport(t, out.stdout)
	if !r.started || out.code != 0 || r.command != "0" {
		t.Fatalf("exit %d, self-test %q\n%s%s", out.code, r.command, out.stdout, out.stderr)
	}
	if p := r.probes[allowed]; p.verdict != "open" {
		t.Errorf("the allowed endpoint: %s", p.verdict)
	}
	r.mustRefuse(t, denied)
	r.mustBePowerless(t)
	c.onlyAllowed(t, n)
	t.Logf("run took %v, the slowest refusal %v", out.took, r.slowest(denied))
}

// onlyAllowed checks what arrived on the far side.
func (c *tenant) onlyAllowed(t *testing.T, n *internet) {
	t.Helper()
	arrivals, queries := n.seen()
	for _, a := range arrivals {
		if s := a.String(); s != "160.79.104.10:443" && s != "[2607:6bc0::10]:443" {
			t.Errorf("something arrived at %s", s)
		}
	}
	for _, q := range queries {
		// The self-test asks for no name that is denied either.
		if q != "api.anthropic.com." {
			t.Errorf("a query for %s arrived", q)
		}
	}
}

// neighbours: a service on the user-defined network is reached by its name, which aardvark-dns knows,
// and another one is not.
func (c *tenant) neighbours(t *testing.T, n *internet, network string) {
	t.Helper()
	address, address6 := map[string]string{}, map[string]string{}
	for _, alias := range []string{"localai", "other"} {
		name := c.name(t)
		c.must(t, "run", "-d", "--name", name, "--network", network, "--network-alias", alias, "--cap-drop=ALL", "--no-healthcheck",
			"--entrypoint=sleep", c.image, "infinity")
		pid := c.must(t, "inspect", "--format", "{{.State.Pid}}", name)
		for of, field := range map[*map[string]string]string{&address: "IPAddress", &address6: "GlobalIPv6Address"} {
			(*of)[alias] = c.must(t, "inspect", "--format", fmt.Sprintf("{{.NetworkSettings.Networks.%s.%s}}", network, field), name)
		}
		// The number is the place's: its /proc is what knows it.
		n.serve(t, fmt.Sprintf("/proc/%d/root/proc/%s/ns/net", c.pid, pid), 8080)
	}
	allowed := target("tcp", "localai", 8080)
	denied := []string{target("tcp", "other", 8080), target("tcp", address["other"], 8080), target("tcp", address6["other"], 8080), target("tcp", address["localai"], 80)}
	// By the name that the agent uses, or by the one that a search domain makes of it.
	for _, list := range []string{"localai:8080\n", "localai.dns.podman:8080 private\n"} {
		n.forget()
		out := c.do(args([]string{"run", "--name", c.name(t)}, c.options(t, n, list), []string{"--network", network,
			c.image, "bash", "/test/agent.sh", "--"}, denied, []string{allowed})...)
		r := parseReport(t, out.stdout)
		if p := r.probes[allowed]; p.verdict != "open" {
			t.Errorf("%q: the neighbour: %q\n%s%s", list, p.verdict, out.stdout, out.stderr)
		}
		r.mustRefuse(t, denied)
		arrivals, _ := n.seen()
		for _, a := range arrivals {
			if s := a.String(); s != address["localai"]+":8080" && s != "["+address6["localai"]+"]:8080" {
				t.Errorf("something arrived at %s", s)
			}
		}
	}
}

// lifecycle follows one container through restarts, exec and its end.
func (c *tenant) lifecycle(t *testing.T, n *internet) {
	name := c.name(t)
	c.must(t, args([]string{"run", "-d", "--name", name}, c.options(t, n, "api.anthropic.com required\n"), []string{c.image, "sleep", "infinity"})...)
	healthy := func() bool { return c.do("exec", name, "agent-init", "status", "--quiet").code == 0 }
	for _, again := range []string{"", "restart", "start"} {
		switch again {
		case "restart":
			c.must(t, "restart", name)
		case "start":
			if r := c.do("stop", name); r.code != 0 {
				t.Errorf("stop: exit %d %s", r.code, r.stderr)
			}
			if code := c.must(t, "inspect", "--format", "{{.State.ExitCode}}", name); code != "143" {
				t.Errorf("ended %s, want 143: its command was ended by SIGTERM", code)
			}
			c.must(t, "start", name)
		}
		eventually(t, "status is healthy", within, healthy)
		n.forget()
		for _, who := range []string{"1000", "root"} {
			out := c.do(args([]string{"exec", "-u", who, name, "bash", "/test/agent.sh", "--"}, confinedTargets())...)
			parseReport(t, out.stdout).mustRefuse(t, confinedTargets()[:3]) // there is no IPv6 to be refused
		}
		c.onlyAllowed(t, n)
	}
}

// attacks are what an agent may try that Podman's defaults leave open: its seccomp profile lets
// everybody make user namespaces.
func (c *tenant) attacks(t *testing.T, n *internet) {
	name := c.name(t)
	c.must(t, args([]string{"run", "-d", "--name", name}, c.options(t, n, "api.anthropic.com\n"), []string{c.image, "sleep", "infinity"})...)
	eventually(t, "status is healthy", within, func() bool { return c.do("exec", name, "agent-init", "status", "--quiet").code == 0 })
	n.forget()
	const out = "exec 3<>/dev/tcp/1.1.1.1/443"
	for what, script := range map[string]string{
		"plainly":                  out,
		"in a user namespace":      "unshare -Ur bash -c '" + out + "'",
		"as another user":          "unshare -Ur setpriv --reuid 64901 bash -c '" + out + "'",
		"over the host's resolver": `exec 3<>/dev/udp/9.9.9.9/53; printf '\0\1\1\0\0\1\0\0\0\0\0\0\4evil\7example\0\0\1\0\1' >&3; read -t 1 -n 1 -u 3`,
		"to the metadata service":  "exec 3<>/dev/tcp/169.254.169.254/80",
		"to another site there":    "exec 3<>/dev/tcp/160.79.104.10/443 && printf 'GET / HTTP/1.0\\r\\nHost: evil.example.net\\r\\n\\r\\n' >&3 && read -t 2 -n 1 -u 3",
		"by the keeper's memory":   "head -c 1 /proc/1/mem",
		"by killing the keeper":    "kill -9 1",
		"by killing the guard":     `for p in /proc/[0-9]*; do if [ "$(stat -c %u $p)" = 64901 ]; then kill -9 ${p#/proc/} && exit 0; fi; done; exit 1`,
		"by writing the policy":    "echo example.com >>/etc/agent-init/allowlist.txt",
		"by another keeper":        "agent-init up",
	} {
		r := c.do("exec", name, "agent-init", "exec", "--", "timeout", "10", "bash", "-c", script)
		if r.code == 0 {
			t.Errorf("%s: it worked: %s%s", what, r.stdout, r.stderr)
		}
	}
	c.onlyAllowed(t, n)
	if r := c.do("exec", name, "agent-init", "status"); r.code != 0 {
		t.Errorf("after the attacks: exit %d %s%s", r.code, r.stdout, r.stderr)
	}
}

// refusals are the starts that must not happen.
func (c *tenant) refusals(t *testing.T, n *internet) {
	neighbour := c.name(t)
	c.must(t, "run", "-d", "--name", neighbour, "--cap-drop=ALL", "--no-healthcheck", "--entrypoint=bash", c.image, "-c", listens)
	eventually(t, neighbour+": something listens", within, func() bool { return c.do(args([]string{"exec", neighbour}, listening)...).code == 0 })
	agents := c.file(t, "agents.txt", "example.com\n")
	if err := os.Chmod(agents, 0o666); err != nil {
		t.Fatal(err)
	}
	for name, start := range map[string]struct {
		options []string
		code    int
	}{
		"host network":                  {[]string{"--network=host"}, 71},
		"network of another container":  {[]string{"--network=container:" + neighbour}, 71},
		"no capability":                 {[]string{"--cap-drop=NET_ADMIN"}, 77},
		"not root":                      {[]string{"--user=1000"}, 77},
		"policy that anybody may write": {[]string{"-v", agents + ":/etc/agent-init/allowlist.d/agents.txt:ro"}, 78},
	} {
		options := c.options(t, n, "example.com\n")
		if name == "no capability" {
			options = slices.DeleteFunc(options, func(o string) bool { return o == "--cap-add=NET_ADMIN" })
			start.options = nil
		}
		out := c.do(args([]string{"run", "--name", c.name(t)}, options, start.options, []string{c.image, "bash", "/test/agent.sh"})...)
		// On the network of a host that is not this user's, either reason to refuse is right.
		if out.code != start.code && (name != "host network" || out.code != 77) || strings.Contains(out.stdout, "agent started") || !strings.Contains(out.stderr, "remedy:") {
			t.Errorf("%s: exit %d, want %d\n%s%s", name, out.code, start.code, out.stdout, out.stderr)
		}
		t.Logf("%s: %s", name, strings.TrimSpace(out.stderr))
	}
}
