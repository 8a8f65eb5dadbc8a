package gate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cgi"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// javaGet is a client that offers HTTP/2 whenever it can.
const javaGet = `import java.net.URI;
import java.net.http.*;
import java.security.SecureRandom;
import java.security.cert.X509Certificate;
import javax.net.ssl.*;

class Get {
	public static void main(String[] args) throws Exception {
		var trusting = new X509ExtendedTrustManager() { // the lab's authority is not in Java's own store
			public void checkClientTrusted(X509Certificate[] c, String a) {}
			public void checkServerTrusted(X509Certificate[] c, String a) {}
			public void checkClientTrusted(X509Certificate[] c, String a, java.net.Socket s) {}
			public void checkServerTrusted(X509Certificate[] c, String a, java.net.Socket s) {}
			public void checkClientTrusted(X509Certificate[] c, String a, SSLEngine e) {}
			public void checkServerTrusted(X509Certificate[] c, String a, SSLEngine e) {}
			public X509Certificate[] getAcceptedIssuers() { return new X509Certificate[0]; }
		};
		var tls = SSLContext.getInstance("TLS");
		tls.init(null, new TrustManager[] {trusting}, new SecureRandom());
		var client = HttpClient.newBuilder().sslContext(tls).build();
		System.out.print(client.send(HttpRequest.newBuilder(URI.create(args[0])).build(), HttpResponse.BodyHandlers.ofString()).body());
	}
}`

// TestGateClients: what people use works, and sees nothing of the gate.
func TestGateClients(t *testing.T) {
	w := rig.Confine(t, gateList, lab.BoxOptions{Env: []string{"SSL_CERT_FILE=" + rig.Bundle, "NODE_EXTRA_CA_CERTS=" + rig.Bundle}})
	body := strings.Repeat("0123456789", 50_000)
	w.Lab.Web.Handle("ok.test", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			_, _ = io.WriteString(w, body)
		}
	}))
	for _, c := range []struct{ what, program, script string }{
		{"curl", "/usr/bin/curl", `curl -sS "$1"`},
		{"curl, HTTP/1.1", "/usr/bin/curl", `curl -sS --http1.1 "$1"`},
		{"curl, HTTP/1.0", "/usr/bin/curl", `curl -sS --http1.0 --no-alpn "$1"`},
		{"curl, POST with an expectation", "/usr/bin/curl", `head -c 3000000 /dev/zero | curl -sS --http1.1 -H 'Expect: 100-continue' --data-binary @- "$1"`},
		{"curl, POST in chunks", "/usr/bin/curl", `head -c 3000000 /dev/zero | curl -sS --http1.1 -H 'Transfer-Encoding: chunked' --data-binary @- "$1"`},
		{"curl, twice on one connection", "/usr/bin/curl", `curl -sS -o /dev/null "$1" "$1"`},
		{"Node's fetch", "/usr/bin/node", `node -e 'fetch(process.argv[1]).then(r => r.text()).then(t => process.stdout.write(t))' "$1"`},
		{"Node's https", "/usr/bin/node", `node -e 'require(process.argv[1].split(":")[0]).get(process.argv[1], r => r.pipe(process.stdout))' "$1"`},
		{"Python's urllib", "/usr/bin/python3", `/usr/bin/python3 -c 'import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read().decode(), end="")' "$1"`},
		{"curl, HTTP/2 by upgrade", "/usr/bin/curl", `curl -sS --http2 "$1"`},
		{"curl, POST and HTTP/2 by upgrade", "/usr/bin/curl", `head -c 300000 /dev/zero | curl -sS --http2 --data-binary @- "$1"`},
		{"Java's client, HTTP/2 by upgrade", "/usr/bin/javac", `cd /tmp && cat >Get.java <<'EOF'
` + javaGet + `
EOF
			java -XX:+UseSerialGC -Xshare:auto Get.java "$1"`},
		{"OpenSSL", "/usr/bin/openssl", `printf 'GET / HTTP/1.0\r\nHost: ok.test\r\n\r\n' | openssl s_client -quiet -verify_return_error -connect ok.test:443 -servername ok.test 2>/dev/null`},
	} {
		t.Run(c.what, func(t *testing.T) {
			w := rig.Sub(w, t)
			if !w.Program(c.program) {
				return
			}
			for _, scheme := range []string{"https", "http"} {
				if c.what == "OpenSSL" && scheme == "http" {
					continue
				}
				if r := w.Script(c.script, scheme+"://ok.test/"); r.Code != 0 || !strings.HasSuffix(r.Stdout, body) {
					t.Errorf("%s: got %d bytes, exit %d, %s", scheme, len(r.Stdout), r.Code, r.Stderr)
				}
			}
		})
	}
	for _, url := range []string{"https://ok.test/", "http://ok.test/"} {
		p := w.Works("http", url)
		if want := map[bool]string{true: "HTTP/2.0", false: "HTTP/1.1"}[strings.HasPrefix(url, "https")]; p.Detail["proto"] != want {
			t.Errorf("%s: want %s: %v", url, want, p.Detail["proto"])
		}
		w.Works("http", "-h1", "-method", "PUT", "-size", "100000", url)
	}
	// From the server's side too: the box's own address, and nothing added.
	for _, r := range w.Lab.Web.Requests("ok.test") {
		if src := r.Src.Addr(); src != w.Box.Addr4() && src != w.Box.Addr6() || r.Header.Get("Via") != "" || r.Header.Get("X-Forwarded-For") != "" {
			t.Errorf("arrived: %+v", r)
		}
	}
}

