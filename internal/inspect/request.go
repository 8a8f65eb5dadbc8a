package inspect

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/agent-init/agent-init/internal/grant"
)

// requestAbout is the last request of the agent's about s: one that waits goes
// before those that were decided.
func requestAbout(grants []grant.Grant, s subject) *grant.Grant {
	var found *grant.Grant
	for _, g := range slices.Backward(grants) {
		if g.Kind != grant.Request || !isAbout(g.Target, s) {
			continue
		}
		if g.Outcome == "" {
			return &g
		}
		if found == nil {
			found = &g
		}
	}
	return found
}

// isAbout says whether an entry names s, on whatever port.
func isAbout(target string, s subject) bool {
	host := grant.Place(target)
	if s.addr.IsValid() {
		if a, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
			return a == s.addr
		}
		if a, err := netip.ParseAddrPort(strings.TrimSuffix(strings.TrimSuffix(host, "/tcp"), "/udp")); err == nil {
			return a.Addr() == s.addr
		}
		return false
	}
	host, _, _ = strings.Cut(host, ":")
	base, wild := strings.CutPrefix(host, "*.")
	return s.name == base || wild && strings.HasSuffix(s.name, "."+base)
}
