package container

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// testManifests holds deploy/kubernetes to Kubernetes' own validation, and to its admission policy.
func testManifests(t *testing.T) {
	kubecheck := os.Getenv("AGENT_INIT_KUBECHECK")
	if kubecheck == "" {
		lacking(t, "the check of the manifests needs AGENT_INIT_KUBECHECK, the program of test/kubecheck")
	}
	files, err := filepath.Glob(manifests + "*.yaml")
	if err != nil || len(files) < 7 {
		t.Fatalf("manifests: %q, %v", files, err)
	}
	if r := run(kubecheck, files...); r.code != 0 {
		t.Errorf("not valid:\n%s%s", r.stdout, r.stderr)
	}
	admit := []string{"-admit", manifests + "admission.yaml"}
	if r := run(kubecheck, args(admit, []string{manifests + "pod.yaml", manifests + "sidecar.yaml", manifests + "sandbox.yaml"})...); r.code != 0 {
		t.Errorf("not admitted:\n%s%s", r.stdout, r.stderr)
	}
	const last = "          drop: [ALL]\n      resources:\n        requests:\n          cpu: 250m" // the agent's, beside a sidecar
	for name, c := range map[string]struct{ file, old, new, says string }{
		"unknown field":            {"pod.yaml", "restartPolicy: OnFailure", "restartPolicies: OnFailure", "unknown field"},
		"wrong value":              {"pod.yaml", "restartPolicy: OnFailure", "restartPolicy: Sometimes", "restartPolicy"},
		"volume that is not there": {"sidecar.yaml", "    - name: run\n      emptyDir", "    - name: walk\n      emptyDir", "volumeMounts"},
		"sandbox's own field":      {"sandbox.yaml", "  podTemplate:", "  replicaz: 1\n  podTemplate:", "unknown field"},
		"network":                  {"networkpolicy.yaml", "cidr: 0.0.0.0/0", "cidr: 0.0.0.0", "cidr"},
		"expression":               {"admission.yaml", "size(variables.keepers) == 1", "sighs(variables.keepers) == 1", "undeclared reference"},

		"host's network":           {"pod.yaml", "spec:\n", "spec:\n  hostNetwork: true\n", "hostNetwork"},
		"shared processes":         {"sidecar.yaml", "shareProcessNamespace: false", "shareProcessNamespace: true", "shareProcessNamespace"},
		"nobody confines":          {"pod.yaml", "add: [NET_ADMIN, ", "add: [", "exactly one container"},
		"too much for agent-init":  {"pod.yaml", "add: [NET_ADMIN, ", "add: [NET_RAW, NET_ADMIN, ", "and no more"},
		"plain init container":     {"sidecar.yaml", "      restartPolicy: Always\n", "", "restartPolicy: Always"},
		"something before":         {"sidecar.yaml", "  initContainers:\n", "  initContainers:\n    - {name: early, image: i, securityContext: {runAsNonRoot: true, runAsUser: 1, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}\n", "the first init container"},
		"agent with capabilities":  {"sidecar.yaml", last, strings.Replace(last, "[ALL]", "[ALL]\n          add: [SETUID]", 1), "may add no capability"},
		"agent with default ones":  {"sidecar.yaml", last, strings.Replace(last, "[ALL]", "[MKNOD]", 1), "drop ALL"},
		"agent as root":            {"sidecar.yaml", "runAsNonRoot: true\n        runAsUser: 1000", "runAsUser: 0", "runAsNonRoot"},
		"agent as the guard":       {"sidecar.yaml", "runAsUser: 1000", "runAsUser: 64901", "64901"},
		"agent that may gain":      {"sidecar.yaml", "runAsGroup: 1000\n        allowPrivilegeEscalation: false", "runAsGroup: 1000", "allowPrivilegeEscalation"},
		"agent, uid of the pod's":  {"sidecar.yaml", "        runAsUser: 1000\n", "", "runAsUser"},
		"no probe holds back":      {"sidecar.yaml", "      startupProbe:\n        exec:\n          command: [/usr/local/bin/agent-init, status]\n        periodSeconds: 1\n        timeoutSeconds: 5\n        failureThreshold: 60\n", "", "needs a startupProbe"},
		"a probe of nothing":       {"sidecar.yaml", "command: [/usr/local/bin/agent-init, status]", "command: [/bin/true]", "needs a startupProbe"},
		"agent at the sockets":     {"sidecar.yaml", "        - name: tmp\n          mountPath: /tmp", "        - name: run\n          mountPath: /tmp", "is its alone"},
		"agent at the policy":      {"sidecar.yaml", "        - name: tmp\n          mountPath: /tmp", "        - name: policy\n          mountPath: /tmp", "no other container may write"},
		"a part of the node":       {"pod.yaml", "    - name: tmp\n      emptyDir: {}", "    - name: tmp\n      hostPath: {path: /var/run}", "no hostPath"},
		"host's memory":            {"pod.yaml", "spec:\n", "spec:\n  hostIPC: true\n", "hostIPC"},
		"host's processes":         {"pod.yaml", "spec:\n", "spec:\n  hostPID: true\n", "hostPID"},
		"confined, says the label": {"pod.yaml", `agent-init.org/confined: "true"`, `agent-init.org/confined: "no"`, "not asked"},
	} {
		t.Run(name, func(t *testing.T) {
			path := changed(t, c.file, c.old, c.new)
			r := run(kubecheck, args(admit, []string{path})...)
			if r.code == 0 || !strings.Contains(r.stderr, c.says) {
				t.Errorf("exit %d, want a refusal with %q\n%s%s", r.code, c.says, r.stdout, r.stderr)
			}
		})
	}
	t.Run("label taken off", func(t *testing.T) {
		for _, label := range []string{`agent-init.org/confined: "no"`, `x: "y"`} {
			path := changed(t, "pod.yaml", `agent-init.org/confined: "true"`, label)
			r := run(kubecheck, args(admit, []string{"-was", manifests + "pod.yaml", path})...)
			if r.code == 0 || !strings.Contains(r.stderr, "may not be taken off") {
				t.Errorf("%s: exit %d\n%s%s", label, r.code, r.stdout, r.stderr)
			}
		}
		if r := run(kubecheck, args(admit, []string{"-was", manifests + "pod.yaml", manifests + "pod.yaml"})...); r.code != 0 {
			t.Errorf("an update that changes nothing: exit %d\n%s%s", r.code, r.stdout, r.stderr)
		}
	})
}

// changed is a copy of a manifest with new in the place of old.
func changed(t *testing.T, file, old, new string) string {
	t.Helper()
	data, err := os.ReadFile(manifests + file)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), old) {
		t.Fatalf("%s has no %q", file, old)
	}
	path := filepath.Join(t.TempDir(), filepath.Base(file))
	if err := os.WriteFile(path, []byte(strings.Replace(string(data), old, new, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}
