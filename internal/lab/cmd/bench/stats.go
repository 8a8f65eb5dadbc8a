package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

func median[T cmp.Ordered](v []T) T {
	var zero T
	if len(v) == 0 {
		return zero
	}
	s := slices.Sorted(slices.Values(v))
	return s[len(s)/2]
}

// percentile is the smallest value that a share p of all is not above.
func percentile(sorted []float64, p float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(p*float64(len(sorted))), len(sorted)-1)]
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", millis(d)) }

// number writes three digits of v, or with commas all before the point.
func number(v float64) string {
	if v < 1000 {
		return fmt.Sprintf("%.3g", v)
	}
	s := fmt.Sprint(int(v))
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
