package container

import (
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// helm asks the cluster by helm, as docs/kubernetes.md does by hand.
func (c *cluster) helm(argv ...string) result {
	state := os.Getenv("AGENT_INIT_CLUSTER_STATE")
	return runFor(5*time.Minute, clusterScript, args([]string{"enter", "env", "KUBECONFIG=" + filepath.Join(state, "pki/admin.conf"),
		"HELM_CACHE_HOME=" + state + "/helm", "HELM_CONFIG_HOME=" + state + "/helm", "HELM_DATA_HOME=" + state + "/helm",
		filepath.Join(os.Getenv("AGENT_INIT_CHARTS"), "helm")}, argv)...)
}

// What the chart's values are in all of these tests: the images under test, the authority of the test's internet, and no wish
// for a processor.
const clusterValues = `image: {repository: localhost/agent-claude, tag: test}
sidecarImage: {repository: localhost/agent-base, tag: test}
authorities: {existingConfigMap: authorities}
agent: {resources: {requests: null}}
sidecarResources: {requests: null}
`

// values is a file, for helm or kubectl.
func values(t *testing.T, more string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(path, []byte(more), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// space makes a namespace of a test's own, with the authority of the test's internet and a key.
func (c *cluster) space(t *testing.T, name string) {
	t.Helper()
	c.must(t, c.kubectl("create", "namespace", name))
	t.Cleanup(func() {
		c.explain(t, name)
		c.kubectl("delete", "namespace", name, "--wait=false")
	})
	c.trust(t, name)
}

// explain shows what runs in a namespace of a test that has failed.
func (c *cluster) explain(t *testing.T, namespace string) {
	if !t.Failed() {
		return
	}
	t.Logf("%s:\n%s", namespace, c.kubectl("-n", namespace, "describe", "pods").stdout)
	for pod := range strings.Lines(c.kubectl("-n", namespace, "get", "pods", "-o", "name").stdout) {
		pod = strings.TrimSpace(pod)
		t.Logf("%s said:\n%s", pod, c.kubectl("-n", namespace, "logs", pod, "--all-containers", "--tail=40").stdout)
	}
}

// trust has what a namespace's pods take as their authorities, and the key that the model demands.
func (c *cluster) trust(t *testing.T, namespace string) {
	t.Helper()
	c.must(t, c.kubectl("-n", namespace, "create", "configmap", "authorities", "--from-file=ca-certificates.crt="+c.n.authority))
	c.must(t, c.kubectl("-n", namespace, "create", "secret", "generic", "agent-keys", "--from-literal=ANTHROPIC_API_KEY="+canary))
}

// answered waits until an agent has its answer and its pod has ended well, and returns what it said. The model saw the key.
func (c *cluster) answered(t *testing.T, namespace string, pods ...string) {
	t.Helper()
	var said result
	eventually(t, namespace+": Claude Code has its answer", within, func() bool {
		said = c.kubectl(args([]string{"-n", namespace, "logs", "-c", "agent", "--tail=-1"}, pods)...)
		return strings.Contains(said.stdout, saying)
	})
	eventually(t, namespace+": its pod has ended", within, func() bool {
		r := c.kubectl("-n", namespace, "get", "pods", "-o", "jsonpath={.items[*].status.phase}")
		return slices.Contains(strings.Fields(r.stdout), "Succeeded")
	})
	if strings.Contains(said.stdout, canary) {
		t.Errorf("the key is in what was said: %s", said.stdout)
	}
	keys := map[string]bool{}
	c.n.llm.keys.Range(func(key, _ any) bool { keys[key.(string)] = true; return true })
	if !keys[canary] || len(keys) != 1 {
		t.Errorf("the model was shown the keys %v, want the one alone", keys)
	}
	// The preset allows these too, and nobody logs in here.
	c.onlyArrived(t, "api.anthropic.com.", "claude.ai.", "claude.com.", "platform.claude.com.")
}

// Patches by which pods take the authority of the test's internet, and ask for no processor.
const (
	mounted      = "{name: authorities, mountPath: /etc/ssl/certs/ca-certificates.crt, subPath: ca-certificates.crt, readOnly: true}"
	trustingPods = `  - target: {kind: Pod}
    patch: |
      - {op: add, path: /spec/volumes/-, value: {name: authorities, configMap: {name: authorities}}}
      - {op: add, path: /spec/containers/0/volumeMounts/-, value: ` + mounted + `}
      - {op: remove, path: /spec/containers/0/resources/requests}
`
	trustingKeeper = `  - target: {kind: Pod}
    patch: |
      - {op: add, path: /spec/initContainers/0/volumeMounts/-, value: ` + mounted + `}
      - {op: remove, path: /spec/initContainers/0/resources/requests}
`
)

// claudeByOverlay: the manifests' own command, Claude Code with a prompt, in the manifests' own images.
func (c *cluster) claudeByOverlay(t *testing.T) {
	for _, k := range []struct{ name, pod, patches string }{{"entrypoint", "agent", trustingPods}, {"sidecar", "agent-with-sidecar", trustingPods + trustingKeeper}} {
		t.Run(k.name, func(t *testing.T) {
			c.space(t, k.name)
			c.forget()
			c.must(t, c.kubectl("-n", k.name, "apply", "-k", c.newOverlay(t, "kustomize/"+k.name, k.patches)))
			c.answered(t, k.name, k.pod)
		})
	}
}

// forget has the internet forget what it saw, and its model the keys.
func (c *cluster) forget() {
	c.n.forget()
	c.n.llm.keys.Clear()
}

// claudeByChart: as a job of the chart's, where the broker has the key in both modes, and the agent has not.
func (c *cluster) claudeByChart(t *testing.T) {
	for name, more := range map[string]string{
		"entrypoint": "mode: entrypoint\nkeys: {existingSecret: agent-keys, names: [ANTHROPIC_API_KEY]}\n",
		"sidecar":    "mode: sidecar\nkeys: {values: {ANTHROPIC_API_KEY: " + canary + "}}\n",
	} {
		t.Run(name, func(t *testing.T) {
			space := "chart-" + name
			c.space(t, space)
			c.forget()
			// The image's entrypoint is agent-init, the sidecar's agent is the command alone: the same words in both.
			const prompt = `agent:
  args: [bash, -c, 'env; cat /proc/1/environ; claude -p "say hello"']
  resources: {requests: null}
`
			c.must(t, c.helm("install", "work", chart, "-n", space, "-f", values(t, clusterValues), "-f", values(t, "kind: Job\n"+more+prompt)))
			c.answered(t, space, "job/work-agent-init")
			c.must(t, c.helm("uninstall", "work", "-n", space, "--wait"))
		})
	}
}

// ceilingOfImage: with the chart's fromImage, the policy stands elsewhere, and the image's ceiling is above it.
func (c *cluster) ceilingOfImage(t *testing.T) {
	const space = "ceiling"
	c.space(t, space)
	c.must(t, c.helm("install", "work", chart, "-n", space, "--wait", "--timeout", "4m", "-f", values(t, clusterValues+`ceiling: {fromImage: true}
policy: {allowlist: "api.anthropic.com\nexample.com\n"}
`), "--set", "image.repository=localhost/agent-ceiling"))
	b := c.entrypoint()
	b.space, b.name = space, "deployment/work-agent-init"
	anthropic, example := target("tcp", "api.anthropic.com", 443), target("tcp", "example.com", 443)
	if said := b.probe(t, anthropic, example); said.probes[anthropic].verdict != "open" || said.probes[example].verdict == "open" {
		t.Errorf("%+v, want %s alone", said.probes, anthropic)
	}
}

// release: what helm does to a release in its life, and a ceiling above its policy.
func (c *cluster) release(t *testing.T) {
	const space = "release"
	c.space(t, space)
	list := "policy: {allowlist: \"api.anthropic.com\\nexample.com\\n\"}\nmode: sidecar\n"
	install := func(verb, more string) result {
		return c.helm(verb, "work", chart, "-n", space, "-f", values(t, clusterValues+list+more), "--wait", "--timeout", "4m")
	}
	c.must(t, install("install", `ceiling: {files: {org.yaml: "entries: any\ndeny: [evil.example.net]\n"}}`))
	b := box{cluster: c, space: space, name: "deployment/work-agent-init"}
	anthropic, example := target("tcp", "api.anthropic.com", 443), target("tcp", "example.com", 443)
	for _, target := range []string{anthropic, example} {
		if !b.open(t, target) {
			t.Errorf("%s is not reached", target)
		}
	}
	pods := func() string {
		return c.must(t, c.kubectl("-n", space, "get", "pods", "-o", "jsonpath={.items[*].metadata.uid}"))
	}
	before := pods()
	c.must(t, install("upgrade", `ceiling: {files: {org.yaml: "entries: any\ndeny: [example.com]\n"}}`))
	eventually(t, "what the ceiling no longer admits is closed", within, func() bool { return !b.open(t, example) })
	if !b.open(t, anthropic) {
		t.Error("what the ceiling admits is closed")
	}
	if now := pods(); now != before {
		t.Errorf("another pod, %s, took the place of %s", now, before)
	}
	if r := install("upgrade", "mod: sidecar\n"); r.code == 0 || !strings.Contains(r.stderr, "mod") {
		t.Errorf("an upgrade by a value that is none: exit %d %s", r.code, r.stderr)
	}
	c.must(t, c.helm("uninstall", "work", "-n", space, "--wait", "--timeout", "4m"))
	left := c.must(t, c.kubectl("-n", space, "get", "deployments,jobs,configmaps,secrets,networkpolicies", "-o", "name"))
	for name := range strings.Lines(left) {
		if strings.Contains(name, "work") {
			t.Errorf("it left %s", name)
		}
	}
}

// sandbox: the API server takes sandbox.yaml by the definition of agent-sandbox 0.5.6 (Apache-2.0), without its webhook for conversions.
func (c *cluster) sandbox(t *testing.T) {
	c.define(t, unzipped(t, "testdata/sandbox-crd.json.gz"), "sandboxes.agents.x-k8s.io")
	const file = manifests + "sandbox.yaml"
	c.must(t, c.kubectl("create", "--validate=strict", "-f", file))
	c.must(t, c.kubectl("delete", "-f", file))
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for says, k := range map[string][2]string{
		"unknown field": {"  podTemplate:", "  replicaz: 1\n  podTemplate:"},
		"Invalid value": {"runAsUser: 0 ", "runAsUser: none "},
	} {
		bad := strings.Replace(string(text), k[0], k[1], 1)
		if r := c.kubectl("create", "--validate=strict", dry, "-f", values(t, bad)); r.code == 0 || !strings.Contains(r.stderr, says) {
			t.Errorf("want a refusal with %q: exit %d %s", says, r.code, r.stderr)
		}
	}
	older := strings.Replace(string(text), "/v1beta1", "/v1alpha1", 1)
	c.must(t, c.kubectl("create", "--validate=strict", dry, "-f", values(t, older)))
}

// define has the API server know a kind, and waits until it does.
func (c *cluster) define(t *testing.T, file, name string) {
	t.Helper()
	c.must(t, c.kubectl("apply", "--server-side", "-f", file))
	eventually(t, name+" is known", within, func() bool {
		return c.kubectl("wait", "--for=condition=Established", "crd/"+name, "--timeout=1s").code == 0 &&
			c.kubectl("get", name).code == 0
	})
}

func unzipped(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return values(t, string(text))
}
