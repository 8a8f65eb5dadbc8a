package inspect

import (
	"slices"
	"strings"

	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/internal/state"
)

// requestAbout is the agent's last request about s: one that waits goes before those that were decided.
func requestAbout(grants []grant.Grant, s subject) *grant.Grant {
	var found *grant.Grant
	for _, g := range slices.Backward(grants) {
		waits := g.Outcome == ""
		if g.Kind == grant.Request && (waits || found == nil) && isAbout(g.Target, s) {
			if found = &g; waits {
				break
			}
		}
	}
	return found
}

// denialOf is the number of the grant that denies one of the ports, 0 if none does.
func denialOf(grants []grant.Grant, ports []portVerdict) uint32 {
	for _, v := range ports {
		file := v.Rule[:max(0, strings.LastIndexByte(v.Rule, ':'))]
		for _, g := range grants {
			if g.Kind == grant.Deny && !v.Allowed && (file == g.Name() || g.Saved && file == state.SavedFile && v.Text == "!"+g.Target) {
				return g.Number
			}
		}
	}
	return 0
}

// isAbout says whether an entry names s, on whatever port.
func isAbout(target string, s subject) bool {
	place, wild := strings.CutPrefix(grant.Place(target), "*.")
	t, err := parseSubject(place)
	if err != nil || t.addr != s.addr {
		return false
	}
	return t.name == s.name || wild && strings.HasSuffix(s.name, "."+t.name)
}
