package inspect

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/agent-init/agent-init/internal/lease"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
)

// whose knows under which names the agent has met an address. A server often has
// several names, and the kernel, which refuses a packet, knows none of them.
type whose struct {
	names map[netip.Addr][]string
	asked map[string]int // by the agent: when, as a count of questions
	count int
}

func newWhose(leases []lease.Name) *whose {
	w := &whose{names: map[netip.Addr][]string{}, asked: map[string]int{}}
	for _, n := range leases {
		for _, a := range n.Addrs {
			w.is(a.Addr, n.Name)
		}
	}
	return w
}

func (w *whose) is(a netip.Addr, name string) {
	if !slices.Contains(w.names[a], name) {
		w.names[a] = append(w.names[a], name)
	}
}

// learn takes in an answer of DNS. What the guard has asked ahead says nothing of
// what the agent is about to use.
func (w *whose) learn(e audit.Event) {
	if e.Kind != audit.DNS || e.Name == "" {
		return
	}
	if a, err := netip.ParseAddr(e.IP); err == nil {
		w.is(a, e.Name)
	}
	if e.Asker == audit.Agent {
		w.count++
		w.asked[e.Name] = w.count
	}
}

// maxOthers bounds the names that a person is shown beside the likeliest.
const maxOthers = 3

// of is the name at a that the agent asked for last, and the others that it may
// have meant: those that it asked for as well, or all if it asked for none.
func (w *whose) of(a netip.Addr) (name string, others []string) {
	all := slices.SortedFunc(slices.Values(w.names[a]), func(x, y string) int {
		if d := w.asked[y] - w.asked[x]; d != 0 {
			return d
		}
		return strings.Compare(x, y)
	})
	if len(all) == 0 {
		return "", nil
	}
	for _, other := range all[1:] {
		if w.asked[all[0]] == 0 || w.asked[other] > 0 {
			others = append(others, other)
		}
	}
	return all[0], others[:min(len(others), maxOthers)]
}

// choosePresets gives each line with a name the service that it most likely is of, of
// those that would allow as much: the one that has most of the names that were denied; of two, the one that the
// name's domain is called after; of two, the smaller.
func choosePresets(presets map[string]*policy.Policy, lines map[string]*suggestion) {
	allows := map[string][]string{} // by line
	covers := map[string]int{}      // by preset
	counted := map[[2]string]bool{} // a name, once for each preset
	for _, g := range lines {
		for preset, p := range presets {
			if g.port.Number == 0 || !p.Decide(g.name, g.port).Allowed {
				continue
			}
			allows[g.Line] = append(allows[g.Line], preset)
			if k := [2]string{preset, g.name}; !counted[k] {
				counted[k] = true
				covers[preset]++
			}
		}
	}
	for _, g := range lines {
		after := func(preset string) int {
			if strings.HasPrefix(g.Group, preset) {
				return 1
			}
			return 0
		}
		g.Preset = ""
		for _, preset := range slices.Sorted(slices.Values(allows[g.Line])) {
			if g.Preset == "" || better(
				covers[preset]-covers[g.Preset],
				after(preset)-after(g.Preset),
				presets[g.Preset].Counts().Names-presets[preset].Counts().Names,
			) {
				g.Preset = preset
			}
		}
	}
}

// better says whether the first of the differences that is one is above zero.
func better(differences ...int) bool {
	for _, d := range differences {
		if d != 0 {
			return d > 0
		}
	}
	return false
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
