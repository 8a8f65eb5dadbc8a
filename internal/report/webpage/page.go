// Package webpage shows a report as one page of HTML that needs nothing else: no network, no file beside it, and no
// script. Its policy (CSP) lets nothing run, and nothing load but the style that was written here.
package webpage

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"io"
	"time"

	"github.com/agent-init/agent-init/internal/report"
)

//go:embed style.css
var style string

// Write writes the page.
func Write(w io.Writer, r *report.Report) error {
	policy := "default-src 'none'; style-src '" + hash(style) + "'; base-uri 'none'; form-action 'none'"
	head := el("head",
		el("meta").with("charset", "utf-8"),
		el("meta").with("http-equiv", "Content-Security-Policy").with("content", policy),
		el("meta").with("name", "viewport").with("content", "width=device-width, initial-scale=1"),
		el("meta").with("name", "referrer").with("content", "no-referrer"),
		el("title", title(r)),
		el("style", raw(style)),
	)
	body := el("body",
		top(r),
		el("main", tiles(r), findings(r), timeline(r), contacts(r), refusals(r), grants(r), routes(r), unused(r), entries(r),
			inbound(r), proof(r), notes(r), integrity(r), limits()),
		foot(r),
	)
	return document(w, el("html", head, body).with("lang", "en"))
}

// hash is how a policy names a style.
func hash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}

func title(r *report.Report) string {
	if r.Host == "" {
		return "agent-init report"
	}
	return "agent-init report: " + r.Host
}

// clock is a time in the report's zone, which is UTC: it is read elsewhere, and later.
func clock(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return t.UTC().Format(time.TimeOnly)
}

func moment(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return t.UTC().Format(time.DateTime)
}

// when is a time in a table of r: without the day, if all is of one.
func when(r *report.Report, t time.Time) string {
	if r.First.UTC().Format(time.DateOnly) == r.Last.UTC().Format(time.DateOnly) {
		return clock(t)
	}
	return moment(t)
}

func span(r *report.Report, first, last time.Time) string {
	a, b := when(r, first), when(r, last)
	if a == b {
		return a
	}
	return a + " – " + b
}

// section is a part of the page, with a line that says what it is about.
func section(id, head, about word, kids ...any) *node {
	s := el("section", el("h2", head)).with("id", id)
	if about != "" {
		s = s.add(el("p.about", about))
	}
	return s.add(kids...)
}

// table is one that scrolls by itself where the page is narrow.
func table(heads []word, rows []*node) *node {
	h := el("tr")
	for _, head := range heads {
		if head != "" && head[0] == ' ' {
			h = h.add(el("th.num", head[1:]))
		} else {
			h = h.add(el("th", head))
		}
	}
	return el("div.scroll", el("table", el("thead", h), el("tbody", rows)))
}

// more says how much of a list is left out.
func more(n int) any {
	if n <= 0 {
		return nil
	}
	return el("p.more", "and ", report.Grouped(uint64(n)), word(" more; "), el("code", word("agent-init report --json")), word(" has what is kept of them"))
}

const shown = 100 // rows of a list
