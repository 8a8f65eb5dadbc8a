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
	lookRounds  = 300
	lookedInto  = 500 // connections open at once
	squidGoal   = 1.0
	mitmGoal    = 5.0
	bumpKey     = "/etc/bump-bench.pem"
	imageBundle = "/etc/ssl/certs/ca-certificates.crt"
)

// looked is what it costs that something looks at each request inside TLS, beside asking the server straight. Of two, the
// second is for a client that offers HTTP/2.
type looked struct {
	setup      timing // a connection, a handshake and one answer
	setups     rates
	ask        [2]timing // over a connection that is open
	asks       [2]rates
	bulk       [2]timing
	asked      [2]time.Duration // of the processors', for a request
	streamed   [2]time.Duration // and for a GiB
	idle, held usage
}

func measureInspect(b *bench) {
	b.report.heading("Inspected names beside proxies that break TLS: requests through each, and straight from the same box")
	own := b.lookInside()
	b.describeLooked("the broker", "nobody has to ask it; each request judged by method and path; PID 1, guard and broker", own)
	by := map[string]looked{}
	for _, p := range b.breakers() {
		by[p.name] = b.lookThrough(p)
		b.describeLooked(p.name, p.like, by[p.name])
	}
	r := b.report
	for _, than := range []struct {
		name string
		goal float64
	}{{"squid", squidGoal}, {"mitmproxy", mitmGoal}} {
		c := by[than.name]
		goal := fmt.Sprintf("≥ %.0f×", than.goal)
		added := ratio(c.ask[1].Gated-c.ask[1].Direct, own.ask[1].Gated-own.ask[1].Direct)
		r.figure("a request over an open connection, "+than.name+" : the broker, HTTP/2 offered", times(added), goal).met(added >= than.goal).
			note("%s : %s of the processors", us(c.asked[1]), us(own.asked[1]))
		stream := ratio(own.bulk[1].Direct, own.bulk[1].Gated) / ratio(c.bulk[1].Direct, c.bulk[1].Gated)
		r.figure("  one stream, the broker : "+than.name, times(stream), goal).met(stream >= than.goal).
			note("each by the rate straight; a GiB takes %s : %s of the processors", ms(own.streamed[1]), ms(c.streamed[1]))
		setup := ratio(c.setup.Gated-c.setup.Direct, own.setup.Gated-own.setup.Direct)
		r.figure("  a connection, handshake and one answer, "+than.name+" : the broker", times(setup), goal).met(setup >= than.goal)
	}
}

// lookInside measures a name that the policy has inspected.
func (b *bench) lookInside() looked {
	b.serveGated()
	list := fmt.Sprintf("%s:443 GET /**\n%s:443\n", gatedName, directAddr)
	box := b.lab.NewBox(lab.BoxOptions{Binary: b.binary, Binds: b.clientBind(), Files: []lab.File{{Path: "/etc/agent-init/allowlist.txt", Data: []byte(list)}}})
	p := b.runConfined(box)
	defer box.Kill()
	return b.look(box, func(what string, n int) lab.Cmd {
		return lab.Cmd{Timeout: clientTime, Args: []string{"agent-init", "exec", "--", clientPath, "-client", what, "-n", strconv.Itoa(n)}}
	}, func() []int { return []int{p.Pid(), b.childPID(p.Pid(), "guard"), b.childPID(p.Pid(), "broker")} })
}

// lookThrough measures a proxy in a box without rules.
func (b *bench) lookThrough(p proxy) looked {
	b.serveGated()
	files := []lab.File{p.file, {Path: bumpKey, Data: b.bumpCertificate(p.name == "squid"), Mode: 0o644}}
	box := b.lab.NewBox(lab.BoxOptions{Files: files, Binds: b.clientBind()})
	proc := box.Start(lab.Cmd{Args: []string{"sh", "-c", p.start}})
	defer box.Kill()
	b.awaitProxy(box, p)
	return b.look(box, func(what string, n int) lab.Cmd {
		return lab.Cmd{UID: lab.AgentUID, Timeout: clientTime, Args: []string{clientPath, "-client", what, "-through", p.through, "-n", strconv.Itoa(n)}}
	}, func() []int { return append(b.children(proc.Pid()), proc.Pid()) })
}

