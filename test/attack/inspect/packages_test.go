package inspect

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/internal/lab/depot"
	"github.com/agent-init/agent-init/internal/mustrun"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// depots confines a box with routes to all registries, and with more files of the machine's.
func depots(t *testing.T, policy string, binds []lab.Bind) *rig.World {
	t.Helper()
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	d := depot.New()
	for i, host := range depot.Hosts() {
		l.DNS.SetAddrs(host, "45.30.51."+string(rune('1'+i)))
		l.Web.Handle(host, d)
	}
	return rig.ConfineIn(t, l, "ok.test\n", lab.BoxOptions{Binds: binds, Files: []lab.File{
		{Path: "/etc/agent-init/policy.yaml", Data: []byte(policy)}, {Path: rig.Bundle, Data: l.CA.PEM},
	}})
}

const agedPackages = "broker:\n  npm: {min_age: 3d}\n  pypi: {min_age: 3d}\n  go: {min_age: 3d}\n  crates: {min_age: 3d}\n  maven: {min_age: 3d}\n"

// TestPackages: the programs of five registries find them by the settings that the agent has, and the highest version
// that is old enough. A younger one is not there, whoever asks for it and however, and nothing is published.
func TestPackages(t *testing.T) {
	cargo, toolchain := toolchain(t)
	goroot, err := exec.Command("go", "env", "GOROOT").Output()
	rig.Must(t, err)
	toolchain = append(toolchain, lab.Bind{Source: strings.TrimSpace(string(goroot)), Target: "/opt/go"})
	w := depots(t, agedPackages, toolchain)
	run := func(script string) lab.Result {
		t.Helper()
		script = "export HOME=/tmp/home GOPATH=/tmp/go GOCACHE=/tmp/gocache GOFLAGS=-mod=mod GOSUMDB=off GOTOOLCHAIN=local PATH=$PATH:/opt/go/bin:/opt/rust/bin" +
			" CARGO_HOME=/tmp/cargo CARGO_NET_RETRY=0; mkdir -p /tmp/home /tmp/cargo && cd /tmp && " + script
		if w.Mode == "" {
			return w.Launch("sh", "-c", script).Wait(0)
		}
		return w.Box.Exec(lab.Cmd{Args: []string{"sh", "-c", ". /run/agent-init/broker.env; " + script}, UID: lab.AgentUID})
	}
	for _, c := range []struct{ tool, does, gets, young, why, publish, refused string }{
		{
			"npm", "mkdir -p n && cd n && echo '{}' > package.json && npm install pad && node -p 'require(\"pad\")' && grep resolved package-lock.json && npm view pad dist-tags",
			`"https://registry.npmjs.org/pad/-/pad-1.1.0.tgz"`,
			"cd n && npm install pad@1.2.0", "No matching version found for pad@1.2.0",
			`cd n/node_modules/pad && sed -i s/1.1.0/1.3.0/ package.json && npm publish --tag next "--${NPM_CONFIG_REGISTRY#http:}:_authToken=x"`, "PUT /pad is not on the list of route npm",
		},
		{"python3", "python3 -m pip install --no-cache-dir --target /tmp/p pad && cat p/pad/__init__.py", "version = '1.1.0'", "python3 -m pip download pad==1.2.0", "(from versions: 1.0.0, 1.1.0)", "", ""},
		{"go", "mkdir -p g && cd g && go mod init g && go get example.com/pad@latest && go list -m -versions example.com/pad", "example.com/pad v1.0.0 v1.1.0\n", "cd g && go get example.com/pad@v1.2.0", "and min_age of route go is 3d: it does not exist yet", "", ""},
		{
			cargo, "ln -sf /run/agent-init/cargo.toml cargo/config.toml && " + cargo + " init -q --name c c && cd c && " + cargo + " add -q pad && " + cargo + " fetch -q && cat Cargo.lock",
			"name = \"pad\"\nversion = \"1.1.0\"\nsource = \"registry+https://github.com/rust-lang/crates.io-index\"",
			"cd c && " + cargo + " add pad@1.2.0 && " + cargo + " fetch", "`pad@1.2.0` could not be found in registry index",
			"cd c && " + cargo + " publish --allow-dirty --no-verify --registry crates-io --token x", "Could not resolve host",
		},
		{
			"mvn", "mkdir -p m && cd m && echo '<project><modelVersion>4.0.0</modelVersion><parent><groupId>org.acme</groupId><artifactId>pad</artifactId><version>[1.0,2.0)</version><relativePath/></parent><artifactId>x</artifactId><version>1</version><packaging>pom</packaging></project>' > pom.xml && " +
				"mvn -q -B -gs /run/agent-init/maven-settings.xml -Dmaven.repo.local=/tmp/m2 validate && ls /tmp/m2/org/acme/pad", "1.1.0\n",
			"cd m && sed -i s/.1.0,2.0./1.2.0/ pom.xml && mvn -B -gs /run/agent-init/maven-settings.xml -Dmaven.repo.local=/tmp/m2 validate",
			"Could not find artifact org.acme:pad:pom:1.2.0 in agent-init", "", "",
		},
	} {
		t.Run(filepath.Base(c.tool), func(t *testing.T) {
			if c.tool == "" {
				t.Skip("this machine has no cargo of 1.68 or later, which reads sparse indexes")
			}
			if _, err := exec.LookPath(c.tool); err != nil && c.tool != cargo {
				mustrun.Lacks(t, "%v", err)
			}
			if r := run(c.does); r.Code != 0 || !strings.Contains(r.Stdout, c.gets) {
				t.Fatalf("%s\n%s", r, w.Agent.Stderr())
			}
			for script, why := range map[string]string{c.young: c.why, c.publish: c.refused} {
				if r := run(script); script != "" && (r.Code == 0 || !strings.Contains(r.Stdout+r.Stderr, why)) {
					t.Errorf("%s: %s, without %q", script, r, why)
				}
			}
		})
	}
	for name, script := range map[string]string{
		"a young file of npm's": `ask "${NPM_CONFIG_REGISTRY}pad/-/pad-1.2.0.tgz"`, "by another name": `ask "${NPM_CONFIG_REGISTRY}pad/-/../../pad/-/pad-1.2.0.tgz"`,
		"a young tag": `ask "${NPM_CONFIG_REGISTRY}pad/1.2.0"`, "search": `ask "${NPM_CONFIG_REGISTRY}-/v1/search?text=pad"`, "the audit": `ask -d {} "${NPM_CONFIG_REGISTRY}-/npm/v1/security/advisories/bulk"`,
		"a login": `ask -X PUT -d {} "${NPM_CONFIG_REGISTRY}-/user/org.couchdb.user:x"`, "taking away": `ask -X DELETE "${NPM_CONFIG_REGISTRY}pad/-rev/1"`,
		"a young module": `ask "$GOPROXY/example.com/pad/@v/v1.2.0.zip"`, "a file of Python's that no index has": `ask "${PIP_INDEX_URL%simple/}files/pad/files.pythonhosted.org/packages/x"`,
		"another host": `ask "${PIP_INDEX_URL%simple/}files/pad/ok.test/"`, "an upload": `ask -F x=y "${PIP_INDEX_URL%simple/}legacy/"`, "a young crate": `ask "${GOPROXY%go}crates/dl/pad/1.2.0/download"`,
		"a young jar": `ask "${GOPROXY%go}maven/org/acme/pad/1.2.0/pad-1.2.0.jar"`, "a deployment": `ask -X PUT -d x "${GOPROXY%go}maven/org/acme/pad/1.2.0/pad-1.2.0.jar"`,
	} {
		if r := run(`ask() { curl -fsS --path-as-is "$@"; }; ` + script); r.Code == 0 || !strings.Contains(r.Stderr, "error: 40") {
			t.Errorf("%s: %s: %s", name, script, r)
		}
	}
	for _, q := range w.Lab.Web.Requests(depot.Hosts()...) {
		young := strings.Contains(q.URI, depot.Young) && !strings.HasSuffix(q.URI, ".info") && q.Method != "HEAD"
		if q.Method != "GET" && q.Method != "HEAD" || young {
			t.Errorf("%s %s%s arrived", q.Method, q.Host, q.URI)
		}
	}
	for _, host := range depot.Hosts() {
		w.Blocked("resolve", host)
	}
}

// toolchain is the path of a cargo in the box, and what shows it there: rustup's is in a home that the agent can't
// read. There is none if it can't read sparse indexes.
func toolchain(t *testing.T) (string, []lab.Bind) {
	t.Helper()
	out, err := exec.Command("rustc", "--print", "sysroot").Output()
	top := strings.TrimSpace(string(out))
	if err != nil {
		return "", nil
	}
	var minor int
	said, err := exec.Command(filepath.Join(top, "bin/cargo"), "--version").Output()
	if _, scanErr := fmt.Sscanf(string(said), "cargo 1.%d", &minor); err != nil || scanErr != nil || minor < 68 {
		return "", nil
	}
	if top == "/usr" {
		return "/usr/bin/cargo", nil
	}
	return "/opt/rust/bin/cargo", []lab.Bind{{Source: top, Target: "/opt/rust"}}
}
