package container

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// variant is the manifest of the pod with a sidecar, as it was applied, by another name. It asks for no processor: there
// are not enough of them for all pods of the test.
func (c *cluster) variant(t *testing.T, name string) object {
	t.Helper()
	var pod object
	if err := yaml.Unmarshal([]byte(c.rendered), &pod); err != nil {
		t.Fatal(err)
	}
	pod["metadata"].(object)["name"] = name
	for _, c := range append(list(spec(pod), "initContainers"), list(spec(pod), "containers")...) {
		delete(c["resources"].(object), "requests")
	}
	return pod
}

// render is what the overlay makes of the pod with a sidecar.
func (c *cluster) render(t *testing.T) string {
	t.Helper()
	for doc := range strings.SplitSeq(c.must(t, c.kubectl("kustomize", c.overlay)), "\n---\n") {
		if strings.Contains(doc, "kind: Pod\n") && strings.Contains(doc, "name: agent-with-sidecar\n") {
			return doc
		}
	}
	t.Fatal("the manifests have no pod agent-with-sidecar")
	return ""
}

func spec(pod object) object         { return pod["spec"].(object) }
func agentOf(pod object) object      { return list(spec(pod), "containers")[0] }
func keeperOf(pod object) object     { return list(spec(pod), "initContainers")[0] }
func security(part object) object    { return part["securityContext"].(object) }
func powers(container object) object { return security(container)["capabilities"].(object) }

// create makes a pod, which is gone with the test.
func (c *cluster) create(t *testing.T, pod object, options ...string) {
	t.Helper()
	r := c.try(t, pod, options...)
	if r.code != 0 {
		t.Fatalf("create: exit %d\n%s", r.code, r.stderr)
	}
	name := pod["metadata"].(object)["name"].(string)
	t.Cleanup(func() { c.kubectl("delete", "pod", name, "--now", "--wait=false") })
}

// try asks the API server for a pod.
func (c *cluster) try(t *testing.T, pod object, options ...string) result {
	t.Helper()
	text, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "pod.json")
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return c.kubectl(args([]string{"create", "-f", path}, options)...)
}

const dry = "--dry-run=server" // all but to keep it

// admission: the API server refuses what gives away what confines, by the policy and by Pod Security.
func (c *cluster) admission(t *testing.T) {
	// A new policy is known to the API server a moment after it was applied.
	eventually(t, "the policy is in force", within, func() bool {
		pod := c.variant(t, "early")
		spec(pod)["hostNetwork"] = true
		return c.try(t, pod, dry).code != 0
	})
	if r := c.try(t, c.variant(t, "good"), dry); r.code != 0 {
		t.Errorf("the pod as it is: %s", r.stderr)
	}
	for says, change := range map[string]func(pod object){
		"a network of the pod's own":        func(pod object) { spec(pod)["hostNetwork"] = true },
		"shareProcessNamespace and hostPID": func(pod object) { spec(pod)["shareProcessNamespace"] = true },
		"hostIPC is a way":                  func(pod object) { spec(pod)["hostIPC"] = true },
		"may add no capability":             func(pod object) { powers(agentOf(pod))["add"] = []any{"NET_RAW"} },
		"has to drop ALL": func(pod object) {
			security(agentOf(pod))["privileged"], security(agentOf(pod))["allowPrivilegeEscalation"] = true, true
		},
		"runAsNonRoot and a runAsUser": func(pod object) {
			security(agentOf(pod))["runAsUser"], security(agentOf(pod))["runAsNonRoot"] = 0, false
		},
		"agent-init's own processes": func(pod object) { security(agentOf(pod))["runAsUser"] = 64901 },
		"the first init container": func(pod object) {
			early := object{"name": "early", "image": "localhost/agent-base:test", "securityContext": security(agentOf(pod))}
			spec(pod)["initContainers"] = []any{early, keeperOf(pod)}
		},
		"needs a startupProbe": func(pod object) { delete(keeperOf(pod), "startupProbe") },
		"is its alone": func(pod object) {
			mounts := agentOf(pod)["volumeMounts"].([]any)
			agentOf(pod)["volumeMounts"] = append(mounts, object{"name": "run", "mountPath": "/x"})
		},
		"no hostPath": func(pod object) {
			spec(pod)["volumes"] = append(spec(pod)["volumes"].([]any), object{"name": "node", "hostPath": object{"path": "/run"}})
		},
	} {
		pod := c.variant(t, "bad")
		change(pod)
		if r := c.try(t, pod, dry); r.code == 0 || !strings.Contains(r.stderr, "denied request") || !strings.Contains(r.stderr, says) {
			t.Errorf("want a refusal with %q: exit %d %s", says, r.code, r.stderr)
		}
	}
	for what, r := range map[string]result{
		"the label taken off": c.kubectl("label", "pod", "agent-with-sidecar", "agent-init.org/confined-"),
		"the label changed":   c.kubectl("label", "--overwrite", "pod", "agent-with-sidecar", "agent-init.org/confined=no"),
		"a debugger of networks": c.kubectl("debug", "agent-with-sidecar", "--image=localhost/agent-base:test",
			"--image-pull-policy=IfNotPresent", "--profile=netadmin", "-q", "--", "true"),
	} {
		if r.code == 0 || !strings.Contains(r.stderr, "denied request") {
			t.Errorf("%s: exit %d %s%s", what, r.code, r.stdout, r.stderr)
		}
	}
	warnings := c.must(t, c.kubectl("get", "validatingadmissionpolicy", "agent-init.org", "-o", "jsonpath={.status.typeChecking.expressionWarnings}"))
	if strings.TrimSpace(warnings) != "" {
		t.Errorf("the types of the policy: %s", warnings)
	}
	// Pod Security, as docs/kubernetes.md says, refuses agent-init's capability where it holds.
	pod := c.variant(t, "baseline")
	pod["metadata"].(object)["namespace"] = "baseline"
	if r := c.try(t, pod, dry); r.code == 0 || !strings.Contains(r.stderr, "violates PodSecurity") || !strings.Contains(r.stderr, "NET_ADMIN") {
		t.Errorf("baseline: exit %d %s", r.code, r.stderr)
	}
}
