package inspect

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/mustrun"
	"github.com/agent-init/agent-init/pkg/route"
)

// nginxConfig is a site of files that may be put there.
const nginxConfig = `
daemon off;
master_process off;
pid %[1]s/pid;
error_log %[1]s/log;
events {}
http {
  access_log %[1]s/access;
  client_body_temp_path %[1]s/temp;
  proxy_temp_path %[1]s/temp; fastcgi_temp_path %[1]s/temp; uwsgi_temp_path %[1]s/temp; scgi_temp_path %[1]s/temp;
  client_max_body_size 64m;
  server {
    listen %[2]s;
    ssl_certificate %[1]s/cert.pem;
    ssl_certificate_key %[1]s/cert.pem;
    root %[1]s/files;
    dav_methods PUT DELETE;
  }
}
`

// other is a server that nobody here wrote.
type other struct {
	dir, addr string
	roots     *x509.CertPool
}

func (o *other) run(t *testing.T, addr, program string, args ...string) {
	t.Helper()
	cmd := exec.Command(program, args...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGKILL)
		<-ended
	})
	for until := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if c, err := net.Dial("tcp", addr); err == nil {
			c.Close()
			return
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("%s: %v\n%s", program, err, said.Bytes())
		default:
		}
		if time.Now().After(until) {
			t.Fatalf("%s does not listen", program)
		}
	}
}

func unused(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// newOther starts nginx, and before it nghttpx if that is wanted.
func newOther(t *testing.T, http2, nghttpx bool) *other {
	program := mustrun.Tool(t, "/usr/sbin/nginx")
	o := &other{dir: t.TempDir(), addr: unused(t)}
	cert, roots := selfSigned(t)
	o.roots = roots
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	pair := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})...)
	listens := o.addr
	if !nghttpx {
		listens += " ssl"
	}
	if http2 {
		listens += " http2"
	}
	for file, data := range map[string][]byte{"cert.pem": pair, "conf": fmt.Appendf(nil, nginxConfig, o.dir, listens)} {
		if err := os.WriteFile(filepath.Join(o.dir, file), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(o.dir, "files"), 0o700); err != nil {
		t.Fatal(err)
	}
	o.run(t, o.addr, program, "-c", filepath.Join(o.dir, "conf"), "-e", filepath.Join(o.dir, "log"))
	if nghttpx {
		behind, front := o.addr, unused(t)
		host, port, _ := net.SplitHostPort(behind)
		ours, number, _ := net.SplitHostPort(front)
		o.addr = front
		o.run(t, front, mustrun.Tool(t, "nghttpx"), "--conf=/dev/null", "--frontend="+ours+","+number, "--backend="+host+","+port, "--workers=1",
			"--errorlog-file="+filepath.Join(o.dir, "nghttpx"), filepath.Join(o.dir, "cert.pem"), filepath.Join(o.dir, "cert.pem"))
	}
	return o
}

// TestPeerServers: what passes between clients and servers that others wrote arrives as it was sent, and what is
// refused does not arrive.
func TestPeerServers(t *testing.T) {
	large := make([]byte, 6<<20)
	for i, r := 0, rand.New(rand.NewPCG(1, 2)); i < len(large); i++ {
		large[i] = byte(r.Uint32())
	}
	for _, c := range []struct {
		name           string
		http2, nghttpx bool
	}{{"nginx over HTTP/1.1", false, false}, {"nginx over HTTP/2", true, false}, {"nghttpx over HTTP/2", false, true}} {
		t.Run(c.name, func(t *testing.T) {
			o := newOther(t, c.http2, c.nghttpx)
			both(t, func(t *testing.T, http2 bool) {
				r := start(t, nil, func(s *setting) {
					s.at, s.Roots = o.addr, o.roots
					s.Inspected = any443(route.Request{Methods: []string{"GET", "HEAD", "POST", "PUT"}, Rule: "p:1"})
				})
				o.try(t, r, r.client(http2), large)
			})
		})
	}
}

func (o *other) try(t *testing.T, r *rig, client *http.Client, large []byte) {
	for what, body := range map[string]io.Reader{"counted": bytes.NewReader(large), "chunked": io.MultiReader(bytes.NewReader(large))} {
		path := "/" + what
		q, err := http.NewRequest(http.MethodPut, "https://"+name+path, body)
		if err != nil {
			t.Fatal(err)
		}
		q.Header.Set("Expect", "100-continue")
		if a := r.do(client, q); a.StatusCode != http.StatusCreated && a.StatusCode != http.StatusNoContent {
			t.Errorf("PUT of %s: %s %s", what, a.Status, a.text)
		}
		a := r.ask(client, http.MethodGet, path, "")
		if a.StatusCode != http.StatusOK || a.text != string(large) {
			t.Errorf("GET of %s: %s, %d bytes", what, a.Status, len(a.text))
		}
		if a := r.ask(client, http.MethodGet, path, "", "If-None-Match", a.Header.Get("ETag")); a.StatusCode != http.StatusNotModified || a.text != "" {
			t.Errorf("GET of %s as it is: %s", what, a.Status)
		}
		if a := r.ask(client, http.MethodGet, path, "", "Range", "bytes=5-9"); a.StatusCode != http.StatusPartialContent || a.text != string(large[5:10]) {
			t.Errorf("five bytes of %s: %s %q", what, a.Status, a.text)
		}
		if a := r.ask(client, http.MethodHead, path, ""); a.StatusCode != http.StatusOK || a.ContentLength != int64(len(large)) {
			t.Errorf("HEAD of %s: %s, %d", what, a.Status, a.ContentLength)
		}
		if a := r.ask(client, http.MethodPost, path, "x"); a.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("POST to %s: %s, of the server's own", what, a.Status)
		}
		if a := r.ask(client, http.MethodDelete, path, ""); a.StatusCode != http.StatusForbidden || !strings.Contains(a.text, "agent-init") {
			t.Errorf("DELETE of %s: %s %s", what, a.Status, a.text)
		}
		if _, err := os.Stat(filepath.Join(o.dir, "files", what)); err != nil {
			t.Errorf("what may not be deleted is gone: %v", err)
		}
	}
	log, err := os.ReadFile(filepath.Join(o.dir, "access"))
	if err != nil || bytes.Contains(log, []byte("DELETE")) || !bytes.Contains(log, []byte("PUT /counted")) {
		t.Errorf("the server was asked %s, %v", log, err)
	}
}
