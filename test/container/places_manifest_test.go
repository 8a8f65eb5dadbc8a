package container

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"go.yaml.in/yaml/v3"
)

const manifests = "../../deploy/kubernetes/"

// object is a part of a manifest.
type object = map[string]any

func readManifest(t *testing.T, name string) object {
	t.Helper()
	data, err := os.ReadFile(manifests + name)
	if err != nil {
		t.Fatal(err)
	}
	var m object
	if err := yaml.Unmarshal(data, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

func list(o object, key string) []object {
	var out []object
	l, _ := o[key].([]any)
	for _, e := range l {
		out = append(out, e.(object))
	}
	return out
}

func set(o object, key string, l []object) {
	var out []any
	for _, e := range l {
		out = append(out, e)
	}
	o[key] = out
}

// volumes are what a kubelet makes of a pod's volumes, as directories of this machine.
type volumes struct {
	dir      string
	versions int // of the ConfigMap
}

// forPodman makes of a pod what Podman can play, and returns the command of the startup probe. Podman
// knows no native sidecar ("cannot create an init container that has either of lifecycle, livenessProbe,
// readinessProbe, or startupProbe set"): it becomes a container like the others. Probes need systemd:
// the test is the one that asks. Volumes are directories as a kubelet would leave them, so that their owners
// and modes are those of Kubernetes, and a ConfigMap can change. If the agent is to idle it waits to be told
// what to do. All else stays as it is.
func (v *volumes) forPodman(t *testing.T, pod object, image string, idle bool, mounts map[string]string) (startup []string) {
	t.Helper()
	spec := pod["spec"].(object)
	for _, vol := range list(spec, "volumes") {
		path := filepath.Join(v.dir, vol["name"].(string))
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		// An emptyDir is anybody's to write; fsGroup gives it to a group (k8s.io/kubernetes/pkg/volume).
		if err := os.Chown(path, 0, 1000); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, 0o777|os.ModeSetgid); err != nil {
			t.Fatal(err)
		}
		delete(vol, "configMap")
		delete(vol, "emptyDir")
		vol["hostPath"] = object{"path": path}
	}
	all := append(list(spec, "initContainers"), list(spec, "containers")...)
	delete(spec, "initContainers")
	for _, c := range all {
		if p, ok := c["startupProbe"].(object); ok {
			for _, arg := range p["exec"].(object)["command"].([]any) {
				startup = append(startup, arg.(string))
			}
		}
		for _, key := range []string{"restartPolicy", "startupProbe", "readinessProbe", "livenessProbe", "env"} {
			delete(c, key)
		}
		if idle && c["name"] == "agent" { // its args: a command before them hands signals on
			c["args"] = []any{"sleep", "infinity"}
		}
		c["image"], c["imagePullPolicy"] = image, "Never"
		c["env"] = []any{
			object{"name": "HOME", "value": "/home/agent"}, object{"name": "ANTHROPIC_API_KEY", "value": "sk-ant-test"},
			object{"name": "SSL_CERT_FILE", "value": "/test/ca.pem"}, object{"name": "NODE_EXTRA_CA_CERTS", "value": "/test/ca.pem"},
		}
		vms := list(c, "volumeMounts")
		for _, at := range slices.Sorted(maps.Keys(mounts)) {
			vms = append(vms, object{"name": filepath.Base(at), "mountPath": at, "readOnly": true})
		}
		set(c, "volumeMounts", vms)
	}
	set(spec, "containers", all)
	vols := list(spec, "volumes")
	for at, from := range mounts {
		vols = append(vols, object{"name": filepath.Base(at), "hostPath": object{"path": from}})
	}
	set(spec, "volumes", vols)
	return startup
}

// policy lays the files of a ConfigMap out as the kubelet does, and swaps them in by one rename
// (k8s.io/kubernetes/pkg/volume/util/atomic_writer.go).
func (v *volumes) policy(t *testing.T, files map[string]string) {
	t.Helper()
	dir := filepath.Join(v.dir, "policy")
	v.versions++
	version := fmt.Sprintf("..2026_11_21_00_00_%02d.1", v.versions)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(filepath.Join(dir, version), 0o755))
	must(os.Chown(filepath.Join(dir, version), 0, 1000))
	must(os.Chmod(filepath.Join(dir, version), 0o755|os.ModeSetgid))
	for name, content := range files {
		path := filepath.Join(dir, version, name)
		must(os.WriteFile(path, []byte(content), 0o644))
		must(os.Chown(path, 0, 1000))
		if link := filepath.Join(dir, name); os.Symlink("..data/"+name, link) != nil {
			_, err := os.Lstat(link) // it is there already
			must(err)
		}
	}
	must(os.Symlink(version, filepath.Join(dir, "..data_tmp")))
	must(os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
}
