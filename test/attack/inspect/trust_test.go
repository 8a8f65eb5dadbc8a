package inspect

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// longLived is a program that read once what to trust, and asks one URL after the other.
const longLived = `cd /workspace; mkfifo ask answer; exec /usr/bin/python3 -c '
import ssl, urllib.request as u
c = ssl.create_default_context()
while True:
	with open("ask") as f: url = f.read().strip()
	try: said = str(u.urlopen(url, context=c, timeout=60).status)
	except Exception as e: said = str(e)
	with open("answer", "w") as f: f.write(said + "\n")'`

// TestInspectedTrust: after a reload with more names, programs that run go on with those that they know, and new ones
// have all. After the broker's end, there is another authority, which new programs know.
func TestInspectedTrust(t *testing.T) {
	w := rig.LookedInto(t, "api.test GET /pub/**\n", lab.BoxOptions{})
	if !w.Program("/usr/bin/python3") {
		return
	}
	p := w.Launch("sh", "-c", w.Reads()+longLived)
	defer p.Signal(unix.SIGKILL)
	if !rig.Eventually(lab.Patience, func() bool { return told(w, "test -p /workspace/answer").Code == 0 }) {
		t.Fatal("the program did not start")
	}
	old := func(url string) string {
		return strings.TrimSpace(told(w, `cd /workspace; echo "$1" > ask; cat answer`, url).Stdout)
	}
	fresh := func(url string) string {
		r := told(w, `curl -sS -o /dev/null -w '%{http_code}' "$1"`, url)
		return r.Stdout + r.Stderr
	}
	const known, added = "https://api.test/pub/a", "https://api.github.com/pub/a"
	if got := old(known) + " " + fresh(known); got != "200 200" {
		t.Fatalf("at the start: %s\n%s", got, w.Agent.Stderr())
	}
	if r := w.SetPolicy("api.test GET /pub/**\napi.github.com GET /pub/**\n"); r.Code != 0 {
		t.Fatalf("reload: %s", r)
	}
	if !rig.Eventually(lab.Patience, func() bool { return fresh(added) == "200" }) {
		t.Errorf("a new program and a new name: %s", fresh(added))
	}
	if got := old(known) + " " + fresh(known); got != "200 200" {
		t.Errorf("the name that stays: %s", got)
	}
	if got := old(added); !strings.Contains(got, "CERTIFICATE_VERIFY_FAILED") {
		t.Errorf("an old program and a new name: %s", got)
	}
	for _, p := range rig.Inmates(t, w.Agent) {
		if strings.HasSuffix(p.Args, " broker") {
			p.Signal(t, unix.SIGKILL)
		}
	}
	if !rig.Eventually(lab.Patience, func() bool { return fresh(known)+fresh(added) == "200200" }) {
		t.Errorf("after the broker's end: %s, %s", fresh(known), fresh(added))
	}
	if got := old(known); !strings.Contains(got, "CERTIFICATE_VERIFY_FAILED") {
		t.Errorf("an old program after the broker's end: %s", got)
	}
	// Where nothing is inspected any more, programs that run still find what their variables name.
	if r := w.SetPolicy("api.test\n"); r.Code != 0 {
		t.Fatalf("reload: %s", r)
	}
	if got := fresh(known) + " " + old(known); got != "200 200" {
		t.Errorf("relayed: %s", got)
	}
}
