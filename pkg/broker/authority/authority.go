// Package authority makes the certificates that the broker shows for inspected names. Its keys are in the memory of the
// process that made them, and nowhere else.
//
// There are two certificates above a leaf. Clients trust the upper one, whose key signs the lower one and is then
// forgotten. The lower one's key signs the leaves. Both are constrained to the inspected names, but Java, for one, looks at
// no constraint of what it trusts (RFC 5280, section 6.2, leaves that open). So the key that is kept is worth nothing for
// another name, whoever checks it. Of the one that is forgotten, bytes are left until the runtime uses their memory again.
package authority

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Name is one that leaves are made for.
type Name struct {
	Name     string // lower case, A-labels, no trailing dot
	Wildcard bool   // Name stands for itself and every name below it
}

// Authority makes leaves for its names alone.
type Authority struct {
	now  func() time.Time
	leaf *ecdsa.PrivateKey // of all leaves

	mu      sync.Mutex
	names   []Name
	issuers []*issuer                   // the newest last
	leaves  map[string]*tls.Certificate // those that were made last
}

// maxLeaves bounds those that are kept. A wildcard has more names than there is memory for.
const maxLeaves = 1024

// These bound what clients are to trust. Programs that started before the oldest of more have to be started again.
const (
	maxIssuers = 8
	maxTrusted = 48 << 10 // bytes
)

// ErrName is of a name that is not one of the authority's.
var ErrName = errors.New("no certificate is made for this name")

// New makes the keys of an authority for names.
func New(names []Name) (*Authority, error) {
	leaf, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	a := &Authority{now: time.Now, leaf: leaf}
	return a, a.Rename(names)
}

// Rename has leaves made for other names from now on. What is trusted already stays so for the names that stay: programs
// that run go on with those, and have to be started again for new ones.
func (a *Authority) Rename(names []Name) error {
	if len(names) == 0 {
		return errors.New("an authority needs a name")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	var issuers []*issuer
	for _, i := range a.issuers {
		if slices.ContainsFunc(names, i.covers) {
			issuers = append(issuers, i)
		}
	}
	if slices.ContainsFunc(names, func(n Name) bool { return issuerOf(issuers, n) == nil }) {
		next, err := newIssuer(names, a.now())
		if err != nil {
			return err
		}
		issuers = append(issuers, next)
	}
	if issuers = bounded(issuers); len(issuers) == 0 {
		return fmt.Errorf("%d names are too many for one certificate", len(names))
	}
	a.issuers = issuers
	a.names = slices.Clone(names)
	a.leaves = map[string]*tls.Certificate{}
	return nil
}

// Certificate is what clients are to trust, as PEM: one certificate, or more after names have come.
func (a *Authority) Certificate() []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []byte
	for _, i := range a.issuers {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.trusted})...)
	}
	return out
}

// Leaf is what the broker shows for a name: a certificate for it alone, and the one above.
func (a *Authority) Leaf(name string) (*tls.Certificate, error) {
	name = strings.ToLower(name)
	a.mu.Lock()
	defer a.mu.Unlock()
	if !slices.ContainsFunc(a.names, func(n Name) bool { return n.has(name) }) {
		return nil, fmt.Errorf("%w: %q", ErrName, name)
	}
	now := a.now()
	c := a.leaves[name]
	if c != nil && !now.Before(c.Leaf.NotBefore) && c.Leaf.NotAfter.Sub(now) >= leafLeft { // a clock may also go back
		return c, nil
	}
	c, err := issuerOf(a.issuers, Name{Name: name}).sign(name, a.leaf, now)
	if err != nil {
		return nil, err
	}
	if len(a.leaves) >= maxLeaves {
		clear(a.leaves)
	}
	a.leaves[name] = c
	return c, nil
}

// bounded are the newest of issuers. The last one has all names.
func bounded(issuers []*issuer) []*issuer {
	size, from := 0, len(issuers)
	for from > max(0, len(issuers)-maxIssuers) && size+len(issuers[from-1].trusted) <= maxTrusted {
		from--
		size += len(issuers[from].trusted)
	}
	return issuers[from:]
}

// issuerOf is the oldest issuer for a name: what runs longest trusts that one. It is nil if there is none.
func issuerOf(issuers []*issuer, n Name) *issuer {
	i := slices.IndexFunc(issuers, func(i *issuer) bool { return i.covers(n) })
	if i < 0 {
		return nil
	}
	return issuers[i]
}

// has says whether n stands for name.
func (n Name) has(name string) bool {
	if n.Name == name {
		return true
	}
	return n.Wildcard && strings.HasSuffix(name, "."+n.Name) && valid(name)
}

// valid says whether a name below a wildcard is a host's (RFC 1123, section 2.1), and not too long for one.
func valid(name string) bool {
	if len(name) > 253 {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 {
			return false
		}
		for _, c := range []byte(label) {
			if c != '-' && c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') {
				return false
			}
		}
	}
	return true
}

// covers says whether the issuer's certificates hold for n. A constraint to a name is one to all below it, too.
func (i *issuer) covers(n Name) bool {
	return slices.ContainsFunc(i.names, func(own Name) bool {
		return n.Name == own.Name || strings.HasSuffix(n.Name, "."+own.Name)
	})
}

// issuer signs leaves. Who trusts the one certificate trusts what the other one's key has signed.
type issuer struct {
	names       []Name
	trusted     []byte // DER
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}
