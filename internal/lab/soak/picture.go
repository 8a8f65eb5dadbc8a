package soak

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"math"
	"strings"
)

// A panel is one diagram of the picture: a few columns over time.
type panel struct {
	title string
	scale float64 // of a column's unit in the panel's
	lines []line
}

type line struct {
	name, column string
	class        string
}

var panels = []panel{
	{"Memory, private and dirty (MiB)", 1 << 10, []line{
		{"keeper (PID 1)", "keeper_private_kib", "a"}, {"guard", "guard_private_kib", "b"}, {"session server", "sessions_private_kib", "c"}}},
	{"Memory, resident (MiB)", 1 << 10, []line{
		{"keeper (PID 1)", "keeper_resident_kib", "a"}, {"guard", "guard_resident_kib", "b"}, {"session server", "sessions_resident_kib", "c"}}},
	{"Open descriptors", 1, []line{
		{"keeper (PID 1)", "keeper_descriptors", "a"}, {"guard", "guard_descriptors", "b"}, {"session server", "sessions_descriptors", "c"}}},
	{"Leases and flows", 1, []line{
		{"elements of the lease sets", "set_elements", "a"}, {"flows", "flows", "b"}}},
}

// The picture's measures, in pixels.
const (
	width, height = 860, 190 // of a panel, with its title and its times
	left, right   = 56, 16
	above, below  = 36, 26
)

const style = `  <style>
    .paper { fill: #ffffff; }
    text { font: 12px system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; fill: #59636e; }
    .title { font-size: 13px; font-weight: 600; fill: #1f2328; }
    .grid { stroke: #d1d9e0; stroke-width: 1; }
    polyline { fill: none; stroke-width: 1.4; stroke-linejoin: round; }
    .a { stroke: #0969da; } .b { stroke: #bc4c00; } .c { stroke: #1a7f37; }
    text.a { stroke: none; fill: #0969da; } text.b { stroke: none; fill: #bc4c00; } text.c { stroke: none; fill: #1a7f37; }
    @media (prefers-color-scheme: dark) {
      .paper { fill: #0d1117; }
      text { fill: #b1bac4; }
      .title { fill: #f0f6fc; }
      .grid { stroke: #3d444d; }
      .a { stroke: #4493f8; } .b { stroke: #f0883e; } .c { stroke: #3fb950; }
      text.a { fill: #4493f8; } text.b { fill: #f0883e; } text.c { fill: #3fb950; }
    }
  </style>
`

// Picture draws the series as SVG: memory, descriptors, leases and flows over time.
func (s *Series) Picture(to io.Writer) error {
	w := bufio.NewWriter(to)
	fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-labelledby="title desc">
  <title id="title">What agent-init took of the machine in %s</title>
  <desc id="desc">Over time: private and resident memory and open descriptors of keeper, guard and session server; elements of
    the lease sets, and flows.</desc>
%s  <rect class="paper" width="%d" height="%d"/>
`, width, height*len(panels), span(s.end()), style, width, height*len(panels))
	for i, p := range panels {
		s.draw(w, p, float64(i*height))
	}
	fmt.Fprintln(w, "</svg>")
	return w.Flush()
}

func (s *Series) draw(w io.Writer, p panel, top float64) {
	most := 0.0
	for _, l := range p.lines {
		_, _, m := s.spread(l.column)
		if m /= p.scale; m > most { // NaN is not
			most = m
		}
	}
	step := pleasant(most / 4)
	ceiling := step * max(1, math.Ceil(most/step))
	end := max(s.end(), 1)
	x := func(seconds float64) float64 { return left + seconds/end*(width-left-right) }
	y := func(v float64) float64 { return top + height - below - v/ceiling*(height-above-below) }
	fmt.Fprintf(w, "  <text class=\"title\" x=\"%d\" y=\"%.0f\">%s</text>\n", left, top+18, p.title)
	for v := 0.0; v <= ceiling+step/2; v += step {
		fmt.Fprintf(w, "  <line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n",
			left, width-right, y(v), y(v), left-6, y(v)+4, math.Round(v*100)/100)
	}
	for t, every := 0.0, tick(end); t <= end; t += every {
		anchor := "middle"
		switch {
		case t == 0:
			anchor = "start"
		case t+every/4 > end:
			anchor = "end"
		}
		fmt.Fprintf(w, "  <text x=\"%.1f\" y=\"%.0f\" text-anchor=\"%s\">%s</text>\n", x(t), top+height-below+16, anchor, span(t))
	}
	key := width - right
	for i := len(p.lines) - 1; i >= 0; i-- {
		l := p.lines[i]
		fmt.Fprintf(w, "  <text class=\"%s\" x=\"%d\" y=\"%.0f\" text-anchor=\"end\">%s</text>\n", l.class, key, top+18, l.name)
		key -= 20 + 7*len(l.name)
	}
	for i := len(p.lines) - 1; i >= 0; i-- { // the first is on top
		var path []string
		points := s.points(p.lines[i].column, 0)
		for j, at := range points {
			// What goes on as before needs no point of its own.
			if j > 0 && j < len(points)-1 && points[j-1].value == at.value && points[j+1].value == at.value {
				continue
			}
			path = append(path, fmt.Sprintf("%.1f,%.1f", x(at.at), y(at.value/p.scale)))
		}
		fmt.Fprintf(w, "  <polyline class=\"%s\" points=\"%s\"/>\n", p.lines[i].class, strings.Join(path, " "))
	}
}

// pleasant is the step that is no less than v and that people count in: 1, 2 or 5 times a power of ten.
func pleasant(v float64) float64 {
	if v <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, n := range []float64{1, 2, 5} {
		if n*power >= v {
			return n * power
		}
	}
	return 10 * power
}

// tick is how many seconds lie between two times of the axis, of which there are no more than eight.
func tick(end float64) float64 {
	for _, s := range []float64{1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200} {
		if end/s <= 8 {
			return s
		}
	}
	return math.Ceil(end / 8)
}

// span is a time for people: "1 h 15 min", "40 s".
func span(seconds float64) string {
	s := int(math.Round(seconds))
	var parts []string
	for _, u := range []struct {
		size int
		name string
	}{{3600, "h"}, {60, "min"}, {1, "s"}} {
		if n := s / u.size; n > 0 && len(parts) < 2 {
			parts = append(parts, fmt.Sprintf("%d %s", n, u.name))
		}
		s %= u.size
	}
	return cmp.Or(strings.Join(parts, " "), "0")
}
