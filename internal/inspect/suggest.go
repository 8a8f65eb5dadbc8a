package inspect

import (
	"cmp"
	"io/fs"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/publicsuffix"

	"github.com/agent-init/agent-init/allowlist.d"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/policy"
)

// suggestion is one line that would have allowed something that was denied.
type suggestion struct {
	Line   string    `json:"line"`
	Group  string    `json:"group"` // registrable domain, "addresses", or "names of the network"
	Preset string    `json:"preset,omitempty"`
	Count  uint64    `json:"count"`
	First  time.Time `json:"first,omitzero"`
	By     string    `json:"by,omitempty"` // the first process, as far as it is known
	Or     []string  `json:"or,omitempty"` // other names that the agent may have meant, at the same address

	name     string
	port     policy.Port // of the name, if the line says no more than these two
	defaults bool        // of a name: without a port
}

// Suggestions is what suggest --json prints.
type Suggestions struct {
	Version int          `json:"version"`
	Since   time.Time    `json:"since,omitzero"`
	Lines   []suggestion `json:"lines"`
	Denied  []suggestion `json:"denied_by_rule"` // what no line would allow: a rule denies it
	More    int          `json:"more,omitempty"` // that were left out
}

// Suggest proposes lines for what was denied since a time in words,
// or ever: all.
func Suggest(dir, since string) (Suggestions, error) {
	p, err := readPublished(dir)
	if err != nil {
		return Suggestions{}, err
	}
	if since == "all" {
		since = ""
	}
	file, started := auditFile()
	from, err := sinceTime(since, started, time.Now())
	if err != nil {
		return Suggestions{}, err
	}
	s := newSuggester(p)
	if err := audit.Lines(file, func(line []byte) bool {
		if event, err := audit.Decode(line); err == nil && !event.Time.Before(from) {
			s.add(event)
		}
		return true
	}); err != nil {
		return Suggestions{}, logFault(err)
	}
	return s.result(from), nil
}

// maxSuggestions bounds what one session can propose: the agent chooses names.
const maxSuggestions = 500

// maxLeftOut bounds how many more are told apart to be counted.
const maxLeftOut = 100_000

// suggester collects denials.
type suggester struct {
	policy  *policy.Policy
	probe   ofProbe
	whose   *whose
	lines   map[string]*suggestion
	denied  map[string]*suggestion
	more    map[string]bool
	presets map[string]*policy.Policy
}

func newSuggester(p published) *suggester {
	return &suggester{
		policy: p.policy, probe: p.probe, whose: newWhose(p.leases.Names), lines: map[string]*suggestion{}, denied: map[string]*suggestion{},
		more: map[string]bool{}, presets: presetPolicies(allowlist.Files),
	}
}

// presetPolicies are the presets, each as a policy of its own.
func presetPolicies(files fs.FS) map[string]*policy.Policy {
	out := map[string]*policy.Policy{}
	list, err := fs.Glob(files, "*.txt")
	if err != nil {
		return out
	}
	for _, f := range list {
		name := strings.TrimSuffix(f, ".txt")
		if p, err := policy.Parse(&policy.Bundle{Files: []policy.File{{Name: "preset", Data: []byte("@" + name)}}}, files); err == nil {
			out[name] = p
		}
	}
	return out
}

