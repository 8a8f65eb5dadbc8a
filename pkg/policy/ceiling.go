package policy

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strings"
)

// Ceiling is what an organisation admits at most. A policy below one is their intersection: Parse makes no other, so
// whatever adds to a Bundle is below it.
type Ceiling struct {
	Mode     string // monitor if what is denied may be let through, else enforce
	SelfTest string // how weak that of run may be: require, warn or off

	settings Settings
	set      map[string]Source // which settings it fixes, and where
	routes   []written         // what routes may be at most

	entries string             // any: every one that is not denied; none: not one; "": those of the list
	names   index              // that are admitted
	inside  map[string][]*Rule // the same, by each name that is theirs or above it
	addrs   []*Rule
	asked   index // of names, those about requests
	order   map[*Rule]int
	policy  *Policy // of the list, by itself: what is denied for good, and how connections go
	files   []string
	rebuilt bool // of a policy whose settings and routes were below it already
}

// CeilingError is what is wrong with a ceiling. A policy without one is not made in its place.
type CeilingError struct{ Err error }

// Error returns what is wrong.
func (e *CeilingError) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong.
func (e *CeilingError) Unwrap() error { return e.Err }

// These keys of policy.yaml a ceiling has as well. Of the others, free open nothing: what they lead to is judged by itself.
var (
	bindable = []string{"services", "domains", "networks", "deny", "inbound", "dns", "limits", "log", "session", "tls", "broker", "user_namespaces", "nice", "upstream_proxy"}
	free     = []string{"user", "command", "env", "selftest", "notify", "approvals"}
)

// ceilingKeys are those of a ceiling.
func (ps *parser) ceilingKeys(c *Ceiling) []key {
	own := []key{
		{name: "entries", read: setting(ps, &c.entries, oneOf("any", "none"))},
		{name: "mode", read: setting(ps, &c.Mode, oneOf("enforce", "monitor"))},
		{name: "selftest", read: setting(ps, &c.SelfTest, oneOf("require", "warn", "off"))},
	}
	for _, k := range ps.keys() {
		if slices.Contains(bindable, k.name) {
			own = append(own, k)
		}
	}
	return own
}

func oneOf(words ...string) func(key, text string) (string, string) {
	return func(key, text string) (string, string) {
		if last := len(words) - 1; !slices.Contains(words, text) {
			return "", key + " is " + strings.Join(words[:last], ", ") + " or " + words[last]
		}
		return text, ""
	}
}

// parseCeiling reads the files of a ceiling; none make none. The error is a *CeilingError.
func parseCeiling(files []File, presets fs.FS, hosts map[string][]netip.Addr) (*Ceiling, error) {
	if files == nil {
		return nil, nil
	}
	if len(files) == 0 {
		return nil, &CeilingError{errors.New("the ceiling has no file")}
	}
	c := &Ceiling{Mode: "enforce", SelfTest: "off"}
	ps := newParser(presets)
	ps.top = ps.ceilingKeys(c)
	for _, f := range files {
		c.files = append(c.files, f.Name)
		ps.file(f)
	}
	c.settings, c.set, c.routes = ps.settings, ps.set, ps.routes
	return c, c.finish(ps, hosts)
}

// finish makes all else of what was read.
func (c *Ceiling) finish(ps *parser, hosts map[string][]netip.Addr) error {
	c.policy = &Policy{rules: ps.rules, Settings: defaults(), hosts: hosts}
	c.policy.inspect(ps)
	if c.take(ps, c.policy.rules); ps.errs.list == nil {
		c.policy.index()
		c.policy.unmixed(ps)
	}
	if ps.errs.list != nil {
		return &CeilingError{ps.errs.list}
	}
	return nil
}

// take takes in the entries, and finds what no ceiling can say.
func (c *Ceiling) take(ps *parser, rules []*Rule) {
	wrong := func(r *Rule, message string) {
		ps.errs.add(Error{Source: r.Source, Text: r.Text, Message: message})
	}
	admits := false
	c.order, c.inside = map[*Rule]int{}, map[string][]*Rule{}
	for i, r := range rules {
		switch {
		case c.entries == "any" && (!r.Deny || r.Request != nil):
			wrong(r, "with entries: any, a ceiling only denies names and addresses: leave one of the two out")
		case c.entries == "none" && !r.Deny:
			wrong(r, "with entries: none, a ceiling admits no entry: leave one of the two out")
		case r.Deny:
		case r.Required && r.Preset == "":
			wrong(r, "a ceiling opens nothing, so nothing can be required: leave the word out")
		case r.Observe:
			wrong(r, "a ceiling says which requests may be asked: write * /** in place of observe")
		case r.Name == "":
			c.addrs = append(c.addrs, r)
		default:
			c.names.keep(r)
			for name := r.Name; name != ""; _, name, _ = strings.Cut(name, ".") {
				c.inside[name] = append(c.inside[name], r)
			}
			if r.Request != nil {
				c.asked.keep(r)
				c.order[r] = i
			}
		}
		admits = admits || !r.Deny
	}
	if !admits && c.entries == "" && !c.rebuilt && ps.errs.list == nil {
		ps.errs.add(Error{Source: Source{File: c.files[0]}, Message: "the ceiling admits no entry: name what may be allowed at most, or write entries: any, or entries: none"})
	}
}

