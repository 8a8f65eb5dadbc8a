package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"strconv"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
)

const (
	lookRounds = 300
	bumpKey    = "/etc/bump-bench.pem"
)

// addedLook is what a request takes more than one straight to the server. Both are over open connections, whose client
// offers HTTP/2.
func addedLook(_ *bench, run client) float64 {
	var took both[time.Duration]
	run("look", lookRounds, &took)
	return millis(took.Gated - took.Direct)
}

// lookInside measures a name that the policy has inspected.
func lookInside(b *bench) float64 {
	list := fmt.Sprintf("%s:443 GET /**\n%s:443\n", gatedName, directAddr)
	box := b.lab.NewBox(lab.BoxOptions{Binary: b.binary, Binds: b.clientBind(), Files: []lab.File{{Path: policyFile, Data: []byte(list)}}})
	b.runConfined(box)
	return addedLook(b, b.asAgent(box))
}

// breakers are proxies that break TLS, set up as their documentation has it for one name of which GET may be asked.
func breakers() []peer {
	return []peer{
		// Squid's wiki, Features/SslPeekAndSplice. It speaks HTTP/1.1 alone.
		breaker(true, proxy{name: "squid", program: "squid", through: "connect:" + proxyAddr, start: "setpriv --reuid=" + strconv.Itoa(lab.AgentUID) +
			" --clear-groups /usr/lib/squid/security_file_certgen -c -s /tmp/certificates -M 4MB && " + startSquidProxy,
			files: []lab.File{{Path: squidFile, Data: []byte(bumpConfig)}}}),
		breaker(false, proxy{name: "mitmproxy", program: "mitmdump", through: "connect:" + proxyAddr,
			start: startMitmproxy + " --set ssl_verify_upstream_trusted_ca=" + imageBundle,
			files: []lab.File{{Path: mitmFile, Data: []byte(mitmScript)}}}),
		// It has one certificate for one name, made before, and one fixed address.
		breaker(false, proxy{name: "haproxy", program: "haproxy", through: proxyAddr, start: startHaproxy,
			files: []lab.File{{Path: haproxyFile, Data: []byte(endingConfig)}}}),
	}
}

// breaker gives a proxy a certificate of its own.
func breaker(authority bool, p proxy) peer {
	files := p.files
	return peer{p.name, p.program, func(b *bench) float64 {
		p.files = append(files[:1:1], lab.File{Path: bumpKey, Data: b.bumpCertificate(authority), Mode: 0o644})
		return p.peer(addedLook).measure(b)
	}}
}

var bumpConfig = `http_port ` + proxyAddr + ` ssl-bump generate-host-certificates=on dynamic_cert_mem_cache_size=4MB tls-cert=` + bumpKey + `
sslcrtd_program /usr/lib/squid/security_file_certgen -s /tmp/certificates -M 4MB
tls_outgoing_options cafile=` + imageBundle + `
acl first at_step SslBump1
ssl_bump peek first
ssl_bump bump all
acl allowed dstdomain ` + gatedName + `
acl tls port 443
acl get method GET
http_access allow CONNECT tls allowed
http_access allow get allowed
http_access deny all
` + squidRest

var endingConfig = `defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  maxconn 5000
frontend gate
  bind ` + proxyAddr + ` ssl crt ` + bumpKey + ` alpn h2,http/1.1
  http-request deny unless { method GET } { path_beg / }
  default_backend named
backend named
  server named ` + gatedAddr + `:443 ssl verify required ca-file ` + imageBundle + ` sni str(` + gatedName + `) alpn h2,http/1.1
`

// bumpCertificate is a certificate for the name, or of an authority that makes such, with its key.
func (b *bench) bumpCertificate(authority bool) []byte {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		b.Fatalf("%v", err)
	}
	now := time.Now()
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bench"}, DNSNames: []string{gatedName},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
	}
	if authority {
		tmpl.DNSNames, tmpl.IsCA, tmpl.BasicConstraintsValid = nil, true, true
		tmpl.KeyUsage |= x509.KeyUsageCertSign
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		b.Fatalf("%v", err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		b.Fatalf("%v", err)
	}
	return append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})...)
}
