package scorecard

import (
	"context"
	"crypto/tls"
	"encoding/hex"
	"net"
	"strings"

	"github.com/miekg/dns"
)

// clientHello is the first record of a TLS handshake for a name, in hex.
func clientHello(name string) string {
	near, far := net.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer near.Close()
		_ = tls.Client(near, &tls.Config{ServerName: name}).HandshakeContext(ctx)
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
