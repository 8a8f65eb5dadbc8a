package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/agent-init/agent-init/internal/lab"
)

// The same server is asked through the gate, by a name of the policy, and past it, by an address of the policy.
const (
	gatedName  = "gated.test"
	gatedAddr  = "45.30.7.1"
	directAddr = "45.30.7.2"

	setupRounds = 200
	bulkBytes   = 512 << 20
	bulkRounds  = 3
	rateRounds  = 3
	rateClients = 8
	rateTime    = 2 * time.Second
	clientTime  = 3 * time.Minute
	proxyTime   = 30 * time.Second // to start
	linkRate    = 2_500_000_000 / 8
)

// client has this program, in a box, do something n times each way; into gets what it found.
type client func(what string, n int, into any)

// both are the medians of two ways.
type both[T any] struct{ Direct, Gated T }

func addedSetup(_ *bench, run client) float64 {
	var took both[time.Duration]
	run("setup", setupRounds, &took)
	return millis(took.Gated - took.Direct)
}

func shareOfConnections(_ *bench, run client) float64 {
	var rate both[float64]
	run("rate", rateRounds, &rate)
	return rate.Gated / rate.Direct
}

func shareOfStream(_ *bench, run client) float64 {
	var took both[time.Duration]
	run("https", bulkRounds, &took)
	return float64(took.Direct) / float64(took.Gated)
}

func shareOfLink(b *bench, run client) float64 {
	b.limitLink(linkRate)
	return shareOfStream(b, run)
}

// gated measures the name gate.
func gated(measure func(*bench, client) float64) func(*bench) float64 {
	return func(b *bench) float64 {
		list := fmt.Sprintf("%s required\n%s:443\n", gatedName, directAddr)
		box := b.lab.NewBox(lab.BoxOptions{Binary: b.binary, Binds: b.clientBind(), Files: []lab.File{{Path: policyFile, Data: []byte(list)}}})
		b.runConfined(box)
		return measure(b, b.asAgent(box))
	}
}

// proxy is another way to let an agent reach named hosts only.
type proxy struct {
	name, program string
	start         string // a command for the shell
	files         []lab.File
	through       string // as for the client
}

const proxyAddr = "127.0.0.1:3128"

// crossed measures the proxies, set up as their documentation has it for a list of names.
func crossed(measure func(*bench, client) float64) []peer {
	return []peer{
		haproxy().peer(measure),
		squid(gatedName).peer(measure),
		proxy{name: "mitmproxy", program: "mitmdump", start: startMitmproxy + " --ssl-insecure", through: "connect:" + proxyAddr,
			files: []lab.File{{Path: mitmFile, Data: []byte(mitmScript)}}}.peer(measure),
	}
}

func haproxy() proxy {
	return proxy{name: "haproxy", program: "haproxy", start: startHaproxy, through: proxyAddr,
		files: []lab.File{{Path: haproxyFile, Data: []byte(spliceConfig)}}}
}

func squid(names string) proxy {
	return proxy{name: "squid", program: "squid", start: startSquidProxy, through: "connect:" + proxyAddr,
		files: []lab.File{{Path: squidFile, Data: []byte(squidConfig)}, {Path: squidNames, Data: []byte(names)}}}
}

// peer measures the proxy in a box without rules.
func (p proxy) peer(measure func(*bench, client) float64) peer {
	return peer{p.name, p.program, func(b *bench) float64 {
		box, _ := b.serve(p)
		return measure(b, b.through(box, p.through))
	}}
}

// serve starts the proxy, and waits until a connection passes.
func (b *bench) serve(p proxy) (*lab.Box, *lab.Process) {
	box := b.lab.NewBox(lab.BoxOptions{Files: p.files, Binds: b.clientBind()})
	proc := box.Start(lab.Cmd{Args: []string{"sh", "-c", p.start}})
	b.Cleanup(box.Kill)
	b.await(box, "setup", p.through)
	return box, proc
}

// await waits until the client in a box succeeds.
func (b *bench) await(box *lab.Box, what, through string) {
	var last lab.Result
	for deadline := time.Now().Add(proxyTime); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if last = box.Exec(throughCmd(what, 1, through)); last.Code == 0 {
			return
		}
	}
	b.Fatalf("nothing passes by %s: %s", through, last)
}

