package gvisor

import (
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab"
)

// TestContainerExitCodes: what can't be held is said, and the agent isn't started.
func TestContainerExitCodes(t *testing.T) {
	for _, tt := range []struct {
		what string
		list string
		o    options
		args []string
		code int
		says []string
	}{
		{"the command's own", list, options{}, []string{"--", "sh", "-c", "exit 42"}, 42, nil},
		{"udp entry", "ok.test\nntp.test:123/udp\n", options{}, nil, 78, []string{"ntp.test:123/udp", "allowlist.txt:2", "gVisor"}},
		{"udp address", "10.0.0.1:53/udp\n", options{}, nil, 78, []string{"10.0.0.1:53/udp"}},
		{"udp inbound", "", options{files: image{policyDir + "/policy.yaml": "inbound: [\"53/udp\"]\n"}}, nil, 78, []string{"53/udp"}},
		{"inspected name", "ok.test\napi.test GET /open/**\n", options{}, nil, 78, []string{"api.test:443", "gVisor"}},
		{"required unreachable", "nowhere.test required\n", options{}, nil, 70, []string{"nowhere.test"}},
		{"no NET_RAW", "", options{caps: []string{"NET_ADMIN", "SETUID", "SETGID", "SETPCAP"}}, nil, 77, []string{"NET_RAW"}},
		{"no NET_ADMIN", "", options{caps: []string{"NET_RAW", "SETUID", "SETGID", "SETPCAP"}}, nil, 77, []string{"NET_ADMIN"}},
		{"nftables was asked for", "", options{}, []string{"--backend", "nftables"}, 71, []string{"protocol not supported"}},
		{"monitor", "", options{}, []string{"--mode", "monitor"}, 64, []string{"gVisor"}},
		{"runsc without --net-raw", "", options{flags: []string{"--net-raw=false"}}, nil, 77, []string{"NET_RAW"}},
		{"runsc with the host's network", "", options{flags: []string{"--network=host"}}, nil, 71, []string{"--net-raw", "remedy"}},
	} {
		t.Run(tt.what, func(t *testing.T) {
			l := newLab(t)
			args := append([]string{"agent-init", "run"}, tt.args...)
			if len(tt.args) == 0 || tt.args[0] != "--" {
				args = append(args, "--", "poke", "tcp", "-send", "hi", "45.30.66.6:4444")
			}
			s := bootIn(t, l, tt.list, tt.o, args...)
			if code := s.wait(); code != tt.code {
				t.Errorf("exit %d, want %d\n%s%s", code, tt.code, s.stdout, s.stderr)
			}
			for _, w := range tt.says {
				if !strings.Contains(s.stderr.String(), w) {
					t.Errorf("it does not say %q: %s", w, s.stderr)
				}
			}
			if strings.Contains(s.stdout.String(), `"op"`) {
				t.Errorf("the agent was started: %s", s.stdout)
			}
			if escaped := s.box.Packets(lab.ToAddr("45.30.66.6")); len(escaped) > 0 {
				t.Errorf("left the box: %s", escaped[0])
			}
		})
	}
}
