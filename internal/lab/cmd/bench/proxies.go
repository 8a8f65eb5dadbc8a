package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
)

// proxy is another way to let an agent reach named hosts only.
type proxy struct {
	name    string
	like    string // what kind it is
	start   string // a command for the shell
	file    lab.File
	through string // as for the client
}

const (
	proxyAddr   = "127.0.0.1:3128"
	proxyTime   = 30 * time.Second // to start
	setupsEach  = 200
	rateRounds  = 3
	rateClients = 8
	rateTime    = 2 * time.Second
)

// proxies are set up as their documentation has it for a list of names.
func proxies() []proxy {
	return []proxy{
		{
			name: "squid", like: "has to be asked (CONNECT); names only, TLS is not looked into", through: "connect:" + proxyAddr,
			start: "exec squid -N -f /etc/squid-bench.conf",
			file:  lab.File{Path: "/etc/squid-bench.conf", Data: []byte(squidConfig)},
		},
		{
			name: "mitmproxy", like: "has to be asked (CONNECT); breaks TLS and reads the requests", through: "connect:" + proxyAddr,
			start: "exec mitmdump --quiet --listen-host 127.0.0.1 --listen-port 3128 --ssl-insecure --set confdir=/tmp/mitmproxy " +
				"--set stream_large_bodies=1m --scripts /etc/mitm-bench.py",
			file: lab.File{Path: "/etc/mitm-bench.py", Data: []byte(mitmScript)},
		},
		{
			name: "haproxy", like: "the server name checked, then spliced to one fixed address", through: proxyAddr,
			start: "exec haproxy -db -f /etc/haproxy-bench.cfg",
			file:  lab.File{Path: "/etc/haproxy-bench.cfg", Data: []byte(haproxyConfig)},
		},
	}
}

var squidConfig = `http_port ` + proxyAddr + `
acl allowed dstdomain ` + gatedName + `
acl tls port 443
http_access allow CONNECT tls allowed
http_access deny all
cache_effective_user agent
cache deny all
access_log none
cache_log /dev/null
pid_filename none
dns_nameservers ` + lab.Upstream4.String() + `
`

const mitmScript = `from mitmproxy import http

def request(flow: http.HTTPFlow) -> None:
    if flow.request.pretty_host != "` + gatedName + `":
        flow.response = http.Response.make(403)
`

const haproxyConfig = `defaults
  mode tcp
  option splice-auto
  timeout connect 5s
  timeout client 60s
  timeout server 60s
frontend gate
  bind ` + proxyAddr + `
  tcp-request inspect-delay 5s
  tcp-request content accept if { req.ssl_hello_type 1 } { req.ssl_sni -i ` + gatedName + ` }
  tcp-request content reject
  default_backend named
backend named
  server named ` + gatedAddr + `:443
`

// crossing is what a way through something costs, beside the direct one from the
// same box, and the memory that it has afterwards.
type crossing struct {
	setup, bulk timing
	rate        rates
	rss         int64
}

func measureProxies(b *bench) {
	b.report.heading("The name gate beside proxies: TLS connections through each, and past it from the same box")
	own := b.crossGate()
	b.describe("the gate", "nobody has to ask it; the server name and its leased address checked; PID 1 and guard", own)
	for _, p := range proxies() {
		b.describe(p.name, p.like, b.cross(p))
	}
}

func (b *bench) crossGate() (c crossing) {
	box := b.gatedBox()
	p := b.runConfined(box)
	defer box.Kill()
	b.client(box, &c.setup, "setup", setupsEach)
	b.client(box, &c.rate, "rate", rateRounds)
	b.client(box, &c.bulk, "https", bulkRounds)
	c.rss = b.usage(p.Pid()).rss + b.usage(b.childPID(p.Pid(), "guard")).rss
	return c
}

// cross measures a proxy in a box without rules.
func (b *bench) cross(p proxy) (c crossing) {
	b.serveGated()
	box := b.lab.NewBox(lab.BoxOptions{Files: []lab.File{p.file}, Binds: b.clientBind()})
	proc := box.Start(lab.Cmd{Args: []string{"sh", "-c", p.start}})
	defer box.Kill()
	run := func(into any, what string, n int) {
		b.found(into, p.name+" "+what, box.Exec(lab.Cmd{UID: lab.AgentUID, Timeout: clientTime,
			Args: []string{clientPath, "-client", what, "-through", p.through, "-n", strconv.Itoa(n)}}))
	}
	b.awaitProxy(box, p)
	run(&c.setup, "setup", setupsEach)
	run(&c.rate, "rate", rateRounds)
	run(&c.bulk, "https", bulkRounds)
	for _, pid := range append(b.children(proc.Pid()), proc.Pid()) {
		c.rss += b.usage(pid).rss
	}
	return c
}

// awaitProxy waits until a connection passes.
func (b *bench) awaitProxy(box *lab.Box, p proxy) {
	var last lab.Result
	for deadline := time.Now().Add(proxyTime); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		last = box.Exec(lab.Cmd{UID: lab.AgentUID, Args: []string{clientPath, "-client", "setup", "-through", p.through}})
		if last.Code == 0 {
			return
		}
	}
	b.Fatalf("%s lets nothing pass: %s", p.name, last)
}

func (b *bench) describe(name, like string, c crossing) {
	r := b.report
	r.figure(name+": connection, handshake and one answer, added", fmt.Sprintf("%d µs", (c.setup.Gated-c.setup.Direct).Microseconds()), "").note("%s", like)
	r.figure("  connections a second", thousands(int(c.rate.Gated)), "").note("%.2f× of those past it", ratio(c.rate.Gated, c.rate.Direct))
	r.figure("  one stream", rate(c.bulk.Gated), "").note("%.2f× of one past it", ratio(c.bulk.Direct, c.bulk.Gated))
	r.figure("  resident afterwards", mib(c.rss), "")
}
