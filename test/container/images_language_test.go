package container

import (
	"slices"
	"strings"
	"testing"
)

// language is a variant of the base image whose package manager is configured for a mirror, as agent-init detect found out when
// the image was built. Both scripts say fromMirror where they reach a registry; $OTHER is another one.
type language struct {
	name, mirror string
	install      string
	elsewhere    string
}

// languages are the variants of test/images.sh.
func languages() []language {
	return []language{
		{"node", "npm.corp.example",
			`mkdir /tmp/x && cd /tmp/x && npm install --no-audit --no-fund --fetch-retries=0 thing && node -p 'require("thing")'`,
			`mkdir /tmp/y && cd /tmp/y && npm install --no-audit --no-fund --fetch-retries=0 --registry=$OTHER/ thing && node -p 'require("thing")'`},
		{"python", "pypi.corp.example",
			`pip install --retries=0 --target=/tmp/x thing && PYTHONPATH=/tmp/x python3 -c 'import thing; print(thing.said)'`,
			`pip install --retries=0 --index-url=$OTHER/simple --target=/tmp/y thing && PYTHONPATH=/tmp/y python3 -c 'import thing; print(thing.said)'`},
		{"rust", "cargo.corp.example",
			`cargo init --name x /tmp/x && cd /tmp/x && echo 'thing = "1"' >>Cargo.toml && cargo fetch && cat ~/.cargo/registry/src/*/thing-1.0.0/src/lib.rs`,
			`cargo init --name y /tmp/y && cd /tmp/y && echo 'thing = "1"' >>Cargo.toml && export CARGO_HOME=/tmp/other &&
				cargo fetch --config 'source.crates-io.replace-with="other"' --config "source.other.registry='sparse+$OTHER/index/'" &&
				cat /tmp/other/registry/src/*/thing-1.0.0/src/lib.rs`},
		{"go", "go.corp.example",
			`mkdir /tmp/x && cd /tmp/x && go mod init x && go get example.com/thing@v1.0.0 && cat ~/go/pkg/mod/example.com/thing@v1.0.0/thing.go`,
			`mkdir /tmp/y && cd /tmp/y && export GOPROXY=$OTHER GOMODCACHE=/tmp/other && go mod init y && go get example.com/thing@v1.0.0 && cat /tmp/other/example.com/thing@v1.0.0/thing.go`},
		{"apt", "apt.corp.example",
			aptUpdate + ` && apt-cache $apt show thing`,
			aptUpdate + `; echo "deb [trusted=yes] $OTHER/debian bookworm main" >/tmp/other.list;
				apt="-o Acquire::Retries=0 -o Acquire::https::CAInfo=/test/ca.pem -o Dir::Etc::sourcelist=/tmp/other.list -o Dir::State::lists=/tmp/other -o Dir::Cache=/tmp/other-cache";
				mkdir -p /tmp/other/partial /tmp/other-cache/archives/partial; apt-get $apt update && apt-cache $apt show thing`},
	}
}

// aptUpdate is "apt-get update" by somebody who isn't root.
const aptUpdate = `apt="-o Acquire::Retries=0 -o Acquire::https::CAInfo=/test/ca.pem -o Dir::State::lists=/tmp/x -o Dir::Cache=/tmp/x-cache"
	mkdir -p /tmp/x/partial /tmp/x-cache/archives/partial; apt-get $apt update`

const otherRegistry = "registry.other.example"

// testLanguage has the agent install a package from the mirror, with no other policy than the image's own, and then try another
// registry. That the second can work is seen without agent-init.
func testLanguage(t *testing.T, e *engine, n *internet, l language) {
	image := "agent-init-test/variant-" + l.name
	e.mustHave(t, image)
	client := args(agent(t, n), []string{"-e", "OTHER=https://" + otherRegistry, "-e", "REQUESTS_CA_BUNDLE=/test/ca.pem", "-e", "CARGO_HTTP_CAINFO=/test/ca.pem",
		"-e", "CARGO_NET_RETRY=0", "-e", "PIP_NO_CACHE_DIR=1"})

	n.forget()
	out := e.docker(args([]string{"run", "--name", e.name(t), "--cap-drop=ALL", "--user=agent", "--entrypoint=sh"}, client, []string{image, "-c", l.elsewhere})...)
	if out.code != 0 || !strings.Contains(out.stdout, fromMirror) {
		t.Fatalf("the other registry can't be reached without agent-init either: exit %d\n%s%s", out.code, out.stdout, out.stderr)
	}

	n.forget()
	out = e.docker(args([]string{"run", "--name", e.name(t)}, privileges(), client, []string{image, "sh", "-c",
		"{ " + l.install + "; } && echo installed; { " + l.elsewhere + "; } && echo installed elsewhere; true"})...)
	if out.code != 0 || !strings.Contains(out.stdout, fromMirror) || !strings.Contains(out.stdout, "installed\n") {
		t.Errorf("the mirror of the image's configuration was not reached: exit %d\n%s%s", out.code, out.stdout, out.stderr)
	}
	if strings.Contains(out.stdout, "installed elsewhere") {
		t.Errorf("another registry was reached:\n%s%s", out.stdout, out.stderr)
	}
	_, queries := n.seen()
	if names := slices.Compact(slices.Sorted(slices.Values(queries))); !slices.Equal(names, []string{l.mirror + "."}) {
		t.Errorf("the names that were asked for: %q, want %s alone", names, l.mirror)
	}
}
