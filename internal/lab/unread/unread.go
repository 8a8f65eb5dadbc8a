// Package unread has servers of HTTP/1 that answer a request before they read its body, or without ever reading it.
package unread

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/internal/mustrun"
)

// Name is what the certificates are for.
const Name = "api.test"

// Server is one of them.
type Server struct {
	Addr  string
	Roots *x509.CertPool

	log   string // a file of what was asked; "": asked has it
	mu    sync.Mutex
	asked []string
}

// Kinds are the servers that there are. The last heeds no Connection: close.
var Kinds = []string{"python", "nginx", "go", "raw"}

// Bodies are such that what is unread of them is a request to /admin: with what comes next, and by itself. The second is
// nothing for a server that heeds no Connection: close, which answers it whatever a client does.
func Bodies(kind string) []string {
	const begun = "DELETE /admin HTTP/1.1\r\nX: "
	if kind == "raw" {
		return []string{begun}
	}
	return []string{begun, begun + "y\r\nHost: " + Name + "\r\n\r\n"}
}

// Start starts one, over TLS or not. Of HTTP/2 it knows nothing.
func Start(t testing.TB, kind string, overTLS bool) *Server {
	t.Helper()
	s := &Server{}
	certificate, text := s.sign(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "cert.pem")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	switch kind {
	case "python":
		s.python(t, file, overTLS)
	case "nginx":
		s.nginx(t, dir, overTLS)
	case "go":
		back := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.note(r.Method + " " + r.URL.Path)
			_, _ = io.WriteString(w, "unread")
		}))
		back.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
		if back.TLS = (&tls.Config{Certificates: []tls.Certificate{certificate}}); overTLS {
			back.StartTLS()
		} else {
			back.Start()
		}
		t.Cleanup(func() {
			back.CloseClientConnections()
			back.Close()
		})
		s.Addr = back.Listener.Addr().String()
	case "raw":
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s.Addr = l.Addr().String()
		if overTLS {
			l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{certificate}})
		}
		t.Cleanup(func() { l.Close() })
		go s.Serve(l)
	}
	return s
}

func (s *Server) sign(t testing.TB) (tls.Certificate, []byte) {
	t.Helper()
	ca, err := lab.NewCA()
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := ca.Certificate(Name)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	s.Roots = ca.Pool()
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]})
	return *certificate, append(text, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...)
}

// Asked are the requests that the server has taken for some, as METHOD PATH, once last is among them.
func (s *Server) Asked(t testing.TB, last string) []string {
	t.Helper()
	for until := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		s.mu.Lock()
		asked := slices.Clone(s.asked)
		s.mu.Unlock()
		if s.log != "" {
			text, _ := os.ReadFile(s.log) // there is none yet
			asked = strings.Split(strings.TrimSpace(string(text)), "\n")
		}
		if slices.Contains(asked, last) {
			return asked
		}
		if time.Now().After(until) {
			t.Fatalf("the server was asked %q, and never %s", asked, last)
		}
	}
}

func (s *Server) note(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, what)
}

// script is a handler as the documentation of http.server has them: what it does not ask for stays in the connection.
const script = `
import http.server, ssl, sys
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def answer(self):
        print(self.command, self.path.removeprefix("http://api.test"), flush=True)
        self.send_response(200)
        self.send_header("Content-Length", "6")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(b"unread")
    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = answer
    def log_message(self, *args): pass
s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), H)
if sys.argv[1]:
    c = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    c.load_cert_chain(sys.argv[1])
    s.socket = c.wrap_socket(s.socket, server_side=True)
print(s.server_address[1], flush=True)
s.serve_forever()
`

func (s *Server) python(t testing.TB, certificate string, overTLS bool) {
	t.Helper()
	if !overTLS {
		certificate = ""
	}
	cmd := exec.Command(mustrun.Tool(t, "python3"), "-c", script, certificate)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("python3 does not serve")
	}
	s.Addr = "127.0.0.1:" + lines.Text()
	go func() {
		defer close(ended)
		for lines.Scan() {
			s.note(lines.Text())
		}
	}()
}

const nginxConfig = `
daemon off;
master_process off;
pid %[1]s/pid;
error_log %[1]s/log;
events {}
http {
  log_format said "$request_method $uri";
  access_log %[1]s/access said;
  client_body_temp_path %[1]s/temp; proxy_temp_path %[1]s/temp;
  fastcgi_temp_path %[1]s/temp; uwsgi_temp_path %[1]s/temp; scgi_temp_path %[1]s/temp;
  server {
    listen %[2]s;
    ssl_certificate %[1]s/cert.pem;
    ssl_certificate_key %[1]s/cert.pem;
    location / { return 404; }
  }
}
`

// nginx says 404 before it has read anything of a body.
func (s *Server) nginx(t testing.TB, dir string, overTLS bool) {
	t.Helper()
	program := "/usr/sbin/nginx"
	if _, err := os.Stat(program); err != nil {
		mustrun.Lacks(t, "%v", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.Addr, s.log = l.Addr().String(), filepath.Join(dir, "access")
	l.Close()
	listen := s.Addr
	if overTLS {
		listen += " ssl"
	}
	config := filepath.Join(dir, "conf")
	if err := os.WriteFile(config, fmt.Appendf(nil, nginxConfig, dir, listen), 0o600); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	cmd := exec.Command(program, "-e", filepath.Join(dir, "log"), "-c", config)
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	for {
		if c, err := net.Dial("tcp", s.Addr); err == nil {
			c.Close()
			return
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("nginx: %v\n%s", err, said.Bytes())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Serve answers who connects to l. It takes all for heads, whatever one says of a body, and heeds no Connection: close: it
// is as careless as a server can be.
func (s *Server) Serve(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			from := bufio.NewReader(c)
			for {
				r, err := http.ReadRequest(from)
				if err != nil {
					return
				}
				s.note(r.Method + " " + r.URL.Path)
				length := "\r\n\r\nunread"
				if r.Method == http.MethodHead {
					length = "\r\n\r\n"
				}
				if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 6"+length); err != nil {
					return
				}
			}
		}()
	}
}