var _ = rig.Also(TestGateTLS, rig.InUp|rig.UnderStress)

func TestGateTLS(t *testing.T) {
	w := rig.Confine(t, gateList, lab.BoxOptions{})
	ok4, ok6 := rig.Named("ok.test")
	for _, version := range []string{"1.2", "1.3"} {
		for _, to := range []string{rig.At(ok4, 443), rig.At(ok6, 443)} {
			p := w.Works("tls", "-sni", "ok.test", "-min", version, "-max", version, "-n", "3", to)
			versions, _ := p.Detail["versions"].(map[string]any)
			if p.Detail["answered"] != 3.0 || p.Detail["resumed"] != 2.0 || versions["TLS "+version] != 3.0 {
				t.Errorf("TLS %s: want three answers, two of them in a resumed session: %s", version, p)
			}
		}
	}
	// The gate gives each ten seconds for its hello: a busy machine makes so many handshakes in half of that.
	n := rig.Often(100, 500)
	p := w.Works("tls", "-sni", "ok.test", "-c", fmt.Sprint(n), rig.At(ok4, 443))
	if p.Detail["answered"] != float64(n) {
		t.Errorf("%d at once: %s", n, p)
	}
	t.Logf("%d at once took %.0f ms", n, p.Ms)
}

// TestGateEarlyData: 0-RTT, as OpenSSL does it on both sides.
func TestGateEarlyData(t *testing.T) {
	l := rig.NewLab(t)
	l.DNS.SetAddrs("early.test", "45.30.80.1")
	w := rig.ConfineIn(t, l, "early.test\n", lab.BoxOptions{})
	if !w.Program("/usr/bin/openssl") {
		return
	}
	dir := t.TempDir()
	cert, err := l.CA.Certificate("early.test")
	rig.Must(t, err)
	writePEM(t, dir, cert)
	// OpenSSL can't share a port with the lab's own server: hence a relay.
	server := exec.Command("/usr/bin/openssl", "s_server", "-accept", "127.0.0.1:4433", "-early_data", "-tls1_3", "-cert", filepath.Join(dir, "cert.pem"), "-key", filepath.Join(dir, "key.pem"))
	stdin, err := server.StdinPipe() // held open: at its end the server ends
	rig.Must(t, err)
	rig.Must(t, l.Internet.Start(server))
	t.Cleanup(func() { stdin.Close(); _ = server.Process.Kill(); _ = server.Wait() })
	listener, err := l.Internet.Listen("tcp4", "45.30.80.1:443")
	rig.Must(t, err)
	var relays sync.WaitGroup
	t.Cleanup(func() { listener.Close(); relays.Wait() })
	relays.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			relays.Go(func() { pipeTo(l, c, "127.0.0.1:4433") })
		}
	})
	const script = `cd /tmp
		echo early > request
		connect() { sleep 0.3 | openssl s_client -connect early.test:443 -servername early.test -tls1_3 "$@" 2>&1; }
		connect -sess_out session
		connect -sess_in session -early_data request`
	var r lab.Result
	if !rig.Eventually(10*time.Second, func() bool { r = w.Script(script); return strings.Contains(r.Stdout, "Early data was accepted") }) {
		t.Errorf("no early data: %s", r)
	}
}