// look measures one way; of tells its processes.
func (b *bench) look(box *lab.Box, run command, of func() []int) (c looked) {
	use := func() (u usage) {
		for _, pid := range of() {
			u.add(b.usage(pid))
		}
		return u
	}
	measure := func(what string, n int, into any) (used time.Duration) {
		for _, pid := range of() {
			used -= b.cpuTime(pid)
		}
		b.found(into, what, box.Exec(run(what, n)))
		for _, pid := range of() {
			used += b.cpuTime(pid)
		}
		return used
	}
	c.idle = use()
	measure("setup", setupsEach, &c.setup)
	measure("rate", rateRounds, &c.setups)
	for i, version := range []string{"1", "2"} {
		measure("look"+version, lookRounds, &c.ask[i])
		used := measure("looks"+version, rateRounds, &c.asks[i])
		c.asked[i] = time.Duration(float64(used) / (c.asks[i].Gated * rateTime.Seconds() * rateRounds))
		c.streamed[i] = measure("bulk"+version, bulkRounds, &c.bulk[i]) * (1 << 30) / (bulkRounds * bulkBytes)
	}
	client := box.ExecStart(run("hold-looked", lookedInto))
	if !client.WaitOutput("holding", clientTime) {
		b.Fatalf("%d connections could not be opened: %s", lookedInto, client.Wait(time.Second))
	}
	time.Sleep(idleTime)
	c.held = use()
	return c
}

func (b *bench) describeLooked(name, like string, c looked) {
	r := b.report
	r.figure(name+": connection, handshake and one answer, added", us(c.setup.Gated-c.setup.Direct), "").note("%s", like)
	r.figure("  connections a second", thousands(int(c.setups.Gated)), "").note("%.2f× of those straight", ratio(c.setups.Gated, c.setups.Direct))
	for i, version := range []string{"HTTP/1.1", "HTTP/2 if it is offered"} {
		r.figure("  a request over an open connection, added, "+version, us(c.ask[i].Gated-c.ask[i].Direct), "")
		r.figure("  requests a second", thousands(int(c.asks[i].Gated)), "").
			note("%.2f× of those straight; each takes %s of the processors", ratio(c.asks[i].Gated, c.asks[i].Direct), us(c.asked[i]))
		r.figure("  one stream", rate(c.bulk[i].Gated), "").
			note("%.2f× of one straight; a GiB takes %s of the processors", ratio(c.bulk[i].Direct, c.bulk[i].Gated), ms(c.streamed[i]))
	}
	r.figure(fmt.Sprintf("  %s connections open, private and dirty", thousands(lookedInto)), mib(c.held.private), "").
		note("%s before; resident %s, and %s before", mib(c.idle.private), mib(c.held.rss), mib(c.idle.rss))
}

// breakers are set up as their documentation has it for one name of which GET may be asked.
func (b *bench) breakers() []proxy {
	return []proxy{
		{
			// Squid's wiki, Features/SslPeekAndSplice. It speaks HTTP/1.1 alone.
			name: "squid", like: "has to be asked (CONNECT); ssl-bump; no HTTP/2", through: "connect:" + proxyAddr,
			start: "setpriv --reuid=" + strconv.Itoa(lab.AgentUID) + " --clear-groups /usr/lib/squid/security_file_certgen -c -s /tmp/certificates -M 4MB && " +
				"exec squid -N -f /etc/squid-bench.conf",
			file: lab.File{Path: "/etc/squid-bench.conf", Data: []byte(bumpConfig)},
		},
		{
			name: "mitmproxy", like: "has to be asked (CONNECT)", through: "connect:" + proxyAddr,
			start: "exec mitmdump --quiet --listen-host 127.0.0.1 --listen-port 3128 --set confdir=/tmp/mitmproxy " +
				"--set ssl_verify_upstream_trusted_ca=" + imageBundle + " --set stream_large_bodies=1m --scripts /etc/mitm-bench.py",
			file: lab.File{Path: "/etc/mitm-bench.py", Data: []byte(mitmMethods)},
		},
		{
			name: "haproxy", like: "one certificate for one name, made before; to one fixed address", through: proxyAddr,
			start: "exec haproxy -db -f /etc/haproxy-bench.cfg",
			file:  lab.File{Path: "/etc/haproxy-bench.cfg", Data: []byte(endingConfig)},
		},
	}
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
cache_effective_user agent
cache deny all
access_log none
cache_log /dev/null
pid_filename none
dns_nameservers ` + lab.Upstream4.String() + `
`

const mitmMethods = `from mitmproxy import http

def request(flow: http.HTTPFlow) -> None:
    if flow.request.pretty_host != "` + gatedName + `" or flow.request.method != "GET":
        flow.response = http.Response.make(403)
`

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
