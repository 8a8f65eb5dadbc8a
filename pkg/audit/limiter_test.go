package audit

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"
)

type clock struct {
	mu sync.Mutex
	t  time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

type lines struct {
	mu  sync.Mutex
	got []Event
}

func (l *lines) record(e Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.got = append(l.got, e)
}

func (l *lines) take() []Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	got := l.got
	l.got = nil
	return got
}

func weight(events []Event) (sum uint64) {
	for _, e := range events {
		sum += 1 + e.Suppressed
	}
	return sum
}

func newTestLimiter() (*Limiter, *lines, *clock) {
	c, out := &clock{t: time.Unix(1e9, 0)}, &lines{}
	l := NewLimiter(out.record)
	l.now = c.now
	return l, out, c
}

func TestLimiterPerKey(t *testing.T) {
	l, out, c := newTestLimiter()
	e := Event{Kind: DNS, Verdict: Deny, Name: "evil.example"}
	for range 100 {
		l.Record(e)
	}
	if got := out.take(); len(got) != perKey || weight(got) != perKey {
		t.Fatalf("first window: %d lines that stand for %d", len(got), weight(got))
	}
	l.Record(Event{Kind: DNS, Verdict: Deny, Name: "other.example"})
	if got := out.take(); len(got) != 1 || got[0].Name != "other.example" {
		t.Fatalf("another key is not limited by the first: %+v", got)
	}
	c.add(keyWindow - 1)
	if l.sweep(false); len(out.take()) != 0 {
		t.Fatal("summary before the window's end")
	}
	c.add(1)
	l.sweep(false)
	got := out.take()
	if len(got) != 1 || got[0].Suppressed != 94 || got[0].Name != e.Name {
		t.Fatalf("summary: %+v", got)
	}
	l.Record(e)
	if got := out.take(); len(got) != 1 || got[0].Suppressed != 0 {
		t.Fatalf("a new window starts afresh: %+v", got)
	}
}

// One fault of agent-init's own, over and over, hides no other.
func TestLimiterFaultsApart(t *testing.T) {
	l, out, _ := newTestLimiter()
	for i := range 100 {
		l.Record(Event{Kind: Guard, Verdict: Fault, Reason: fmt.Sprintf("guard ended: for reason %d", i)})
	}
	l.Record(Event{Kind: Guard, Verdict: Fault, Reason: "rules changed by somebody else: a chain is gone"})
	if got := out.take(); len(got) != perKey+1 || !strings.HasPrefix(got[perKey].Reason, "rules changed") {
		t.Errorf("%d lines: %+v", len(got), got)
	}
}

// Windows that the agent opens and closes in a loop, each with a number and a
// name of its own, take no more lines than any other event, and hide neither
// others nor what root does.
func TestLimiterWindows(t *testing.T) {
	l, out, _ := newTestLimiter()
	agent, root := uint32(1000), uint32(0)
	for i := range 1000 {
		l.Record(Event{Kind: Session, Verdict: Info, UID: &agent, Reason: fmt.Sprintf("opened window %d", i)})
		l.Record(Event{Kind: Session, Verdict: Info, Reason: fmt.Sprintf("window %d (name-%d) ended: exit status 0", i, i)})
	}
	if got := out.take(); len(got) != 2*perKey {
		t.Errorf("%d lines about windows", len(got))
	}
	l.Record(Event{Kind: Session, Verdict: Info, UID: &root, Reason: "opened window 1000"})
	l.Record(Event{Kind: Session, Verdict: Info, Reason: "agent ended: exit status 0"})
	if got := out.take(); len(got) != 2 {
		t.Errorf("hidden: %+v", got)
	}
	l.Flush()
	if got := out.take(); weight(got) != 2000-2*perKey {
		t.Errorf("lines stand for %d", weight(got))
	}
}

// A guard that was taken over may claim any number, which hides nothing.
func TestLimiterCountsDontOverflow(t *testing.T) {
	for _, claimed := range []uint64{math.MaxUint64, math.MaxUint64 - 3, math.MaxUint64 / 2} {
		l, out, _ := newTestLimiter()
		e := Event{Kind: Connect, Verdict: Allow, Name: "ok.example", Out: math.MaxUint64 / 2, In: 1}
		for range 2 * perKey {
			l.Record(e)
		}
		out.take()
		e.Suppressed = claimed
		l.Record(e)
		l.Record(e)
		l.Flush()
		got := out.take()
		if len(got) != 1 || got[0].Suppressed < claimed-1 || got[0].Out != math.MaxUint64 || got[0].In != perKey+2 {
			t.Errorf("claimed %d: %+v", claimed, got)
		}
	}
}

