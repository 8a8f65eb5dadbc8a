package container

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const overlays = "../../deploy/kustomize/"

// TestContainerPlacesKubernetesOverlays has kustomize build the overlays, and holds what comes out to the API server's rules
// and to admission.yaml. It needs no engine.
func TestContainerPlacesKubernetesOverlays(t *testing.T) {
	render, kubecheck := os.Getenv("AGENT_INIT_RENDER"), os.Getenv("AGENT_INIT_KUBECHECK")
	if render == "" || kubecheck == "" {
		lacking(t, "the overlays need AGENT_INIT_RENDER, the directory of kustomize, and AGENT_INIT_KUBECHECK, the program of test/kubecheck")
	}
	for dir, want := range map[string]string{"entrypoint": "pod.yaml", "sidecar": "sidecar.yaml"} {
		t.Run(dir, func(t *testing.T) {
			r := run(filepath.Join(render, "kustomize"), "build", overlays+dir)
			if r.code != 0 {
				t.Fatalf("exit %d\n%s", r.code, r.stderr)
			}
			path := filepath.Join(t.TempDir(), "built.yaml")
			if err := os.WriteFile(path, []byte(r.stdout), 0o644); err != nil {
				t.Fatal(err)
			}
			if r := run(kubecheck, "-admit", manifests+"admission.yaml", path); r.code != 0 {
				t.Errorf("not valid, or not admitted: %s", r.stderr)
			}
			var got []string
			for d := yaml.NewDecoder(strings.NewReader(r.stdout)); ; {
				var o object
				if d.Decode(&o) != nil {
					break
				}
				got = append(got, named(o))
			}
			pod := named(readManifest(t, want))
			all := []string{pod, "ConfigMap agent-policy", "NetworkPolicy agent", "ValidatingAdmissionPolicy agent-init.org", "ValidatingAdmissionPolicyBinding agent-init.org"}
			slices.Sort(all)
			if slices.Sort(got); !slices.Equal(got, all) {
				t.Errorf("it has %q, want %q", got, all)
			}
		})
	}
}

// named is an object's kind and name.
func named(o object) string {
	return o["kind"].(string) + " " + o["metadata"].(object)["name"].(string)
}
