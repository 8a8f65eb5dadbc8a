package container

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	clusterScript  = "../cluster.sh"
	clusterNode    = "172.29.0.1"
	clusterBridge  = "10.244.0.1"
	clusterService = "10.96.77.77" // of the service localai
)

// cluster is the Kubernetes node of test/cluster.sh, and the manifests of deploy/kubernetes in it.
type cluster struct {
	overlay string // the manifests, changed as little as a test needs
	// rendered is the pod with a sidecar of the overlay.
	rendered string
	n        *internet
}

// newCluster starts it with the images under test. Its DNS is the internet's, behind the Service that clusters have.
func newCluster(t *testing.T, e *engine) *cluster {
	t.Helper()
	state := os.Getenv("AGENT_INIT_CLUSTER_STATE")
	if state == "" || os.Getenv("AGENT_INIT_CLUSTER") == "" {
		lacking(t, "the tests on a cluster need AGENT_INIT_CLUSTER, the programs of test/cluster, and AGENT_INIT_CLUSTER_STATE, a directory")
	}
	images := filepath.Join(state, "images")
	if err := os.RemoveAll(images); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(images, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(images) })
	e.must(t, "tag", e.base, "localhost/agent-base:test")
	e.must(t, "tag", claudeImage(t, e), "localhost/agent-claude:test")
	ceilinged(t, e)
	e.must(t, "save", "-o", filepath.Join(images, "images.tar"), "localhost/pause:test", "localhost/agent-base:test", "localhost/agent-claude:test",
		"localhost/agent-ceiling:test")
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("events:\n%s", run(clusterScript, "kubectl", "get", "events", "-A", "--sort-by=.lastTimestamp").stdout)
		}
		if r := run(clusterScript, "stop"); r.code != 0 {
			t.Errorf("stop the cluster: %s", r.stderr)
		}
	})
	if r := runFor(10*time.Minute, clusterScript, "start"); r.code != 0 {
		t.Fatalf("no cluster: %s", r.stderr)
	}
	c := &cluster{}
	c.n = newInternetWith(t, &engine{netns: c.netns(t)}, &internet{
		servers: []string{clusterNode}, also: map[string][]string{"localai.default.svc.cluster.local.": {clusterService}},
	})
	c.apply(t, "testdata/cluster.yaml")
	c.overlay = c.newOverlay(t, "kubernetes", idle)
	c.rendered = c.render(t)
	return c
}

// ceilinged makes an image that has a ceiling of its own.
func ceilinged(t *testing.T, e *engine) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "ceiling.d")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "org.txt"), []byte("api.anthropic.com\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	container := e.name(t)
	e.must(t, "create", "--name", container, e.base)
	e.must(t, "cp", dir, container+":/etc/agent-init/ceiling.d")
	e.must(t, "commit", container, "localhost/agent-ceiling:test")
}

func (c *cluster) netns(t *testing.T) string {
	t.Helper()
	return "/proc/" + strings.TrimSpace(c.must(t, run(clusterScript, "status"))) + "/ns/net"
}

