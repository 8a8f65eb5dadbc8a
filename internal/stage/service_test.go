package stage

import (
	"testing"
	"time"
)

// TestSilence: a guard is judged by the looks in which it had time to answer, not
// by the clock.
func TestSilence(t *testing.T) {
	start := time.Now()
	serving := start.Add(time.Second)
	for name, c := range map[string]struct {
		seen []time.Time // at each look; the last one stays
		hung int         // the look that finds it so; 0: none of sixty
	}{
		"answers each time":        {seen: series(serving, time.Second, 60)},
		"never comes":              {seen: []time.Time{{}}, hung: 11},
		"comes late":               {seen: append(make([]time.Time, 9), series(serving, time.Second, 60)...)},
		"stops":                    {seen: series(serving, time.Second, 10), hung: 16},
		"belonged to another life": {seen: []time.Time{start.Add(-time.Minute)}, hung: 11},
		"answers every fifth time": {seen: every(5, series(serving, time.Second, 12))},
		"was paused for an hour":   {seen: append(every(2, series(serving, time.Second, 5)), series(serving.Add(time.Hour), time.Second, 50)...)},
	} {
		t.Run(name, func(t *testing.T) {
			s, hung := silence{who: "it", patience: 5 * time.Second, since: start}, 0
			for i := range 60 {
				serves, err := s.look(c.seen[min(i, len(c.seen)-1)])
				if serves && err != nil {
					t.Fatal("serves and does not")
				}
				if err != nil {
					hung = i + 1
					break
				}
			}
			if hung != c.hung {
				t.Errorf("counts as hung at look %d, want %d", hung, c.hung)
			}
		})
	}
}

// series are n times, one step after the other.
func series(from time.Time, step time.Duration, n int) (out []time.Time) {
	for i := range n {
		out = append(out, from.Add(time.Duration(i)*step))
	}
	return out
}

// every repeats each of list n times.
func every(n int, list []time.Time) (out []time.Time) {
	for _, t := range list {
		for range n {
			out = append(out, t)
		}
	}
	return out
}
