package inspect

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/cgi"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// inspectedList has names whose connections are looked into, and one that is relayed.
const inspectedList = `
ok.test
api.test GET,HEAD /pub/**
api.test POST /up
api.test GET /socket websocket
api.test POST /svc.Echo/*
api.test GET,POST /repo.git/**
api.github.com read
`

// told runs a script with what agent-init tells programs: where others start the agent, they read it from a file.
func told(w *rig.World, script string, args ...string) lab.Result {
	w.Helper()
	return w.Script(w.Reads()+script, args...)
}

// patientNode has Node wait for one address of a name. Else it gives each 250 ms, and up after the last.
const patientNode = `require("net").setDefaultAutoSelectFamilyAttemptTimeout?.(60000); `

// inspectedClients print what a URL has, or fail and say its status.
var inspectedClients = []struct{ what, program, script string }{
	{"curl", "/usr/bin/curl", `curl -fsS "$1"`},
	{"curl, HTTP/1.1", "/usr/bin/curl", `curl -fsS --http1.1 "$1"`},
	{"wget", "/usr/bin/wget", `wget -qO- --no-hsts -S "$1"`},
	{"Node's fetch", "/usr/bin/node", `node -e '` + patientNode + `fetch(process.argv[1]).then(r => r.ok ? r.text() : Promise.reject(r.status)).then(t => process.stdout.write(t))' "$1"`},
	{"Node's https", "/usr/bin/node", `node -e '` + patientNode + `
		require("https").get(process.argv[1], r => r.statusCode == 200 ? r.pipe(process.stdout) : process.exit(console.error(r.statusCode) || 1))' "$1"`},
	{"Node's http2", "/usr/bin/node", `node -e '` + patientNode + `
		const u = new URL(process.argv[1]), c = require("http2").connect(u.origin), r = c.request({":path": u.pathname})
		r.on("response", h => h[":status"] == 200 || process.exit(console.error(h[":status"]) || 1)).on("end", () => c.close()).pipe(process.stdout)' "$1"`},
	{"Python's urllib", "/usr/bin/python3", `/usr/bin/python3 -c 'import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read().decode(), end="")' "$1"`},
	{"Python's urllib, strict as since 3.13", "/usr/bin/python3", `/usr/bin/python3 -c '
import ssl, sys, urllib.request as u
c = ssl.create_default_context()
c.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
print(u.urlopen(sys.argv[1], context=c).read().decode(), end="")' "$1"`},
	{"requests", "/usr/lib/python3/dist-packages/requests", `/usr/bin/python3 -c '
import requests, sys
r = requests.get(sys.argv[1])
r.raise_for_status()
print(r.text, end="")' "$1"`},
	{"httpx", "/usr/lib/python3/dist-packages/httpx", `/usr/bin/python3 -c '
import httpx, sys
r = httpx.get(sys.argv[1])
r.raise_for_status()
print(r.text, end="")' "$1"`},
	{"Java's HttpClient", "/usr/bin/javac", `cd /tmp && cat >Ask.java <<'EOF'
` + javaAsk + `
EOF
		java -XX:+UseSerialGC -Xshare:auto Ask.java "$1"`},
}

// javaAsk trusts what Java is told to.
const javaAsk = `import java.net.URI;
import java.net.http.*;

class Ask {
	public static void main(String[] args) throws Exception {
		var r = HttpClient.newHttpClient().send(HttpRequest.newBuilder(URI.create(args[0])).build(), HttpResponse.BodyHandlers.ofString());
		if (r.statusCode() != 200)
			throw new Exception("status " + r.statusCode());
		System.out.print(r.body());
	}
}`

// TestInspectedClients: what people use works with names that are looked into, is refused with a status that it shows,
// and goes on to trust what it did.
func TestInspectedClients(t *testing.T) {
	// Node's own list has nothing of the image's: what is named for it stays trusted.
	w := rig.LookedInto(t, inspectedList, lab.BoxOptions{Env: []string{"NODE_EXTRA_CA_CERTS=" + rig.Bundle}})
	body := strings.Repeat("0123456789", 50_000)
	w.Lab.Web.Handle("api.test", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, body) }))
	for _, c := range inspectedClients {
		t.Run(c.what, func(t *testing.T) {
			w := rig.Sub(w, t)
			if !w.Program(c.program) {
				return
			}
			if r := told(w, c.script, "https://api.test/pub/a"); r.Code != 0 || !strings.HasSuffix(r.Stdout, body) {
				t.Errorf("got %d bytes, exit %d, %s", len(r.Stdout), r.Code, r.Stderr)
			}
			if r := told(w, c.script, "https://api.test/secret"); r.Code == 0 || !strings.Contains(r.Stdout+r.Stderr, "403") {
				t.Errorf("what no rule allows: %s", r)
			}
			// Java on a busy machine may say hello later than the gate waits for it: 5 s.
			var r lab.Result
			if !slices.ContainsFunc(make([]int, 3), func(int) bool {
				r = told(w, c.script, "https://ok.test/")
				return r.Code == 0 && strings.Contains(r.Stdout, "sni=ok.test")
			}) {
				t.Errorf("a name that is relayed: %s", r)
			}
		})
	}
	if p := w.Works("http", "-ca", rig.Trust(), "https://api.test/pub/a"); p.Detail["proto"] != "HTTP/2.0" {
		t.Errorf("Go: %s", p)
	}
	w.Works("http", "-h1", "-ca", rig.Trust(), "https://api.test/pub/a")
	for _, e := range w.Audit(func(e rig.Event) bool { return strings.Contains(e.Reason, "AGENT-INIT") }) {
		t.Errorf("what the self-test was refused is the agent's: %+v", e)
	}
	for _, r := range w.Lab.Web.Requests("api.test") {
		if !strings.HasPrefix(r.URI, "/pub/") || r.SNI != "api.test" {
			t.Errorf("arrived: %+v", r)
		}
	}
}

