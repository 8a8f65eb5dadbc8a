package container

import (
	"slices"
	"strings"
	"testing"
)

// TestContainerPlacesCluster runs deploy/kubernetes on a Kubernetes of one node: the API server admits, the kubelet starts,
// probes and swaps ConfigMaps, kube-proxy makes Services.
func TestContainerPlacesCluster(t *testing.T) {
	c := newCluster(t, needEngine(t))
	t.Run("probes-can-fail", c.probesCanFail)
	c.must(t, c.kubectl("apply", "-k", c.overlay))
	eventually(t, "both pods are ready", within, c.ready)
	t.Run("started-in-order", func(t *testing.T) {
		p := c.pod("agent-with-sidecar")
		keeper, agent := p.keeper(), p.agent()
		if !keeper.Started || keeper.State.Running == nil || agent.State.Running == nil || agent.State.Running.StartedAt.Before(keeper.State.Running.StartedAt) {
			t.Errorf("agent-init: %+v, agent: %+v", keeper, agent)
		}
	})
	t.Run("entrypoint", func(t *testing.T) { c.entrypoint().holds(t) })
	t.Run("sidecar", func(t *testing.T) { c.sidecar().holds(t) })
	t.Run("inbound", c.inbound)
	t.Run("held-back", c.heldBack)
	t.Run("ends", c.ends)
	// The kubelet has long written /etc/hosts again, for the second container.
	t.Run("not-reloaded", func(t *testing.T) {
		said := c.must(t, c.kubectl("logs", "agent-with-sidecar", "-c", "agent-init"))
		if n := strings.Count(said, `"event":"policy"`); n != 1 {
			t.Errorf("policies were loaded %d times, want 1:\n%s", n, said)
		}
	})
	t.Run("configmap", c.configMap)
	t.Run("service", c.service)
	t.Run("admission", c.admission)
	t.Run("killed", c.killed)
	t.Run("deleted", c.deleted)
	t.Run("claude-by-overlay", c.claudeByOverlay)
	t.Run("claude-by-chart", c.claudeByChart)
	t.Run("release", c.release)
	t.Run("ceiling-of-image", c.ceilingOfImage)
	t.Run("gateway", c.gateway)
	t.Run("openshift", c.openshift)
	t.Run("sandbox", c.sandbox)
}

// denied is what no policy of these tests allows.
func denied() []string {
	return args(denied4(clusterBridge), []string{
		target("tcp", "10.96.0.1", 443), target("tcp", clusterNode, 6443), target("tcp", clusterNode, 10250), // API server and kubelet
		target("tcp", clusterService, 8080),
	})
}

// probesCanFail: a pod without agent-init gets through, and is seen on the far side.
func (c *cluster) probesCanFail(t *testing.T) {
	eventually(t, "a pod runs", within, func() bool { return c.pod("unconfined").isReady() })
	c.n.forget()
	said := c.unconfined().probe(t, denied()...)
	for _, target := range denied() {
		if v := said.probes[target].verdict; v != "open" {
			t.Errorf("unconfined, %s is %q, want open", target, v)
		}
	}
	if arrivals, queries := c.n.seen(); len(arrivals) == 0 || !slices.Contains(queries, "evil.example.net.") {
		t.Errorf("seen on the far side: %v, %q", arrivals, queries)
	}
}

// holds: the agent reaches what the policy names, and nothing else.
func (b box) holds(t *testing.T) {
	t.Helper()
	b.n.forget()
	allowed := target("tcp", "api.anthropic.com", 443)
	said := b.probe(t, args(denied(), []string{allowed})...)
	if v := said.probes[allowed].verdict; v != "open" {
		t.Errorf("the allowed endpoint: %q", v)
	}
	said.mustRefuse(t, denied())
	said.mustBePowerless(t)
	b.onlyArrived(t, "api.anthropic.com.")
}

// inbound: nothing comes in, from the node or from another pod.
func (c *cluster) inbound(t *testing.T) {
	const listen = `perl -MIO::Socket::INET -e '$s = IO::Socket::INET->new(Listen => 5, LocalPort => 7000) or die $!; sleep 600'`
	for _, b := range []box{c.entrypoint(), c.sidecar(), c.unconfined()} {
		go b.do("bash", "-c", listen) // until its pod ends, or the command has taken too long
		eventually(t, b.name+": something listens", within, func() bool { return b.open(t, target("tcp", "127.0.0.1", 7000)) })
		connect := "exec 3<>/dev/tcp/" + c.pod(b.name).Status.PodIP + "/7000"
		fromNode := run(clusterScript, "enter", "timeout", "5", "bash", "-c", connect).code == 0
		fromPod := c.unconfined().do("timeout", "5", "bash", "-c", connect).code == 0
		if open := b.name == "unconfined"; fromNode != open || fromPod != open {
			t.Errorf("%s: open from the node %v, from a pod %v, want %v", b.name, fromNode, fromPod, open)
		}
	}
}

