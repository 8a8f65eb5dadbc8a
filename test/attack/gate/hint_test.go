package gate

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// TestHint: a shell says what was refused to what it has run, as agents run commands, and of nothing else.
func TestHint(t *testing.T) {
	const at = "/usr/share/agent-init/shell.bash"
	script, err := os.ReadFile("../../../images/shell.bash")
	rig.Must(t, err)
	w := rig.Confine(t, "ok.test\n!forbidden.test\n", lab.BoxOptions{
		Files: []lab.File{{Path: at, Data: script}},
		Env:   []string{"BASH_ENV=" + at, "SSL_CERT_FILE=" + rig.Bundle},
	})
	evil4, _ := rig.Named("evil.test")
	ok4, _ := rig.Named("ok.test")
	ask := func(line string) string { return "agent-init request " + line + " --reason TEXT --wait 10m" }
	for _, c := range []struct {
		command string
		code    int
		hint    string
	}{
		{"curl -sS https://a.evil.test/", 6, ask("a.evil.test")},
		{"curl -s https://b.evil.test/ | head -1", 0, ask("b.evil.test")},
		{"cd /tmp; git clone -q https://c.evil.test/repo.git || exit 9", 9, ask("c.evil.test")},
		{"/usr/bin/python3 -c 'import urllib.request as u; u.urlopen(\"https://d.evil.test\")' 2>&1 >/dev/null | tail -1; exit 3", 3, ask("d.evil.test")},
		{"curl -sS -m 5 https://" + evil4.String() + ":8443/", 7, ask(evil4.String() + ":8443")},
		{"curl -sS https://forbidden.test/ && true", 6, "agent-init explain forbidden.test"},
		{"curl -sS https://ok.test/ >/dev/null; curl -sS --resolve e.evil.test:443:" + ok4.String() + " https://e.evil.test/; exit 4", 4, ask("e.evil.test")},
		{"curl -sSf https://ok.test/missing", 0, ""},
		{"false && true", 1, ""},
	} {
		r := w.Launch("bash", "-lc", c.command).Wait(time.Minute)
		if r.Code != c.code || c.hint != "" && !strings.Contains(r.Stderr, c.hint) || c.hint == "" && strings.Contains(r.Stderr, "agent-init") {
			t.Errorf("%s: want code %d, %q: %s", c.command, c.code, c.hint, r)
		}
	}
}

// TestDeniedInWords: whom the gate denies a name in TLS says so, and not that the network is bad.
func TestDeniedInWords(t *testing.T) {
	lab.Require(t)
	ok4, _ := rig.Named("ok.test")
	w := rig.Confine(t, "ok.test\n", lab.BoxOptions{Hosts: []string{ok4.String() + " shared.test"}})
	w.Works("resolve", "ok.test") // whose address it is
	for program, c := range map[string]struct{ script, words string }{
		"/usr/bin/curl":    {"curl -sS https://shared.test/", "access denied"},
		"/usr/bin/wget":    {"wget -nv --tries=1 -O- https://shared.test/", "denied"},
		"/usr/bin/git":     {"git ls-remote https://shared.test/x.git", "denied"},
		"/usr/bin/python3": {`/usr/bin/python3 -c 'import urllib.request as u; u.urlopen("https://shared.test/")'`, "access denied"},
		"/usr/bin/node":    {`node -e 'fetch("https://shared.test/").catch(e => { console.error(e.cause.message); process.exit(1) })'`, "access denied"},
	} {
		if !w.Program(program) {
			continue
		}
		if r := w.Script(c.script); r.Code == 0 || !strings.Contains(r.Stderr, c.words) {
			t.Errorf("%s: %s", c.script, r)
		}
	}
	w.Unasked("shared.test")
}