// TestInspectedDistrust: a client with a list of its own fails, and the log says why. Nothing goes another way.
func TestInspectedDistrust(t *testing.T) {
	w := rig.LookedInto(t, inspectedList, lab.BoxOptions{})
	for _, script := range []string{
		`curl -sS --cacert ` + rig.Bundle + ` "$1"`,
		`SSL_CERT_FILE=` + rig.Bundle + ` /usr/bin/python3 -c 'import sys, urllib.request as u; u.urlopen(sys.argv[1])' "$1"`,
	} {
		if r := told(w, script, "https://api.test/pub/a"); r.Code == 0 || !strings.Contains(strings.ToLower(r.Stderr), "certificate") {
			t.Errorf("%s: %s", script, r)
		}
	}
	if n := len(w.Lab.Web.Requests("api.test")); n > 0 {
		t.Errorf("%d requests arrived", n)
	}
	e := w.Audited("a client that does not trust the authority", func(e rig.Event) bool {
		return e.Name == "api.test" && e.Verdict == "deny" && strings.Contains(e.Reason, "does not accept the certificate")
	})
	t.Logf("the log says: %s", e.Reason)
}

// TestInspectedStreams: server-sent events, WebSocket and gRPC.
func TestInspectedStreams(t *testing.T) {
	w := rig.LookedInto(t, inspectedList, lab.BoxOptions{})
	const events = 200
	w.Lab.Web.Handle("api.test", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/pub/events":
			w.Header().Set("Content-Type", "text/event-stream")
			for i := range events {
				fmt.Fprintf(w, "data: %d\n\n", i)
				if http.NewResponseController(w).Flush() != nil {
					return
				}
				time.Sleep(10 * time.Millisecond)
			}
		case "/socket", "/pub/socket":
			rig.WebSocketHello(w, r)
		case "/svc.Echo/Say", "/svc.Admin/Delete":
			sayByGRPC(w, r)
		}
	}))
	for _, flag := range []string{"--http1.1", "--http2"} {
		if r := told(w, `curl -sSN "$2" "$1" | grep -c '^data: '`, "https://api.test/pub/events", flag); r.Stdout != fmt.Sprintln(events) {
			t.Errorf("events, %s: %s", flag, r)
		}
	}
	if w.Program("/usr/bin/node") {
		client := strings.Replace(rig.WebSocketClient, "NODE_EXTRA_CA_CERTS="+rig.Bundle, "", 1)
		client = strings.Replace(client, "$flag -e '", "$flag -e '"+patientNode, 1)
		if r := told(w, client, "wss://api.test/socket"); r.Code != 0 || r.Stdout != "hello\n" {
			t.Errorf("a WebSocket: %s", r)
		}
		if r := told(w, client, "wss://api.test/pub/socket"); r.Code == 0 || strings.Contains(r.Stdout, "hello") {
			t.Errorf("a WebSocket that no rule allows: %s", r)
		}
	}
	if w.Program("/usr/lib/python3/dist-packages/grpc") {
		const client = `/usr/bin/python3 -c '
import grpc, sys
c = grpc.secure_channel("api.test:443", grpc.ssl_channel_credentials())
try:
	print(c.unary_unary(sys.argv[1])(b"hello", timeout=60).decode())
except grpc.RpcError as e:
	print(e.code(), e.details())' "$1"`
		if r := told(w, client, "/svc.Echo/Say"); r.Stdout != "hello\n" {
			t.Errorf("gRPC: %s", r)
		}
		if r := told(w, client, "/svc.Admin/Delete"); !strings.Contains(r.Stdout, "PERMISSION_DENIED") {
			t.Errorf("gRPC that no rule allows: %s", r)
		}
	}
}

