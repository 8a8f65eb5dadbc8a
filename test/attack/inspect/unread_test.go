package inspect

import (
	"crypto/tls"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/internal/lab/unread"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// TestUnreadBody: a server that leaves bodies unread is asked for nothing but what rules allow, with no credential that
// the next request would bring along: not on an inspected name, and not by a route.
func TestUnreadBody(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	l.DNS.SetAddrs("api.test", "45.30.60.1")
	l.DNS.SetAddrs("tickets.test", "45.30.60.1")
	l.Claim("tcp", 8443)
	listener, err := l.Internet.Listen("tcp4", "45.30.60.1:8443")
	rig.Must(t, err)
	t.Cleanup(func() { listener.Close() })
	config := l.CA.ServerConfig()
	config.NextProtos = nil // HTTP/1
	careless := &unread.Server{}
	go careless.Serve(tls.NewListener(listener, config))
	route := "    credential: file:/run/secrets/corp\n    inject: {header: Authorization, value: \"Bearer {}\"}\n"
	files := []lab.File{
		{Path: rig.Bundle, Data: l.CA.PEM},
		{Path: "/run/secrets/corp", Data: []byte(rig.BrokerKey + "\n"), Mode: 0o400},
		{Path: "/etc/agent-init/policy.yaml", Data: []byte("broker:\n  corp:\n    inspect: api.test:8443\n    env: {CORP_KEY: \"{token}\"}\n" + route +
			"  tickets:\n    to: https://tickets.test:8443\n    env: {TICKETS: \"{base}\"}\n    allow: [\"GET /open/*\", \"POST /open/*\"]\n" + route)},
	}
	b := &rig.Brokered{World: rig.ConfineIn(t, l, "ok.test\napi.test:8443 GET,POST /open/*\n", lab.BoxOptions{Files: files})}
	token, own := b.Variable("CORP_KEY"), b.Variable("TICKETS")
	for _, base := range []string{"https://api.test:8443", own} {
		for range 4 {
			for _, flags := range [][]string{{"-method", "POST", "-body", unread.Bodies("raw")[0]}, nil} {
				args := append([]string{"http", "-timeout", "60s", "-ca", rig.Trust(), "-header", "Authorization: Bearer " + token}, flags...)
				if p := b.Poke(append(args, base+"/open/x")...); !p.OK || rig.StatusOf(p) != "200" {
					t.Fatalf("%s %v: %s\n%s", base, flags, p, b.Agent.Stderr())
				}
			}
		}
	}
	asked := careless.Asked(t, "GET /open/x")
	if n := len(asked); n != 16 {
		t.Errorf("it was asked %d times: %q", n, asked)
	}
	if strings.Contains(strings.Join(asked, " "), "admin") {
		t.Errorf("it was asked for what no rule allows: %q", asked)
	}
}
