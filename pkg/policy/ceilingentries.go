package policy

import (
	"cmp"
	"slices"
	"strings"

	"github.com/agent-init/agent-init/pkg/route"
)

// narrow is what a ceiling leaves of an entry, and what it took of it; nil if that is nothing.
func (c *Ceiling) narrow(r *Rule) (left []*Rule, cut *Cut) {
	if r.Deny {
		return []*Rule{r}, nil
	}
	cut = &Cut{Source: r.Source, Text: r.Text, Preset: r.Preset}
	admitting, near := c.overlapping(r)
	seen := map[string]bool{}
	var by *Rule // that narrowed it
	for _, top := range admitting {
		m := meet(r, top)
		if m == nil {
			near = top
			continue
		}
		if m.Ports = slices.DeleteFunc(slices.Clone(m.Ports), func(port Port) bool {
			d := c.policy.denies(m, port)
			if d != nil {
				cut.By, cut.Why = d.Source.String(), "denied for good"
			}
			return d != nil
		}); len(m.Ports) > 0 && !seen[m.String()] {
			seen[m.String()] = true
			left, by = append(left, m), top
		}
	}
	if len(left) > 0 && c.whole(r, left) {
		return left, nil
	}
	switch {
	case cut.Why != "":
	case left != nil:
		cut.By, cut.Why = by.Source.String(), "it admits less"
	case near != nil:
		cut.By, cut.Why = near.Source.String(), "it admits "+near.String()+" alone"
	default:
		cut.Why = "no line of it admits this"
	}
	cut.Left = listed(left)
	return left, cut
}

// listed is what is left of an entry, in words; of a long list, its beginning.
func listed(left []*Rule) string {
	var lines []string
	for _, m := range left[:min(len(left), 3)] {
		lines = append(lines, m.String())
	}
	if len(left) > 3 {
		lines = append(lines, "…")
	}
	return strings.Join(lines, ", ")
}

// overlapping are the entries of the ceiling that admit some of r, and one that has its name or address on other ports.
func (c *Ceiling) overlapping(r *Rule) (admitting []*Rule, near *Rule) {
	var all []*Rule
	switch {
	case c.entries == "any":
		return []*Rule{r}, nil
	case r.Name != "":
		all = slices.Collect(c.names.covering(r))
		for _, top := range c.inside[r.Name] {
			if r.Wildcard && (top.Name != r.Name || !top.Wildcard) { // that covers it
				all = append(all, top)
			}
		}
	default:
		for _, top := range c.addrs {
			if top.Prefix.Overlaps(r.Prefix) {
				all = append(all, top)
			}
		}
	}
	for _, top := range all {
		if slices.ContainsFunc(r.Ports, top.has) {
			admitting = append(admitting, top)
		} else {
			near = top
		}
	}
	return admitting, near
}

// meet is the entry that is about what both an entry and one of a ceiling are about, and no more; nil if that is nothing.
// They overlap. Each word that opens more counts only if both have it, and each that opens less if either has.
func meet(r, top *Rule) *Rule {
	m := *r
	m.Ports = slices.DeleteFunc(slices.Clone(r.Ports), func(p Port) bool { return !slices.Contains(top.Ports, p) })
	for _, port := range m.Ports {
		if a, b := r.carries(port), top.carries(port); a != "" && b != "" && a != b {
			return nil
		}
	}
	switch inside := top.Name != "" && !top.Wildcard || len(top.Name) > len(r.Name); {
	case len(m.Ports) == 0:
		return nil
	case r.Name == "" && top.Prefix.Bits() > r.Prefix.Bits():
		m.Prefix = top.Prefix
	case r.Name != "" && r.Wildcard && inside:
		m.Name, m.Wildcard = top.Name, top.Wildcard
	}
	m.Flags = Flags{
		Private: r.Private && top.Private, Upgrade: r.Upgrade && top.Upgrade, Connect: r.Connect && top.Connect,
		Direct: r.Direct && (top.Direct || top.past(m.Ports[0])),
		TLS:    r.TLS || top.TLS, HTTP: r.HTTP || top.HTTP,
		Observe: r.Observe && top.Request == nil, Required: r.Required, Unbrokered: r.Unbrokered,
	}
	if top.Request != nil && r.Request == nil {
		m.Request = top.Request
	}
	m.dropIdle()
	return &m
}

// past says whether nobody looks into connections on a port anyway.
func (r *Rule) past(port Port) bool {
	return port != HTTPS && port != HTTP && !r.TLS && !r.HTTP && !r.Inspects()
}

// carries says what a port carries by the words of an entry, "" if they don't say.
func (r *Rule) carries(port Port) string {
	switch {
	case r.HTTP:
		return "http"
	case r.TLS, r.Inspects() && port != HTTP:
		return "tls"
	}
	return ""
}

// whole says whether what is left of an entry is all of it.
func (c *Ceiling) whole(r *Rule, left []*Rule) bool {
	for _, port := range r.Ports {
		want := *r
		want.Ports = []Port{port}
		want.dropIdle()
		if !slices.ContainsFunc(left, func(m *Rule) bool {
			has := *m
			has.Ports = []Port{port}
			has.dropIdle()
			return slices.Contains(m.Ports, port) && has.Name == want.Name && has.Wildcard == want.Wildcard && has.Prefix == want.Prefix &&
				has.Flags == want.Flags && (has.Request == nil) == (want.Request == nil)
		}) {
			return false
		}
		if r.Request != nil && !c.admitsAll(r, port) {
			return false
		}
	}
	return true
}

// admitsAll says whether a ceiling surely admits all requests that an entry is about.
func (c *Ceiling) admitsAll(r *Rule, port Port) bool {
	within := c.requests(r, port)
	return within == nil || slices.ContainsFunc(within, func(q route.Request) bool {
		every := len(q.Methods) == 0 && (q.Path == "/**" || q.Path == "") && q.GraphQL == "" && q.MaxUpload == 0 && q.WebSocket
		return every || q.String() == r.Request.String()
	})
}

// requests are those that a ceiling admits of all that r is about, in file order: the first that fits counts. There are
// none if it says nothing of requests there.
func (c *Ceiling) requests(r *Rule, port Port) (within []route.Request) {
	if c == nil {
		return nil
	}
	var rules []*Rule
	for by := range c.asked.covering(r) {
		if by.has(port) {
			rules = append(rules, by)
		}
	}
	slices.SortFunc(rules, func(a, b *Rule) int { return cmp.Compare(c.order[a], c.order[b]) })
	for _, by := range rules {
		within = append(within, *by.Request)
	}
	return within
}
