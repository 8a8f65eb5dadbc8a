package main

import (
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
)

// gateway is another way to let an agent ask an API.
type gateway struct {
	name    string
	like    string // what kind it is
	command []string
	env     []string
	files   []lab.File
	through string // as for the client
}

const gatewayAddr = "127.0.0.1:8787"

// gateways are set up as their documentation has it. One that is not here is left out.
func gateways() []gateway {
	all := []gateway{
		{
			name: "haproxy", like: "holds the key; reads no body, judges nothing", through: "http://" + gatewayAddr,
			command: []string{"haproxy", "-db", "-f", "/etc/haproxy-bench.cfg"},
			files:   []lab.File{{Path: "/etc/haproxy-bench.cfg", Data: []byte(reverseConfig)}},
		},
		{
			// https://www.npmjs.com/package/@portkey-ai/gateway 1.15.2, which a person installs with the override
			// "@hono/node-server": "1.14.1". With a later one it answers errors alone (its issue 1389).
			name: "Portkey's gateway", like: "gets the key with each request; on Node.js", command: []string{"/opt/portkey/node_modules/.bin/gateway", "--port=8787", "--headless"},
			env: []string{"NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt", "TRUSTED_CUSTOM_HOSTS=" + gatedName},
			through: "http://" + gatewayAddr + " X-Portkey-Provider=anthropic X-Api-Key=" + apiKey +
				" X-Portkey-Custom-Host=" + apiURL + "/v1",
		},
	}
	return slices.DeleteFunc(all, func(g gateway) bool {
		_, err := exec.LookPath(g.command[0])
		return err != nil
	})
}

var reverseConfig = `defaults
  mode http
  timeout connect 5s
  timeout client 15m
  timeout server 15m
  maxconn 5000
frontend api
  bind ` + gatewayAddr + `
  http-request deny unless { path_beg /v1/ }
  http-request set-header X-Api-Key ` + apiKey + `
  http-request set-header Host ` + gatedName + `
  default_backend api
backend api
  server api ` + fmt.Sprint(gatedAddr, ":", apiPort) + ` ssl verify required ca-file /etc/ssl/certs/ca-certificates.crt sni str(` + gatedName + `) alpn h2
`

// askGateway measures a gateway in a box without rules.
func (b *bench) askGateway(g gateway) (c asked) {
	box := b.lab.NewBox(lab.BoxOptions{Files: g.files, Binds: b.clientBind(), Env: g.env})
	p := box.Start(lab.Cmd{Args: g.command})
	defer box.Kill()
	run := func(what string, n int) lab.Cmd {
		return lab.Cmd{UID: lab.AgentUID, Timeout: clientTime, Args: []string{clientPath, "-client", what, "-through", g.through, "-n", strconv.Itoa(n)}}
	}
	var last lab.Result
	for deadline := time.Now().Add(proxyTime); ; time.Sleep(100 * time.Millisecond) {
		if last = box.Exec(run("ask-first", 1)); last.Code == 0 {
			break
		}
		if time.Now().After(deadline) {
			b.Fatalf("%s answers nothing: %s\n%s%s", g.name, last, p.Stdout(), p.Stderr())
		}
	}
	return b.ask(box, run, func() (u usage) {
		for _, pid := range append(b.children(p.Pid()), p.Pid()) {
			u.add(b.usage(pid))
		}
		return u
	})
}

// describeGateway is one of them beside the broker.
func (b *bench) describeGateway(name, like string, c asked) {
	r := b.report
	r.figure(name+": first byte of an answer, added", us(c.first.Gated-c.first.Direct), "").note("%s", like)
	r.figure(fmt.Sprintf("  with a request of %d KiB", longRequest), us(c.long.Gated-c.long.Direct), "")
	r.figure("  requests a second", thousands(int(c.rate.Gated)), "").note("%.2f× of those past it", ratio(c.rate.Gated, c.rate.Direct))
	r.figure("  one stream", streamRate(c.bulk.Gated), "").note("%.2f× of one past it", ratio(c.bulk.Direct, c.bulk.Gated))
	r.figure(fmt.Sprintf("  %s streams open, private and dirty", thousands(openStreams)), mib(c.held.private), "").note("resident %s", mib(c.held.rss))
}
