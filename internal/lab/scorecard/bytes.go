package scorecard

import (
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"net"
	"strings"

	"github.com/miekg/dns"
)

// clientHello is the first record of a TLS handshake for a name, in hex.
func clientHello(name string) string { return firstRecord(&tls.Config{ServerName: name}) }

// encryptedHello is one whose real name is encrypted, for a front of that name.
func encryptedHello(front string) string {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		panic(err) // no randomness: nothing would work
	}
	// ECHConfigList of RFC 9849: X25519, HKDF-SHA256, AES-128-GCM.
	contents := append([]byte{1, 0, 0x20}, vector16(key.PublicKey().Bytes())...)
	contents = append(append(contents, vector16([]byte{0, 1, 0, 1})...), 0, byte(len(front)))
	contents = append(append(contents, front...), 0, 0)
	config := vector16(append([]byte{0xfe, 0x0d}, vector16(contents)...))
	return firstRecord(&tls.Config{ServerName: "hidden.evil.test", MinVersion: tls.VersionTLS13, EncryptedClientHelloConfigList: config})
}

// vector16 is b behind its length.
func vector16(b []byte) []byte { return append([]byte{byte(len(b) >> 8), byte(len(b))}, b...) }

func firstRecord(config *tls.Config) string {
	near, far := net.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer near.Close()
		_ = tls.Client(near, config).HandshakeContext(ctx)
	}()
	buf := make([]byte, 16<<10)
	n, _ := far.Read(buf)
	cancel()
	far.Close()
	return hex.EncodeToString(buf[:n])
}

// twoQuestions is a DNS query, in hex, that asks for one name and then for
// another.
func twoQuestions(first, second string) string {
	m := new(dns.Msg)
	m.SetQuestion(dns.Fqdn(first), dns.TypeA)
	m.Question = append(m.Question, dns.Question{Name: dns.Fqdn(second), Qtype: dns.TypeA, Qclass: dns.ClassINET})
	raw, err := m.Pack()
	if err != nil {
		panic(err) // both names are ours
	}
	return hex.EncodeToString(raw)
}

// mixedCase is a name with one bit of somebody's in each letter.
func mixedCase(name string) string {
	var out strings.Builder
	for i, r := range name {
		if i%2 == 0 {
			out.WriteString(strings.ToUpper(string(r)))
		} else {
			out.WriteRune(r)
		}
	}
	return out.String()
}