const (
	squidFile   = "/etc/squid-bench.conf"
	squidNames  = "/etc/squid-names"
	haproxyFile = "/etc/haproxy-bench.cfg"
	mitmFile    = "/etc/mitm-bench.py"

	startSquidProxy = "exec squid -N -f " + squidFile
	startHaproxy    = "exec haproxy -db -f " + haproxyFile
	startMitmproxy  = "exec mitmdump --quiet --listen-host 127.0.0.1 --listen-port 3128 --set confdir=/tmp/mitmproxy " +
		"--set stream_large_bodies=1m --scripts " + mitmFile

	mitmScript = `from mitmproxy import http

def request(flow: http.HTTPFlow) -> None:
    if flow.request.pretty_host != "` + gatedName + `" or flow.request.method not in ("CONNECT", "GET"):
        flow.response = http.Response.make(403)
`
	spliceConfig = `defaults
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
)

var squidConfig = `http_port ` + proxyAddr + `
acl allowed dstdomain "` + squidNames + `"
acl tls port 443
http_access allow CONNECT tls allowed
http_access deny all
` + squidRest

var squidRest = `cache_effective_user agent
cache deny all
access_log none
cache_log /dev/null
pid_filename none
dns_nameservers ` + lab.Upstream4.String() + `
`

func (b *bench) serveGated() {
	b.lab.DNS.SetAddrs(gatedName, gatedAddr)
	b.lab.Web.Handle(gatedName, http.HandlerFunc(serveBulk))
}

// clientBind shows this program in a box.
func (b *bench) clientBind() []lab.Bind {
	self, err := os.Executable()
	if err != nil {
		b.Fatalf("%v", err)
	}
	return []lab.Bind{{Source: self, Target: clientPath}}
}

// limitLink gives the internet's end of every box's link a rate in bytes a second (tc-tbf(8)).
func (b *bench) limitLink(rate uint64) {
	err := b.lab.Internet.Do(func() error {
		links, err := netlink.LinkList()
		if err != nil {
			return err
		}
		for _, l := range links {
			if l.Type() != "veth" {
				continue
			}
			q := &netlink.Tbf{
				QdiscAttrs: netlink.QdiscAttrs{LinkIndex: l.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
				Rate:       rate, Buffer: 1 << 20, Limit: 4 << 20,
			}
			if err := netlink.QdiscReplace(q); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatalf("limit the link: %v", err)
	}
}

// asAgent runs the client as the agent of a confined box.
func (b *bench) asAgent(box *lab.Box) client {
	return func(what string, n int, into any) {
		b.run(box, lab.Cmd{Timeout: clientTime, Args: []string{"agent-init", "exec", "--", clientPath, "-client", what, "-n", strconv.Itoa(n)}}, into)
	}
}

// through runs it in a box without rules.
func (b *bench) through(box *lab.Box, through string) client {
	return func(what string, n int, into any) { b.run(box, throughCmd(what, n, through), into) }
}

func throughCmd(what string, n int, through string) lab.Cmd {
	return lab.Cmd{UID: lab.AgentUID, Timeout: clientTime,
		Args: []string{clientPath, "-client", what, "-through", through, "-n", strconv.Itoa(n)}}
}

// run waits for what the client has found. Without anything to put that into, it waits until the client holds something.
func (b *bench) run(box *lab.Box, cmd lab.Cmd, into any) {
	if into == nil {
		if p := box.ExecStart(cmd); !p.WaitOutput("holding", clientTime) {
			b.Fatalf("%v: %s", cmd.Args, p.Wait(time.Second))
		}
		return
	}
	r := box.Exec(cmd)
	if err := json.Unmarshal([]byte(r.Stdout), into); err != nil {
		b.Fatalf("%v: %v: %s", cmd.Args, err, r)
	}
}

// serveBulk answers /bulk with bulkBytes, and anything else with a word.
func serveBulk(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/bulk" {
		fmt.Fprintln(w, "ok")
		return
	}
	w.Header().Set("Content-Length", strconv.Itoa(bulkBytes))
	buf := make([]byte, 256<<10)
	for range bulkBytes / len(buf) {
		if _, err := w.Write(buf); err != nil {
			return
		}
	}
}
