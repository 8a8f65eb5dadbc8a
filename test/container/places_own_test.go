package container

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab/fakellm"
)

// ownAgent is the agent that somebody published as my-agent: it asks its model, and then goes where it likes.
const ownAgent = `#!/usr/bin/env node
const ask = async (url, options) => {
  try { const r = await fetch(url, options); console.log(url, r.status, (await r.text()).slice(0, 500)) }
  catch (e) { console.log(url, "failed", e.cause?.code ?? e.code) }
}
await ask("https://api.anthropic.com/v1/messages", { method: "POST", body: JSON.stringify({ model: "m", messages: [] }) })
await ask("http://npm.corp.example/my-agent")
await ask("https://example.com/")
await ask("http://1.1.1.1/")
console.log("uid", process.getuid())
`

// withRegistry answers for npm.corp.example, a registry that has my-agent; next answers for every other host.
func withRegistry(t *testing.T, next http.Handler) http.Handler {
	t.Helper()
	var pack bytes.Buffer
	zip := gzip.NewWriter(&pack)
	tarball := tar.NewWriter(zip)
	for _, file := range []struct{ name, data string }{
		{"package/package.json", `{"name": "my-agent", "version": "1.0.0", "bin": {"my-agent": "agent.mjs"}}`},
		{"package/agent.mjs", ownAgent},
	} {
		if err := tarball.WriteHeader(&tar.Header{Name: file.name, Mode: 0o755, Size: int64(len(file.data)), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := tarball.Write([]byte(file.data)); err != nil {
			t.Fatal(err)
		}
	}
	if err := tarball.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	sum := sha512.Sum512(pack.Bytes())
	document := fmt.Sprintf(`{"name": "my-agent", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": {"name": "my-agent", "version": "1.0.0",
		"bin": {"my-agent": "agent.mjs"}, "dist": {"tarball": "http://npm.corp.example/my-agent/-/my-agent-1.0.0.tgz", "integrity": "sha512-%s"}}}}`,
		base64.StdEncoding.EncodeToString(sum[:]))
	mux := http.NewServeMux()
	mux.Handle("/", next)
	mux.HandleFunc("npm.corp.example/", func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/my-agent":
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(document))
		case "/my-agent/-/my-agent-1.0.0.tgz":
			_, _ = w.Write(pack.Bytes())
		default:
			http.NotFound(w, r)
		}
	})
	return mux
}

// testReadmeDockerfile builds the Dockerfile of README.md as it stands there, and runs what came of it.
func testReadmeDockerfile(t *testing.T, e *engine, n *internet) {
	dockerfile := strings.TrimPrefix(readmeBlock(t, "```dockerfile\n"), "```dockerfile\n")
	if count := strings.Count(dockerfile, "\n") + 1; count > 10 || !strings.HasPrefix(dockerfile, "FROM agent-node\n") {
		t.Fatalf("the Dockerfile has %d lines:\n%s", count, dockerfile)
	}
	e.must(t, "tag", e.npm, "agent-node")
	t.Cleanup(func() { e.docker("image", "rm", "agent-node") })
	list := filepath.Join(t.TempDir(), "allowlist.txt")
	if err := os.WriteFile(list, []byte("api.anthropic.com required\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	e.build(t, "my-agent", dockerfile, map[string]string{"allowlist.txt": list})
	if got := e.must(t, "images", "-q", "--filter", "label=org.agent-init.agent=my-agent"); got == "" {
		t.Error("the image isn't found by its label")
	}

	n.forget()
	r := e.docker(args([]string{"run", "--name", e.name(t)}, privileges(), agent(t, n), []string{"my-agent"})...)
	for _, want := range []string{
		"https://api.anthropic.com/v1/messages 200 ", fakellm.Text,
		"http://npm.corp.example/my-agent 200 ", // allowed by agent-init detect
		"https://example.com/ failed ENOTFOUND", "http://1.1.1.1/ failed ECONNREFUSED", "uid 1000\n",
	} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("it did not say %q", want)
		}
	}
	arrivals, queries := n.seen()
	for _, a := range arrivals {
		if a.Port() != 443 && a.Port() != 80 || a.Addr().String() == "1.1.1.1" {
			t.Errorf("something arrived at %v", a)
		}
	}
	for _, q := range queries {
		if q != "api.anthropic.com." && q != "npm.corp.example." {
			t.Errorf("a query for %s arrived", q)
		}
	}
	if r.code != 0 || t.Failed() {
		t.Errorf("docker run: exit %d\n%s%s", r.code, r.stdout, r.stderr)
	}
}
