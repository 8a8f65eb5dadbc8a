package container

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab/fakellm"
)

// testDrift runs the agent without any wall, as the image is and with the vendor's defaults, and
// compares what it contacts with its preset: a name that the preset doesn't have fails, and so does one
// that it calls required and that was not contacted. onTerminal is what was asked for on a terminal, as the image is. It returns
// what was contacted, for each.
func testDrift(t *testing.T, e *engine, n *internet, a agentSpec, image string, onTerminal []string) (shipped, vendor []string) {
	sections := preset(t, a.name)
	options, command := a.asVendor(t)
	n.forget()
	ask(t, e, n, a, image, nil, a.asShipped())
	_, asked := n.seen()
	shipped = contacted(t, args(asked, onTerminal))
	n.forget()
	ask(t, e, n, a, image, options, command)
	_, asked = n.seen()
	vendor = contacted(t, asked)
	t.Logf("contacts, as the image is: %q", shipped)
	t.Logf("contacts, with the vendor's defaults: %q", vendor)

	var known []string
	for _, names := range sections {
		known = append(known, names...)
	}
	for _, name := range args(shipped, vendor) {
		if name != npmRegistry && !covers(known, name) && name != a.allow {
			t.Errorf("contacts %s, which allowlist.d/%s.txt doesn't have", name, a.name)
		}
	}
	for _, entry := range sections["required"] {
		if !slices.ContainsFunc(args(shipped, vendor), func(name string) bool { return covers([]string{entry}, name) }) {
			t.Errorf("allowlist.d/%s.txt calls %s required, and it was not contacted", a.name, entry)
		}
	}
	// What the image turns off is off.
	for _, section := range []string{"telemetry", "update"} {
		for _, name := range shipped {
			if covers(sections[section], name) && !covers(args(sections["required"], sections["sign-in"]), name) {
				t.Errorf("contacts %s, though the image turns %s off", name, section)
			}
		}
	}
	return shipped, vendor
}

// testInProgram looks for the names of the agent's preset in what its image is made of, where the preset says that they are all there.
func testInProgram(t *testing.T, e *engine, a agentSpec, image, version string) {
	text, err := os.ReadFile(filepath.Join("../../allowlist.d", a.name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	const claim = "# Source: the program itself, which has every name in it: "
	if !strings.Contains(string(text), claim) {
		return
	}
	if !strings.Contains(string(text), claim+version+"\n") {
		t.Errorf("allowlist.d/%s.txt is of another version than the image, %s", a.name, version)
	}
	var names []string
	for _, entries := range preset(t, a.name) {
		for _, entry := range entries {
			names = append(names, strings.TrimPrefix(entry, "*."))
		}
	}
	out := e.docker(args([]string{"run", "--name", e.name(t), "--network=none", "--user=agent", "--entrypoint=sh", image, "-c",
		`for name; do LC_ALL=C grep -rqaF -e "$name" /opt || echo "$name"; done`, "sh"}, names)...)
	if out.code != 0 || out.stdout != "" || len(names) == 0 {
		t.Errorf("of %d names, these are not in the program: exit %d\n%s%s", len(names), out.code, out.stdout, out.stderr)
	}
}

// npmRegistry stands for the registry that npm itself has by default: its name is not written down here.
const npmRegistry = "npm's registry"

// ask has the agent answer one prompt, unconfined.
func ask(t *testing.T, e *engine, n *internet, a agentSpec, image string, options, command []string) {
	t.Helper()
	out := e.docker(args([]string{"run", "--name", e.name(t), "--cap-drop=ALL", "--user=agent", "--entrypoint=" + command[0]},
		agent(t, n), a.credentials(), options, []string{image}, command[1:])...)
	if out.code != 0 || !strings.Contains(out.stdout, fakellm.Text) {
		t.Errorf("%q, unconfined: exit %d\n%s%s", command, out.code, out.stdout, out.stderr)
	}
}

// contacted are the names that were asked for.
func contacted(t *testing.T, queries []string) []string {
	t.Helper()
	registry := defaultRegistry(t)
	var names []string
	for _, q := range queries {
		name := strings.TrimSuffix(q, ".")
		if name == registry {
			name = npmRegistry
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// defaultRegistry is what npm says if nothing is configured.
func defaultRegistry(t *testing.T) string {
	t.Helper()
	empty := t.TempDir()
	cmd := exec.Command("npm", "config", "get", "registry", "--userconfig="+empty+"/user", "--globalconfig="+empty+"/global")
	cmd.Dir = empty
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + cmd.Dir}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("ask npm for its default registry: %v", err)
	}
	u, err := url.Parse(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatal(err)
	}
	return u.Hostname()
}
