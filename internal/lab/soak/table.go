package soak

import (
	"fmt"
	"math"
	"strings"
)

// Bound is by how much a column may rise in the second half of a run.
type Bound struct {
	Column string
	Most   float64
}

// Bounds are what a run is judged by: of the keeper and the session server, which live from its beginning to its end. A
// descriptor or a few KiB for each guard that was killed, for each reload or for each lease would be more.
func Bounds() []Bound {
	return []Bound{{"keeper_private_kib", 512}, {"keeper_descriptors", 1}, {"keeper_threads", 1},
		{"sessions_private_kib", 512}, {"sessions_descriptors", 1}}
}

// Judge returns a sentence for each bound that was not kept.
func (s *Series) Judge() (faults []string) {
	for _, b := range Bounds() {
		if rise := s.Rise(b.Column); !(rise <= b.Most) {
			faults = append(faults, fmt.Sprintf("%s has risen by %.1f in the second half; the bound is %g", b.Column, rise, b.Most))
		}
	}
	return faults
}

// taken are the rows of the table of what was taken: a column, in which unit.
var taken = []struct {
	name, column string
	scale        float64
	digits       int
}{
	{"keeper, private and dirty, MiB", "keeper_private_kib", 1 << 10, 2},
	{"keeper, resident, MiB", "keeper_resident_kib", 1 << 10, 2},
	{"keeper, descriptors", "keeper_descriptors", 1, 0},
	{"keeper, threads", "keeper_threads", 1, 0},
	{"guard, private and dirty, MiB", "guard_private_kib", 1 << 10, 2},
	{"guard, resident, MiB", "guard_resident_kib", 1 << 10, 2},
	{"guard, descriptors", "guard_descriptors", 1, 0},
	{"guard, threads", "guard_threads", 1, 0},
	{"session server, private and dirty, MiB", "sessions_private_kib", 1 << 10, 2},
	{"session server, resident, MiB", "sessions_resident_kib", 1 << 10, 2},
	{"session server, descriptors", "sessions_descriptors", 1, 0},
	{"names leased", "leased_names", 1, 0},
	{"elements of the lease sets", "set_elements", 1, 0},
	{"flows", "flows", 1, 0},
	{"audit log, KiB", "log_bytes", 1 << 10, 0},
}

// done are the rows of the table of what was done: the last value of a column that only grows.
var done = []struct{ name, column string }{
	{"guards killed", "kills"},
	{"longest time from a kill to the next allowed connection, ms", "slowest_ms"},
	{"allowed connections and questions", "allowed"},
	{"denied attempts of all kinds; of these have arrived", "denied"},
	{"addresses that names took and left", "given"},
	{"of these, shut when their lease was over, tried, and silent", "shut"},
	{"connections held open through the gate", "held"},
	{"grants and denials", "grants"},
	{"reloads that changed the policy", "reloads"},
	{"windows of the session", "windows"},
	{"audit log's files begun", "rotations"},
	{"processor time of the keeper, ms", "keeper_cpu_ms"},
}

// Table is the series for people, as Markdown.
func (s *Series) Table() string {
	b := &strings.Builder{}
	fmt.Fprintf(b, "| in %s | |\n|---|---:|\n", span(s.end()))
	for _, r := range done {
		if v := s.Last(r.column); r.column == "denied" {
			fmt.Fprintf(b, "| %s | %.0f; %.0f |\n", r.name, v, s.Last("arrived"))
		} else {
			fmt.Fprintf(b, "| %s | %.0f |\n", r.name, v)
		}
	}
	fmt.Fprintf(b, "\n| %d samples | least | median | most | rise in the second half | bound |\n|---|---:|---:|---:|---:|---:|\n", s.Len())
	bounds := map[string]float64{}
	for _, x := range Bounds() {
		bounds[x.Column] = x.Most
	}
	for _, r := range taken {
		least, middle, most := s.spread(r.column)
		bound := "–"
		if v, ok := bounds[r.column]; ok {
			bound = fmt.Sprintf("%g", v/r.scale)
		}
		fmt.Fprintf(b, "| %s | %.*f | %.*f | %.*f | %s | %s |\n", r.name, r.digits, least/r.scale, r.digits, middle/r.scale,
			r.digits, most/r.scale, signed(s.Rise(r.column)/r.scale), bound)
	}
	return b.String()
}

// signed is a rise or a fall with two digits, and never "-0.00".
func signed(v float64) string { return fmt.Sprintf("%+.2f", math.Round(v*100)/100+0) }

// The lines between which a page has the table.
const (
	begin = "<!-- figures: made by make soak-docs -->\n"
	end   = "<!-- end of the figures -->\n"
)

// Insert returns a page with the table put into its place.
func (s *Series) Insert(page string) (string, error) {
	before, rest, ok := strings.Cut(page, begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return "", fmt.Errorf("the page has no place for the figures")
	}
	return before + begin + s.Table() + end + after, nil
}
