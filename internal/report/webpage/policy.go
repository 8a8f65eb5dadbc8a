package webpage

import (
	"fmt"
	"strings"

	"github.com/agent-init/agent-init/internal/report"
	"github.com/agent-init/agent-init/internal/state"
)

func unused(r *report.Report) any {
	if r.Policy == nil || r.Policy.Unused == 0 {
		return nil
	}
	list := el("p.chips")
	n := 0
	for _, e := range r.Policy.Entries {
		if e.Unused() && n < shown {
			n++
			list = list.add(el("span.chip", el("code", e.Rule), el("small", e.Source)), word(" "))
		}
	}
	return section("unused", "Allowed, and never used", "Nobody would miss these entries, as far as this run tells. An entry whose use leaves no trace is not among them.", list, more(r.Policy.Unused-n))
}

func entries(r *report.Report) any {
	p := r.Policy
	if p == nil {
		return nil
	}
	var rows []*node
	for _, e := range p.Entries {
		used := el("td.num", report.Grouped(e.Used))
		switch {
		case e.Used == 0 && e.Traceless:
			used = el("td.num.faint", word("leaves no trace"))
		case e.Unused():
			used = el("td.num.mind", word("never"))
		}
		verdict := el("span.allow", word("allow"))
		if e.Deny {
			verdict = el("span.deny", word("deny"))
		}
		rule := el("td", el("code", strings.TrimPrefix(e.Rule, "!")))
		if e.Rules > 1 {
			rule = rule.add(el("small", fmt.Sprintf(" %d entries", e.Rules)))
		}
		rows = append(rows, el("tr", el("td", verdict), rule, el("td.faint", e.Source), used))
	}
	about := el("p", state.SizeOf(p.Counts), word(", read from "), el("code", p.Dir))
	if p.Phase != "" {
		about = about.add(word("; the phase is "), p.Phase)
	}
	if len(p.Inbound) > 0 {
		about = about.add(word("; ports open from outside: "), strings.Trim(fmt.Sprint(p.Inbound), "[]"))
	}
	return section("policy", "The policy in force", "", about,
		el("details", el("summary", fmt.Sprintf("%d lines, and how often each has decided something", len(rows))),
			table([]word{"", "Entry", "At", " Used"}, rows), more(p.More)))
}

func inbound(r *report.Report) any {
	if len(r.Inbound) == 0 {
		return nil
	}
	var rows []*node
	for _, i := range r.Inbound {
		rows = append(rows, el("tr", el("td", fmt.Sprintf("%d", i.Port)), el("td.num", report.Grouped(i.Allowed)), el("td.num", report.Grouped(i.Refused)),
			el("td", strings.Join(i.From, ", ")), el("td.when", span(r, i.First, i.Last))))
	}
	return section("inbound", "Who connected from outside", "", table([]word{"Port", " Let in", " Refused", "From", "When"}, rows))
}

func proof(r *report.Report) *node {
	list := el("ul.log")
	for _, n := range r.SelfTests {
		list = list.add(event(r, n))
	}
	s := section("selftest", "The self-test", "A process with exactly the agent's rights tries to get out, and to reach what it may. The agent is started after it has passed.")
	if len(r.SelfTests) == 0 {
		return s.add(el("p.none", word("None was run in this time.")))
	}
	return s.add(list)
}

func event(r *report.Report, n report.Note) *node {
	li := el("li", el("time", when(r, n.Time)), el("span."+verdictOf(n.Verdict), string(n.Kind)), el("span.text", n.Text))
	if n.By != "" {
		li = li.add(el("small", n.By))
	}
	if n.Count > 1 {
		li = li.add(el("small", fmt.Sprintf("%d times", n.Count)))
	}
	return li
}

func notes(r *report.Report) any {
	if len(r.Notes) == 0 {
		return nil
	}
	list := el("ul.log")
	for _, n := range r.Notes {
		list = list.add(event(r, n))
	}
	return section("notes", "What else happened", "Starts, sessions, reloads and faults, as they were logged.",
		el("details", el("summary", fmt.Sprintf("%d events", len(r.Notes))), list, more(r.LeftOut.Notes)).with("open", ""))
}

func integrity(r *report.Report) *node {
	row := func(head word, kids ...any) *node { return el("tr", el("th", head), el("td", kids...)) }
	h, l := r.Hashes, r.Log
	rows := []*node{}
	if p := h.Program; p != nil {
		rows = append(rows, row("agent-init", el("code.hash", p.SHA256), el("small", p.Path, word(", version "), h.Version)))
	} else {
		rows = append(rows, row("made by", word("agent-init "), h.Version))
	}
	if h.Rules != "" {
		rows = append(rows, row("entries in force", el("code.hash", h.Rules), el("small", word("SHA-256 over all entries, grants aside"))))
	}
	for _, f := range h.Files {
		rows = append(rows, row("policy file", el("code.hash", f.SHA256), el("small", f.Path, ", ", report.Bytes(uint64(f.Size)))))
	}
	if h.System != "" {
		rows = append(rows, row("system", h.System))
	}
	rows = append(rows, row("log", el("code", l.File), el("small", fmt.Sprintf("%s lines; %s events more are counted in them; %s numbers missing; %s lines unreadable; %s events unwritten",
		report.Grouped(l.Events), report.Grouped(l.Folded), report.Grouped(l.Missing), report.Grouped(l.Unreadable), report.Grouped(l.Unwritten)))))
	return section("integrity", "Hashes, and how complete the log is",
		"The digest of the image can't be seen from inside a container: docker inspect --format '{{.Image}}' CONTAINER says it.",
		el("div.scroll", el("table.facts", el("tbody", rows))))
}

func limits() *node {
	return section("limits", "What this report can't tell", "", el("ul",
		el("li", word("What was in a connection: names, sizes and, where the broker looks into them, requests. Not the data.")),
		el("li", word("Bytes to what is allowed by address, or on ports that nothing looks into. The kernel lets these pass by itself.")),
		el("li", word("Whether a process is what it calls itself. The uid is the kernel's word, the name is the process's own.")),
		el("li", word("Whether an allowed service did something bad with what it was sent."))))
}

func foot(r *report.Report) *node {
	return el("footer", el("p", word("Made "), moment(r.Made), word(" UTC by agent-init "), r.Hashes.Version, word(". Times are UTC. This page loads nothing, and its policy lets nothing else run.")))
}
