package probe

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"github.com/miekg/dns"

	"github.com/agent-init/agent-init/pkg/selftest"
)

func ask(ctx context.Context, network string, server netip.AddrPort, name string, qtype uint16) (*dns.Msg, error) {
	q := new(dns.Msg).SetQuestion(dns.Fqdn(name), qtype)
	q.SetEdns0(1232, false) // RFC 6891; without it a server may not say why it refuses (RFC 8914)
	c := dns.Client{Net: network}
	r, _, err := c.ExchangeContext(ctx, q, server.String())
	return r, err
}

// askDenied asks server for the addresses of a name that must not resolve: the IPv4 ones over UDP, the IPv6 ones over
// TCP. An answer without an error code is a failure even if it is empty, since then someone did resolve the name.
func askDenied(network string, server netip.AddrPort, name string) attempt {
	qtype := dns.TypeA
	if network == "tcp" {
		qtype = dns.TypeAAAA
	}
	return func(ctx context.Context) outcome {
		r, err := ask(ctx, network, server, name, qtype)
		switch {
		case closed(err):
			return blocked("closed without an answer")
		case err != nil:
			return refusal(err)
		}
		rcode := dns.RcodeToString[r.Rcode]
		if addrs := addresses(r); len(addrs) > 0 {
			return answered("for %s over %s (%s)", name, strings.ToUpper(network), strings.Join(addrs, ", "))
		}
		switch r.Rcode {
		case dns.RcodeNameError, dns.RcodeServerFailure, dns.RcodeRefused:
			if byPolicy, _ := reasons(r); len(r.Answer) == 0 && byPolicy {
				return blocked(rcode + " (blocked)")
			} else if len(r.Answer) == 0 {
				return blocked(rcode)
			}
		}
		return answered("for %s over %s (%s, %d records)", name, strings.ToUpper(network), rcode, len(r.Answer))
	}
}

func closed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

func addresses(r *dns.Msg) []string {
	var addrs []string
	for _, rr := range append(append([]dns.RR(nil), r.Answer...), r.Extra...) {
		switch rr := rr.(type) {
		case *dns.A:
			addrs = append(addrs, rr.A.String())
		case *dns.AAAA:
			addrs = append(addrs, rr.AAAA.String())
		}
	}
	return addrs
}

// reasons reads a reply's Extended DNS Errors (RFC 8914): whether the policy refused the name, which tells that from
// one that doesn't exist, and what the server says.
func reasons(r *dns.Msg) (byPolicy bool, said string) {
	if opt := r.IsEdns0(); opt != nil {
		for _, o := range opt.Option {
			if ede, ok := o.(*dns.EDNS0_EDE); ok {
				byPolicy = byPolicy || ede.InfoCode == dns.ExtendedErrorCodeBlocked
				if ede.ExtraText != "" {
					said = selftest.Clean(ede.ExtraText)
				}
			}
		}
	}
	return byPolicy, said
}

const whyTime = 3 * time.Second // how long a server may take to say why a name has no address

// askWhy asks the first of servers why name has no address, which package net does not pass on; "" if it does not say.
func askWhy(ctx context.Context, servers []netip.AddrPort, name string) string {
	if len(servers) == 0 {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), whyTime)
	defer cancel()
	r, err := ask(ctx, "udp", servers[0], name, dns.TypeA)
	if err != nil {
		return ""
	}
	return whyNot(r)
}

func whyNot(r *dns.Msg) string {
	byPolicy, said := reasons(r)
	if said == "" && byPolicy {
		said = "the policy does not allow it"
	}
	switch {
	case len(addresses(r)) > 0: // it has one now
		return ""
	case said != "":
		return "the name is not resolved: " + said
	case r.Rcode == dns.RcodeNameError:
		return "the name does not exist, say the DNS servers that agent-init asks (NXDOMAIN)"
	case r.Rcode == dns.RcodeSuccess:
		return "the name exists, and has no address"
	}
	return ""
}

