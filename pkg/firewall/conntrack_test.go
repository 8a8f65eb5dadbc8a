package firewall

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// What a flush spares: loopback's own flows and those to the container engine's DNS,
// but none that pretends to come from there.
func TestFlowIsInternal(t *testing.T) {
	for what, tt := range map[string]struct {
		src, dst, reply string
		want            bool
	}{
		"loopback":                     {"127.0.0.1", "127.0.0.1", "127.0.0.1", true},
		"loopback, IPv6":               {"::1", "::1", "::1", true},
		"to the engine":                {"127.0.0.1", "127.0.0.11", "127.0.0.11", true},
		"to the engine, by its NAT":    {"172.18.0.2", "127.0.0.11", "127.0.0.11", true},
		"redirected to the engine":     {"172.18.0.2", "192.0.2.53", "127.0.0.11", true},
		"as if from the engine":        {"127.0.0.11", "192.0.2.53", "192.0.2.53", false},
		"as if from it, to loopback":   {"127.0.0.11", "127.0.0.1", "127.0.0.1", false},
		"outwards":                     {"172.18.0.2", "192.0.2.1", "192.0.2.1", false},
		"outwards, from loopback":      {"127.0.0.1", "192.0.2.1", "192.0.2.1", false},
		"redirected to loopback":       {"172.18.0.2", "192.0.2.1", "127.0.0.1", false},
		"loopback, answered elsewhere": {"127.0.0.1", "127.0.0.1", "192.0.2.1", false},
		"inwards":                      {"192.0.2.1", "172.18.0.2", "172.18.0.2", false},
	} {
		f := flow{src: netip.MustParseAddr(tt.src), replySrc: netip.MustParseAddr(tt.reply), dst: Element{Addr: netip.MustParseAddr(tt.dst), Proto: unix.IPPROTO_UDP, Port: 53}}
		if got := f.internal(); got != tt.want {
			t.Errorf("%s: %v", what, got)
		}
	}
}
