package webpage

import (
	"fmt"
	"math"
	"time"

	"github.com/agent-init/agent-init/internal/report"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/audit"
)

// volume is a bar of bytes sent and received, of the most that anybody has.
func volume(out, in, most uint64) *node {
	whole := 160 * share(out+in, most)
	a := 0.0
	if out > 0 {
		a = whole * float64(out) / float64(out+in)
	}
	b := whole - a
	return el("svg.volume", rect(0, 2, a, 10, "out"), rect(a, 2, b, 10, "in")).
		with("viewBox", "0 0 160 14").with("role", "img").with("aria-label", report.Bytes(out)+" sent, "+report.Bytes(in)+" received")
}

// count is a bar of how often something was.
func count(n, most uint64) *node {
	return el("svg.volume", rect(0, 2, 160*share(n, most), 10, "refused")).with("viewBox", "0 0 160 14").with("aria-hidden", "true")
}

// share is a part of the most, on a scale by the square root: what is small stays to be seen.
func share(n, most uint64) float64 {
	if n == 0 {
		return 0
	}
	return max(0.01, math.Sqrt(float64(n)/float64(most))) * 0.99
}

func rect(x, y, w, h float64, class word) *node {
	return el("rect").with("class", class).with("x", x).with("y", y).with("width", max(0, w)).with("height", max(0, h))
}

// The timeline's measures, in units of its own.
const (
	wide     = 1000.0
	lane     = 22.0 // for marks, above the bars
	upper    = 96.0 // for what was allowed
	lower    = 48.0 // for what was refused
	tall     = lane + upper + lower + 26
	maxMarks = 100
	minSlots = 24 // of bars: a short run has no wide ones
)

// timeline shows how much was allowed and refused when, and what people did meanwhile.
func timeline(r *report.Report) any {
	l := r.Timeline
	if len(l.Bins) == 0 {
		return nil
	}
	start := l.Start
	slots := max(len(l.Bins), minSlots)
	length := l.Step * float64(slots)
	at := func(t time.Time) float64 { return min(wide, max(0, t.Sub(start).Seconds()/length*wide)) }
	most, worst := uint64(1), uint64(1)
	for _, b := range l.Bins {
		most, worst = max(most, b.Allowed), max(worst, b.Refused)
	}
	svg := el("svg.timeline").with("viewBox", fmt.Sprintf("0 0 %g %g", wide, tall)).with("role", "img").
		with("aria-label", fmt.Sprintf("%d events allowed and %d refused over time", r.Totals.Connections+r.Totals.Requests+r.Totals.Lookups, r.Totals.Refused))
	base := lane + upper
	step := wide / float64(slots)
	gap := min(step*0.2, 3)
	for i, b := range l.Bins {
		x := float64(i) * step
		from := start.Add(time.Duration(float64(i) * l.Step * float64(time.Second)))
		label := fmt.Sprintf("%s UTC: %d allowed, %d refused, %s", moment(from), b.Allowed, b.Refused, report.Bytes(b.Bytes))
		if b.Allowed > 0 {
			h := upper * share(b.Allowed, most)
			svg = svg.add(rect(x, base-h, step-gap, h, "allowed").add(el("title", label)))
		}
		if b.Refused > 0 {
			svg = svg.add(rect(x, base+1, step-gap, lower*share(b.Refused, worst), "refused").add(el("title", label)))
		}
	}
	svg = svg.add(el("line").with("class", "base").with("x1", 0).with("x2", wide).with("y1", base).with("y2", base))
	for _, m := range marks(r) {
		x := at(m.at)
		svg = svg.add(el("path."+m.class, el("title", m.text)).with("d", fmt.Sprintf("M%.1f %g l5 -9 l-10 0 z", x, lane-6)))
	}
	legend := el("p.legend", el("span.key.allowed"), word("allowed "), el("span.key.refused"), word("refused "), el("span.key.grant"), word("a person, or a request "),
		el("span.key.fault"), word("a fault"), el("span.bin", "each bar: ", text.Shortly(time.Duration(l.Step)*time.Second)))
	return section("timeline", "When", "", el("div.chartbox", ticks(svg, r, start, length)), legend)
}

// ticks writes times below a timeline.
func ticks(svg *node, r *report.Report, start time.Time, length float64) *node {
	const n = 5
	for i := range n + 1 {
		t := start.Add(time.Duration(length * float64(i) / n * float64(time.Second)))
		anchor := word("middle")
		switch i {
		case 0:
			anchor = "start"
		case n:
			anchor = "end"
		}
		svg = svg.add(el("text", when(r, t)).with("x", wide*float64(i)/n).with("y", tall-6).with("text-anchor", anchor))
	}
	return svg
}

// mark is something that happened at one time.
type mark struct {
	at    time.Time
	class word
	text  string
}

// marks are of both kinds, so that many of one don't hide the other.
func marks(r *report.Report) (list []mark) {
	for _, s := range r.Grants {
		for _, e := range s.Events {
			if len(list) < maxMarks {
				list = append(list, mark{e.Time, "grant", clock(e.Time) + " " + s.Target + ": " + e.Text})
			}
		}
	}
	faults := 0
	for _, n := range r.Notes {
		if n.Verdict == audit.Fault && faults < maxMarks {
			faults++
			list = append(list, mark{n.Time, "fault", clock(n.Time) + " " + n.Text})
		}
	}
	return list
}
