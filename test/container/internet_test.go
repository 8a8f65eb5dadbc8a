package container

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// hosts are the names of the internet in the engine's namespace. The addresses are global unicast
// ones, since no policy of ours would let a name have another.
var hosts = map[string][]string{
	"api.anthropic.com.":   {"160.79.104.10", "2607:6bc0::10"},
	"platform.claude.com.": {"160.79.104.11"},
	"example.com.":         {"93.184.216.34", "2606:2800:21f::34"},
	"evil.example.net.":    {"185.199.108.153", "2606:50c0:8000::153"},
}

// internet is what answers on every address of the engine's namespace that is not a container's.
type internet struct {
	authority   string // path of the certificate of the authority behind its TLS servers
	certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	llm         *llm
	web         http.Handler        // answers HTTP, on every name and address
	everyName   bool                // names that are not in hosts have an address too
	servers     []string            // addresses that answer DNS, if not all do
	also        map[string][]string // names like those of hosts

	mu       sync.Mutex
	arrivals []netip.AddrPort // local addresses of all TCP connections and UDP datagrams, but for DNS
	queries  []string         // names asked for
	askers   []netip.Addr     // who asked for each
}

// newInternet makes the internet in e's namespace. It is gone when the test is.
func newInternet(t *testing.T, e *engine) *internet {
	t.Helper()
	return newInternetWith(t, e, &internet{})
}

// newInternetWith is newInternet with what n says already.
func newInternetWith(t *testing.T, e *engine, n *internet) *internet {
	t.Helper()
	mux := http.NewServeMux()
	n.llm, n.web = &llm{}, mux
	mux.Handle("api.anthropic.com/", n.llm)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "this is %s\n", r.Host) })
	n.start(t, e)
	return n
}