// sayByGRPC answers with the message that it was asked with (gRPC over HTTP2: PROTOCOL-HTTP2.md of grpc/grpc).
func sayByGRPC(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set("Trailer", "Grpc-Status")
	var head [5]byte
	if _, err := io.ReadFull(r.Body, head[:]); err == nil {
		_, _ = w.Write(head[:])
		_, _ = io.CopyN(w, r.Body, int64(binary.BigEndian.Uint32(head[1:])))
	}
	w.Header().Set("Grpc-Status", "0")
}

var _ = rig.Also(TestInspectedLarge, rig.UnderStress)

// TestInspectedLarge: 128 MiB (1 GiB with make stress) down and up, and each byte is the one that was sent. Nobody
// keeps it.
func TestInspectedLarge(t *testing.T) {
	w := rig.LookedInto(t, inspectedList, lab.BoxOptions{})
	if !w.Program("/usr/bin/curl") || !w.Program("/usr/bin/openssl") {
		return
	}
	size := rig.Large()
	sum := sha256.New()
	_, err := io.CopyN(sum, rig.Noise(t), size)
	rig.Must(t, err)
	want := hex.EncodeToString(sum.Sum(nil))
	w.Lab.Web.Handle("api.test", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
			_, _ = io.CopyBuffer(struct{ io.Writer }{w}, io.LimitReader(rig.Noise(t), size), make([]byte, 256<<10))
			return
		}
		sum := sha256.New()
		n, err := io.CopyBuffer(sum, r.Body, make([]byte, 256<<10))
		fmt.Fprintf(w, "%d %v %x", n, err, sum.Sum(nil))
	}))
	upload := `openssl enc -aes-128-ctr -K 00000000000000000000000000000000 -iv 00000000000000000000000000000000 -in /dev/zero 2>/dev/null |
		head -c ` + fmt.Sprint(size) + ` | curl -sS "$2" -X POST -T - "$1"`
	for _, flag := range []string{"--http1.1", "--http2"} {
		for _, c := range []struct{ what, script, url, want string }{
			{"down", `curl -sS "$2" "$1" | sha256sum`, "https://api.test/pub/large", want},
			{"up", upload, "https://api.test/up", fmt.Sprintf("%d <nil> %s", size, want)},
		} {
			r := w.Launch("sh", "-c", w.Reads()+c.script, "sh", c.url, flag).Wait(10 * time.Minute)
			if r.Code != 0 || !strings.HasPrefix(r.Stdout, c.want) {
				t.Errorf("%s %s: want %s: %s", flag, c.what, c.want, r)
			}
			t.Logf("%s %s: %v", flag, c.what, r.Took.Round(time.Millisecond))
		}
	}
}

// TestInspectedTools: git clones over an inspected name and can't push, and gh reads and can't write.
func TestInspectedTools(t *testing.T) {
	w := rig.LookedInto(t, inspectedList+"!api.test * /repo.git/git-receive-pack\n", lab.BoxOptions{})
	if w.Program("/usr/bin/git") {
		dir := t.TempDir()
		script := `set -e; cd "$1"
			export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
			git init -q -b main work && cd work
			git config user.email a@ok.test && git config user.name a
			head -c 5000000 /dev/urandom > large; git add . && git commit -q -m first && cd ..
			git clone -q --bare work repo.git && git -C repo.git config http.receivepack true`
		if out, err := exec.Command("sh", "-c", script, "sh", dir).CombinedOutput(); err != nil {
			t.Fatalf("make a repository: %v\n%s", err, out)
		}
		core, err := exec.Command("git", "--exec-path").Output()
		rig.Must(t, err)
		w.Lab.Web.Handle("api.test", &cgi.Handler{Path: filepath.Join(strings.TrimSpace(string(core)), "git-http-backend"),
			Env: []string{"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=a"}})
		r := told(w, `set -e; cd /workspace; git clone -q https://api.test/repo.git; cd repo; git fsck --strict 2>&1
			git config user.email a@ok.test; git config user.name a; echo more > more; git add more; git commit -q -m second; git push -q origin main`)
		if r.Code == 0 || !strings.Contains(r.Stderr, "403") {
			t.Errorf("git: %s", r)
		}
	}
	if w.Program("/usr/bin/gh") {
		w.Lab.Web.Handle("api.github.com", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"asked": %q}`, r.Method+" "+r.URL.Path)
		}))
		if r := told(w, `GH_TOKEN=none gh api repos/a/b`); r.Code != 0 || !strings.Contains(r.Stdout, "GET /repos/a/b") {
			t.Errorf("gh: %s", r)
		}
		if r := told(w, `GH_TOKEN=none gh api -X DELETE repos/a/b`); r.Code == 0 || !strings.Contains(r.Stdout+r.Stderr, "403") {
			t.Errorf("gh deletes: %s", r)
		}
	}
}
