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
		if got := s.take(r, 0, now); refused == "" && got != "" || !strings.Contains(got, refused) {
			t.Errorf("%s: %q, want %q", what, got, refused)
		}
		if got := s.take(other, 0, now); got != "" {
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

// TestHeldTokens: requests under way hold what they may come to, and no end of a broker sets that free.
func TestHeldTokens(t *testing.T) {
	s := newSpending()
	r := route.Route{Name: "a", Limits: route.Limits{TokensPerDay: 1000}}
	passed := 0
	for range 300 {
		if s.take(r, 900, noon) == "" {
			passed++
		}
	}
	if passed != 2 {
		t.Errorf("%d of 300 at once pass a limit of 1,000 tokens with 900 each", passed)
	}
	if why := s.take(r, 1, noon); !strings.Contains(why, "held by requests under way") {
		t.Error(why)
	}
	s.release("a", 900)
	s.release("a", 900)
	s.release("a", math.MaxUint64)
	s.release("b", math.MaxUint64)
	if why := s.take(r, 1000, noon); why != "" {
		t.Error(why)
	}
	s.broke()
	s.release("a", 1000)
	if why := s.take(r, 1, noon); !strings.Contains(why, "are spent until") {
		t.Errorf("after the broker has ended: %q", why)
	}
	next := noon.Add(24 * time.Hour)
	if why := s.take(r, math.MaxUint64, next); why != "" {
		t.Error(why)
	}
	if s.take(r, 1, next) == "" {
		t.Error("what is held beyond all numbers is no more")
	}
}
