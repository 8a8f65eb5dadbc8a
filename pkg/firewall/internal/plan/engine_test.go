package plan

import (
	"net/netip"
	"slices"
	"testing"
)

// TestEngineUID: questions that the engine passes on are known by root's uid, and by the one that the machine's root is
// seen as where this user namespace has no number for it; never by the agent's.
func TestEngineUID(t *testing.T) {
	for name, c := range map[string]struct {
		engine, agent uint32
		want          []uint32
	}{
		"root is root":              {0, 1000, []uint32{0}},
		"root is elsewhere":         {65534, 1000, []uint32{0, 65534}},
		"the agent has that number": {65534, 65534, []uint32{0}},
	} {
		p, err := New(Config{GuardUID: 1, GuardGID: 1, AgentUID: c.agent, EngineUID: c.engine,
			Upstreams: []netip.AddrPort{netip.AddrPortFrom(EngineDNS(), 53)}})
		if err != nil {
			t.Fatal(err)
		}
		var got []uint32
		for _, chain := range p.Chains {
			for _, r := range chain.Rules {
				if r.Verdict != accept || !slices.ContainsFunc(r.Matches, func(m Match) bool { return m.Set == askedSet.Name }) {
					continue
				}
				for _, m := range r.Matches {
					if id, ok := m.Value.(uint32); ok && m == uid(id) {
						got = append(got, id)
					}
				}
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: passed on by %d, want %d", name, got, c.want)
		}
	}
}
