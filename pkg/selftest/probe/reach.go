package probe

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/agent-init/agent-init/pkg/selftest"
)

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
			return blocked(explain(err, timeout, func() string { return askWhy(ctx, servers, t.Name) }))
		}
	}
}

func reachOnce(ctx context.Context, r *net.Resolver, t selftest.Target, timeout time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	d := net.Dialer{Resolver: r}
	conn, err := d.DialContext(ctx, "tcp", t.String())
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
		return "", &handshakeError{host, err}
	}
	return host + ", " + tls.VersionName(tc.ConnectionState().Version), nil
}

// handshakeError is a TLS handshake with a server that was connected to.
type handshakeError struct {
	host string
	err  error
}

func (e *handshakeError) Error() string {
	return fmt.Sprintf("TLS handshake with %s: %v", e.host, e.err)
}
func (e *handshakeError) Unwrap() error { return e.err }

// final says whether a second try can't end otherwise.
func final(err error) bool {
	var de *net.DNSError
	var ce *tls.CertificateVerificationError
	return errors.As(err, &de) && de.IsNotFound || errors.As(err, &ce)
}

// explain says in a few words at which step it failed, and how. Why asks the DNS server for its reason.
func explain(err error, timeout time.Duration, why func() string) string {
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
	var he *handshakeError
	if !errors.As(err, &he) {
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
	case errors.As(he, &unknownCA):
		return fmt.Sprintf("the certificate of %s is signed by an authority that this image does not know", he.host)
	case errors.As(he, &ce):
		return fmt.Sprintf("the certificate of %s is not valid: %v", he.host, ce.Err)
	case closed(he):
		return fmt.Sprintf("%s closed the connection during the TLS handshake", he.host)
	case timedOut(he):
		return fmt.Sprintf("%s did not finish the TLS handshake within %v", he.host, timeout)
	}
	return he.Error()
}
