package probe

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"slices"
)

// authorityFile is where Debian and Alpine have all certificate authorities, as crypto/x509 looks for them.
const authorityFile = "/etc/ssl/certs/ca-certificates.crt"

// verified has a handshake verify the server's certificate as crypto/tls does, and with the same verdict: against the
// system's authorities. To parse all of those takes longer than the rest of a self-test, so it begins with those that can
// have signed.
func verified(name string) *tls.Config {
	return &tls.Config{ServerName: name, InsecureSkipVerify: true, VerifyConnection: func(s tls.ConnectionState) error {
		if err := verify(s.PeerCertificates, name); err != nil {
			return &tls.CertificateVerificationError{UnverifiedCertificates: s.PeerCertificates, Err: err}
		}
		return nil
	}}
}

func verify(chain []*x509.Certificate, name string) error {
	if len(chain) == 0 {
		return errors.New("the server shows none")
	}
	o := x509.VerifyOptions{DNSName: name, Intermediates: x509.NewCertPool()}
	for _, c := range chain[1:] {
		o.Intermediates.AddCert(c)
	}
	bundle, _ := os.ReadFile(cmp.Or(os.Getenv("SSL_CERT_FILE"), authorityFile)) // without it, all are asked for
	o.Roots = signers(chain, bundle)
	if _, err := chain[0].Verify(o); err == nil {
		return nil
	}
	o.Roots = nil // which are the system's, all of them
	_, err := chain[0].Verify(o)
	return err
}

// signers are those of the authorities that have the name of who signed something in the chain, and few others: of the
// blocks that count for CertPool.AppendCertsFromPEM.
func signers(chain []*x509.Certificate, bundle []byte) *x509.CertPool {
	pool := x509.NewCertPool()
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" || len(block.Headers) != 0 || !slices.ContainsFunc(chain, func(c *x509.Certificate) bool {
			return bytes.Contains(block.Bytes, c.RawIssuer)
		}) {
			continue
		}
		if root, err := x509.ParseCertificate(block.Bytes); err == nil {
			pool.AddCert(root)
		}
	}
	return pool
}
