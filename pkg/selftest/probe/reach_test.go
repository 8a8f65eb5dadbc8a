package probe

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/agent-init/agent-init/internal/lab/issuer"
	"github.com/agent-init/agent-init/pkg/selftest"
)

// authority is a CA of the test's own.
type authority struct {
	*issuer.Issuer
	cert *x509.Certificate
}

func newAuthority(t *testing.T) authority { return authorityOf(t, "test CA", nil) }

// authorityOf is one of that name, signed by another or, if that is nil, by itself.
func authorityOf(_ *testing.T, name string, by *authority) authority {
	if by == nil {
		by = &authority{}
	}
	ca := issuer.New(name, by.Issuer)
	return authority{ca, ca.Cert}
}

// issue makes a server certificate for name that ends at notAfter.
func (ca authority) issue(_ *testing.T, name string, notAfter time.Time) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{ca.Issue(notAfter, name)}}
}

// env writes the CA where a child of any uid can read it, and returns the
// variable that makes it the only one that is trusted.
func (ca authority) env(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "selftest-ca")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(file, ca.PEM(), 0o644); err != nil {
		t.Fatal(err)
	}
	return "SSL_CERT_FILE=" + file
}

func shake(c *tls.Config) func(net.Conn) {
	return func(conn net.Conn) { tls.Server(conn, c).Handshake() }
}

func TestKernelRequired(t *testing.T) {
	ca := newAuthority(t)
	later := time.Now().Add(time.Hour)
	good := shake(ca.issue(t, requiredName, later))
	tls443 := selftest.Target{Name: requiredName, Port: 443, TLS: true}
	tests := map[string]struct {
		target selftest.Target
		serve  func(net.Conn) // nil: nobody listens
		answer func(q, r *dns.Msg)
		want   string // detail
		ok     bool
	}{
		"tls": {tls443, good, asGuard, requiredAddr + ", TLS 1.3", true},
		"tls 1.2": {tls443, func() func(net.Conn) {
			c := ca.issue(t, requiredName, later)
			c.MaxVersion = tls.VersionTLS12
			return shake(c)
		}(), asGuard, requiredAddr + ", TLS 1.2", true},
		"plain tcp":   {selftest.Target{Name: requiredName, Port: 8080}, func(net.Conn) {}, asGuard, requiredAddr, true},
		"address":     {selftest.Target{Name: requiredAddr, Port: 8080}, func(net.Conn) {}, asGuard, requiredAddr, true},
		"refused":     {tls443, nil, asGuard, "connection failed: refused", false},
		"name denied": {selftest.Target{Name: "other.test", Port: 443, TLS: true}, nil, asGuard, "the name is not resolved: the policy does not allow it", false},
		"dns fails":   {tls443, nil, func(q, r *dns.Msg) { r.Rcode = dns.RcodeServerFailure }, "its DNS server has no answer (SERVFAIL)", false},
		"other ca":    {tls443, shake(newAuthority(t).issue(t, requiredName, later)), asGuard, "the certificate of 203.0.113.2 is signed by an authority that this image does not know", false},
		"other name":  {tls443, shake(ca.issue(t, "evil.test", later)), asGuard, "the certificate of 203.0.113.2 is not valid: x509: certificate is valid for evil.test, not llm.test", false},
		"expired":     {tls443, shake(ca.issue(t, requiredName, time.Now().Add(-time.Hour))), asGuard, "the certificate of 203.0.113.2 is not valid: x509: certificate has expired or is not yet valid", false},
		"closes":      {tls443, func(net.Conn) {}, asGuard, "203.0.113.2 closed the connection during the TLS handshake", false},
		"not tls":     {tls443, func(c net.Conn) { c.Write([]byte("SSH-2.0-x\r\n")) }, asGuard, "TLS handshake with 203.0.113.2: tls: first record does not look like a TLS handshake", false},
		"silent tls": {tls443, func(c net.Conn) {
			c.SetDeadline(time.Now().Add(time.Minute))
			var b [4096]byte
			for {
				if _, err := c.Read(b[:]); err != nil {
					return
				}
			}
		}, asGuard, "203.0.113.2 did not finish the TLS handshake within 300ms", false},
		"second trial": {tls443, firstCloses(good), asGuard, requiredAddr + ", TLS 1.3", true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := testPlan()
			if strings.HasPrefix(name, "silent") {
				p.ReachTimeout = 300 * time.Millisecond
			}
			p.Required = []selftest.Target{tt.target}
			newWorld(t, p)
			serveDNS(t, "tcp", p.System[0], asGuard)
			serveDNS(t, "udp", p.System[0], tt.answer)
			if tt.serve != nil {
				listenTCP(t, netip.AddrPortFrom(netip.MustParseAddr(requiredAddr), tt.target.Port), tt.serve)
			}
			r := runChild(t, p, nobody, ca.env(t))
			c := r.Checks[len(r.Checks)-1]
			if c.Name != "required" || c.OK != tt.ok || !strings.HasPrefix(c.Detail, tt.want) || (tt.ok && c.Detail != tt.want) {
				t.Errorf("%+v, want ok %v %q", c, tt.ok, tt.want)
			}
			if tt.ok {
				wantFailed(t, r)
				return
			}
			wantFailed(t, r, "required "+tt.target.String())
			f := r.Failures()
			if last := f[len(f)-1]; !strings.HasPrefix(last, tt.target.String()+" should be reachable: "+tt.want) {
				t.Errorf("failure: %s", last)
			}
		})
	}
}

