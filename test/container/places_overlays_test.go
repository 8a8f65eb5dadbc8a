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

// TestContainerPlacesKubernetesOverlays has kustomize build the overlays. What comes out is held to the API server's rules and
// to admission.yaml, and agents behind a gateway to Pod Security's strictest level. It needs no engine.
func TestContainerPlacesKubernetesOverlays(t *testing.T) {
	render, kubecheck := os.Getenv("AGENT_INIT_RENDER"), os.Getenv("AGENT_INIT_KUBECHECK")
	if render == "" || kubecheck == "" {
		lacking(t, "the overlays need AGENT_INIT_RENDER, the directory of kustomize, and AGENT_INIT_KUBECHECK, the program of test/kubecheck")
	}
	shared := []string{"ConfigMap agent-policy", "NetworkPolicy agent", "ValidatingAdmissionPolicy agent-init.org", "ValidatingAdmissionPolicyBinding agent-init.org"}
	for dir, k := range map[string]struct {
		has   []string // nil: it is not said
		flags []string
	}{
		overlays + "entrypoint": {append(shared, named(readManifest(t, "pod.yaml"))), admitted},
		overlays + "sidecar":    {append(shared, named(readManifest(t, "sidecar.yaml"))), admitted},
		manifests + "gateway":   {nil, nil},
		overlays + "openshift":  {nil, nil},
	} {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			r := run(filepath.Join(render, "kustomize"), "build", dir)
			if r.code != 0 {
				t.Fatalf("exit %d\n%s", r.code, r.stderr)
			}
			var got []string
			for _, o := range valid(t, kubecheck, r.stdout, k.flags...) {
				got = append(got, named(o))
				if o["kind"] == "Pod" && k.has == nil { // an agent's, behind the gateway
					valid(t, kubecheck, asJSON(t, o), "-level", "restricted")
				}
			}
			if k.has == nil {
				if !slices.Contains(got, "Pod agent") {
					t.Errorf("it has %q, and no agent", got)
				}
				return
			}
			slices.Sort(k.has)
			if slices.Sort(got); !slices.Equal(got, k.has) {
				t.Errorf("it has %q, want %q", got, k.has)
			}
		})
	}
	t.Run("restricted", func(t *testing.T) { restricted(t, kubecheck) })
}

// restricted: the level judges, or it would prove nothing of the agents.
func restricted(t *testing.T, kubecheck string) {
	refused := func(path, says string) {
		t.Helper()
		if r := run(kubecheck, "-level", "restricted", path); r.code == 0 || !strings.Contains(r.stderr, says) {
			t.Errorf("%s at the level restricted: exit %d, want %q\n%s", path, r.code, says, r.stderr)
		}
	}
	refused(manifests+"gateway/gateway.yaml", "unrestricted capabilities")
	refused(manifests+"pod.yaml", "runAsNonRoot")
	refused(changed(t, "gateway/agent.yaml", "    runAsNonRoot: true\n", ""), "runAsNonRoot")
	refused(changed(t, "gateway/agent.yaml", "drop: [ALL]", "drop: [MKNOD]"), "unrestricted capabilities")
	refused(changed(t, "gateway/agent.yaml", "type: RuntimeDefault", "type: Unconfined"), "seccompProfile")
	// The agents' DNS server is the Service, whose address is written in both.
	servers := spec(readManifest(t, "gateway/agent.yaml"))["dnsConfig"].(object)["nameservers"].([]any)
	gateway, err := os.ReadFile(manifests + "gateway/gateway.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(servers) != 1 || !strings.Contains(string(gateway), "clusterIP: "+servers[0].(string)+"\n") {
		t.Errorf("the agents ask %v, which is not the Service's address", servers)
	}
}

var admitted = []string{"-admit", manifests + "admission.yaml"}

// valid has kubecheck hold what was rendered to the API server's rules, and returns the objects.
func valid(t *testing.T, kubecheck, rendered string, flags ...string) []object {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rendered.yaml")
	if err := os.WriteFile(path, []byte(rendered), 0o644); err != nil {
		t.Fatal(err)
	}
	if r := run(kubecheck, args(flags, []string{path})...); r.code != 0 {
		t.Errorf("not valid, or not admitted: %s\n%s", r.stderr, rendered)
	}
	var all []object
	for d := yaml.NewDecoder(strings.NewReader(rendered)); ; {
		var o object
		if d.Decode(&o) != nil {
			return all
		}
		if o != nil {
			all = append(all, o)
		}
	}
}

// named is an object's kind and name.
func named(o object) string {
	return o["kind"].(string) + " " + o["metadata"].(object)["name"].(string)
}