// nameservers reads the servers in a resolv.conf(5). Without any, programs ask the local host.
func nameservers(path string) []netip.AddrPort {
	var servers []netip.AddrPort
	if conf, err := dns.ClientConfigFromFile(path); err == nil {
		for _, server := range conf.Servers {
			if a, err := netip.ParseAddr(server); err == nil {
				servers = append(servers, netip.AddrPortFrom(a, 53))
			}
		}
	}
	if len(servers) == 0 {
		return []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:53")}
	}
	return servers
}

func resolverFor(servers []netip.AddrPort) *net.Resolver {
	r := &net.Resolver{PreferGo: true}
	if len(servers) > 0 {
		r.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, servers[0].String())
		}
	}
	return r
}

const (
	tries    = 2 // at what must be reachable
	tryPause = 200 * time.Millisecond
)

// reachTarget resolves, connects and, for TLS, verifies the certificate against the system's roots (or SSL_CERT_FILE,
// see crypto/x509). What may pass gets a second try.
func reachTarget(r *net.Resolver, servers []netip.AddrPort, t selftest.Target, timeout time.Duration) attempt {
	return func(ctx context.Context) outcome {
		for try := 1; ; try++ {
			detail, err := reachOnce(ctx, r, t, timeout)
			if err == nil {
				return reachable(detail)
			}
			if try < tries && !final(err) {
				select {
				case <-ctx.Done():
				case <-time.After(tryPause):
					continue
				}
			}
			return blocked(explain(err, detail, timeout, func() string { return askWhy(ctx, servers, t.Name) }))
		}
	}
}

// reachOnce returns what was reached. With the error of a TLS handshake, that is the host.
func reachOnce(ctx context.Context, r *net.Resolver, t selftest.Target, timeout time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := (&net.Dialer{Resolver: r}).DialContext(ctx, "tcp", t.String())
	if err != nil {
		return "", err
	}
	defer conn.Close()
	host, _, err := net.SplitHostPort(conn.RemoteAddr().String())
	if err != nil || !t.TLS {
		return host, err
	}
	tc := tls.Client(conn, &tls.Config{ServerName: t.Name})
	if err := tc.HandshakeContext(ctx); err != nil {
		return host, err
	}
	return host + ", " + tls.VersionName(tc.ConnectionState().Version), nil
}

// final says whether a second try can't end otherwise.
func final(err error) bool {
	var de *net.DNSError
	var ce *tls.CertificateVerificationError
	return errors.As(err, &de) && de.IsNotFound || errors.As(err, &ce)
}

// explain says in a few words which step failed, and how. Host is a TLS handshake's, or empty. Why asks the DNS server.
func explain(err error, host string, timeout time.Duration, why func() string) string {
	var de *net.DNSError
	if errors.As(err, &de) {
		if said := why(); said != "" {
			return said
		}
		switch {
		case de.IsNotFound:
			return "the name does not resolve, and its DNS server does not say why"
		case de.IsTimeout:
			return fmt.Sprintf("no DNS answer within %v", timeout)
		}
		if de.Err == "server misbehaving" { // as package net calls SERVFAIL
			return "its DNS server has no answer (SERVFAIL)"
		}
		return "DNS failed: " + de.Err
	}
	if host == "" {
		switch how, ok := refusals(err); {
		case ok && how != noAnswer:
			return "connection failed: " + how
		case timedOut(err):
			return fmt.Sprintf("no answer to the connection within %v", timeout)
		}
		return err.Error()
	}
	var unknownCA x509.UnknownAuthorityError
	var ce *tls.CertificateVerificationError
	switch {
	case errors.As(err, &unknownCA):
		return fmt.Sprintf("the certificate of %s is signed by an authority that this image does not know", host)
	case errors.As(err, &ce):
		return fmt.Sprintf("the certificate of %s is not valid: %v", host, ce.Err)
	case closed(err):
		return fmt.Sprintf("%s closed the connection during the TLS handshake", host)
	case timedOut(err):
		return fmt.Sprintf("%s did not finish the TLS handshake within %v", host, timeout)
	}
	return fmt.Sprintf("TLS handshake with %s: %v", host, err)
}
