package container

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const chart = "../../deploy/helm/agent-init"

// TestContainerPlacesCharts has helm render the chart, and needs no engine.
func TestContainerPlacesCharts(t *testing.T) { needTools(t).chart(t) }

// tools are helm, and what judges what it renders.
type tools struct{ helm, kubecheck string }

func needTools(t *testing.T) tools {
	t.Helper()
	dir, check := os.Getenv("AGENT_INIT_CHARTS"), os.Getenv("AGENT_INIT_KUBECHECK")
	if dir == "" || check == "" {
		lacking(t, "the chart needs AGENT_INIT_CHARTS, the directory of helm, and AGENT_INIT_KUBECHECK, the program of test/kubecheck")
	}
	// Helm keeps what it likes in the home of whoever starts it.
	for _, name := range []string{"HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"} {
		t.Setenv(name, filepath.Join(t.TempDir(), "helm"))
	}
	return tools{filepath.Join(dir, "helm"), check}
}

// template renders the chart with values, which are YAML.
func (c tools) template(t *testing.T, values string) result {
	t.Helper()
	path := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(path, []byte(values), 0o644); err != nil {
		t.Fatal(err)
	}
	return run(c.helm, "template", "work", chart, "--namespace", "agents", "--values", path)
}

// the first object of a kind.
func the(t *testing.T, kind string, all []object) object {
	t.Helper()
	for _, o := range all {
		if o["kind"] == kind {
			return o
		}
	}
	t.Fatalf("there is no %s", kind)
	return nil
}

// podOf is the pod that a workload makes.
func podOf(workload object) object { return spec(workload)["template"].(object) }

// The values of these tests: each is rendered, valid and admitted.
var chartValues = map[string]string{
	"as it is":        "",
	"sidecar":         "{mode: sidecar, agent: {args: [claude, -p, say hello]}}",
	"job":             "{kind: Job, replicas: 3, agent: {args: [claude]}, job: {ttlSecondsAfterFinished: 60}}",
	"sidecar job":     "{mode: sidecar, kind: Job}",
	"keys":            "{keys: {values: {ANTHROPIC_API_KEY: sk-ant-test}}}",
	"sidecar's keys":  "{mode: sidecar, keys: {existingSecret: mine, names: [ANTHROPIC_API_KEY, OPENAI_API_KEY]}}",
	"ceiling":         `{ceiling: {files: {org.yaml: "entries: any\ndeny: [paste.example]\n"}}}`,
	"image's ceiling": "{mode: sidecar, ceiling: {fromImage: true}}",
	"authorities":     "{authorities: {existingConfigMap: ca}}",
	"sidecar's own":   "{mode: sidecar, authorities: {existingConfigMap: ca, key: ca.pem}}",
	"policy of others": `{policy: {existingConfigMap: theirs}, ceiling: {existingConfigMap: theirs-above}, workspace: {existingClaim: mine},
		networkPolicy: {enabled: false}}`,
	"all else": `{image: {digest: "sha256:0000000000000000000000000000000000000000000000000000000000000000"}, sidecarImage: {tag: v1},
		mode: sidecar, imagePullSecrets: [{name: p}], agent: {user: 2000, env: [{name: A, value: b}], envFrom: [{configMapRef: {name: e}}],
		extraVolumeMounts: [{name: more, mountPath: /more}]}, extraVolumes: [{name: more, emptyDir: {}}], workspace: {size: 1Gi, storageClassName: s},
		networkPolicy: {extraEgress: [{to: [{ipBlock: {cidr: 10.0.0.7/32}}], ports: [{protocol: TCP, port: 5432}]}]},
		podLabels: {team: a}, podAnnotations: {a: b}, nodeSelector: {a: b}, tolerations: [{operator: Exists}], priorityClassName: low,
		affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: kubernetes.io/hostname}]}},
		runtimeClassName: r, nameOverride: name, fullnameOverride: full, startupProbe: {failureThreshold: 5}, terminationGracePeriodSeconds: 5}`,
}

// chart holds the chart to helm's own linter, to the API server's rules, and to the manifests.
func (c tools) chart(t *testing.T) {
	if r := run(c.helm, "lint", "--strict", chart); r.code != 0 {
		t.Errorf("helm lint: %s%s", r.stdout, r.stderr)
	}
	for name, values := range chartValues {
		t.Run(name, func(t *testing.T) {
			r := c.template(t, values)
			if r.code != 0 {
				t.Fatalf("exit %d\n%s", r.code, r.stderr)
			}
			valid(t, c.kubecheck, r.stdout, admitted...)
		})
	}
	for name, k := range map[string]struct{ values, says string }{
		"no such value":            {"{mod: sidecar}", "mod"},
		"no such mode":             {"{mode: init}", "mode"},
		"a number for a name":      {"{policy: {existingConfigMap: 7}}", "existingConfigMap"},
		"a user of agent-init's":   {"{agent: {user: 64901}}", "user"},
		"root":                     {"{agent: {user: 0}}", "user"},
		"agent-init's directory":   {"{agent: {extraVolumeMounts: [{name: run, mountPath: /x}]}}", "extraVolumeMounts"},
		"over the policy":          {"{agent: {extraVolumeMounts: [{name: x, mountPath: /etc/agent-init}]}}", "extraVolumeMounts"},
		"agent-init's settings":    {"{agent: {env: [{name: AGENT_INIT_MODE, value: monitor}]}}", "env"},
		"the label":                {`{podLabels: {agent-init.org/confined: "false"}}`, "agent-init.org/confined"},
		"a ceiling that is none":   {"{ceiling: {files: {org.json: x}}}", "files"},
		"keys without a name":      {"{keys: {existingSecret: mine}}", "names"},
		"a name without keys":      {"{keys: {names: [A]}}", "names"},
		"no digest":                {"{image: {digest: latest}}", "digest"},
		"two ceilings":             {`{ceiling: {fromImage: true, existingConfigMap: c}}`, "exclude each other"},
		"two ways to give keys":    {"{keys: {existingSecret: s, names: [A], values: {A: b}}}", "exclude each other"},
		"a volume of agent-init's": {"{extraVolumes: [{name: policy, emptyDir: {}}]}", "extraVolumes"},
	} {
		t.Run("refused: "+name, func(t *testing.T) {
			if r := c.template(t, k.values); r.code == 0 || !strings.Contains(r.stderr, k.says) {
				t.Errorf("exit %d, want a refusal with %q\n%s%s", r.code, k.says, r.stdout, r.stderr)
			}
		})
	}
	t.Run("as the manifests", func(t *testing.T) { c.asManifests(t) })
	t.Run("policy", func(t *testing.T) { c.policyIsOne(t) })
}

