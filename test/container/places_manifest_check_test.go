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
		"confined, says the label": {"pod.yaml", `agent-init.org/confined: "true"`, `agent-init.org/confined: "no"`, "not asked"},
	} {
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(manifests + c.file)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(data), c.old) {
				t.Fatalf("%s has no %q", c.file, c.old)
			}
			path := filepath.Join(t.TempDir(), c.file)
			if err := os.WriteFile(path, []byte(strings.Replace(string(data), c.old, c.new, 1)), 0o644); err != nil {
				t.Fatal(err)
			}
			r := run(kubecheck, args(admit, []string{path})...)
			if r.code == 0 || !strings.Contains(r.stderr, c.says) {
				t.Errorf("exit %d, want a refusal with %q\n%s%s", r.code, c.says, r.stdout, r.stderr)
			}
		})
	}
}