// add takes in one event of the log, in order.
func (s *suggester) add(e audit.Event) {
	a, err := netip.ParseAddr(e.IP)
	if s.policy.Lookup(e.Name).Name == e.Name { // the guard, whose word it is, may be somebody else by now
		s.whose.learn(e)
	}
	if !s.probe.theAgents(e) {
		return
	}
	port := policy.Port{Proto: policy.TCP, Number: e.Port}
	if e.Proto == "udp" && e.Kind == audit.Drop {
		port.Proto = policy.UDP
	}
	switch e.Kind {
	case audit.DNS:
		switch {
		case e.Enforce != "" && e.IP == "": // it does not exist, or has no address
		case e.Verdict == audit.Deny && err == nil: // an address was taken out of an answer
			if policy.Classify(a) == policy.Private {
				s.take(e.Name+" private", e.Name, e)
			}
		default:
			s.name(e.Name, policy.Port{Proto: policy.TCP, Number: policy.HTTPS.Number}, true, e)
		}
	case audit.Connect, audit.HTTP:
		if e.Name != "" && e.Port != 0 {
			s.name(e.Name, port, false, e)
		}
	case audit.Drop:
		if err != nil || e.Port == 0 || e.Proto != "tcp" && e.Proto != "udp" {
			return
		}
		if name, others := s.whose.of(a); name != "" {
			if g := s.name(name, port, false, e); g != nil {
				g.Or = others
			}
			return
		}
		if line := s.policy.LineForAddr(a, port); line != "" {
			s.take(line, "", e)
		}
	}
}

// name takes in a name that was denied on port; guessed says that nobody knows
// which port is wanted. It returns the line that would have allowed it, if there is one.
func (s *suggester) name(name string, port policy.Port, guessed bool, e audit.Event) *suggestion {
	m := s.policy.Lookup(name)
	line := s.policy.LineFor(name, port)
	switch {
	case m.Name == "":
	case line != "":
		g := s.take(line, m.Name, e)
		if g != nil {
			g.port = port
		}
		if g != nil && line == m.Name {
			g.defaults = g.Count == 1+e.Suppressed && guessed || g.defaults && guessed
		}
		return g
	case m.Rule != nil && m.Rule.Deny:
		s.put(s.denied, m.Name, m.Name, e)
	}
	return nil
}

func (s *suggester) take(line, name string, e audit.Event) *suggestion {
	if _, err := policy.ParseLine(line, nil); err != nil {
		return nil // a name that can't stand in a list
	}
	return s.put(s.lines, line, name, e)
}

func (s *suggester) put(to map[string]*suggestion, line, name string, e audit.Event) *suggestion {
	g := to[line]
	if g == nil {
		if len(to) >= maxSuggestions {
			if len(s.more) < maxLeftOut {
				s.more[line] = true
			}
			return nil
		}
		g = &suggestion{Line: line, First: e.Time, By: processOf(e), Group: groupOf(name), name: name}
		to[line] = g
	}
	g.Count += 1 + e.Suppressed
	return g
}

// groupOf is the registrable domain of a name.
func groupOf(name string) string {
	switch {
	case name == "":
		return "addresses"
	case !strings.Contains(name, "."):
		return "names of the network"
	}
	if d, err := publicsuffix.EffectiveTLDPlusOne(name); err == nil {
		return d
	}
	return name
}

// result lists what was collected: names by domain, then addresses. A name that
// was used on ports that are known is not proposed on the default ones as well.
func (s *suggester) result(since time.Time) Suggestions {
	out := Suggestions{Version: 1, Since: since, Lines: []suggestion{}, Denied: []suggestion{}, More: len(s.more)}
	choosePresets(s.presets, s.lines)
	used := map[string]bool{}
	for _, g := range s.lines {
		if g.name != "" && g.Line != g.name && strings.Contains(g.Line, ":") {
			used[g.name] = true
		}
	}
	for _, g := range s.lines {
		if !(g.defaults && used[g.name]) {
			out.Lines = append(out.Lines, *g)
		}
	}
	for _, g := range s.denied {
		out.Denied = append(out.Denied, *g)
	}
	for _, list := range [][]suggestion{out.Lines, out.Denied} {
		slices.SortFunc(list, func(a, b suggestion) int {
			return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a.Preset, b.Preset), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Line, b.Line))
		})
	}
	return out
}

// rank puts services first, then other names, then addresses.
func rank(g suggestion) int {
	switch {
	case g.name == "":
		return 2
	case g.Preset == "":
		return 1
	}
	return 0
}