// asManifests: what the chart makes differs from the manifests in names, images and what the agent runs.
func (c tools) asManifests(t *testing.T) {
	for mode, file := range map[string]string{"entrypoint": "pod.yaml", "sidecar": "sidecar.yaml"} {
		all := valid(t, c.kubecheck, c.template(t, "mode: "+mode).stdout)
		if got, want := plain(podOf(the(t, "Deployment", all))), plain(readManifest(t, file)); !reflect.DeepEqual(got, want) {
			t.Errorf("mode %s:\n%s\nwant, as %s:\n%s", mode, asJSON(t, got), file, asJSON(t, want))
		}
		got, want := spec(the(t, "NetworkPolicy", all)), spec(readManifest(t, "networkpolicy.yaml"))
		delete(got, "podSelector")
		delete(want, "podSelector")
		if !reflect.DeepEqual(got, want) {
			t.Errorf("network policy:\n%s\nwant\n%s", asJSON(t, got), asJSON(t, want))
		}
	}
	text, err := os.ReadFile(manifests + "admission.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want, got := valid(t, c.kubecheck, string(text)), valid(t, c.kubecheck, c.template(t, "admissionPolicy: {enabled: true}").stdout)
	for _, o := range want {
		if kind := o["kind"].(string); !reflect.DeepEqual(the(t, kind, got), o) {
			t.Errorf("the chart's %s is not that of the manifests", kind)
		}
	}
}

// plain is the spec of a pod without what a chart and a manifest may differ in.
func plain(pod object) object {
	s := spec(pod)
	for _, key := range []string{"restartPolicy", "terminationGracePeriodSeconds", "shareProcessNamespace"} {
		delete(s, key)
	}
	for _, v := range list(s, "volumes") {
		if m, ok := v["configMap"].(object); ok {
			delete(m, "name") // of the release
		}
	}
	for _, c := range append(list(s, "initContainers"), list(s, "containers")...) {
		for _, key := range []string{"image", "imagePullPolicy", "args", "env"} {
			delete(c, key)
		}
		// Of a pod with one container, it may be said of either.
		if profile, ok := security(c)["seccompProfile"]; ok {
			security(s)["seccompProfile"] = profile
			delete(security(c), "seccompProfile")
		}
	}
	return s
}

func asJSON(t *testing.T, o object) string {
	t.Helper()
	text, err := json.MarshalIndent(o, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// policyIsOne: agent-init takes the policy and the ceiling as the chart writes them, and the manifests' as they are.
func (c tools) policyIsOne(t *testing.T) {
	all := valid(t, c.kubecheck, c.template(t, `ceiling: {files: {org.yaml: "entries: any\ndeny: [paste.example]\n"}}`).stdout)
	policy, manifest := the(t, "ConfigMap", all), readManifest(t, "policy.yaml")
	for _, o := range []object{policy, manifest, readManifest(t, "gateway/policy.yaml")} {
		dir := t.TempDir()
		for name, text := range o["data"].(object) {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text.(string)), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if r := run(os.Getenv("AGENT_INIT_BIN"), "check", "--config", dir, "--ceiling", t.TempDir()); r.code != 0 {
			t.Errorf("%v: %s%s", o["metadata"], r.stdout, r.stderr)
		}
	}
	var got, want object
	for text, into := range map[any]*object{policy["data"].(object)["policy.yaml"]: &got, manifest["data"].(object)["policy.yaml"]: &want} {
		if err := yaml.Unmarshal([]byte(text.(string)), into); err != nil {
			t.Fatal(err)
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("settings: %v, want those of the manifests, %v", got, want)
	}
	ceilings := slices.DeleteFunc(all, func(o object) bool { return o["kind"] != "ConfigMap" || reflect.DeepEqual(o, policy) })
	if len(ceilings) != 1 {
		t.Fatalf("ceilings: %v", ceilings)
	}
	top := t.TempDir()
	if err := os.Mkdir(filepath.Join(top, "ceiling.d"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range ceilings[0]["data"].(object) {
		if err := os.WriteFile(filepath.Join(top, "ceiling.d", name), []byte(text.(string)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if r := run(os.Getenv("AGENT_INIT_BIN"), "check", "--config", t.TempDir(), "--ceiling", top); r.code != 0 {
		t.Errorf("the ceiling: %s%s", r.stdout, r.stderr)
	}
}
