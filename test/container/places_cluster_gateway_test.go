package container

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// What is patched of the gateway's own pod, in a Deployment.
const trustingGateway = `  - target: {kind: Deployment}
    patch: |
      - {op: add, path: /spec/template/spec/volumes/-, value: {name: authorities, configMap: {name: authorities}}}
      - {op: add, path: /spec/template/spec/containers/0/volumeMounts/-, value: ` + mounted + `}
      - {op: remove, path: /spec/template/spec/containers/0/resources/requests}
`

// behind is an agent's pod behind the gateway, which idles.
func (c *cluster) behind() box { return box{cluster: c, space: "agents", name: "agent"} }

// spaces makes the two namespaces as the manifests do, with what the test's pods take there, which is gone with the test.
func (c *cluster) spaces(t *testing.T) {
	t.Helper()
	c.must(t, c.kubectl("apply", "-f", manifests+"gateway/namespaces.yaml"))
	t.Cleanup(func() {
		c.explain(t, "agents")
		c.explain(t, "agent-gateway")
		c.must(t, c.kubectl("delete", "-f", manifests+"gateway/namespaces.yaml", "--timeout=110s"))
	})
	c.trust(t, "agents")
	c.trust(t, "agent-gateway")
}

// gateway: agents whose pods need nothing that Pod Security's strictest level refuses, and a gateway that is their DNS server
// and their way out. No network plugin of this cluster enforces a NetworkPolicy: what goes past the gateway is not tried.
func (c *cluster) gateway(t *testing.T) {
	c.spaces(t)
	dir := c.newOverlay(t, "kubernetes/gateway", trustingPods+trustingGateway+`  - target: {kind: Pod}
    patch: |
      - {op: replace, path: /spec/containers/0/command, value: [sleep, infinity]}
      - {op: remove, path: /spec/containers/0/args}
`)
	c.forget()
	c.must(t, c.kubectl("apply", "-k", dir))
	c.serves(t)

	// The gateway dies without a word: nothing opens, and the next one has another address.
	old := c.must(t, c.kubectl("-n", "agent-gateway", "get", "pods", "-o", "jsonpath={.items[*].status.podIP}"))
	c.must(t, c.kubectl("-n", "agent-gateway", "delete", "pods", "--all", "--now"))
	c.serves(t)
	if now := c.must(t, c.kubectl("-n", "agent-gateway", "get", "pods", "-o", "jsonpath={.items[*].status.podIP}")); now == old {
		t.Errorf("the gateway is the one that was, at %s", now)
	}

	t.Run("restricted", func(t *testing.T) {
		pod := readManifest(t, "gateway/agent.yaml")
		pod["metadata"].(object)["name"] = "root"
		security(spec(pod))["runAsNonRoot"], security(spec(pod))["runAsUser"] = false, 0
		if r := c.try(t, pod, dry); r.code == 0 || !strings.Contains(r.stderr, "violates PodSecurity") {
			t.Errorf("a pod of root's among the agents: exit %d %s", r.code, r.stderr)
		}
	})
	t.Run("claude", func(t *testing.T) {
		c.must(t, c.kubectl("-n", "agents", "delete", "pod", "agent", "--now"))
		c.forget()
		c.must(t, c.kubectl("apply", "-k", c.newOverlay(t, "kubernetes/gateway", trustingPods+trustingGateway)))
		c.answered(t, "agents", "agent")
	})
}

// serves: by the gateway, an agent reaches a name of the policy, and no other.
func (c *cluster) serves(t *testing.T) {
	t.Helper()
	b := c.behind()
	curl := func(argv ...string) result {
		return b.do(args([]string{"curl", "-sS", "--max-time", "20", "-o", "/dev/null", "-w", "%{http_code} %{remote_ip}"}, argv)...)
	}
	var said result
	eventually(t, "an agent reaches a name by the gateway", within, func() bool {
		said = curl("https://api.anthropic.com/v1/models")
		return said.code == 0 && strings.HasPrefix(said.stdout, "200 ")
	})
	_, gate, _ := strings.Cut(said.stdout, " ")
	if own := c.must(t, c.kubectl("-n", "agent-gateway", "get", "pods", "-o", "jsonpath={.items[*].status.podIP}")); !slices.Contains(strings.Fields(own), gate) {
		t.Errorf("the agent reached %s, want the gateway, at %s", gate, own)
	}
	c.forget()
	for what, argv := range map[string][]string{
		"a name that is not allowed":            {"https://example.com/"},
		"its name, at the gateway":              {"--resolve", "example.com:443:" + gate, "https://example.com/"},
		"its name, at the gateway, without TLS": {"--resolve", "example.com:80:" + gate, "http://example.com/"},
		"another port":                          {"https://api.anthropic.com:8443/"},
		"an address for a name, at the gateway": {"-k", "https://" + gate + "/"},
		"the gateway's other services":          {"http://" + gate + ":10250/"},
	} {
		// The gate says so itself where there is no TLS.
		if r := curl(argv...); r.code == 0 && (what != "its name, at the gateway, without TLS" || !strings.HasPrefix(r.stdout, "403 ")) {
			t.Errorf("%s: reached: %s", what, r.stdout)
		}
	}
	if arrivals, queries := c.n.seen(); slices.ContainsFunc(queries, func(q string) bool { return q != "api.anthropic.com." }) ||
		slices.ContainsFunc(arrivals, func(a netip.AddrPort) bool { return a.Addr().String() != hosts["api.anthropic.com."][0] }) {
		t.Errorf("arrived: %v, asked: %q", arrivals, queries)
	}
	c.must(t, c.kubectl("-n", "agent-gateway", "wait", "--for=condition=Ready", "pods", "--all", "--timeout=60s"))
}

// openshift: the overlay's agent has no user of its own. OpenShift's admission gives it one of the namespace's range, and its
// own definition judges the gateway's SecurityContextConstraints.
func (c *cluster) openshift(t *testing.T) {
	c.define(t, "testdata/scc-crd.yaml", "securitycontextconstraints.security.openshift.io")
	c.spaces(t)
	dir := c.newOverlay(t, "kustomize/openshift", trustingPods+trustingGateway+`  - target: {kind: Pod}
    patch: |
      - {op: add, path: /spec/securityContext/runAsUser, value: 1000660000}
      - {op: add, path: /spec/securityContext/fsGroup, value: 1000660000}
`)
	c.forget()
	c.must(t, c.kubectl("apply", "--validate=strict", "-k", dir))
	c.answered(t, "agents", "agent")
}
