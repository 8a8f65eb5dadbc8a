package inspect

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/internal/mustrun"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// npmTools are a registry and clients of others, with the one override that verdaccio's dependencies need.
const npmTools = `{"private":true,"overrides":{"node-fetch":"2.6.7"},"dependencies":{
	"verdaccio":"5.31.1","pnpm":"9.15.9","yarn":"1.22.22","@yarnpkg/cli-dist":"4.18.1"}}`

// npmTree is where they are installed: once for a machine.
func npmTree(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	rig.Must(t, err)
	dir := filepath.Join(cache, "agent-init-npm-tools")
	if have, err := os.ReadFile(filepath.Join(dir, "package.json")); err == nil && string(have) == npmTools {
		return dir
	}
	rig.Must(t, os.RemoveAll(dir))
	rig.Must(t, os.MkdirAll(dir, 0o755))
	draft := filepath.Join(dir, "draft")
	rig.Must(t, os.MkdirAll(draft, 0o755))
	rig.Must(t, os.WriteFile(filepath.Join(draft, "package.json"), []byte(npmTools), 0o644))
	const installer = "npm@10.9.4" // Debian's own, 9.2, can't read the override
	npm := filepath.Join(draft, "npm")
	for _, install := range []*exec.Cmd{
		exec.Command("npm", "install", "--prefix", npm, installer),
		exec.Command("node", filepath.Join(npm, "node_modules/npm/bin/npm-cli.js"), "install", "--prefix", draft),
	} {
		install.Args = append(install.Args, "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
		if out, err := install.CombinedOutput(); err != nil {
			mustrun.Lacks(t, "npm can't install verdaccio and the clients: %s", out)
		}
	}
	rig.Must(t, os.Rename(filepath.Join(draft, "node_modules"), filepath.Join(dir, "node_modules")))
	rig.Must(t, os.WriteFile(filepath.Join(dir, "package.json"), []byte(npmTools), 0o644))
	return dir
}

// verdaccio is a registry that serves until the test ends, with what the test has published.
type verdaccio struct {
	t             *testing.T
	url, dir, top string
}

func startVerdaccio(t *testing.T, tree string) *verdaccio {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	rig.Must(t, err)
	addr := l.Addr().String()
	rig.Must(t, l.Close())
	v := &verdaccio{t: t, url: "http://" + addr, dir: t.TempDir(), top: tree}
	config := "storage: ./storage\nauth: {htpasswd: {file: ./htpasswd}}\npackages: {'**': {access: $all, publish: $all, unpublish: $all}}\nlog: {type: file, path: ./log, level: warn}\n"
	rig.Must(t, os.WriteFile(filepath.Join(v.dir, "config.yaml"), []byte(config), 0o644))
	cmd := exec.Command("node", filepath.Join(tree, "node_modules/verdaccio/bin/verdaccio"), "--config", "config.yaml", "--listen", addr)
	cmd.Dir = v.dir
	rig.Must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for deadline := time.Now().Add(lab.Patience); ; time.Sleep(100 * time.Millisecond) {
		if r, err := http.Get(v.url + "/-/ping"); err == nil {
			r.Body.Close()
			return v
		}
		if time.Now().After(deadline) {
			t.Fatal("verdaccio does not serve")
		}
	}
}

// publish publishes a version by npm, as of some days ago.
func (v *verdaccio) publish(name, version string, days int) {
	v.t.Helper()
	dir := v.t.TempDir()
	rig.Must(v.t, os.WriteFile(filepath.Join(dir, "package.json"), fmt.Appendf(nil, `{"name":%q,"version":%q,"main":"index.js"}`, name, version), 0o644))
	rig.Must(v.t, os.WriteFile(filepath.Join(dir, "index.js"), fmt.Appendf(nil, "module.exports = %q\n", version), 0o644))
	cmd := exec.Command("npm", "publish", "--loglevel=error", "--tag=latest", "--registry="+v.url+"/", "--"+v.url[len("http:"):]+"/:_authToken=x", dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		v.t.Fatalf("npm publish: %v\n%s", err, out)
	}
	file := filepath.Join(v.dir, "storage", name, "package.json")
	data, err := os.ReadFile(file)
	rig.Must(v.t, err)
	var doc map[string]any
	rig.Must(v.t, json.Unmarshal(data, &doc))
	doc["time"].(map[string]any)[version] = time.Now().AddDate(0, 0, -days).UTC().Format(time.RFC3339)
	data, err = json.Marshal(doc)
	rig.Must(v.t, err)
	rig.Must(v.t, os.WriteFile(file, data, 0o644))
}

// TestVerdaccio: npm, pnpm and both yarns install over the broker from a registry that nobody here wrote. Their
// lockfiles name no token, and npm's and pnpm's not the broker.
func TestVerdaccio(t *testing.T) {
	lab.Require(t)
	tree := npmTree(t)
	v := startVerdaccio(t, tree)
	for _, version := range []struct {
		name, version string
		days          int
	}{{"pad", "1.0.0", 400}, {"pad", "1.1.0", 9}, {"pad", "1.2.0", 1}, {"@corp/pad", "1.0.0", 30}, {"@corp/secret", "1.0.0", 30}} {
		v.publish(version.name, version.version, version.days)
	}
	to, err := url.Parse(v.url)
	rig.Must(t, err)
	l := lab.New(t, lab.Options{})
	l.DNS.SetAddrs("registry.npmjs.org", "45.30.52.1")
	l.Web.Handle("registry.npmjs.org", httputil.NewSingleHostReverseProxy(to))
	policy := "broker:\n  npm: {min_age: 3d, packages: {deny: ['@corp/secret']}}\n"
	w := rig.ConfineIn(t, l, "ok.test\n", lab.BoxOptions{
		Binds: []lab.Bind{{Source: tree, Target: "/opt/npm"}},
		Files: []lab.File{{Path: "/etc/agent-init/policy.yaml", Data: []byte(policy)}, {Path: rig.Bundle, Data: l.CA.PEM}},
	})
	const modules = "/opt/npm/node_modules/"
	for name, c := range map[string]struct {
		install, add, lock string
		clean              bool // of the broker's address
	}{
		"npm":    {"npm install --ignore-scripts pad @corp/pad", "npm install", "package-lock.json", true},
		"npm ci": {"npm install --ignore-scripts pad @corp/pad && npm cache clean --force && rm -r node_modules && npm ci", "npm install", "package-lock.json", true},
		"pnpm":   {"node " + modules + "pnpm/bin/pnpm.cjs add pad @corp/pad", "node " + modules + "pnpm/bin/pnpm.cjs add", "pnpm-lock.yaml", true},
		"yarn 1": {"node " + modules + "yarn/bin/yarn.js add pad @corp/pad", "node " + modules + "yarn/bin/yarn.js add", "yarn.lock", false},
		"yarn 4": {"YARN_NODE_LINKER=node-modules node " + modules + "@yarnpkg/cli-dist/bin/yarn.js add pad @corp/pad", "node " + modules + "@yarnpkg/cli-dist/bin/yarn.js add", "yarn.lock", true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := "/tmp/" + strings.ReplaceAll(name, " ", "")
			env := "export HOME=" + dir + "/home YARN_ENABLE_TELEMETRY=0; mkdir -p " + dir + "/home " + dir + "/p && cd " + dir + "/p && "
			run := func(script string) lab.Result {
				if w.Mode == "" {
					return w.Launch("sh", "-c", env+script).Wait(0)
				}
				return w.Box.Exec(lab.Cmd{Args: []string{"sh", "-c", ". /run/agent-init/broker.env; " + env + script}, UID: lab.AgentUID})
			}
			show := " && node -p 'require(\"pad\") + require(\"@corp/pad\")' && cat " + c.lock
			r := run("echo '{\"name\":\"x\"}' > package.json && touch yarn.lock && " + c.install + show)
			if r.Code != 0 || !strings.Contains(r.Stdout, "1.1.01.0.0\n") {
				t.Fatalf("%s\n%s", r, w.Agent.Stderr())
			}
			if _, lock, _ := strings.Cut(r.Stdout, "1.1.01.0.0\n"); strings.Contains(lock, "127.0.0.1") == c.clean || strings.Contains(lock, "oken") {
				t.Errorf("the lockfile: %s", lock)
			}
			for _, refused := range []string{"pad@1.2.0", "@corp/secret"} {
				if r := run(c.add + " " + refused); r.Code == 0 {
					t.Errorf("%s is installed: %s", refused, r)
				}
			}
		})
	}
}