// heldBack: where agent-init does not start, the agent's container never runs.
func (c *cluster) heldBack(t *testing.T) {
	c.n.forget()
	for name, p := range map[string]struct {
		list string
		code int
		says string
	}{
		"unproved": {"nowhere.example required\n", 70, "nowhere.example"},
		"mistaken": {"*.com\n", 78, "allowlist.txt:1"},
	} {
		c.must(t, c.kubectl("create", "configmap", name, "--from-literal=allowlist.txt="+p.list))
		pod := c.variant(t, name)
		spec(pod)["volumes"].([]any)[0].(object)["configMap"] = object{"name": name}
		agentOf(pod)["args"] = []any{"bash", "-c", "exec 3<>/dev/tcp/1.1.1.1/443; exec 3<>/dev/tcp/example.com/443"}
		c.create(t, pod)
		var now podState
		eventually(t, name+": the kubelet restarts agent-init", within, func() bool {
			now = c.pod(name)
			return now.keeper().RestartCount > 0 && now.keeper().LastState.Terminated != nil
		})
		last := now.keeper().LastState.Terminated
		if last.ExitCode != p.code || !strings.Contains(last.Message, p.says) {
			t.Errorf("%s: agent-init ended %d, %q, want %d and %q", name, last.ExitCode, last.Message, p.code, p.says)
		}
		if a := now.agent(); a.State.Waiting == nil || a.State.Waiting.Reason != "PodInitializing" || a.RestartCount != 0 {
			t.Errorf("%s: the agent is not held back: %+v", name, a)
		}
	}
	arrivals, queries := c.n.seen()
	queries = slices.DeleteFunc(queries, func(q string) bool { return q == "nowhere.example." })
	if len(arrivals)+len(queries) > 0 {
		t.Errorf("arrived: %v, asked: %q", arrivals, queries)
	}
}

// ends: a pod ends with its agent, and as its agent did.
func (c *cluster) ends(t *testing.T) {
	for name, p := range map[string]struct {
		script, phase string
		code          int
	}{
		"succeeds": {"exit 0", "Succeeded", 0},
		"fails":    {"exit 3", "Failed", 3},
	} {
		pod := c.variant(t, name)
		spec(pod)["restartPolicy"] = "Never"
		agentOf(pod)["args"] = []any{"bash", "-c", p.script}
		c.create(t, pod)
		var now podState
		eventually(t, name+": the pod ends", within, func() bool { now = c.pod(name); return now.Status.Phase == p.phase })
		if end := now.agent().State.Terminated; end == nil || end.ExitCode != p.code {
			t.Errorf("%s: the agent's end is %+v, want %d", name, end, p.code)
		}
		if end := now.keeper().State.Terminated; end == nil || end.ExitCode != 0 {
			t.Errorf("%s: agent-init's end is %+v, want 0", name, end)
		}
	}
}

// configMap: a changed ConfigMap is taken over, a wrong one is not, and readiness tells.
func (c *cluster) configMap(t *testing.T) {
	anthropic, example := target("tcp", "api.anthropic.com", 443), target("tcp", "example.com", 443)
	boxes := []box{c.entrypoint(), c.sidecar()}
	c.allow(t, "example.com\n")
	for _, b := range boxes {
		eventually(t, b.name+": what the ConfigMap allows now is reached", within, func() bool { return b.open(t, example) })
		if b.open(t, anthropic) {
			t.Errorf("%s: what the ConfigMap no longer allows is reached", b.name)
		}
	}
	c.allow(t, "*.com\n")
	for _, b := range boxes {
		eventually(t, b.name+": not ready with a wrong ConfigMap", within, func() bool { return !c.pod(b.name).isReady() })
		if !b.open(t, example) || b.open(t, anthropic) {
			t.Errorf("%s: the old policy is not in force", b.name)
		}
	}
	eventually(t, "the events say why", within, func() bool {
		r := c.kubectl("get", "events", "--field-selector=reason=Unhealthy", "-o", "jsonpath={.items[*].message}")
		return strings.Contains(r.stdout, "allowlist.txt:1")
	})
	c.allow(t, "api.anthropic.com\n")
	eventually(t, "both pods are ready again", within, c.ready)
	for _, b := range boxes {
		eventually(t, b.name+": the first policy is in force", within, func() bool { return b.open(t, anthropic) && !b.open(t, example) })
		b.holds(t)
	}
}

// service: one of the cluster is reached by its full name and by its short one, if the policy has it.
func (c *cluster) service(t *testing.T) {
	c.allow(t, "localai.default.svc.cluster.local:8080 private\napi.anthropic.com\n")
	for _, b := range []box{c.entrypoint(), c.sidecar()} {
		full := target("tcp", "localai.default.svc.cluster.local", 8080)
		eventually(t, b.name+": the service is reached", within, func() bool { return b.open(t, full) })
		short, other := target("tcp", "localai", 8080), target("tcp", clusterNode, 8080)
		said := b.probe(t, short, other)
		if v := said.probes[short].verdict; v != "open" {
			t.Errorf("%s: by the short name: %q", b.name, v)
		}
		said.mustRefuse(t, []string{other}) // where the service ends, past its address
	}
	c.allow(t, "api.anthropic.com\n")
	for _, b := range []box{c.entrypoint(), c.sidecar()} {
		eventually(t, b.name+": the service is closed", within, func() bool { return !b.open(t, target("tcp", clusterService, 8080)) })
	}
}
