package probe

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/agent-init/agent-init/pkg/selftest"
)

// askInspected asks an inspected name for what no rule allows. The answer counts if it is of who has the authority's key,
// and it must be a refusal: nobody but the broker can have given that.
func (p plan) askInspected(r *net.Resolver, t selftest.Target) attempt {
	return func(ctx context.Context) outcome {
		roots := x509.NewCertPool()
		for _, der := range p.Authority {
			if c, err := x509.ParseCertificate(der); err == nil {
				roots.AddCert(c)
			}
		}
		conn, err := (&net.Dialer{Resolver: r}).DialContext(ctx, "tcp", t.String())
		var de *net.DNSError
		switch {
		case errors.As(err, &de) && !de.IsTimeout: // so nothing passes
			return blocked("does not resolve")
		case err != nil:
			return unknown(err)
		}
		defer conn.Close()
		defer context.AfterFunc(ctx, func() { conn.Close() })()
		tc := tls.Client(conn, &tls.Config{ServerName: t.Name, RootCAs: roots, NextProtos: []string{"http/1.1"}})
		var ce *tls.CertificateVerificationError
		switch err := tc.HandshakeContext(ctx); {
		case errors.As(err, &ce):
			return reachable(fmt.Sprintf("showed a certificate that is not the broker's (%v)", ce.Err))
		case err != nil:
			return unknown(fmt.Errorf("TLS handshake with the broker: %w", err))
		}
		if _, err := fmt.Fprintf(tc, "%s / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", selftest.Method, hostOf(t)); err != nil {
			return unknown(err)
		}
		line, err := bufio.NewReaderSize(tc, 128).ReadString('\n')
		_, status, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case err != nil:
			return unknown(fmt.Errorf("the broker's answer: %w", err))
		case strings.HasPrefix(status, "403 "):
			return blocked("refused by the broker")
		}
		return reachable(fmt.Sprintf("answered %q to a request that no rule allows", status))
	}
}

// hostOf is how a request names where it goes.
func hostOf(t selftest.Target) string {
	if t.Port == 443 {
		return t.Name
	}
	return t.String()
}
