package policy

import (
	"fmt"
	"strings"
	"testing"
)

const twoAgents = `agents:
  - name: alpha
    address: 172.30.5.10
    mac: 02:42:AC:1e:05:0a
  - {name: beta, address: [172.30.5.11, "fd00:5::11"], policy: other}
  - name: gamma
    network: 172.30.6.0/24
log: {stdout: true}
`

func TestAgents(t *testing.T) {
	got := parse(t, "policy.yaml", twoAgents).Settings.Agents
	if want := "[{alpha [172.30.5.10/32] 02:42:ac:1e:05:0a } {beta [172.30.5.11/32 fd00:5::11/128]  other} {gamma [172.30.6.0/24]  }]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if got[0].Dir()+got[1].Dir() != "alphaother" {
		t.Errorf("their directories are %s and %s", got[0].Dir(), got[1].Dir())
	}
}

// Every one of these is an error, and says what.
func TestAgentsRefused(t *testing.T) {
	for _, c := range []struct{ yaml, says string }{
		{"agents: {name: alpha}", "must be a list"},
		{"agents: [{address: 10.0.0.1}]", "needs a name"},
		{"agents: [{name: alpha}]", "needs an address"},
		{"agents: [{name: ../x, address: 10.0.0.1}]", "letters from a to z"},
		{"agents: [{name: a/b, address: 10.0.0.1}]", "letters from a to z"},
		{"agents: [{name: alpha, address: 10.0.0.1, policy: ..}]", "letters from a to z"},
		{"agents: [{name: alpha, address: 10.0.0.0/8}]", "address is one"},
		{"agents: [{name: alpha, address: 127.0.0.1}]", "address is one"},
		{"agents: [{name: alpha, address: 'fe80::1'}]", "address is one"},
		{"agents: [{name: alpha, network: 0.0.0.0/0}]", "block of addresses"},
		{"agents: [{name: alpha, network: 10.0.0.1/8}]", "block of addresses"},
		{"agents: [{name: alpha, address: 10.0.0.1, mac: '01:00:5e:00:00:01'}]", "network card"},
		{"agents: [{name: alpha, network: 10.0.0.0/24, mac: '02:00:5e:00:00:01'}]", "of one machine"},
		{"agents: [{name: alpha, address: 10.0.0.1}, {name: alpha, address: 10.0.0.2}]", "two agents have this name"},
		{"agents: [{name: alpha, address: 10.0.0.1}, {name: beta, address: 10.0.0.1}]", "alpha and beta have addresses in common"},
		{"agents: [{name: alpha, network: 10.0.0.0/24}, {name: beta, address: 10.0.0.9}]", "alpha and beta have addresses in common"},
		{"agents: [{name: alpha, address: '::ffff:10.0.0.1'}, {name: beta, address: 10.0.0.1}]", "addresses in common"},
		{"agents: [{name: alpha, address: [10.0.0.1, 10.0.0.1]}]", "stand there once"},
		{"agents: [{name: alpha, address: 10.0.0.1}]\ndomains: [ok.test]", "this is nobody's"},
		{"agents: [{name: alpha, address: 10.0.0.1}]\nuser: dev", "this is nobody's"},
		{"agents: [{name: alpha, address: 10.0.0.1}]\nbroker: {anthropic: {credential: 'file:/k'}}", "this is nobody's"},
		{"agents: [{name: alpha, address: 10.0.0.1, colour: red}]", "unknown key"},
	} {
		_, err := Parse(&Bundle{Files: []File{{Name: "policy.yaml", Data: []byte(c.yaml)}}}, nil)
		if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "policy.yaml:") {
			t.Errorf("%s: %v; want %q", c.yaml, err, c.says)
		}
	}
}
