package main

import (
	"strings"
	"testing"
	"time"
)

// TestPage: what is measured by itself takes the place of its own figure, and of no other, and the page says what each row
// was measured on.
func TestPage(t *testing.T) {
	figures := func(title string, names ...string) *report {
		r := &report{}
		r.heading("Budgets")
		for _, row := range rows() {
			for _, name := range names {
				if row.name == name {
					r.figure(row.title(), "measured "+title, row.limit())
				}
			}
		}
		return r
	}
	page := "# Old\n\n## Budgets\n\n| `start`: old | measured long ago |\n\n## A denial: old\n\nas it was\n\n## Where and when\n\n" +
		runsHead + "| `start` | first | a | b | c |\n\n## Gone\n"
	both := figures("second", "start", "stream")
	both.heading("A denial: new")
	both.figure("nothing else", "40 ms", "≤ 1 s").met(true)
	for _, run := range []struct {
		r  *report
		on string
	}{{figures("first", "start"), "one"}, {both, "two"}, {figures("third", "stream", "link"), "three"}} {
		var err error
		if page, err = run.r.page(page, machine{processors: run.on}); err != nil {
			t.Fatal(err)
		}
	}
	at := 0
	for _, part := range []string{docHead, "| `start`: ", "measured second", "| `stream`: ", "measured third", "| `link`: ", "measured third",
		"## A denial: new\n", "| nothing else | 40 ms |", "| `start`, `revoke` | two |", "| `stream`, `link` | three |", docTail} {
		i := strings.Index(page[at:], part)
		if i < 0 {
			t.Fatalf("%q is missing or out of place in\n%s", part, strings.TrimSuffix(page, docTail))
		}
		at += i + len(part)
	}
	if at != len(page) || strings.Contains(page, "long ago") || strings.Contains(page, "measured first") || strings.Count(page, "| `stream`") != 2 {
		t.Errorf("something is there twice, or for too long, or behind the end:\n%s", strings.TrimSuffix(page, docTail))
	}
	if _, err := both.page("nothing of the kind", machine{}); err == nil {
		t.Error("any text is a page")
	}
}

// TestVerdict: a budget is the most or the least that a median may be, or a multiple of a peer's.
func TestVerdict(t *testing.T) {
	for _, tc := range []struct {
		r             row
		ours, theirs  float64
		value, budget string
		broken        bool
	}{
		{row{unit: " ms", budget: 120}, 120, 170, "120 ms", "≤ 120 ms", false},
		{row{unit: " ms", budget: 120}, 121, 170, "121 ms", "≤ 120 ms", true},
		{row{unit: "×", budget: 0.65, least: true}, 0.65, 0.1, "0.65×", "≥ 0.65×", false},
		{row{unit: "×", budget: 0.65, least: true}, 0.64, 0.1, "0.64×", "≥ 0.65×", true},
		{row{unit: " ms", budget: 2, than: "peer"}, 0.4, 0.2, "2.00× peer", "≤ 2× peer", false},
		{row{unit: " ms", budget: 2, than: "peer"}, 0.5, 0.2, "2.50× peer", "≤ 2× peer", true},
		{row{unit: "/s", budget: 0.6, least: true, than: "peer"}, 50_000, 100_000, "0.50× peer", "≥ 0.6× peer", true},
	} {
		to := &report{}
		to.heading("Budgets")
		tc.r.tell(to, []*subject{
			{peer{name: "agent-init"}, []float64{tc.ours + 1, tc.ours, tc.ours - 1}}, {peer{name: "peer"}, []float64{tc.theirs}}})
		if f := to.groups[0].figures[0]; f.value != tc.value || f.goal != tc.budget || to.broken() != tc.broken {
			t.Errorf("%v and %v of %+v: %+v", tc.ours, tc.theirs, tc.r, *f)
		}
	}
}

// TestNumber: figures have three digits or commas, and a median is one of those that were measured.
func TestNumber(t *testing.T) {
	if got := number(1234567.8) + " " + number(1000) + " " + number(12.345) + " " + ms(median([]time.Duration{3e6, 1e6, 2e6})); got != "1,234,567 1,000 12.3 2.0 ms" {
		t.Error(got)
	}
}
