// Package issuer signs the certificates of the servers that tests of one package have. A lab has an authority of its own.
package issuer

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"time"
)

// Issuer is an authority, with a key of which nothing is kept.
type Issuer struct {
	Cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New makes an authority of that name, signed by another or, if that is nil, by itself. It is good for an hour.
func New(name string, by *Issuer) *Issuer {
	i := &Issuer{Cert: &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}}
	if by == nil {
		by = i
	}
	i.key = must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	der := must(x509.CreateCertificate(rand.Reader, i.Cert, by.Cert, i.key.Public(), by.key))
	i.Cert = must(x509.ParseCertificate(der))
	return i
}

// Issue makes a certificate of a server with these names, good for the two hours until then.
func (i *Issuer) Issue(until time.Time, names ...string) tls.Certificate {
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	c := &x509.Certificate{
		SerialNumber: big.NewInt(2), DNSNames: names, NotBefore: until.Add(-2 * time.Hour), NotAfter: until,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	return tls.Certificate{Certificate: [][]byte{must(x509.CreateCertificate(rand.Reader, c, i.Cert, key.Public(), i.key))}, PrivateKey: key}
}

// PEM is the authority's own certificate.
func (i *Issuer) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.Cert.Raw})
}

// Pool trusts the authority, and nobody else.
func (i *Issuer) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(i.Cert)
	return pool
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
