package webpage

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/agent-init/agent-init/internal/report"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/audit"
)

// top is what a reader sees first: what this is, of which container and time, and whether it was confined.
func top(r *report.Report) *node {
	level, verdict := headline(r)
	shield := el("svg.shield", el("path").with("d", "M12 1 3 4.5v6.6c0 5.4 3.8 9.6 9 11.9 5.2-2.3 9-6.5 9-11.9V4.5z")).
		with("viewBox", "0 0 24 24").with("aria-hidden", "true")
	facts := el("p.facts")
	if r.Host != "" {
		facts = facts.add(el("span", word("container "), el("b", r.Host)))
	}
	if !r.First.IsZero() {
		facts = facts.add(el("span", moment(r.First), word(" – "), when(r, r.Last), word(" UTC")), el("span", r.Length()))
	}
	if n := r.Now; n != nil {
		facts = facts.add(el("span", word("agent "), el("b", n.Agent), fmt.Sprintf(" (uid %d)", n.UID)), el("span", n.Backend))
	}
	return el("header", el("div.bar", shield, el("div.what", el("h1", word("agent-init report")), facts), el("div.pill."+level, verdict)))
}

// headline is the state of the confinement in a few words.
func headline(r *report.Report) (level word, verdict string) {
	switch n := r.Now; {
	case r.Totals.LetOut > 0, n != nil && n.Open != "":
		return report.Bad, "not confined"
	case n == nil:
		return report.Mind, "from the log alone"
	case n.Live && !n.OK:
		return report.Bad, "confined, and not well"
	case len(n.Failures) > 0:
		return report.Bad, "self-test failed"
	case n.Checks == 0:
		return report.Mind, "confined, not proved"
	case !n.Live:
		return report.Good, "was confined and proved"
	}
	return report.Good, "confined and proved"
}

func tiles(r *report.Report) *node {
	t := r.Totals
	tile := func(class word, head word, n, below any) *node {
		return el("div.tile."+class, el("b", n), el("span", head), el("small", below))
	}
	box := el("div.tiles",
		tile("blue", "contacted", report.Grouped(uint64(t.Contacts)), text.Counted(t.Connections, "connection", "connections")),
		tile("blue", "sent", report.Bytes(t.Out), word("by the agent")),
		tile("blue", "received", report.Bytes(t.In), text.Counted(t.Requests, "request seen", "requests seen")),
		tile("red", "refused", report.Grouped(t.Refused), text.Counted(len(r.Refusals)+r.LeftOut.Refusals, "destination", "destinations")),
		tile("plain", "decided by people", report.Grouped(uint64(len(r.Grants)+r.LeftOut.Grants)), word("grants and requests")),
	)
	if t.TokensIn+t.TokensOut > 0 {
		box = box.add(tile("plain", "tokens", text.Figures(t.TokensIn+t.TokensOut, ""), costs(r)))
	}
	return box
}

func costs(r *report.Report) string {
	sum, any := 0.0, false
	for _, x := range r.Routes {
		if x.Cost != nil {
			sum, any = sum+x.Cost.Sum, true
		}
	}
	if !any {
		return "in and out"
	}
	return "cost " + report.Money(sum)
}

func findings(r *report.Report) *node {
	list := el("ul.findings")
	for _, f := range r.Findings {
		list = list.add(el("li."+word(f.Level), el("i").with("aria-hidden", "true"), el("span", f.Text)))
	}
	return section("findings", "What to know", "", list)
}

func contacts(r *report.Report) *node {
	var rows []*node
	most := uint64(1)
	for _, c := range r.Contacts {
		most = max(most, c.Out+c.In)
	}
	for _, c := range r.Contacts[:min(len(r.Contacts), shown)] {
		ways := el("td")
		for _, way := range c.Ways {
			ways = ways.add(el("span.way", way))
		}
		name := el("td.name", el("b", c.Name), el("small", strings.Join(append(append([]string{}, c.Ports...), c.Rules...), "  ")))
		if c.LetOut > 0 {
			name = name.add(el("span.way.bad", fmt.Sprintf("let out %s", text.Times(c.LetOut))))
		}
		bytes := word("")
		if c.Unseen {
			bytes = "+"
		}
		rows = append(rows, el("tr", name, ways, el("td.chart", volume(c.Out, c.In, most)),
			el("td.num", report.Bytes(c.Out), bytes), el("td.num", report.Bytes(c.In), bytes),
			el("td.num", report.Grouped(c.Connections)), el("td.num", report.Grouped(c.Requests)),
			el("td.by", strings.Join(c.By, ", ")), el("td.when", span(r, c.First, c.Last))))
	}
	if rows == nil {
		return section("contacts", "Who was contacted", "", el("p.none", word("Nobody, as far as the log tells.")))
	}
	return section("contacts", "Who was contacted",
		"Bars show bytes: sent in the darker colour, received in the lighter one. A plus sign means that more may have gone by address, where no bytes are counted.",
		table([]word{"Name", "By way of", "", " Sent", " Received", " Connections", " Requests", "Processes", "When"}, rows),
		more(r.Totals.Contacts-len(rows)))
}

