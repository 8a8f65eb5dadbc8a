package container

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// launches starts an agent by "agent-init launch" on the host, as who has the engine: nil for root. The agent doesn't see
// the key, and what it writes in the directory is whose the directory is. Rootless Docker has no way to let it write there.
func (c *tenant) launches(t *testing.T, e *engine, u *user) {
	types := c.host(t, u)
	dir := filepath.Join(c.dir, "launched")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	owner := c.owner
	if u == nil {
		owner = 1000
	}
	if err := os.Chown(dir, owner, owner); err != nil {
		t.Fatal(err)
	}
	must := func(words ...string) string {
		t.Helper()
		r := types(words...)
		if r.code != 0 {
			t.Fatalf("agent-init %q: exit %d\n%s%s", words, r.code, r.stdout, r.stderr)
		}
		return r.stdout
	}
	image := strings.Replace(c.image, e.base, claudeImage(t, e), 1)
	started := must("launch", "claude", dir, "--image", image, "--detach", "--allow", "given.example", "--", "sleep", "infinity")
	name, _, _ := strings.Cut(started, " ")
	t.Cleanup(func() { c.do("rm", "-f", name) })
	must("-C", name, "status", "--quiet")
	if said := must("-C", name, "explain", "given.example"); !strings.Contains(said, ": allowed") {
		t.Error(said)
	}
	if said := must("-C", name, "status"); !strings.Contains(said, "the broker asks api.anthropic.com with that of file:/run/secrets/anthropic") {
		t.Error(said)
	}
	if said := must("launch", "--list"); !strings.Contains(said, name) || !strings.Contains(said, dir) {
		t.Error(said)
	}
	r := types("-C", name, "exec", "--", "sh", "-c", "id -u; cat /run/secrets/anthropic; touch made")
	if strings.Contains(r.stdout+r.stderr, launchKey) || strings.HasPrefix(r.stdout, "0\n") {
		t.Errorf("the agent: %s%s", r.stdout, r.stderr)
	}
	switch st, err := os.Stat(filepath.Join(dir, "made")); {
	case err != nil && (u == nil || strings.Contains(c.image, "localhost/")): // Podman's
		t.Errorf("the agent can't write in its directory: %v\n%s%s", err, r.stdout, r.stderr)
	case err == nil && int(st.Sys().(*syscall.Stat_t).Uid) != owner:
		t.Errorf("what the agent made is not the person's: %+v", st.Sys())
	}
	must("launch", "--stop", name)
}

// host is how somebody types commands of agent-init's. The engine of the test has options, which a person has in settings.
func (c *tenant) host(t *testing.T, u *user) func(words ...string) result {
	t.Helper()
	at := slices.IndexFunc(c.prefix, func(word string) bool { return word == "podman" || word == "docker" })
	path, err := exec.LookPath(c.prefix[at])
	if err != nil {
		t.Fatal(err)
	}
	settings := slices.DeleteFunc(slices.Clone(c.prefix[:at]), func(word string) bool { return !strings.HasPrefix(word, "CONTAINERS_CONF=") })
	program, err := os.ReadFile(os.Getenv("AGENT_INIT_BIN"))
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(c.dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"agent-init": string(program),
		c.prefix[at]: "#!/bin/sh\nexec " + strings.Join(args([]string{"env"}, settings, []string{path}, c.prefix[at+1:]), " ") + ` "$@"` + "\n",
	} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	env := []string{"env", "PATH=" + bin + ":/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "ANTHROPIC_API_KEY=" + launchKey}
	as := env
	if u != nil {
		as = args(u.as(), env)
	}
	return func(words ...string) result { return c.run(args(as, []string{"agent-init"}, words)...) }
}
