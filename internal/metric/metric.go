// Package metric is what is counted and measured, and its text format.
package metric

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Metric is something that is counted or measured. Its name is public.
type Metric struct {
	Name   string
	Kind   string // gauge, counter or summary
	Help   string
	Points []Point
}

// Point is a value of a metric.
type Point struct {
	Part   string   // of a summary: _sum or _count
	Labels []string // names and values, in turn
	Value  float64
}

// Is is n, by labels: names and values, in turn.
func Is[N int | int64 | uint64](n N, labels ...string) Point {
	return Point{Labels: labels, Value: float64(n)}
}

// Took is a summary of how long something took, as often as it was counted.
func Took(nanos, times uint64) []Point {
	return []Point{{Part: "_sum", Value: float64(nanos/1000) / 1e6}, {Part: "_count", Value: float64(times)}}
}

// WriteText writes them in the text format of Prometheus.
func WriteText(w io.Writer, all []Metric) error {
	b := bufio.NewWriter(w)
	for _, m := range all {
		fmt.Fprintf(b, "# HELP %s %s\n# TYPE %s %s\n", m.Name, m.Help, m.Name, m.Kind)
		for _, p := range m.Points {
			fmt.Fprintf(b, "%s%s%s %s\n", m.Name, p.Part, labelled(p.Labels), strconv.FormatFloat(p.Value, 'f', -1, 64))
		}
	}
	return b.Flush()
}

// escaped is what the format has escapes for. All else stands as it is.
var escaped = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

func labelled(labels []string) string {
	var pairs []string
	for i := 0; i+1 < len(labels); i += 2 {
		pairs = append(pairs, labels[i]+`="`+escaped.Replace(labels[i+1])+`"`)
	}
	if pairs == nil {
		return ""
	}
	return "{" + strings.Join(pairs, ",") + "}"
}