func refusals(r *report.Report) *node {
	var rows []*node
	most := uint64(1)
	for _, f := range r.Refusals {
		most = max(most, f.Count)
	}
	for _, f := range r.Refusals[:min(len(r.Refusals), shown)] {
		what := el("td.name", el("b", f.Title()), el("small", f.Reason))
		if f.Meant != "" {
			what = what.add(el("small", word("probably meant: "), f.Meant))
		}
		rows = append(rows, el("tr", what, el("td.chart", count(f.Count, most)), el("td.num", report.Grouped(f.Count)),
			el("td", remedy(&f)), el("td.by", strings.Join(f.By, ", ")), el("td.when", span(r, f.First, f.Last))))
	}
	if rows == nil {
		return section("refusals", "What was refused", "", el("p.none", word("Nothing.")))
	}
	s := section("refusals", "What was refused", "The line beside each would have allowed it. The agent chose these names: read a line before you add it.",
		table([]word{"What", "", " Times", "To allow it", "Processes", "When"}, rows), more(len(r.Refusals)+r.LeftOut.Refusals-len(rows)))
	if len(r.Lines.Lines) == 0 {
		return s
	}
	list := el("pre.lines")
	for _, l := range r.Lines.Lines {
		list = list.add(l.Line, word("\n"))
	}
	return s.add(el("details", el("summary", fmt.Sprintf("All %d lines, to copy", len(r.Lines.Lines))), list))
}

func remedy(f *report.Refusal) any {
	switch {
	case f.LetOut > 0 && f.Line == "":
		return el("span.way.bad", word("let out by monitor mode"))
	case f.Line != "":
		return el("code", f.Line)
	case f.ByRule:
		return el("span.way", word("denied by "), f.Rule)
	case f.Since != "":
		return el("span.way.good", word("allowed since, by "), f.Since)
	}
	return el("span.faint", word("no line of a policy would"))
}

func grants(r *report.Report) *node {
	var rows []*node
	for _, s := range r.Grants[:min(len(r.Grants), shown)] {
		events := el("td")
		for _, e := range s.Events {
			events = events.add(el("div.event", el("time", when(r, e.Time)), el("span."+verdictOf(e.Verdict), e.Text), el("small", e.By)))
		}
		if s.More > 0 {
			events = events.add(el("small", fmt.Sprintf("and %d events before the last", s.More)))
		}
		name, _, _ := strings.Cut(s.Number, ":")
		events = events.add(decided(r, s.Target, name))
		rows = append(rows, el("tr", el("td.name", el("b", s.Target), el("small", name)), events))
	}
	if rows == nil {
		return section("grants", "What people decided", "", el("p.none", word("Nothing was granted or requested at run time.")))
	}
	return section("grants", "What people decided", "What the agent asked for, and what was opened or closed at run time. A reason of the agent's is its own words.",
		table([]word{"Target", "What became of it"}, rows), more(len(r.Grants)+r.LeftOut.Grants-min(len(r.Grants), shown)))
}

// decided is why a person has decided a request, which the log doesn't say.
func decided(r *report.Report, target, name string) (list []*node) {
	for _, g := range r.Standing {
		if g.Target == target && g.Name() == name && g.Decided != nil && g.Decided.Reason != "" {
			list = append(list, el("div.event", el("time", when(r, g.Decided.Time)), el("span", string(g.Outcome), word(", because: "), g.Decided.Reason),
				el("small", g.Decided.By())))
		}
	}
	return list
}

// verdictOf is a verdict as a class.
func verdictOf(v audit.Verdict) word {
	return cmp.Or(map[audit.Verdict]word{audit.Allow: "allow", audit.Deny: "deny", audit.Fault: "fault"}[v], "info")
}

func routes(r *report.Report) any {
	if len(r.Routes) == 0 {
		return nil
	}
	var rows []*node
	row := func(class word, name any, requests, refused, in, out, cost string) {
		rows = append(rows, el("tr"+class, name, el("td.num", requests), el("td.num", refused), el("td.num", in), el("td.num", out), el("td.num", cost)))
	}
	for _, x := range r.Routes {
		below := el("small", x.To)
		if len(x.Key) > 0 {
			below = below.add(word("  key "), strings.Join(x.Key, ", "))
		}
		row(".route", el("td.name", el("b", x.Name), below), report.Grouped(x.Requests), report.Grouped(x.Refused), report.Grouped(x.TokensIn), report.Grouped(x.TokensOut), x.Cost.String())
		for _, m := range x.Models {
			cost := ""
			if m.Cost != nil {
				cost = report.Money(*m.Cost)
			}
			row("", el("td.model", m.Name), report.Grouped(m.Requests), "", report.Grouped(m.TokensIn), report.Grouped(m.TokensOut), cost)
		}
	}
	return section("routes", "Models and other services, by route", "The agent holds no key of these: the broker puts it on. Tokens are as the API tells them. Costs are at the prices that were given, cached tokens at the full one.",
		table([]word{"Route", " Requests", " Refused", " Tokens in", " Tokens out", " Cost"}, rows))
}
