package keeper

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/pkg/route"
)

func TestSpending(t *testing.T) {
	s := newSpending()
	r := route.Route{Name: "a", Limits: route.Limits{RequestsPerMinute: 3, TokensPerDay: 100}}
	other := route.Route{Name: "b"}
	now := noon
	want := func(what string, refused string) {
		t.Helper()
		if got := s.take(r, now); refused == "" && got != "" || !strings.Contains(got, refused) {
			t.Errorf("%s: %q, want %q", what, got, refused)
		}
		if got := s.take(other, now); got != "" {
			t.Errorf("a route without limits: %q", got)
		}
	}
	for range 3 {
		want("within the minute's", "")
	}
	want("one more", "broker.a.limits.requests_per_minute")
	now = now.Add(20 * time.Second)
	want("a third of a minute later", "")
	want("two of them", "requests_per_minute")

	now = now.Add(time.Minute)
	s.count("a", 60, 39, now)
	want("below the day's", "")
	s.count("a", 0, 1, now)
	s.count("b", math.MaxUint64, math.MaxUint64, now)
	want("at the day's", "broker.a.limits.tokens_per_day")
	s.count("a", math.MaxUint64, math.MaxUint64, now) // as a broker may that was taken over
	now = now.Add(time.Minute)
	want("beyond all", "tokens_per_day")
	now = now.Add(12 * time.Hour)
	want("the next day", "")
}
