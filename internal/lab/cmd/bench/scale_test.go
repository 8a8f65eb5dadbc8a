package main

import (
	"math"
	"testing"
	"time"
)

// TestExponent: what does not grow takes nothing from the exponent, and what does not double from the first size to the last
// is flat, even if a size between is off.
func TestExponent(t *testing.T) {
	at := func(cost func(n float64) float64) (costs []float64) {
		for _, n := range []float64{10, 100, 1000, 10_000, 100_000} {
			costs = append(costs, cost(n))
		}
		return costs
	}
	for name, tc := range map[string]struct {
		costs   []float64
		want    float64
		doubles bool
	}{
		"linear":             {at(func(n float64) float64 { return 7 * n }), 1, true},
		"square root":        {at(math.Sqrt), 0.5, true},
		"square":             {at(func(n float64) float64 { return n * n }), 2, true},
		"a floor and linear": {at(func(n float64) float64 { return 1000 + n }), 1, true},
		"a floor and a root": {at(func(n float64) float64 { return 200 + math.Sqrt(n) }), 0.5, true},
		"a first size of 0":  {[]float64{0, 100, 1000, 10_000, 100_000}, 1, true},
		"as it is measured":  {[]float64{4.4, 6.9, 13.7, 67.2, 596.5}, 0.9, true},
		"constant":           {at(func(float64) float64 { return 3 }), 0, false},
		"less than twice":    {at(func(n float64) float64 { return 100 + n/1100 }), 0, false},
		"one is off":         {[]float64{5.4, 2.6, 32, 3.4, 4.6}, 0, false},
		"less and less":      {[]float64{10.7, 3.5, 2.8, 2.7, 2.7}, 0, false},
		"nothing":            {make([]float64, 5), 0, false},
	} {
		g := grows("cost", inTime)
		for i, c := range tc.costs {
			g.add(int(math.Pow10(i+1)), c)
		}
		if k, doubles := g.exponent(); doubles != tc.doubles || doubles && math.Abs(k-tc.want) > 0.02 {
			t.Errorf("%s: n^%.2f, %v", name, k, doubles)
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
