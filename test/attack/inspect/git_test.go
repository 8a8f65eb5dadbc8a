package inspect

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/internal/lab/forge"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// TestGit: the agent clones and pushes by the names that it knows, without a token. What may not be read or pushed is
// not, by git, by hand, or past the broker.
func TestGit(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	f := forge.New(t, "x-access-token", rig.GitKey)
	one, two := f.Repo(t, "org/one.git"), f.Repo(t, "other/two.git")
	l.DNS.SetAddrs("github.com", "45.30.50.2", "2a0f:30::51")
	l.Web.Handle("github.com", f)
	w := rig.ConfineIn(t, l, "ok.test\n", lab.BoxOptions{Files: []lab.File{
		{Path: "/etc/agent-init/policy.yaml", Data: []byte("broker:\n  github:\n    credential: file:/run/secrets/github\n    git: write\n    repos: [ORG/*]\n    branches: [agent/*]\n")},
		{Path: rig.Bundle, Data: l.CA.PEM},
		{Path: "/run/secrets/github", Data: []byte(rig.GitKey + "\n"), Mode: 0o400},
	}})
	run := func(script string) lab.Result {
		t.Helper()
		script = "export HOME=/tmp GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b GIT_TERMINAL_PROMPT=0; cd /tmp && " + script
		if w.Mode == "" {
			return w.Launch("sh", "-c", script).Wait(0)
		}
		return w.Box.Exec(lab.Cmd{Args: []string{"sh", "-c", ". /run/agent-init/broker.env; " + script}, UID: lab.AgentUID})
	}
	passes := func(script string) {
		t.Helper()
		if r := run(script); r.Code != 0 {
			t.Fatalf("%s: %s\n%s", script, r, w.Agent.Stderr())
		}
	}
	fails := func(why, script string) {
		t.Helper()
		if r := run(script); r.Code == 0 || !strings.Contains(r.Stdout+r.Stderr, why) {
			t.Errorf("%s: %s, without %q", script, r, why)
		}
	}
	passes("git clone https://github.com/org/one one && cd one && echo two > file && git commit -qam two && git push origin HEAD:agent/x")
	passes("git clone --depth 1 git@github.com:org/one.git shallow && test \"$(git -C shallow remote get-url --all origin)\" != '' && grep -q git@github.com: shallow/.git/config")
	fails("refs/heads/main is not among what route github may push", "cd one && git push origin HEAD:main HEAD:agent/y")
	fails("repository other/two is not on the list", "git clone https://github.com/other/two")
	fails("", "git -c url.x.insteadOf=y -c include.path=/dev/null clone https://github.com:443/other/two x") // not rewritten
	const base = `BASE=$(git config --system --get-regexp '^url' | head -1 | sed 's/^url\.//; s,/\.insteadof.*,,'); ` +
		`KEY=$(git config --system --get-regexp extraheader | cut -d' ' -f2-); ask() { curl -fsS --path-as-is -H "$KEY" "$BASE$1"; }; `
	passes(base + `ask '/org/one/info/refs?service=git-upload-pack' > /dev/null`)
	for name, script := range map[string]string{
		"past the broker":      "GIT_CONFIG_SYSTEM=/dev/null git clone https://github.com/org/one direct",
		"another path":         `ask '/org/one/archive/main.zip'`,
		"an escape":            `ask '/org/../other/two/info/refs?service=git-upload-pack'`,
		"an escaped slash":     `ask '/org%2F..%2Fother/two/info/refs?service=git-upload-pack'`,
		"the dumb protocol":    `ask '/org/one/info/refs'`,
		"the file of the key":  "cat /run/secrets/github",
		"the file of settings": "echo x >> $GIT_CONFIG_SYSTEM",
	} {
		if r := run(base + script); r.Code == 0 {
			t.Errorf("%s: %s passes: %s", name, script, r)
		}
	}
	if r := run("cat $GIT_CONFIG_SYSTEM; env; cat one/.git/config"); strings.Contains(r.Stdout, rig.GitKey) || !strings.Contains(r.Stdout, "insteadOf") {
		t.Errorf("the agent reads %s", r)
	}
	if refs := f.Refs(t, one); !slices.Equal(refs, []string{"agent/x", "main"}) {
		t.Errorf("the server has %s", refs)
	}
	if refs := f.Refs(t, two); len(refs) != 1 {
		t.Errorf("the other repository has %s", refs)
	}
	for _, q := range l.Web.Requests("github.com") {
		if strings.Contains(q.URI, "two") || !q.TLS || basicKey(q.Header) != rig.GitKey {
			t.Errorf("%s %s arrived with %v", q.Method, q.URI, q.Header)
		}
	}
}

// basicKey is the password that a head shows.
func basicKey(h http.Header) string {
	_, key, _ := (&http.Request{Header: h}).BasicAuth()
	return key
}
