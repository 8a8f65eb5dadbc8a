package container

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// recorder stands in for docker: it notes its arguments, and answers as buildx does.
const recorder = `#!/bin/sh
[ "$1" != version ] || { echo linux/amd64; exit; }
echo "$*" >>calls
while [ "$1" != --metadata-file ]; do shift; done
printf '{\n  "containerimage.digest": "sha256:%064d",\n  "image.name": "x"\n}\n' "$(wc -l <calls)" >"$2"
`

// TestPublish holds what images/publish.sh asks of buildx: which images, for which platforms, on which base, and under which tags.
func TestPublish(t *testing.T) {
	dir := t.TempDir()
	if out, err := exec.Command("cp", "-r", "../../images", "../../Dockerfile.base", dir).CombinedOutput(); err != nil {
		t.Fatalf("copy the images: %v\n%s", err, out)
	}
	for path, text := range map[string]string{
		"bin/agent-init-amd64": "", "bin/agent-init-arm64": "", "tools/docker": recorder,
		"images/fetch.sh": "#!/bin/sh\necho \"$*\" >>fetched\n",
	} {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("images/publish.sh", "registry.example/me", "1.2.3")
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + dir + "/tools:/usr/bin:/bin"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	data, err := os.ReadFile(filepath.Join(dir, "calls"))
	if err != nil {
		t.Fatal(err)
	}
	calls := strings.Split(strings.TrimSpace(string(data)), "\n")

	const both, amd64 = "linux/amd64,linux/arm64", "linux/amd64"
	images := []struct{ tag, platforms, has string }{
		{"agent-base:1.2.3", both, "--target debian --build-arg PER_ARCH=yes"},
		{"agent-base:1.2.3-alpine", both, "--target alpine --build-arg PER_ARCH=yes"},
		{"agent-base:1.2.3-slim", both, "--target debian --build-arg TOOLS= "},
		{"agent-node:1.2.3", both, "DETECT=npm"},
		{"agent-python:1.2.3", both, "DETECT=pip"},
		{"agent-rust:1.2.3", both, "DETECT=cargo"},
		{"agent-go:1.2.3", both, "DETECT=go"},
		{"agent-claude:1.2.3", both, "BASE=registry.example/me/agent-base:1.2.3"},
		{"agent-gemini:1.2.3", both, "BASE=registry.example/me/agent-node:1.2.3"},
		{"agent-aider:1.2.3", amd64, "BASE=registry.example/me/agent-python:1.2.3"},
		{"agent-goose:1.2.3", amd64, "BASE=registry.example/me/agent-base:1.2.3"},
	}
	if want := 7 + len(agents()); len(calls) != want {
		t.Errorf("%d images are published, want %d:\n%s", len(calls), want, data)
	}
	for _, i := range images {
		found := false
		for _, call := range calls {
			if strings.Contains(call, "-t registry.example/me/"+i.tag+" ") {
				found = true
				for _, has := range []string{"buildx build --push --platform " + i.platforms + " --sbom=true --provenance=mode=max ", i.has} {
					if !strings.Contains(call, has) {
						t.Errorf("%s is published without %q: %s", i.tag, has, call)
					}
				}
			}
		}
		if !found || strings.Count(string(out), "  registry.example/me/"+i.tag+"\n") != 1 {
			t.Errorf("%s is not published, or its digest is not noted:\n%s", i.tag, out)
		}
	}
}
