package authority

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

// trusting is what a program knows that has read the authority's file.
func trusting(t *testing.T, a *Authority) *x509.CertPool {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(a.Certificate()) {
		t.Fatal("no certificate")
	}
	return pool
}

// check is what a client does with what the broker shows for a name.
func check(a *Authority, roots *x509.CertPool, name string) error {
	c, err := a.Leaf(name)
	if err != nil {
		return err
	}
	lower := x509.NewCertPool()
	for _, der := range c.Certificate[1:] {
		i, err := x509.ParseCertificate(der)
		if err != nil {
			return err
		}
		lower.AddCert(i)
	}
	_, err = c.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: roots, Intermediates: lower, CurrentTime: a.now()})
	return err
}

func TestLeaf(t *testing.T) {
	a, err := New([]Name{{Name: "api.example.com"}, {Name: "wild.example", Wildcard: true}})
	if err != nil {
		t.Fatal(err)
	}
	roots := trusting(t, a)
	for _, name := range []string{"api.example.com", "API.Example.com", "wild.example", "a.wild.example", "a.b_c.wild.example"} {
		if err := check(a, roots, name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{
		"", "example.com", "www.api.example.com", "xapi.example.com", "xwild.example", ".wild.example", "a..wild.example", "*.wild.example",
		"a b.wild.example", "a\x00.wild.example", "api.example.com.", "127.0.0.1", "a.wild.example.evil.test",
	} {
		if _, err := a.Leaf(name); !errors.Is(err, ErrName) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestRename: who trusts an authority goes on with the names that stay, and who reads it anew has all.
func TestRename(t *testing.T) {
	a, err := New([]Name{{Name: "one.example"}, {Name: "two.example"}})
	if err != nil {
		t.Fatal(err)
	}
	first := trusting(t, a)
	if err := a.Rename([]Name{{Name: "two.example"}, {Name: "three.example"}}); err != nil {
		t.Fatal(err)
	}
	second := trusting(t, a)
	if err := check(a, first, "two.example"); err != nil {
		t.Error("a name that stays:", err)
	}
	if check(a, first, "three.example") == nil {
		t.Error("a new name passes with who knows nothing of it")
	}
	for _, name := range []string{"two.example", "three.example"} {
		if err := check(a, second, name); err != nil {
			t.Error(name, err)
		}
	}
	if _, err := a.Leaf("one.example"); !errors.Is(err, ErrName) {
		t.Error("a name that is gone:", err)
	}
	before := string(a.Certificate())
	if err := a.Rename([]Name{{Name: "three.example"}}); err != nil {
		t.Fatal(err)
	}
	if err := check(a, second, "three.example"); err != nil {
		t.Error("after fewer names:", err)
	}
	if after := string(a.Certificate()); after == before || len(after) >= len(before) {
		t.Error("the first issuer, which has none of the names, is trusted still")
	}
	if a.Rename(nil) == nil {
		t.Error("an authority without a name")
	}
}

// TestIssuersBounded: whoever changes names for ever has no file that grows for ever.
func TestIssuersBounded(t *testing.T) {
	names := []Name{{Name: "stays.example"}}
	a, err := New(names)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 * maxIssuers {
		names = append(names, Name{Name: fmt.Sprintf("n%d.example", i)})
		if err := a.Rename(names); err != nil {
			t.Fatal(err)
		}
		roots := trusting(t, a)
		for _, n := range names {
			if err := check(a, roots, n.Name); err != nil {
				t.Fatal(n.Name, err)
			}
		}
	}
	if len(a.issuers) != maxIssuers {
		t.Errorf("%d issuers", len(a.issuers))
	}
}

// TestLeavesInTime: a leaf is the same until it is half over, and is made anew if the clock goes back.
func TestLeavesInTime(t *testing.T) {
	a, err := New([]Name{{Name: "a.example", Wildcard: true}})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	a.now = func() time.Time { return now }
	serial := func() string {
		c, err := a.Leaf("a.example")
		if err != nil {
			t.Fatal(err)
		}
		if life := c.Leaf.NotAfter.Sub(c.Leaf.NotBefore); life > 24*time.Hour {
			t.Error("a leaf lives for", life)
		}
		if now.Before(c.Leaf.NotBefore) || now.After(c.Leaf.NotAfter) {
			t.Error("a leaf that does not hold")
		}
		return c.Leaf.SerialNumber.String()
	}
	first := serial()
	if now = now.Add(time.Hour); serial() != first {
		t.Error("another one after an hour")
	}
	now = now.Add(20 * time.Hour)
	second := serial()
	if second == first {
		t.Error("the same when it is almost over")
	}
	if now = now.Add(-23 * time.Hour); serial() == second {
		t.Error("the same after the clock went back")
	}
	for i := range 2 * maxLeaves {
		if _, err := a.Leaf(fmt.Sprintf("n%d.a.example", i)); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(a.leaves); n > maxLeaves {
		t.Errorf("%d leaves are kept", n)
	}
}

// TestCertificates holds what strict checks look for (Python 3.13: VERIFY_X509_STRICT).
func TestCertificates(t *testing.T) {
	a, err := New([]Name{{Name: "a.example"}})
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := a.Leaf("a.example")
	if err != nil {
		t.Fatal(err)
	}
	root, err := x509.ParseCertificate(a.issuers[0].trusted)
	if err != nil {
		t.Fatal(err)
	}
	lower := a.issuers[0].certificate
	for _, c := range []*x509.Certificate{root, lower} {
		if !c.IsCA || c.KeyUsage&x509.KeyUsageCertSign == 0 || !c.PermittedDNSDomainsCritical || len(c.ExcludedIPRanges) != 2 || !slices.Equal(c.PermittedDNSDomains, []string{"a.example"}) {
			t.Errorf("%+v", c)
		}
	}
	for _, c := range []*x509.Certificate{root, lower, leaf.Leaf} {
		if len(c.SubjectKeyId) == 0 || c.SerialNumber.BitLen() < 64 || len(c.Subject.Organization) == 0 {
			t.Errorf("%v: key identifier %x, serial %v", c.Subject, c.SubjectKeyId, c.SerialNumber)
		}
	}
	if string(lower.AuthorityKeyId) != string(root.SubjectKeyId) || string(leaf.Leaf.AuthorityKeyId) != string(lower.SubjectKeyId) {
		t.Error("the key identifiers lead elsewhere")
	}
	if leaf.Leaf.IsCA || leaf.Leaf.KeyUsage != x509.KeyUsageDigitalSignature || len(leaf.Leaf.DNSNames) != 1 {
		t.Errorf("%+v", leaf.Leaf)
	}
}
