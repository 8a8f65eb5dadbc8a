package container

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestContainerPlacesKubernetes holds deploy/kubernetes to what an API server takes, and starts its pods.
func TestContainerPlacesKubernetes(t *testing.T) {
	e := needEngine(t)
	t.Run("manifests", testManifests)
	p := newPlace(t)
	n := p.internet(t)
	c := newPodman(t, p, nil, archive(t, e, e.base, claudeImage(t, e)), e.base)
	t.Run("entrypoint", func(t *testing.T) {
		k := c.pod(t, n, "pod.yaml", nil)
		// Whoever runs a command in the container is confined; the agent is, to the last bit.
		k.exec = []string{"agent-init", "exec", "--"}
		k.holds(t, n)
		k.reloads(t, n)
		k.restarts(t, n)
	})
	t.Run("sidecar", func(t *testing.T) {
		k := c.pod(t, n, "sidecar.yaml", nil)
		k.holds(t, n)
		k.reloads(t, n)
		k.restarts(t, n)
		k.otherUsers(t, n)
	})
	t.Run("shared-processes", func(t *testing.T) {
		k := c.pod(t, n, "sidecar.yaml", func(pod object) { pod["spec"].(object)["shareProcessNamespace"] = true })
		k.holds(t, n)
		k.pokesAtProcesses(t)
	})
	// The manifests' own command, Claude Code with a prompt, in the manifests' own image.
	for _, manifest := range []string{"pod.yaml", "sidecar.yaml"} {
		t.Run("claude-in-"+manifest, func(t *testing.T) {
			claude := *c
			claude.image = "localhost/" + claudeImage(t, e)
			n.forget()
			k := claude.play(t, n, manifest, false, nil)
			eventually(t, "Claude Code has its answer", within, func() bool { return strings.Contains(c.do("logs", k.agent).stdout, saying) })
			k.onlyAllowed(t, n)
			if said := c.do("logs", k.keeper); strings.Contains(said.stdout+said.stderr, "WARN") {
				t.Error("agent-init warns")
			}
		})
	}
	t.Run("configmap", func(t *testing.T) { c.playsConfigMap(t, n) })
}

// pod is one that runs.
type pod struct {
	*tenant
	*volumes
	agent, keeper string // containers, which may be one
	exec          []string
	startup       []string
}

const anthropicOnly = "api.anthropic.com required\n"

// pod plays a manifest with an agent that idles, and waits for its startup probe.
func (c *tenant) pod(t *testing.T, n *internet, manifest string, edit func(object)) *pod {
	t.Helper()
	k := c.play(t, n, manifest, true, edit)
	eventually(t, "the startup probe succeeds", within, k.healthy)
	return k
}

func (c *tenant) play(t *testing.T, n *internet, manifest string, idle bool, edit func(object)) *pod {
	t.Helper()
	m := readManifest(t, manifest)
	if edit != nil {
		edit(m)
	}
	dir, err := os.MkdirTemp(c.dir, "volumes")
	if err != nil {
		t.Fatal(err)
	}
	k := &pod{tenant: c, volumes: &volumes{dir: dir}}
	k.startup = k.forPodman(t, m, c.image, idle, map[string]string{
		"/test/agent.sh": c.copied(t, "testdata/agent.sh"), "/test/ca.pem": c.copied(t, n.authority),
	})
	k.policy(t, map[string]string{"allowlist.txt": anthropicOnly, "policy.yaml": "log: {stdout: true}\n"})
	data, err := yaml.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	name := m["metadata"].(object)["name"].(string)
	k.agent, k.keeper = name+"-agent", name+"-agent"
	if manifest == "sidecar.yaml" {
		k.keeper = name + "-agent-init"
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, container := range []string{k.keeper, k.agent} {
				r := c.do("logs", "--tail", "40", container)
				t.Logf("%s said:\n%s%s", container, r.stdout, r.stderr)
			}
		}
		c.do("pod", "kill", name)
		c.do("pod", "rm", "-f", name)
	})
	c.must(t, "kube", "play", c.file(t, manifest, string(data)))
	return k
}

func (k *pod) healthy() bool { return k.do(args([]string{"exec", k.keeper}, k.startup)...).code == 0 }

// asAgent runs a command as the agent, in its container.
func (k *pod) asAgent(argv ...string) result {
	return k.do(args([]string{"exec", k.agent}, k.exec, argv)...)
}

const kubeGateway = "10.89.0.1"

// holds: the agent reaches what the policy names, and nothing else.
func (k *pod) holds(t *testing.T, n *internet) {
	t.Helper()
	n.forget()
	allowed, denied := target("tcp", "api.anthropic.com", 443), denied4(kubeGateway)
	out := k.asAgent(args([]string{"bash", "/test/agent.sh", "--"}, denied, []string{allowed})...)
	r := parseReport(t, out.stdout)
	if p := r.probes[allowed]; p.verdict != "open" {
		t.Errorf("the allowed endpoint: %q\n%s%s", p.verdict, out.stdout, out.stderr)
	}
	r.mustRefuse(t, denied)
	r.mustBePowerless(t)
	k.onlyAllowed(t, n)
}

func (k *pod) open(t *testing.T, target string) bool {
	t.Helper()
	return parseReport(t, k.asAgent("bash", "/test/agent.sh", "--", target).stdout).probes[target].verdict == "open"
}

