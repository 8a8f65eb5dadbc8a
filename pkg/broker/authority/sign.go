package authority

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"fmt"
	"net"
	"time"
)

// How long certificates hold. An authority ends with its broker. A leaf begins before it is made, for clients whose clock
// is a little behind, and another is made when it is half over.
const (
	trustedFor = 10 * 365 * 24 * time.Hour
	leafFor    = 24 * time.Hour
	leafBefore = time.Hour
	leafLeft   = 8 * time.Hour
)

// organization is in all subjects: a certificate without one is refused here and there.
const organization = "agent-init"

// newIssuer makes both certificates. The key of the upper one is gone when it returns.
func newIssuer(names []Name, now time.Time) (*issuer, error) {
	upper, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	root, err := certify("inspection authority", names, now, upper)
	if err != nil {
		return nil, err
	}
	lower, err := certify("inspection", names, now, key)
	if err != nil {
		return nil, err
	}
	root.MaxPathLen, lower.MaxPathLen, lower.MaxPathLenZero = 1, 0, true
	i := &issuer{names: names, key: key}
	if i.trusted, err = x509.CreateCertificate(rand.Reader, root, root, upper.Public(), upper); err != nil {
		return nil, fmt.Errorf("make the authority's certificate: %w", err)
	}
	if root, err = x509.ParseCertificate(i.trusted); err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, lower, root, key.Public(), upper)
	if err != nil {
		return nil, fmt.Errorf("make the issuer's certificate: %w", err)
	}
	i.certificate, err = x509.ParseCertificate(der)
	return i, err
}

// certify is the certificate of an authority for names alone. OpenSSL's strict check, which is Python's since 3.13, wants
// the key usage, and basic constraints that are critical, and both key identifiers.
func certify(what string, names []Name, now time.Time, key *ecdsa.PrivateKey) (*x509.Certificate, error) {
	id, err := keyID(key)
	if err != nil {
		return nil, err
	}
	c := &x509.Certificate{
		Subject:               pkix.Name{Organization: []string{organization}, CommonName: what + " " + hex.EncodeToString(id[:4])},
		SubjectKeyId:          id,
		NotBefore:             now.Add(-leafFor),
		NotAfter:              now.Add(trustedFor),
		BasicConstraintsValid: true,
		IsCA:                  true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},

		PermittedDNSDomainsCritical: true,
		// Only the kinds of names that stand here are constrained (RFC 5280, section 4.2.1.10).
		ExcludedIPRanges: []*net.IPNet{
			{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}, {IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)},
		},
	}
	// A constraint holds for the names below as well, whether there is a wildcard or not.
	for _, n := range names {
		c.PermittedDNSDomains = append(c.PermittedDNSDomains, n.Name)
	}
	return c, nil
}

// sign makes a leaf.
func (i *issuer) sign(name string, key *ecdsa.PrivateKey, now time.Time) (*tls.Certificate, error) {
	id, err := keyID(key)
	if err != nil {
		return nil, err
	}
	c := &x509.Certificate{
		Subject:               pkix.Name{Organization: []string{organization}},
		SubjectKeyId:          id,
		NotBefore:             now.Add(-leafBefore),
		NotAfter:              now.Add(leafFor - leafBefore),
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:              []string{name},
	}
	der, err := x509.CreateCertificate(rand.Reader, c, i.certificate, key.Public(), i.key)
	if err != nil {
		return nil, fmt.Errorf("make a certificate for %s: %w", name, err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der, i.certificate.Raw}, PrivateKey: key, Leaf: leaf}, nil
}

// keyID tells one key from another (RFC 7093, section 2, method 1).
func keyID(key *ecdsa.PrivateKey) ([]byte, error) {
	public, err := key.PublicKey.Bytes()
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(public)
	return sum[:20], nil
}