// Cut is an entry, or something else of a policy, that a ceiling stopped or narrowed.
type Cut struct {
	Source Source `json:"source"`           // of what was cut
	Text   string `json:"text"`             // the same, as it is written
	Preset string `json:"preset,omitempty"` // that the entry came from
	Left   string `json:"left,omitempty"`   // what there still is of it; "": nothing
	By     string `json:"by,omitempty"`     // FILE:LINE of the ceiling; "": none of its lines has it
	Why    string `json:"why"`
}

// String says it for people.
func (c Cut) String() string {
	s := "above the ceiling: " + c.Why
	if c.By != "" {
		s += " (" + c.By + ")"
	}
	if c.Left != "" {
		s += "; what is left is " + c.Left
	}
	return s
}

// Ceiling returns what the policy is below, nil if it is below none.
func (p *Policy) Ceiling() *Ceiling { return p.ceiling }

// Cuts are what the ceiling stopped or narrowed, in file order.
func (p *Policy) Cuts() []Cut { return p.cuts }

// Place says where a setting of the ceiling is written, or else where the ceiling is.
func (c *Ceiling) Place(key string) string {
	if src, ok := c.set[key]; ok {
		return src.String()
	}
	return strings.Join(c.files, ", ")
}

// below is the policy that both p and a ceiling admit. It is one that p alone has been found to be right.
func (p *Policy) below(c *Ceiling, ps *parser) *Policy {
	e := &Policy{files: p.files, Resolv: p.Resolv, hosts: p.hosts, written: p.rules, ceiling: c}
	for _, r := range p.rules {
		left, cut := c.narrow(r)
		e.rules = append(e.rules, left...)
		e.cut(cut)
		if cut != nil && left == nil && r.Required { // the self-test says so
			e.missed = append(e.missed, r)
		}
	}
	for _, r := range c.policy.rules {
		if r.Deny {
			e.rules = append(e.rules, r)
		}
	}
	e.Settings = c.within(p.Settings, ps, e.cut)
	for _, w := range p.routes {
		left, cut := c.route(w)
		if e.cut(cut); left != nil && left.Inspects != "" && !e.inspects(left.Inspects) {
			e.cut(&Cut{Source: w.at[""], Text: w.Name, Why: "no entry about requests of " + w.Inspects + " is left"})
			left = nil
		}
		switch {
		case left == nil:
		case w.absent:
			e.AbsentRoutes = append(e.AbsentRoutes, w.Name)
			fallthrough
		default:
			e.routes = append(e.routes, *left)
		}
	}
	e.complete(ps)
	e.Required = append(e.Required, e.missed...)
	return e
}

func (p *Policy) cut(c *Cut) {
	if c != nil {
		p.cuts = append(p.cuts, *c)
	}
}

// inspects says whether an entry is about requests of NAME:PORT.
func (p *Policy) inspects(at string) bool {
	name, port := cutLast(at)
	return slices.ContainsFunc(p.rules, func(r *Rule) bool {
		return !r.Deny && r.Inspects() && r.goes(&Rule{Name: name}) && slices.ContainsFunc(r.Ports, func(q Port) bool { return fmt.Sprint(q.Number) == port })
	})
}

// warnOfCuts notes what the ceiling stopped. Of a preset, which names more than most need, it is one line.
func (p *Policy) warnOfCuts(ps *parser) {
	ofPreset := map[string]int{}
	for _, c := range p.cuts {
		if c.Preset != "" {
			if ofPreset[c.Source.String()+c.Preset]++; ofPreset[c.Source.String()+c.Preset] > 1 {
				continue
			}
		}
		ps.warns.add(Error{Source: c.Source, Text: c.Text, Message: c.String()})
	}
}

// Stops says how the ceiling stops connections to a name, or an address if there is no name, on a port; nil if it doesn't.
func (p *Policy) Stops(name string, a netip.Addr, port Port) *Cut {
	if p.ceiling == nil {
		return nil
	}
	r := &Rule{Ports: []Port{port}}
	if r.Name, _ = p.canonical(name); r.Name == "" {
		if a = a.WithZone("").Unmap(); !a.IsValid() {
			return nil
		}
		r.Prefix = single(a)
	}
	r.Text = r.String()
	left, cut := p.ceiling.narrow(r)
	if left != nil {
		return nil
	}
	for _, w := range p.written { // the entry that it stopped, if there is one
		about := r.Name != "" && w.Name != "" && w.goes(r) || r.Name == "" && w.Prefix.IsValid() && w.Prefix.Contains(r.Prefix.Addr())
		if !w.Deny && about && slices.Contains(w.Ports, port) {
			cut.Source, cut.Text, cut.Preset = w.Source, w.Text, w.Preset
			break
		}
	}
	return cut
}

// Above are the cuts that the ceiling of p would make of an entry, given by itself; nil if there are none, or no ceiling.
func (p *Policy) Above(entry string, presets fs.FS) []Cut {
	if p.ceiling == nil {
		return nil
	}
	alone, err := Parse(&Bundle{Files: []File{{Data: []byte(entry)}}}, presets)
	if err != nil {
		return nil
	}
	var cuts []Cut
	for _, r := range alone.rules {
		if _, cut := p.ceiling.narrow(r); cut != nil {
			cuts = append(cuts, *cut)
		}
	}
	return cuts
}
