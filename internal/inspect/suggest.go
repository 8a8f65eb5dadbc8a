package inspect

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/publicsuffix"

	"github.com/agent-init/agent-init/allowlist.d"
	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/broker/judge"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/route"
)

// suggestion is one line that would have allowed something that was denied.
type suggestion struct {
	Line    string    `json:"line"`
	Group   string    `json:"group"` // registrable domain, "addresses", or "names of the network"
	Preset  string    `json:"preset,omitempty"`
	Count   uint64    `json:"count"`
	First   time.Time `json:"first,omitzero"`
	By      string    `json:"by,omitempty"`      // the first process, as far as it is known
	Ceiling string    `json:"ceiling,omitempty"` // why no line would allow it
	Or      []string  `json:"or,omitempty"`      // other names that the agent may have meant, at the same address

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

// Suggest proposes lines for what was denied since a time in words, or ever: all.
func Suggest(dir, since string) (Suggestions, error) {
	p, err := readPublished(dir)
	if err != nil {
		return Suggestions{}, err
	}
	if since == "all" {
		since = ""
	}
	file, started := auditOf(p.state)
	from, err := Since(since, started, time.Now())
	if err != nil {
		return Suggestions{}, err
	}
	s := newProposals(p)
	if err := audit.Lines(file, func(line []byte) bool {
		if event, err := audit.Decode(line); err == nil && !event.Time.Before(from) {
			s.Add(event)
		}
		return true
	}); err != nil {
		return Suggestions{}, LogFault(err)
	}
	return s.Since(from), nil
}

// The agent chooses names, so that both are bounded.
const (
	maxSuggestions = 500
	maxLeftOut     = 100_000 // that are told apart to be counted
)

// Proposals are the lines that would have allowed what was refused.
type Proposals struct {
	policy *policy.Policy
	probe  ofProbe
	whose  *whose
	lines  map[string]*suggestion
	denied map[string]*suggestion
	more   map[string]bool

	requests map[requestPlace]*step // to inspected names
	steps    int                    // of all of them
	rules    map[*route.Inspected]*judge.Rules
}

func newProposals(p published) *Proposals {
	return &Proposals{
		policy: p.policy, probe: p.probe, whose: newWhose(p.leases.Names),
		lines: map[string]*suggestion{}, denied: map[string]*suggestion{}, more: map[string]bool{},
		requests: map[requestPlace]*step{}, rules: map[*route.Inspected]*judge.Rules{},
	}
}

// presetPolicies are the presets, each as a policy of its own.
func presetPolicies() map[string]*policy.Policy {
	out := map[string]*policy.Policy{}
	list, _ := fs.Glob(allowlist.Files, "*.txt") // the pattern is one
	for _, f := range list {
		name := strings.TrimSuffix(f, ".txt")
		if p, err := policy.Parse(&policy.Bundle{Files: []policy.File{{Name: "preset", Data: []byte("@" + name)}}}, allowlist.Files); err == nil {
			out[name] = p
		}
	}
	return out
}

// Add takes in an event. All of the log belong here, in its order: answers of DNS say whose an address is.
func (s *Proposals) Add(e audit.Event) {
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
	switch {
	case e.Kind == audit.DNS && e.Enforce != "" && e.IP == "": // it does not exist, or has no address
	case e.Kind == audit.DNS && e.Verdict == audit.Deny && err == nil: // an address was taken out of an answer
		if line := s.policy.LineForAnswer(e.Name, a); line != "" {
			s.put(s.lines, line, e.Name, e)
		}
	case e.Kind == audit.DNS && s.policy.Lookup(e.Name).Allowed: // now, or another type was asked for
	case e.Kind == audit.DNS:
		s.name(e.Name, netip.Addr{}, policy.HTTPS, true, e)
	case e.Port == 0:
	case e.Kind == audit.Broker:
		s.request(e)
	case e.Kind == audit.Connect, e.Kind == audit.HTTP:
		s.name(e.Name, netip.Addr{}, port, false, e)
	case e.Kind == audit.Drop && err == nil && (e.Proto == "tcp" || e.Proto == "udp"):
		if name, others := s.whose.of(a); name != "" {
			if g := s.name(name, a, port, false, e); g != nil {
				g.Or = others
			}
		} else if line := s.policy.LineForAddr(a, port); line != "" {
			s.put(s.lines, line, "", e)
		} else {
			s.stopped(e.IP, "", s.policy.Stops("", a, port), e)
		}
	}
}

// name takes in a name that was denied on port, at an address if that is known; guessed says that nobody knows which port
// is wanted. It returns the line that would have allowed it, if there is one.
func (s *Proposals) name(name string, at netip.Addr, port policy.Port, guessed bool, e audit.Event) *suggestion {
	m := s.policy.Lookup(name)
	line := s.policy.LineFor(name, at, port)
	switch {
	case m.Name == "":
	case line != "":
		g := s.put(s.lines, line, m.Name, e)
		if g != nil {
			if !strings.Contains(line, " ") { // a preset would allow more than one about requests
				g.port = port
			}
			g.defaults = guessed && !strings.Contains(line, ":") && (g.defaults || g.Count == 1+e.Suppressed)
		}
		return g
	case m.Rule != nil && m.Rule.Deny:
		s.put(s.denied, m.Name, m.Name, e)
	default:
		s.stopped(m.Name, m.Name, s.policy.Stops(m.Name, netip.Addr{}, port), e)
	}
	return nil
}

// stopped takes in what no line would allow, because of the ceiling.
func (s *Proposals) stopped(what, name string, cut *policy.Cut, e audit.Event) {
	if cut == nil {
		return
	}
	if g := s.put(s.denied, what, name, e); g != nil {
		g.Ceiling = cut.String()
	}
}

func (s *Proposals) put(to map[string]*suggestion, line, name string, e audit.Event) *suggestion {
	g := to[line]
	if g == nil {
		if len(to) >= maxSuggestions {
			if len(s.more) < maxLeftOut {
				s.more[line] = true
			}
			return nil
		}
		g = &suggestion{Line: line, First: e.Time, By: Asked(e), Group: groupOf(name), name: name}
		to[line] = g
	}
	g.Count += 1 + e.Suppressed
	return g
}

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

// Since lists what was collected: names by domain, then addresses. A name that
// was used on ports that are known is not proposed on the default ones as well.
func (s *Proposals) Since(from time.Time) Suggestions {
	out := Suggestions{Version: 1, Since: from, Lines: append([]suggestion{}, s.requestLines()...), Denied: []suggestion{}, More: len(s.more)}
	choosePresets(presetPolicies(), s.lines)
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
			return cmp.Or(cmp.Compare(a.rank(), b.rank()), cmp.Compare(a.Preset, b.Preset), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Line, b.Line))
		})
	}
	return out
}

