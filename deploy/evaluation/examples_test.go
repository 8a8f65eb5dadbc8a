package evaluation

import (
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/agent-init/agent-init/allowlist.d"
	"github.com/agent-init/agent-init/internal/mustrun"
	"github.com/agent-init/agent-init/pkg/policy"
)

// project is what counts here of a compose file.
type project struct {
	Services map[string]struct {
		Entrypoint []string
		CapDrop    []string `yaml:"cap_drop"`
		CapAdd     []string `yaml:"cap_add"`
		Networks   yaml.Node
		Configs    []struct{ Source, Target string }
	}
	Networks map[string]struct {
		Internal bool
		Driver   string
	}
	Configs map[string]struct{ Content string }
}

// policyOf is the policy that a service of a compose file has.
func policyOf(t *testing.T, file, service string) (project, *policy.Bundle) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var p project
	if err := yaml.Unmarshal(data, &p); err != nil {
		t.Fatal(err)
	}
	b := &policy.Bundle{Phases: map[string][]policy.File{}}
	for _, c := range p.Services[service].Configs {
		name, ok := strings.CutPrefix(c.Target, "/etc/agent-init/")
		if !ok {
			t.Errorf("%s: %s is no file of the policy", file, c.Target)
		}
		f := policy.File{Name: name, Data: []byte(p.Configs[c.Source].Content)}
		if dir, ok := strings.CutPrefix(path.Dir(name), "phases/"); ok {
			b.Phases[dir] = append(b.Phases[dir], f)
		} else {
			b.Files = append(b.Files, f)
		}
	}
	return p, b
}

// TestPolicies: each phase of each example is right, and opens what it is for, and no more.
func TestPolicies(t *testing.T) {
	names := []string{"api.anthropic.com", "deb.debian.org", "pypi.org", "github.com"}
	for _, tt := range []struct {
		file, service string
		allowed       map[string]string
	}{
		{"gateway.yaml", "gateway", map[string]string{policy.Setup: "api.anthropic.com deb.debian.org pypi.org github.com", policy.Run: "api.anthropic.com", policy.Verify: "pypi.org"}},
		{"compose.yaml", "default", map[string]string{policy.Setup: "pypi.org github.com", policy.Run: "", policy.Verify: "pypi.org"}},
	} {
		p, b := policyOf(t, tt.file, tt.service)
		for phase, want := range tt.allowed {
			b.Phase = phase
			made, err := policy.Parse(b, allowlist.Files)
			if err != nil {
				t.Fatal(tt.file, err)
			}
			allowed := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !made.Lookup(name).Allowed })
			if strings.Join(allowed, " ") != want {
				t.Errorf("%s: %s allows %q", tt.file, phase, allowed)
			}
			if len(made.Warnings) > 0 && phase != policy.Verify { // which denies on purpose
				t.Errorf("%s: %s: %v", tt.file, phase, made.Warnings)
			}
		}
		s := p.Services[tt.service]
		i := slices.Index(s.Entrypoint, "--phase")
		if i < 0 || s.Entrypoint[i+1] != policy.Setup || !slices.Equal(s.CapDrop, []string{"ALL"}) || !slices.Equal(s.CapAdd, []string{"NET_ADMIN", "SETUID", "SETGID", "SETPCAP"}) {
			t.Errorf("%s: %v", tt.file, s)
		}
	}
	p, _ := policyOf(t, "gateway.yaml", "gateway")
	if n := p.Networks["inside"]; !n.Internal || n.Driver != "macvlan" || len(p.Services["main"].CapAdd) > 0 || len(p.Services["main"].Networks.Content) != 1 || p.Services["main"].Networks.Content[0].Value != "inside" {
		t.Error("the task's container has another way out")
	}
}

// TestPython: evaluation.py is Python. What it calls of Inspect's is not here to be tried.
func TestPython(t *testing.T) {
	mustrun.Tool(t, "python3")
	if out, err := exec.Command("python3", "-c", "import ast,sys; ast.parse(open(sys.argv[1]).read())", "evaluation.py").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
