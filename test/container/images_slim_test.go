package container

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// testSlim: the base without the tools lacks each of them, and confines an agent as the others do.
func testSlim(t *testing.T, e *engine) {
	const image = "agent-init-test/agent-slim"
	e.mustHave(t, image)
	dockerfile, err := os.ReadFile("../../Dockerfile.base")
	if err != nil {
		t.Fatal(err)
	}
	tools := regexp.MustCompile(`(?m)^ARG TOOLS="(.*)"$`).FindSubmatch(dockerfile)
	if tools == nil {
		t.Fatal("Dockerfile.base names no tools")
	}
	const reach = `exec 3<>/dev/tcp/93.184.216.34/443`
	if r := e.docker("run", "--rm", "--entrypoint=bash", image, "-c", reach); r.code != 0 {
		t.Fatalf("there is nothing to reach: %s", r.stderr)
	}
	script := `set -e; git --version; agent-init status; cat /run/agent-init/README.md
for tool in curl jq less make ssh ps rg unzip; do if command -v $tool; then exit 1; fi; done
for package in ` + string(tools[1]) + `; do if dpkg-query -W -f '${db:Status-Status}\n' $package | grep -x installed; then exit 1; fi; done
if (` + reach + `); then exit 1; fi
echo refused`
	out := e.docker(args([]string{"run", "--rm"}, privileges(), []string{image, "bash", "-c", script})...)
	if out.code != 0 || !strings.Contains(out.stdout, "confined") || !strings.HasSuffix(out.stdout, "refused\n") {
		t.Errorf("exit %d\n%s%s", out.code, out.stdout, out.stderr)
	}
}