// reloads: a ConfigMap that changes is taken over, a wrong one is not, and readiness tells.
func (k *pod) reloads(t *testing.T, n *internet) {
	t.Helper()
	anthropic, example := target("tcp", "api.anthropic.com", 443), target("tcp", "example.com", 443)
	k.policy(t, map[string]string{"allowlist.txt": "example.com\n", "policy.yaml": "log: {stdout: true}\n"})
	eventually(t, "what the ConfigMap allows now is reached", within, func() bool { return k.open(t, example) })
	if k.open(t, anthropic) {
		t.Error("what the ConfigMap no longer allows is reached")
	}
	k.policy(t, map[string]string{"allowlist.txt": "*.com\n", "policy.yaml": "log: {stdout: true}\n"})
	eventually(t, "readiness fails with a wrong ConfigMap", within, func() bool { return !k.healthy() })
	if !k.open(t, example) || k.open(t, anthropic) {
		t.Error("the old policy is not in force")
	}
	k.policy(t, map[string]string{"allowlist.txt": anthropicOnly, "policy.yaml": "log: {stdout: true}\n"})
	eventually(t, "readiness comes back", within, k.healthy)
	k.holds(t, n)
}

// restarts: the container that holds the rules dies without a word, and comes again into the same network.
func (k *pod) restarts(t *testing.T, n *internet) {
	t.Helper()
	k.must(t, "kill", "--signal", "KILL", k.keeper)
	if k.agent != k.keeper {
		n.forget()
		targets := confinedTargets()[:3]
		r := parseReport(t, k.asAgent(args([]string{"bash", "/test/agent.sh", "--"}, targets)...).stdout)
		for _, target := range targets {
			if p, ok := r.probes[target]; !ok || p.verdict == "open" {
				t.Errorf("while there is no agent-init, %s is %q", target, p.verdict)
			}
		}
		k.onlyAllowed(t, n) // it may be back, and try what is required
	}
	// Podman restarts it, or has done so already.
	eventually(t, "it is confined again", within, func() bool { k.do("start", k.keeper); return k.healthy() })
	k.holds(t, n)
}

// otherUsers: what a container beside agent-init could do with other users. Root without a capability is
// confined as the agent, and so is the guard's uid, whose group it hasn't.
func (k *pod) otherUsers(t *testing.T, n *internet) {
	t.Helper()
	denied := denied4(kubeGateway)
	n.forget()
	out := k.do(args([]string{"exec", "--user", "0", k.agent, "bash", "/test/agent.sh", "--"}, denied)...)
	parseReport(t, out.stdout).mustRefuse(t, denied)
	k.onlyAllowed(t, n)
	out = k.do(args([]string{"exec", "--user", "64901", k.agent, "bash", "/test/agent.sh", "--"}, denied)...)
	parseReport(t, out.stdout).mustRefuse(t, denied)
	k.onlyAllowed(t, n)
}

// pokesAtProcesses: in a pod that shares its processes, the agent sees those that confine it.
func (k *pod) pokesAtProcesses(t *testing.T) {
	t.Helper()
	const find = `for p in /proc/[0-9]*; do case "$(tr '\0' ' ' <$p/cmdline 2>/dev/null)" in *agent-init*sidecar*|*agent-init*guard*|/proc/self/exe*guard*) echo "${p#/proc/}";; esac; done`
	pids := strings.Fields(k.asAgent("bash", "-c", find).stdout)
	if len(pids) == 0 {
		t.Fatal("the agent sees no process of agent-init: nothing to poke at")
	}
	for _, pid := range pids {
		for _, script := range []string{"kill -9 " + pid, "head -c 1 /proc/" + pid + "/environ", "head -c 1 /proc/" + pid + "/mem", "ls /proc/" + pid + "/fd/", "ls /proc/" + pid + "/root/run"} {
			if r := k.asAgent("bash", "-c", script); r.code == 0 {
				t.Errorf("%s: it worked: %s", script, r.stdout)
			}
		}
	}
	if !k.healthy() {
		t.Error("not healthy any more")
	}
}

// playsConfigMap plays the pod of the entrypoint as it is, with Podman's own idea of volumes.
func (c *tenant) playsConfigMap(t *testing.T, n *internet) {
	text, err := os.ReadFile(filepath.Join(manifests, "pod.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	policy, err := os.ReadFile(filepath.Join(manifests, "policy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	edited := strings.NewReplacer("agent-claude", c.image, `args: [claude, -p, "say hello"]`, "args: [sleep, infinity]").Replace(string(text))
	// The authority of the test's internet is none that the image knows: nothing may be required of it.
	relaxed := strings.Replace(string(policy), "@claude\n", "api.anthropic.com\n", 1)
	t.Cleanup(func() { c.do("pod", "kill", "agent"); c.do("pod", "rm", "-f", "agent") })
	c.must(t, "kube", "play", "--configmap", c.file(t, "configmap.yaml", relaxed), c.file(t, "plain.yaml", edited))
	eventually(t, "it is healthy", within, func() bool { return c.do("exec", "agent-agent", "agent-init", "status", "--quiet").code == 0 })
	n.forget()
	r := c.do("exec", "agent-agent", "agent-init", "exec", "--", "bash", "-c", "exec 3<>/dev/tcp/api.anthropic.com/443 && ! exec 4<>/dev/tcp/1.1.1.1/443")
	if r.code != 0 {
		t.Errorf("exit %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	c.onlyAllowed(t, n)
}