func pipeTo(l *lab.Lab, c net.Conn, to string) {
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), lab.Patience)
	defer cancel()
	s, err := l.Internet.Dial(ctx, "tcp", to, zeroAddrPort)
	if err != nil {
		return
	}
	defer s.Close()
	go func() {
		_, _ = io.Copy(s, c)
		s.Close()
	}()
	_, _ = io.Copy(c, s)
}

var _ = rig.Also(TestGateLarge, rig.UnderStress)

// TestGateLarge: 128 MiB (1 GiB with make stress) down and up, by TLS and by HTTP, and each byte is
// the one that was sent. Nobody keeps it.
func TestGateLarge(t *testing.T) {
	w := rig.Confine(t, gateList, lab.BoxOptions{})
	if !w.Program("/usr/bin/curl") || !w.Program("/usr/bin/openssl") {
		return
	}
	size := rig.Large()
	sum := sha256.New()
	_, err := io.CopyN(sum, rig.Noise(t), size)
	rig.Must(t, err)
	want := hex.EncodeToString(sum.Sum(nil))
	arrived := make(chan string, 1)
	w.Lab.Web.Handle("ok.test", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
			_, _ = io.CopyBuffer(struct{ io.Writer }{w}, io.LimitReader(rig.Noise(t), size), make([]byte, 256<<10))
			return
		}
		sum := sha256.New()
		n, err := io.CopyBuffer(sum, r.Body, make([]byte, 256<<10))
		arrived <- fmt.Sprintf("%d %v %x", n, err, sum.Sum(nil))
	}))
	for _, scheme := range []string{"https", "http"} {
		for _, c := range []struct{ what, script string }{
			{"down", `curl -sS "$1" | sha256sum`},
			{"down, HTTP/1.1", `curl -sS --http1.1 "$1" | sha256sum`},
			{"up", `openssl enc -aes-128-ctr -K 00000000000000000000000000000000 -iv 00000000000000000000000000000000 -in /dev/zero 2>/dev/null |
				head -c ` + fmt.Sprint(size) + ` | curl -sS --http1.1 -X POST -T - "$1"`},
		} {
			if scheme == "http" && strings.HasSuffix(c.what, "1.1") {
				continue // the same once more
			}
			r := w.Box.Exec(lab.Cmd{Args: []string{"agent-init", "exec", "--", "sh", "-c", c.script, "sh", scheme + "://ok.test/"}})
			got := r.Stdout
			if c.what == "up" && r.Code == 0 {
				got = <-arrived
				want := fmt.Sprintf("%d <nil> %s", size, want)
				if got != want {
					t.Errorf("%s %s: arrived %s, want %s", scheme, c.what, got, want)
				}
			} else if r.Code != 0 || !strings.HasPrefix(got, want) {
				t.Errorf("%s %s: want %s: %s", scheme, c.what, want, r)
			}
			t.Logf("%s %s: %v", scheme, c.what, r.Took.Round(time.Millisecond))
		}
	}
}