// rank puts services first, then other names, then addresses.
func (g suggestion) rank() int {
	switch {
	case g.name == "":
		return 2
	case g.Preset == "":
		return 1
	}
	return 0
}

// choosePresets gives each line with a name the likeliest of the services that would allow as much: that has
// most of the names that were denied; of two, that the name's domain is called after; of two, the smaller.
func choosePresets(presets map[string]*policy.Policy, lines map[string]*suggestion) {
	allows := func(preset string, g *suggestion) bool {
		return g.port.Number != 0 && presets[preset].Decide(g.name, g.port).Allowed
	}
	names := slices.Sorted(maps.Keys(presets))
	covers := map[string]map[string]bool{} // names, by preset
	for _, preset := range names {
		covers[preset] = map[string]bool{}
		for _, g := range lines {
			if allows(preset, g) {
				covers[preset][g.name] = true
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
		for _, preset := range names {
			if allows(preset, g) && (g.Preset == "" || cmp.Or(
				len(covers[preset])-len(covers[g.Preset]),
				after(preset)-after(g.Preset),
				presets[g.Preset].Counts().Names-presets[preset].Counts().Names,
			) > 0) {
				g.Preset = preset
			}
		}
	}
}

// Write prints lines that can be appended to an allowlist as they are.
func (r Suggestions) Write(out io.Writer, _ bool) error {
	now := time.Now()
	w := &text.Screen{W: out}
	what := "Read each line before you add it: the agent chose these names."
	if len(r.Lines) == 0 {
		what = "nothing was denied that a line would allow"
	}
	w.Line("# %s", what)
	group := ""
	for _, g := range r.Lines {
		head := g.Group
		if g.Preset != "" {
			head = fmt.Sprintf("the service %s: @%[1]s in place of these lines allows all of it", g.Preset)
		}
		if head != group {
			w.Line("\n# %s", head)
		}
		group = head
		w.Line("%s", g.text(now))
	}
	for i, g := range r.Denied {
		if i == 0 {
			w.Line("\n# denied by a rule; no line would allow these:")
		}
		w.Line("# %s", g.text(now))
	}
	if r.More > 0 {
		w.Line("\n# and %d more, which are left out", r.More)
	}
	return w.Err
}

func (g suggestion) text(now time.Time) string {
	s := fmt.Sprintf("%-32s # %s, first %s", g.Line, text.Times(g.Count), text.Moment(g.First, now))
	if g.By != "" {
		s += " by " + g.By
	}
	if g.Ceiling != "" {
		s += "; " + g.Ceiling
	}
	if len(g.Or) > 0 {
		s += "; or " + text.Clean(strings.Join(g.Or, ", ")) + ", at the same address"
	}
	return s
}

// Append adds the lines to a file, and says to out which, and to errs how many.
func (r Suggestions) Append(path string, out, errs io.Writer) error {
	have := map[string]bool{}
	f, err := state.OpenPlain(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fault.New(fault.Failure, "make the directory first, or give a file elsewhere", "there is no directory %s", filepath.Dir(path))
	}
	unwritable := func(err error) error {
		return fault.New(fault.Failure, "name a file that can be written, on a path without links", "%w", err)
	}
	if err != nil {
		return unwritable(err)
	}
	defer f.Close()
	old, err := io.ReadAll(f)
	if err != nil {
		return unwritable(err)
	}
	for line := range strings.Lines(string(old)) {
		entry, _, _ := strings.Cut(line, "#")
		have[strings.TrimSpace(entry)] = true
	}
	var b bytes.Buffer
	if len(old) > 0 && old[len(old)-1] != '\n' {
		b.WriteByte('\n')
	}
	added := 0
	for _, g := range r.Lines {
		if !have[g.Line] {
			fmt.Fprintln(&b, g.text(time.Time{})) // it is read on other days
			fmt.Fprintf(out, "%s\n", g.Line)
			added++
		}
	}
	if added > 0 {
		if _, err := f.Write(b.Bytes()); err != nil {
			return unwritable(err)
		}
	}
	_, err = fmt.Fprintf(errs, "%s added to %s; already in it: %d\n", text.Counted(added, "line", "lines"), path, len(r.Lines)-added)
	return err
}
