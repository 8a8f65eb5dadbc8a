package container

import (
	"strings"
	"testing"
)

// testPathOfBase: the official images of golang and rust begin PATH with a directory
// that everybody writes. On an image that does the same, nothing that the engine
// starts by name, as root, is the agent's.
func testPathOfBase(t *testing.T, e *engine) {
	const dir = "/go/bin"
	b := newBuilder(t, e)
	made, r := b.base(b.image("USER root\nENV GOPATH=/go\nENV PATH=$GOPATH/bin:/usr/local/go/bin:$PATH\n" +
		`RUN mkdir -p "$GOPATH/src" "$GOPATH/bin" && chmod -R 1777 "$GOPATH"` + "\n"))
	if r.code != 0 {
		t.Fatalf("exit %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	container := e.name(t)
	plant := `for p in agent-init sh id; do printf '#!/bin/sh\n/usr/bin/id -u >>/tmp/ran\n' >` + dir + `/$p; chmod 755 ` + dir + `/$p; done; touch /tmp/planted; exec sleep 300`
	e.must(t, args([]string{"run", "-d", "--name", container, "--network=none", "--health-interval=1s"}, privileges(), []string{made, "sh", "-c", plant})...)
	e.must(t, "exec", container, "/bin/sh", "-c", "/usr/local/bin/agent-init wait --timeout=60s && until test -e /tmp/planted; do sleep 0.1; done")
	for _, command := range [][]string{{"agent-init", "status", "--quiet"}, {"sh", "-c", "true"}, {"id"}} {
		e.must(t, args([]string{"exec", container}, command)...)
	}
	if r = e.docker("exec", container, "/bin/cat", "/tmp/ran"); strings.Contains(r.stdout, "0\n") {
		t.Errorf("programs of the agent's ran as root: %q", r.stdout)
	}

	for name, options := range map[string][]string{
		"put first again": {"-e", "PATH=" + dir + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", made, "sh", "-c", "echo started"},
		// As the build of a base sees it: nothing can come first where agent-init's own directory is everybody's.
		"writable as a whole": {"--entrypoint=sh", made, "-c", "chmod 777 /usr/local/bin && /usr/local/bin/agent-init check --path && echo started"},
	} {
		r := e.docker(args([]string{"run", "--name", e.unique(t), "--rm", "--network=none"}, privileges(), options)...)
		if r.code != 78 || strings.Contains(r.stdout, "started") || !strings.Contains(r.stderr, "is writable by everyone") {
			t.Errorf("%s: exit %d\n%s%s", name, r.code, r.stdout, r.stderr)
		}
	}
}