// TestGateStreams: streams that are quiet most of the time.
func TestGateStreams(t *testing.T) {
	w := rig.Confine(t, gateList, lab.BoxOptions{})
	const events = 600
	w.Lab.Web.Handle("ok.test", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/events": // as many as half an hour of one each 3 s has
			w.Header().Set("Content-Type", "text/event-stream")
			for i := range events {
				fmt.Fprintf(w, "data: %d\n\n", i)
				if http.NewResponseController(w).Flush() != nil {
					return
				}
				time.Sleep(10 * time.Millisecond)
			}
		case "/echo":
			echoUpgraded(w, r)
		}
	}))
	// The streams of events run beside the rest.
	var quiet []*lab.Process
	for _, url := range []string{"https://ok.test/events", "http://ok.test/events"} {
		quiet = append(quiet, w.AsAgent(w.Box, "stream", url))
	}
	w.Works("upgrade", "-n", "1000", "https://ok.test/echo")
	for _, p := range quiet {
		if v := rig.Verdict(t, p); !v.OK || v.Detail["lines"] != float64(2*events) {
			t.Errorf("events: %s", v)
		} else {
			t.Logf("events: %s", v)
		}
	}
	r := w.Script(`for url in "$@"; do curl -sSN "$url" | grep -c '^data: ' & done; wait`, "https://ok.test/events", "http://ok.test/events")
	if want := strings.Repeat(fmt.Sprintf("%d\n", events), 2); r.Stdout != want {
		t.Errorf("curl: %s", r)
	}
	if w.Program("/usr/bin/node") {
		w.Lab.Web.Handle("ok.test", http.HandlerFunc(rig.WebSocketHello))
		if r := w.Script(rig.WebSocketClient, "wss://ok.test/"); r.Code != 0 || r.Stdout != "hello\n" {
			t.Errorf("a WebSocket over TLS: %s", r)
		}
	}
}

// TestGateGit: clone over https from a server that knows git, and from one
// that only has files.
func TestGateGit(t *testing.T) {
	w := rig.Confine(t, gateList, lab.BoxOptions{})
	if !w.Program("/usr/bin/git") {
		return
	}
	dir := t.TempDir()
	script := `set -e; cd "$1"
		export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
		git init -q -b main work && cd work
		git config user.email a@ok.test && git config user.name a
		i=0; while [ $i -lt 200 ]; do echo $i > file$i; i=$((i+1)); done
		head -c 5000000 /dev/urandom > large
		git add . && git commit -q -m first && cd ..
		git clone -q --bare work repo.git && git -C repo.git config http.receivepack true && git -C repo.git update-server-info`
	if out, err := exec.Command("sh", "-c", script, "sh", dir).CombinedOutput(); err != nil {
		t.Fatalf("make a repository: %v\n%s", err, out)
	}
	want, err := exec.Command("git", "-C", filepath.Join(dir, "repo.git"), "rev-parse", "main").Output()
	rig.Must(t, err)
	core, err := exec.Command("git", "--exec-path").Output()
	rig.Must(t, err)
	w.Lab.Web.Handle("ok2.test", http.FileServer(http.Dir(dir)))
	w.Lab.Web.Handle("ok.test", &cgi.Handler{Path: filepath.Join(strings.TrimSpace(string(core)), "git-http-backend"),
		Env: []string{"GIT_PROJECT_ROOT=" + dir, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=a"}})
	for _, host := range []string{"ok.test", "ok2.test"} {
		r := w.Script(`set -e; cd /workspace; git clone -q "https://$1/repo.git" "$1"; cd "$1"; git fsck --strict 2>&1; git rev-parse HEAD`, host)
		if r.Code != 0 || !strings.HasSuffix(r.Stdout, string(want)) {
			t.Errorf("clone from %s: %s", host, r)
		}
	}
	r := w.Script(`set -e; cd /workspace/ok.test; git config user.email a@ok.test; git config user.name a
		head -c 3000000 /dev/urandom > more; git add more; git commit -q -m second; git push -q origin main; git rev-parse HEAD`)
	now, err := exec.Command("git", "-C", filepath.Join(dir, "repo.git"), "rev-parse", "main").Output()
	if err != nil || r.Code != 0 || r.Stdout != string(now) {
		t.Errorf("push: %s, and the server has %s", r, now)
	}
}
