package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/agent-init/agent-init/internal/text"
)

// requestAbout is the last request of the agent's about s: one that waits goes
// before those that were decided.
func requestAbout(grants []grant, s subject) *grant {
	var found *grant
	for _, g := range slices.Backward(grants) {
		if g.Kind != grantRequest || !isAbout(g.Target, s) {
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
	host := place(target)
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

// standing is what became of a request, for whoever asks about its target.
func (g grant) standing() string {
	if g.Outcome == "" {
		return fmt.Sprintf("request %d, for %s, waits: agent-init allow --request %[1]d --for 10m    (root)", g.Number, text.Clean(g.Target))
	}
	words := fmt.Sprintf("request %d, for %s, was %s", g.Number, text.Clean(g.Target), g.Outcome)
	if g.Decided != nil && g.Decided.Reason != "" {
		words += fmt.Sprintf(": %q", text.Clean(g.Decided.Reason))
	}
	return words
}