func (n *internet) start(t *testing.T, e *engine) {
	t.Helper()
	n.certificate = n.newAuthority(t)
	err := inside(e.netns, func() error {
		// Every address that no bridge has is local, but after the bridges: what a container sends ends here.
		for _, family := range []string{"-4", "-6"} {
			if out, err := exec.Command("ip", family, "route", "replace", "local", "default", "dev", "lo", "table", "main").CombinedOutput(); err != nil {
				return fmt.Errorf("route everything to here: %v: %s", err, out)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	n.serve(t, e.netns, 80, 443, 8080)
	n.serveUDP(t, e.netns, 443)
	n.serveDNS(t, e.netns)
}

// serve answers HTTP on every address of a namespace, with TLS on port 443, noting each arrival.
func (n *internet) serve(t *testing.T, netns string, ports ...int) {
	t.Helper()
	for _, port := range ports {
		var l net.Listener
		err := inside(netns, func() (err error) {
			l, err = net.Listen("tcp", fmt.Sprintf("[::]:%d", port))
			return err
		})
		if err != nil {
			t.Fatalf("listen on port %d of a namespace: %v", port, err)
		}
		l = &notingListener{l, n}
		if port == 443 {
			l = tls.NewListener(l, &tls.Config{GetCertificate: n.certificate})
		}
		s := &http.Server{Handler: n.web, ErrorLog: log.New(io.Discard, "", 0)} // clients hang up as they like
		go s.Serve(l)
		t.Cleanup(func() { s.Close() })
	}
}

type notingListener struct {
	net.Listener
	n *internet
}

func (l *notingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.n.note(c.LocalAddr().(*net.TCPAddr).AddrPort())
	}
	return c, err
}

// serveUDP notes each datagram to port. The address that it was for is not looked at.
func (n *internet) serveUDP(t *testing.T, netns string, port uint16) {
	t.Helper()
	var c net.PacketConn
	err := inside(netns, func() (err error) {
		c, err = net.ListenPacket("udp", fmt.Sprintf("[::]:%d", port))
		return err
	})
	if err != nil {
		t.Fatalf("listen in the engine's namespace: %v", err)
	}
	t.Cleanup(func() { c.Close() })
	go func() {
		buf := make([]byte, 2048)
		for {
			if _, _, err := c.ReadFrom(buf); err != nil {
				return
			}
			n.note(netip.AddrPortFrom(netip.IPv4Unspecified(), port))
		}
	}()
}

// serveDNS answers on port 53 of every address or of those that n names, UDP and TCP.
func (n *internet) serveDNS(t *testing.T, netns string) {
	t.Helper()
	servers := n.servers
	if len(servers) == 0 {
		servers = []string{"::"}
	}
	for _, address := range servers {
		for _, network := range []string{"udp", "tcp"} {
			s := &dns.Server{Net: network, Addr: net.JoinHostPort(address, "53"), Handler: dns.HandlerFunc(n.answer)}
			err := inside(netns, func() (err error) {
				if network == "tcp" {
					s.Listener, err = net.Listen("tcp", s.Addr)
				} else {
					s.PacketConn, err = net.ListenPacket("udp", s.Addr)
				}
				return err
			})
			if err != nil {
				t.Fatalf("listen in the engine's namespace: %v", err)
			}
			go s.ActivateAndServe()
			t.Cleanup(func() { s.Shutdown() })
		}
	}
}

func (n *internet) answer(w dns.ResponseWriter, q *dns.Msg) {
	m := new(dns.Msg)
	m.SetReply(q)
	if len(q.Question) != 1 {
		m.Rcode = dns.RcodeFormatError
		w.WriteMsg(m)
		return
	}
	question := q.Question[0]
	name := dns.CanonicalName(question.Name)
	n.mu.Lock()
	n.queries = append(n.queries, name)
	n.askers = append(n.askers, asker(w.RemoteAddr()))
	n.mu.Unlock()
	addresses, ok := hosts[name]
	if own, has := n.also[name]; has {
		addresses, ok = own, true
	}
	if !ok && n.everyName {
		// Any address will do, as long as a name keeps it.
		sum := sha256.Sum256([]byte(name))
		addresses = []string{netip.AddrFrom4([4]byte{45, sum[0], sum[1], sum[2]}).String()}
	} else if !ok {
		m.Rcode = dns.RcodeNameError
	}
	for _, s := range addresses {
		a := netip.MustParseAddr(s)
		head := dns.RR_Header{Name: question.Name, Class: dns.ClassINET, Ttl: 60}
		switch {
		case a.Is4() && question.Qtype == dns.TypeA:
			head.Rrtype = dns.TypeA
			m.Answer = append(m.Answer, &dns.A{Hdr: head, A: a.AsSlice()})
		case a.Is6() && question.Qtype == dns.TypeAAAA:
			head.Rrtype = dns.TypeAAAA
			m.Answer = append(m.Answer, &dns.AAAA{Hdr: head, AAAA: a.AsSlice()})
		}
	}
	w.WriteMsg(m)
}

func (n *internet) note(a netip.AddrPort) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.arrivals = append(n.arrivals, netip.AddrPortFrom(a.Addr().Unmap(), a.Port()))
}

// forget empties the notes; seen returns them.
func (n *internet) forget() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.arrivals, n.queries, n.askers = nil, nil, nil
}

// askedBy returns the names that somebody at an address asked for.
func (n *internet) askedBy(who netip.Addr) (names []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, name := range n.queries {
		if n.askers[i] == who {
			names = append(names, name)
		}
	}
	return names
}

// asker is the address that a question came from.
func asker(from net.Addr) netip.Addr {
	a, err := netip.ParseAddrPort(from.String())
	if err != nil {
		return netip.Addr{}
	}
	return a.Addr().Unmap()
}

func (n *internet) seen() (arrivals []netip.AddrPort, queries []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.arrivals), slices.Clone(n.queries)
}

// newAuthority makes a certificate authority, leaves its certificate in a file, and returns what
// makes a certificate for whatever name a client asks for.
func (n *internet) newAuthority(t *testing.T) func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	validity := x509.Certificate{NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour)}
	ca := validity
	ca.SerialNumber, ca.Subject = big.NewInt(1), pkix.Name{CommonName: "agent-init test authority"}
	ca.IsCA, ca.BasicConstraintsValid, ca.KeyUsage = true, true, x509.KeyUsageCertSign|x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, &ca, &ca, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	n.authority = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(n.authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644); err != nil {
		t.Fatal(err)
	}
	return func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		leaf := validity
		leaf.SerialNumber, leaf.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: hello.ServerName}
		leaf.DNSNames, leaf.ExtKeyUsage = []string{hello.ServerName}, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		der, err := x509.CreateCertificate(rand.Reader, &leaf, &ca, key.Public(), key)
		if err != nil {
			return nil, err
		}
		return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
	}
}
