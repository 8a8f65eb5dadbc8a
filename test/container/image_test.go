package container

import "testing"

// testImage checks what is in the images, without running agent-init.
func testImage(t *testing.T, e *engine) {
	for _, image := range []string{e.base, e.claude} {
		for _, check := range []struct{ name, user, script string }{
			{"no-setuid-no-setgid", "0", `test -z "$(find / -xdev -perm /6000)"`},
			{"no-file-capability", "0", `test -z "$(find / -xdev -type f -exec getcap {} +)"`},
			{"no-sudo-and-no-other-init", "0", noHelpers},
			{"agent-is-1000", "agent", `test "$(id -u):$(id -g):$(id -G)" = 1000:1000:1000 && test "$PWD" = /workspace && touch /workspace/x ~/x`},
			{"tools", "agent", `for p in curl git jq less make ps rg ssh unzip; do command -v $p || exit 1; done; ps -e && rg --version && curl --version && jq -n 1 && ssh -V`},
			{"git-identity", "agent", `export GIT_AUTHOR_NAME=Ada GIT_AUTHOR_EMAIL=ada@corp.example GIT_COMMITTER_NAME=Ada GIT_COMMITTER_EMAIL=ada@corp.example
				cd /workspace && git init -q . && git commit -q --allow-empty -m x && git log --format=%an | grep -x Ada`},
			{"agent-can-change-nothing-of-ours", "agent", `for f in /usr/local/bin/agent-init /usr/local/bin /etc/agent-init /etc/agent-init/allowlist.d /var/lib/agent-init ` +
				`/run/agent-init /var/log/agent-init /etc/passwd; do test -e $f && test ! -w $f || exit 1; done`},
		} {
			t.Run(image+"/"+check.name, func(t *testing.T) {
				r := e.docker("run", "--name", e.name(t), "--cap-drop=ALL", "--cap-add=DAC_READ_SEARCH", "--network=none",
					"--user", check.user, "--entrypoint=sh", image, "-c", check.script)
				if r.code != 0 {
					t.Errorf("%s\nexit %d\n%s%s", check.script, r.code, r.stdout, r.stderr)
				}
			})
		}
	}
	t.Run("agent-can-not-change-claude", func(t *testing.T) {
		r := e.docker("run", "--name", e.name(t), "--network=none", "--user=agent", "--entrypoint=sh", e.claude, "-c",
			"claude --version && test ! -w /opt/claude/claude && test ! -w /opt/claude && test ! -w /usr/local/bin/claude")
		if r.code != 0 {
			t.Errorf("exit %d\n%s%s", r.code, r.stdout, r.stderr)
		}
	})
	t.Run("entrypoint", func(t *testing.T) {
		got := e.must(t, "inspect", "--format", "{{json .Config.Entrypoint}} {{json .Config.Healthcheck.Test}}", e.base)
		if want := `["/usr/local/bin/agent-init","run","--"] ["CMD","/usr/local/bin/agent-init","status","--quiet"]`; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
	t.Run("base-with-a-user-and-privileged-files", func(t *testing.T) { testHostileBase(t, e) })
	t.Run("base-with-a-writable-directory-first-on-path", func(t *testing.T) { testPathOfBase(t, e) })
}

// testHostileBase builds Dockerfile.base on an image that has its own uid 1000, setuid programs and
// file capabilities: the build's own check passes only when all of it is gone.
func testHostileBase(t *testing.T, e *engine) {
	b := newBuilder(t, e)
	hostile := b.image(`
USER root
RUN userdel agent && useradd --uid 1000 --create-home node && rm -r /workspace \
 && cp /bin/true /usr/local/bin/become && chmod 4755 /usr/local/bin/become \
 && cp /bin/true /usr/local/bin/raw && setcap cap_net_raw+ep /usr/local/bin/raw
USER node
`)
	if r := e.docker("run", "--rm", "--entrypoint=sh", hostile, "-c", "test -u /usr/local/bin/become && getcap /usr/local/bin/raw | grep -q cap_net_raw"); r.code != 0 {
		t.Fatalf("the base is not hostile: %s%s", r.stdout, r.stderr)
	}
	made, r := b.base(hostile)
	if r.code != 0 {
		t.Fatalf("exit %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	r = e.docker("run", "--rm", "--network=none", "--entrypoint=sh", made, "-c",
		`test -z "$(find / -xdev -perm /6000)" && test -z "$(getcap /usr/local/bin/raw)" && test "$(id -u):$(id -un 1000)" = 0:agent && ! id node`)
	if r.code != 0 {
		t.Errorf("exit %d\n%s%s", r.code, r.stdout, r.stderr)
	}
}
