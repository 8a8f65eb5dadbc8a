package container

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// truststores are programs that have to trust an authority of one's own, by the image that they are in. The one of git ends
// where no repository is: it has trusted the server then.
var truststores = map[string]map[string]string{
	"agent-base": {
		"curl": `curl -fsS https://pypi.corp.example/simple/thing/`,
		"git":  `git ls-remote https://git.corp.example/thing 2>&1 | grep "not found"`,
	},
	"variant-node": {"node": `node -e 'fetch("https://npm.corp.example/thing").then(r => process.exit(r.ok ? 0 : 1), () => process.exit(1))'`},
	"variant-python": {
		"ssl": `python3 -c 'import urllib.request; urllib.request.urlopen("https://pypi.corp.example/simple/thing/")'`,
		"pip": `pip install --quiet --retries=0 --target=/tmp/x thing`,
	},
	"variant-go": {"go": `mkdir /tmp/x && cd /tmp/x && go mod init x && go get example.com/thing@v1.0.0`},
}

// testAuthority has the programs of the images reach servers whose certificates are an own authority's, by both ways of
// docs/images.md, and without.
func testAuthority(t *testing.T, e *engine, n *internet) {
	authority, err := os.ReadFile(n.authority)
	if err != nil {
		t.Fatal(err)
	}
	const bundle = "/etc/ssl/certs/ca-certificates.crt"
	public := e.docker("run", "--rm", "--network=none", "--entrypoint=cat", e.base, bundle)
	both := filepath.Join(t.TempDir(), "bundle.crt")
	if err := os.WriteFile(both, append([]byte(public.stdout), authority...), 0o644); err != nil {
		t.Fatal(err)
	}
	b := newBuilder(t, e)
	for name, programs := range truststores {
		image := "agent-init-test/" + name
		e.mustHave(t, image)
		own := b.from(image, "USER root\nRUN printf '%b' '"+strings.ReplaceAll(string(authority), "\n", `\n`)+"' >/usr/local/share/ca-certificates/corp-ca.crt && update-ca-certificates\n")
		all := ""
		for program, script := range programs {
			all += "( " + script + " ) >/tmp/said 2>&1 && echo trusts-" + program + " || cat /tmp/said\n"
		}
		for _, way := range []struct {
			name, image string
			options     []string
			trusts      bool
		}{
			{"without", image, nil, false},
			{"mounted", image, []string{"-v", both + ":" + bundle + ":ro"}, true},
			{"own-image", own, nil, true},
		} {
			t.Run(name+"/"+way.name, func(t *testing.T) {
				out := e.docker(args([]string{"run", "--name", e.name(t), "--cap-drop=ALL", "--user=agent", "--entrypoint=sh"},
					way.options, []string{way.image, "-c", all})...)
				for program := range programs {
					if got := strings.Contains(out.stdout, "trusts-"+program+"\n"); got != way.trusts {
						t.Errorf("%s trusts: %v, want %v\n%s%s", program, got, way.trusts, out.stdout, out.stderr)
					}
				}
			})
		}
	}
}