// firstCloses drops the first connection and serves the next.
func firstCloses(serve func(net.Conn)) func(net.Conn) {
	first := make(chan struct{}, 1)
	first <- struct{}{}
	return func(c net.Conn) {
		select {
		case <-first:
		default:
			serve(c)
		}
	}
}

// The policy's reach targets are held to the same.
func TestKernelReach(t *testing.T) {
	p := testPlan()
	p.Reach = []selftest.Target{{Name: requiredName, Port: 8080}}
	newWorld(t, p)
	serveGuard(t, p)
	wantFailed(t, runChild(t, p, nobody), "reach llm.test:8080")
	listenTCP(t, netip.MustParseAddrPort(requiredAddr+":8080"), nil)
	wantFailed(t, runChild(t, p, nobody))
}

// TestKernelInspected: only a refusal by who has the authority's key is one.
func TestKernelInspected(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	later := time.Now().Add(time.Hour)
	answer := func(c *tls.Config, status string) func(net.Conn) {
		return func(conn net.Conn) {
			s := tls.Server(conn, c)
			b := make([]byte, 4096)
			if n, err := s.Read(b); err != nil || !strings.HasPrefix(string(b[:n]), selftest.Method+" / HTTP/1.1\r\nHost: llm.test:8443\r\n") {
				return
			}
			s.Write([]byte("HTTP/1.1 " + status + "\r\nContent-Length: 0\r\n\r\n"))
			s.Close()
		}
	}
	own := ca.issue(t, requiredName, later)
	for name, tt := range map[string]struct {
		serve  func(net.Conn)
		denied bool   // the name
		want   string // detail
		ok     bool
	}{
		"refused":         {answer(own, "403 Forbidden"), false, "refused by the broker", true},
		"passed":          {answer(own, "200 OK"), false, `answered "200 OK" to a request that no rule allows`, false},
		"not found":       {answer(own, "404 Not Found"), false, `answered "404 Not Found"`, false},
		"another's":       {answer(other.issue(t, requiredName, later), "403 Forbidden"), false, "showed a certificate that is not the broker's", false},
		"closed":          {func(net.Conn) {}, false, "TLS handshake with the broker: ", false},
		"closed later":    {shake(own), false, "the broker's answer: ", false},
		"does not exist":  {nil, true, "does not resolve", true},
		"nobody is there": {nil, false, "dial tcp 203.0.113.2:8443: connect: connection refused", false},
	} {
		t.Run(name, func(t *testing.T) {
			p := testPlan()
			target := selftest.Target{Name: requiredName, Port: 8443, TLS: true}
			if tt.denied {
				target.Name = "other.test"
			}
			p.Inspected, p.Authority = []selftest.Target{target}, [][]byte{ca.cert.Raw}
			newWorld(t, p)
			serveGuard(t, p)
			if tt.serve != nil {
				listenTCP(t, netip.AddrPortFrom(netip.MustParseAddr(requiredAddr), 8443), tt.serve)
			}
			r := runChild(t, p, nobody, other.env(t))
			c := r.Checks[len(r.Checks)-1]
			if c.Name != "inspected" || c.OK != tt.ok || !strings.HasPrefix(c.Detail, tt.want) {
				t.Errorf("%+v, want ok %v %q", c, tt.ok, tt.want)
			}
		})
	}
}