// Without Run a key's next event brings the summary of its last window.
func TestLimiterWindowEndsByEvent(t *testing.T) {
	l, out, c := newTestLimiter()
	e := Event{Kind: Guard, Verdict: Fault, Reason: "x"}
	for range 8 {
		l.Record(e)
	}
	c.add(keyWindow)
	l.Record(e)
	got := out.take()
	if len(got) != perKey+2 || got[perKey].Suppressed != 2 || weight(got) != 9 {
		t.Fatalf("%d lines that stand for %d: %+v", len(got), weight(got), got)
	}
}

// E75: a flood leaves few lines and no event uncounted, whatever its keys are.
func TestE75Flood(t *testing.T) {
	tests := map[string]struct {
		events int
		name   func(i int) string
	}{
		"one key":       {100_000, func(int) string { return "evil.example" }},
		"ten keys":      {100_000, func(i int) string { return fmt.Sprintf("%d.evil.example", i%10) }},
		"keys in turns": {100_000, func(i int) string { return fmt.Sprintf("%d.evil.example", i%(2*maxKeys)) }},
		"all different": {100_000, func(i int) string { return fmt.Sprintf("%d.evil.example", i) }},
		"six of each":   {100_000, func(i int) string { return fmt.Sprintf("%d.evil.example", i/(perKey+1)) }},
	}
	for flood, tt := range tests {
		t.Run(flood, func(t *testing.T) {
			l, out, c := newTestLimiter()
			for i := range tt.events {
				l.Record(Event{Kind: DNS, Verdict: Deny, Name: tt.name(i)})
				if i%(tt.events/100) == 0 { // 100 seconds in all
					c.add(time.Second)
					l.sweep(false)
				}
				if l.recent.Len() > maxKeys || len(l.keys) != l.recent.Len() {
					t.Fatalf("%d keys", l.recent.Len())
				}
			}
			l.Flush()
			got := out.take()
			bound := classFull + 100*classRate + 100 + maxKeys // burst, rate, sweeps, flush
			if len(got) > bound {
				t.Errorf("%d lines, more than %d", len(got), bound)
			}
			if weight(got) != uint64(tt.events) {
				t.Errorf("lines stand for %d events, not %d", weight(got), tt.events)
			}
			if l.recent.Len() != 0 {
				t.Error("keys are left after Flush")
			}
		})
	}
}

// E75: refusals don't push out what else happens.
func TestE75FloodHidesNothing(t *testing.T) {
	l, out, _ := newTestLimiter()
	for i := range 30_000 {
		l.Record(Event{Kind: DNS, Verdict: Deny, Name: fmt.Sprint(i)})
	}
	out.take()
	others := []Event{
		{Kind: DNS, Verdict: Allow, Name: "ok.example"}, {Kind: Drop, Verdict: Deny, IP: "1.1.1.1"},
		{Kind: Guard, Verdict: Fault, Reason: "killed"}, {Kind: Policy, Verdict: Info}, {Kind: Grant, Verdict: Allow},
	}
	for _, e := range others {
		l.Record(e)
	}
	if got := out.take(); len(got) != len(others) {
		t.Errorf("%d of %d shown: %+v", len(got), len(others), got)
	}
	l.Flush()
	got := out.take()
	if last := got[len(got)-1]; last.Suppressed == 0 || !strings.Contains(last.Reason, "flood") || last.Name != "" {
		t.Errorf("overall summary: %+v", last)
	}
}

// Counts that the guard's own limiter made go through the keeper's.
func TestLimiterStacked(t *testing.T) {
	outer, out, _ := newTestLimiter()
	inner := NewLimiter(outer.Record)
	for i := range 10_000 {
		inner.Record(Event{Kind: Drop, Verdict: Deny, IP: "1.1.1.1", Port: uint16(i % 100)})
	}
	inner.Flush()
	outer.Flush()
	if got := out.take(); weight(got) != 10_000 {
		t.Errorf("lines stand for %d", weight(got))
	}
}

func TestLimiterRun(t *testing.T) {
	out := &lines{}
	l := NewLimiter(out.record)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { l.Run(ctx) })
	for range 4 {
		wg.Go(func() {
			for i := range 1000 {
				l.Record(Event{Kind: DNS, Verdict: Deny, Name: fmt.Sprint(i % 7)})
			}
		})
	}
	cancel()
	wg.Wait()
	l.Flush()
	if got := out.take(); weight(got) != 4000 {
		t.Errorf("lines stand for %d", weight(got))
	}
}

// The bytes of connections that have no line of their own are in the lines that
// stand for them.
func TestLimiterKeepsBytes(t *testing.T) {
	l, out, c := newTestLimiter()
	for range 100 {
		l.Record(Event{Kind: Connect, Verdict: Allow, Name: "ok.example", Out: 3, In: 5})
	}
	c.add(keyWindow)
	l.Flush()
	var up, down uint64
	lines := out.take()
	for _, e := range lines {
		up, down = up+e.Out, down+e.In
	}
	if up != 300 || down != 500 || len(lines) != perKey+1 {
		t.Errorf("%d lines with %d bytes out, %d in", len(lines), up, down)
	}
}
