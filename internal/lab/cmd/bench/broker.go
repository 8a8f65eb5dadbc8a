package main

import (
	"fmt"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
)

const (
	longRequest = 100 // KiB; agents send the whole conversation each time
	askRounds   = 300
	openStreams = 1000
	gatewayAddr = "127.0.0.1:8787"
)

// asked measures something that puts the key on; pids tells its processes.
type asked func(b *bench, run client, pids func() []int) float64

// addedFirst is what the first byte of an answer takes more than straight from the API with the key.
func addedFirst(_ *bench, run client, _ func() []int) float64 {
	var took both[time.Duration]
	run("ask-first", askRounds, &took)
	return millis(took.Gated - took.Direct)
}

// heldStreams is what it occupies with many streams open, each of which gets an event a second.
func heldStreams(b *bench, run client, pids func() []int) float64 {
	run("ask-hold", openStreams, nil)
	time.Sleep(idleTime)
	return b.private(pids()...)
}

// ofBroker measures a route in a confined box. The policy has the API's other address as well.
func ofBroker(measure asked) func(*bench) float64 {
	return func(b *bench) float64 {
		text := fmt.Sprintf("domains: [%s required, '%s:%d']\nbroker:\n  anthropic: {to: '%s/', credential: 'env:ANTHROPIC_API_KEY'}\n",
			nameOf(0), directAddr, apiPort, apiURL)
		box := b.lab.NewBox(lab.BoxOptions{
			Binary: b.binary, Binds: b.clientBind(), Env: []string{"ANTHROPIC_API_KEY=" + apiKey},
			Files: []lab.File{{Path: "/etc/agent-init/policy.yaml", Data: []byte(text)}},
		})
		p := b.runConfined(box)
		return measure(b, b.asAgent(box), func() []int { return []int{b.childPID(p.Pid(), "broker")} })
	}
}

// gateway is another way to let an agent ask an API.
type gateway struct {
	name, program string
	args, env     []string
	files         []lab.File
	through       string // as for the client
}

// ofGateways measures gateways in boxes without rules, set up as their documentation has it. They judge nothing.
func ofGateways(measure asked) (peers []peer) {
	for _, g := range []gateway{
		{name: "haproxy", program: "haproxy", args: []string{"-db", "-f", haproxyFile}, through: "http://" + gatewayAddr,
			files: []lab.File{{Path: haproxyFile, Data: []byte(reverseConfig)}}},
		{
			// https://www.npmjs.com/package/@portkey-ai/gateway 1.15.2, which a person installs with the override
			// "@hono/node-server": "1.14.1". With a later one it answers errors alone (its issue 1389).
			name: "Portkey's gateway", program: "/opt/portkey/node_modules/.bin/gateway", args: []string{"--port=8787", "--headless"},
			env: []string{"NODE_EXTRA_CA_CERTS=" + imageBundle, "TRUSTED_CUSTOM_HOSTS=" + gatedName},
			through: "http://" + gatewayAddr + " X-Portkey-Provider=anthropic X-Api-Key=" + apiKey +
				" X-Portkey-Custom-Host=" + apiURL + "/v1",
		},
	} {
		peers = append(peers, peer{g.name, g.program, func(b *bench) float64 {
			box := b.lab.NewBox(lab.BoxOptions{Files: g.files, Binds: b.clientBind(), Env: g.env})
			p := box.Start(lab.Cmd{Args: append([]string{g.program}, g.args...)})
			b.Cleanup(box.Kill)
			b.await(box, "ask-first", g.through)
			return measure(b, b.through(box, g.through), func() []int { return append(b.children(p.Pid()), p.Pid()) })
		}})
	}
	return peers
}

var reverseConfig = `defaults
  mode http
  timeout connect 60s
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
  server api ` + fmt.Sprint(gatedAddr, ":", apiPort) + ` ssl verify required ca-file ` + imageBundle + ` sni str(` + gatedName + `) alpn h2
`