// must is what a command said that is part of the set-up.
func (c *cluster) must(t *testing.T, r result) string {
	t.Helper()
	if r.code != 0 {
		t.Fatalf("exit %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	return r.stdout
}

func (c *cluster) kubectl(argv ...string) result {
	return run(clusterScript, args([]string{"kubectl"}, argv)...)
}

func (c *cluster) apply(t *testing.T, file string) {
	t.Helper()
	c.must(t, c.kubectl("apply", "-f", file))
}

// kill ends the first process of a pod, or of the node, whose command line has a pattern. A bracket in the pattern keeps
// it from what looks for it.
func (c *cluster) kill(t *testing.T, hostname, pattern string) {
	t.Helper()
	const script = `for pid in $(pgrep -f -- "$2"); do
	[ "$(nsenter --uts --target "$pid" hostname)" != "$1" ] || exec kill -KILL "$pid"
done
exit 1`
	c.must(t, run(clusterScript, "enter", "bash", "-c", script, "kill", hostname, pattern))
}

// The manifests as they are, but for the images' names, what the agent runs, and the policy.
const idle = `  - target: {kind: Pod}
    patch: |
      - {op: replace, path: /spec/containers/0/args, value: [sleep, infinity]}
  - target: {kind: ConfigMap}
    patch: |
      - {op: replace, path: /data/allowlist.txt, value: "api.anthropic.com\n"}
`

// newOverlay is a directory for kustomize: a part of deploy with the images under test, and patches.
func (c *cluster) newOverlay(t *testing.T, of, patches string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(manifests+"..")); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "overlay")
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	text := "resources: [../" + of + `]
images:
  - {name: agent-claude, newName: localhost/agent-claude, newTag: test}
  - {name: agent-base, newName: localhost/agent-base, newTag: test}
patches:
` + patches
	if err := os.WriteFile(filepath.Join(path, "kustomization.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// allow replaces the policy of a ConfigMap.
func (c *cluster) allow(t *testing.T, list string) {
	t.Helper()
	patch, err := json.Marshal(object{"data": object{"allowlist.txt": list}})
	if err != nil {
		t.Fatal(err)
	}
	c.must(t, c.kubectl("patch", "configmap", "agent-policy", "--type=merge", "-p", string(patch)))
}

// podState is what the API server says of a pod.
type podState struct {
	Status struct {
		Phase, PodIP                             string
		InitContainerStatuses, ContainerStatuses []containerState
	}
}

type containerState struct {
	Name           string
	Ready, Started bool
	RestartCount   int
	State          struct {
		Waiting    *struct{ Reason string }
		Running    *struct{ StartedAt time.Time }
		Terminated *struct{ ExitCode int }
	}
	LastState struct {
		Terminated *struct {
			ExitCode int
			Message  string
		}
	}
}

// pod asks for it. One that could not be asked for has no state.
func (c *cluster) pod(name string) (p podState) {
	if r := c.kubectl("get", "pod", name, "-o", "json"); r.code == 0 {
		_ = json.Unmarshal([]byte(r.stdout), &p)
	}
	return p
}

// keeper and agent are the containers of a pod with a sidecar.
func (p podState) keeper() (s containerState) {
	if len(p.Status.InitContainerStatuses) > 0 {
		s = p.Status.InitContainerStatuses[0]
	}
	return s
}

func (p podState) agent() (s containerState) {
	if len(p.Status.ContainerStatuses) > 0 {
		s = p.Status.ContainerStatuses[0]
	}
	return s
}

// ready says whether all of both pods' containers are.
func (c *cluster) ready() bool {
	return c.pod("agent").isReady() && c.pod("agent-with-sidecar").isReady()
}

func (p podState) isReady() bool {
	all := slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses)
	return len(all) > 0 && !slices.ContainsFunc(all, func(s containerState) bool { return !s.Ready })
}

// box is a pod of the test, and how the agent's commands run there.
type box struct {
	*cluster
	space string // namespace, if it is not the default one
	name  string
	exec  []string
}

func (c *cluster) entrypoint() box {
	return box{cluster: c, name: "agent", exec: []string{"agent-init", "exec", "--"}}
}
func (c *cluster) sidecar() box    { return box{cluster: c, name: "agent-with-sidecar"} }
func (c *cluster) unconfined() box { return box{cluster: c, name: "unconfined"} }

// do runs a command as the agent.
func (b box) do(argv ...string) result {
	return b.kubectl(args([]string{"exec", "-n", cmp.Or(b.space, "default"), b.name, "-c", "agent", "--"}, b.exec, argv)...)
}

// probe tries targets as the agent.
func (b box) probe(t *testing.T, targets ...string) report {
	t.Helper()
	script, err := os.ReadFile("testdata/agent.sh")
	if err != nil {
		t.Fatal(err)
	}
	r := b.do(args([]string{"bash", "-c", string(script), "agent.sh", "--"}, targets)...)
	said := parseReport(t, r.stdout)
	if !said.started {
		t.Fatalf("%s: exit %d\n%s%s", b.name, r.code, r.stdout, r.stderr)
	}
	return said
}

func (b box) open(t *testing.T, target string) bool {
	t.Helper()
	return b.probe(t, target).probes[target].verdict == "open"
}

// onlyArrived checks what the internet saw since it has forgotten: connections to one name, and questions for it.
func (c *cluster) onlyArrived(t *testing.T, name string, asked ...string) {
	t.Helper()
	arrivals, queries := c.n.seen()
	for _, a := range arrivals {
		if a.Port() != 443 || !slices.Contains(hosts[name], a.Addr().String()) {
			t.Errorf("something arrived at %s", a)
		}
	}
	for _, q := range queries {
		if q != name && !slices.Contains(asked, q) {
			t.Errorf("a query for %s arrived", q)
		}
	}
}
