package container

import (
	"strings"
	"testing"
)

// killed: whatever of it dies without a word, nothing opens, and the kubelet brings it back.
func (c *cluster) killed(t *testing.T) {
	for _, k := range []struct{ what, pattern string }{
		{"agent-init of the sidecar", "agent-init [s]idecar"},
		{"agent-init of the entrypoint", "agent-init [r]un"},
	} {
		b := c.sidecar()
		count := func() int { return c.pod(b.name).keeper().RestartCount }
		if strings.HasSuffix(k.what, "entrypoint") {
			b = c.entrypoint()
			count = func() int { return c.pod(b.name).agent().RestartCount }
		}
		c.n.forget()
		before := count()
		c.kill(t, b.name, k.pattern)
		if b.exec == nil { // the agent lives on
			said := b.probe(t, confinedTargets()[:3]...)
			for target, p := range said.probes {
				if p.verdict == "open" {
					t.Errorf("%s is dead, and %s is open", k.what, target)
				}
			}
		}
		eventually(t, k.what+" is back", within, func() bool { return count() > before && c.pod(b.name).isReady() })
		c.onlyArrived(t, "api.anthropic.com.")
		b.holds(t)
	}
	// The network of a pod lives as long as the process that holds it. The kubelet then makes the pod anew.
	c.n.forget()
	b := c.sidecar()
	before := c.pod(b.name)
	c.kill(t, b.name, "^/[p]ause")
	eventually(t, "the pod is made anew", within, func() bool {
		now := c.pod(b.name)
		return now.isReady() && now.Status.PodIP != before.Status.PodIP
	})
	c.onlyArrived(t, "api.anthropic.com.")
	b.holds(t)

	c.n.forget()
	c.kill(t, "node", "/links/[k]ubelet ")
	for _, b := range []box{c.entrypoint(), c.sidecar()} {
		eventually(t, "the kubelet is back", within, func() bool { return b.do("true").code == 0 })
		b.holds(t)
	}
}

// deleted: an agent without a handler for SIGTERM does not hold up the end of its pod, however long that might take.
func (c *cluster) deleted(t *testing.T) {
	pod := c.variant(t, "patient")
	spec(pod)["terminationGracePeriodSeconds"] = 3600
	c.create(t, pod)
	eventually(t, "the pod runs", within, func() bool { return c.pod("patient").isReady() })
	c.must(t, c.kubectl("delete", "pod", "patient", "--wait=false"))
	eventually(t, "the pod has ended", within, func() bool { return c.kubectl("get", "pod", "patient").code != 0 })
}
