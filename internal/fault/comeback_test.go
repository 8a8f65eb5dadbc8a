package fault

import "testing"

func TestOutside(t *testing.T) {
	pod := map[string]string{"KUBERNETES_SERVICE_HOST": "10.96.0.1"}
	for name, c := range map[string]struct {
		env      map[string]string
		hostname string
		mark     string
		want     string
	}{
		"docker":               {nil, "0123456789ab", "/.dockerenv", "docker exec -it 0123456789ab "},
		"docker with a name":   {nil, "web", "/.dockerenv", "docker exec -it CONTAINER "},
		"podman":               {nil, "0123456789ab", "/run/.containerenv", "podman exec -it 0123456789ab "},
		"a pod":                {pod, "agent-0", "", "kubectl exec -it agent-0 -- "},
		"a pod without a name": {pod, "", "", ""},
		"somewhere else":       {nil, "0123456789ab", "", ""},
	} {
		if got := outside(c.env, c.hostname, func(path string) bool { return path == c.mark }); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if got := ComeBack(nil, 1234); got != "agent-init attach" {
		t.Errorf("from a shell inside: %q", got)
	}
}
