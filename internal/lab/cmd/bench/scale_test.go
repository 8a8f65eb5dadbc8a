package main

import (
	"math"
	"testing"
	"time"
)

// TestExponent: what does not grow is left out of the fit, and what never doubles is flat.
func TestExponent(t *testing.T) {
	fit := func(cost func(n float64) float64) (float64, bool) {
		g := grows("cost", inTime)
		for _, n := range []int{10, 100, 1000, 10_000, 100_000} {
			g.add(n, cost(float64(n)))
		}
		return g.exponent()
	}
	for name, tc := range map[string]struct {
		cost func(n float64) float64
		want float64
		ok   bool
	}{
		"linear":             {func(n float64) float64 { return 7 * n }, 1, true},
		"square root":        {math.Sqrt, 0.5, true},
		"a floor and linear": {func(n float64) float64 { return 1000 + n }, 0.9, true},
		"constant":           {func(float64) float64 { return 3 }, 0, false},
		"less than twice":    {func(n float64) float64 { return 100 + n/1100 }, 0, false},
		"nothing":            {func(float64) float64 { return 0 }, 0, false},
	} {
		if b, ok := fit(tc.cost); ok != tc.ok || math.Abs(b-tc.want) > 0.11 {
			t.Errorf("%s: n^%.2f, %v", name, b, ok)
		}
	}
}

// TestFlat: a cost of the keeper's is judged by how much more it is than at the first size.
func TestFlat(t *testing.T) {
	r := &report{}
	r.heading("costs")
	for _, last := range []time.Duration{25 * time.Millisecond, 26 * time.Millisecond} {
		g := grows("cost", aSecond)
		g.add(1, float64(5*time.Millisecond))
		g.add(10, float64(last))
		r.flat(g, float64(flatCPU))
	}
	if f := r.groups[0].figures; f[0].verdict != "met" || f[1].verdict != "MISSED" {
		t.Errorf("20 ms/s more: %s; 21 ms/s more: %s", f[0].verdict, f[1].verdict)
	}
}
