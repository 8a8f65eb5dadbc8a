package lab

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/agent-init/agent-init/internal/netns"
)

// Request is an HTTP request that reached the lab.
type Request struct {
	Time     time.Time
	Src, Dst netip.AddrPort
	TLS      bool
	SNI      string
	Proto    string // "HTTP/1.1", "HTTP/2.0"
	Method   string
	Host     string
	URI      string // as it came
	Header   http.Header
	Body     []byte // as far as the handler has read it, cut at 64 KiB
}

// Web is the HTTP server on port 80 and the TLS server on port 443 of every
// address. A host without handler gets 200 and one line that says what was
// asked: "METHOD HOST URI sni=NAME dst=ADDR".
type Web struct {
	servers []*http.Server
	sinks   *sinks
	wait    sync.WaitGroup

	mu       sync.Mutex
	hosts    map[string]http.Handler
	requests []*Request
	hellos   []Hello
}

// Hello is a TLS ClientHello that reached the lab.
type Hello struct {
	Time     time.Time
	Src, Dst netip.AddrPort
	SNI      string
	ALPN     []string
}

type connKey struct{}

func startWeb(ns *netns.NS, ca *CA, s *sinks) (*Web, error) {
	w := &Web{sinks: s, hosts: make(map[string]http.Handler)}
	conf := ca.ServerConfig()
	certify := conf.GetCertificate
	conf.GetCertificate = func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
		w.mu.Lock()
		w.hellos = append(w.hellos, Hello{Time: time.Now(), Src: addrPort(h.Conn.RemoteAddr()),
			Dst: addrPort(h.Conn.LocalAddr()), SNI: h.ServerName, ALPN: h.SupportedProtos})
		w.mu.Unlock()
		return certify(h)
	}
	for _, addr := range []struct {
		network, addr string
		tls           bool
	}{{"tcp4", "0.0.0.0:80", false}, {"tcp6", "[::]:80", false}, {"tcp4", "0.0.0.0:443", true}, {"tcp6", "[::]:443", true}} {
		l, err := ns.Listen(addr.network, addr.addr)
		if err != nil {
			return nil, errors.Join(err, w.close())
		}
		srv := &http.Server{Handler: http.HandlerFunc(w.serve), TLSConfig: conf.Clone(),
			ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: time.Minute,
			ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) }}
		w.servers = append(w.servers, srv)
		ll := &loggedListener{Listener: l, sinks: s}
		w.wait.Go(func() {
			if addr.tls {
				_ = srv.ServeTLS(ll, "", "")
			} else {
				_ = srv.Serve(ll)
			}
		})
	}
	return w, nil
}

// Handle serves a virtual host by h, whatever address it is asked at. host is
// the Host header without port.
func (w *Web) Handle(host string, h http.Handler) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hosts[strings.ToLower(host)] = h
}

// Requests returns the requests since the start or Forget whose Host or SNI is
// one of hosts; no hosts means all.
func (w *Web) Requests(hosts ...string) []Request {
	w.mu.Lock()
	defer w.mu.Unlock()
	var found []Request
	for _, r := range w.requests {
		if len(hosts) == 0 || slices.Contains(hosts, hostname(r.Host)) || slices.Contains(hosts, r.SNI) {
			c := *r
			c.Body = bytes.Clone(r.Body)
			found = append(found, c)
		}
	}
	return found
}

// Hellos returns the ClientHellos since the start or Forget.
func (w *Web) Hellos() []Hello {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.hellos)
}

// Forget empties the records of requests and hellos.
func (w *Web) Forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requests, w.hellos = nil, nil
}

func (w *Web) serve(rw http.ResponseWriter, r *http.Request) {
	rec := &Request{Time: time.Now(), TLS: r.TLS != nil, Proto: r.Proto, Method: r.Method, Host: r.Host,
		URI: r.RequestURI, Header: r.Header.Clone()}
	if c, ok := r.Context().Value(connKey{}).(net.Conn); ok {
		rec.Src, rec.Dst = addrPort(c.RemoteAddr()), addrPort(c.LocalAddr())
	}
	if r.TLS != nil {
		rec.SNI = r.TLS.ServerName
	}
	w.mu.Lock()
	w.requests = append(w.requests, rec)
	h := w.hosts[hostname(r.Host)]
	w.mu.Unlock()
	r.Body = &loggedBody{ReadCloser: r.Body, web: w, request: rec}
	if h != nil {
		h.ServeHTTP(rw, r)
		return
	}
	_, _ = io.Copy(io.Discard, r.Body)
	fmt.Fprintf(rw, "%s %s %s sni=%s dst=%s\n", r.Method, r.Host, r.RequestURI, rec.SNI, rec.Dst)
}

func (w *Web) close() error {
	var errs []error
	for _, s := range w.servers {
		errs = append(errs, s.Close())
	}
	w.wait.Wait()
	return errors.Join(errs...)
}

// loggedBody copies what the handler reads into the record.
type loggedBody struct {
	io.ReadCloser
	web     *Web
	request *Request
}

func (b *loggedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.web.mu.Lock()
	defer b.web.mu.Unlock()
	if room := maxReceived - len(b.request.Body); room > 0 {
		b.request.Body = append(b.request.Body, p[:min(n, room)]...)
	}
	return n, err
}

func hostname(hostport string) string {
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		hostport = h
	}
	return strings.ToLower(hostport)
}
