package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/agent-init/agent-init/internal/metric"
	"github.com/agent-init/agent-init/pkg/audit"
)

// counts has one of each kind.
func counts() []metric.Metric {
	return []metric.Metric{
		{Name: "agent_init_a_total", Kind: "counter", Help: "As.", Points: []metric.Point{metric.Is(3, "decision", "allow"), metric.Is(4, "decision", "deny")}},
		{Name: "agent_init_b", Kind: "gauge", Help: "Bs.", Points: []metric.Point{metric.Is(uint64(1)<<48 - 1)}},
		{Name: "agent_init_c_seconds", Kind: "summary", Help: "Cs.", Points: metric.Took(2_500_000_000, 7)},
		{Name: "agent_init_d", Kind: "gauge", Help: "None."},
	}
}

// TestData: what is sent is what was counted, and each kind is what it is called.
func TestData(t *testing.T) {
	since, now := time.Unix(1_800_000_000, 0), time.Unix(1_800_000_060, 0)
	got := dataOf(counts(), since, now)
	if len(got) != 4 || got[0].Name != "agent_init_a_total" || got[0].Description != "As." {
		t.Fatalf("%+v", got)
	}
	sum, ok := got[0].Data.(metricdata.Sum[float64])
	if !ok || !sum.IsMonotonic || sum.Temporality != metricdata.CumulativeTemporality || len(sum.DataPoints) != 2 {
		t.Fatalf("%+v", got[0])
	}
	if p := sum.DataPoints[1]; p.Value != 4 || p.StartTime != since || p.Time != now || p.Attributes.Len() != 1 {
		t.Errorf("%+v", p)
	} else if v, _ := p.Attributes.Value("decision"); v.AsString() != "deny" {
		t.Errorf("%+v", p)
	}
	if g, ok := got[1].Data.(metricdata.Gauge[float64]); !ok || len(g.DataPoints) != 1 || g.DataPoints[0].Value != 1<<48-1 || !g.DataPoints[0].StartTime.IsZero() {
		t.Errorf("%+v", got[1])
	}
	if s, ok := got[2].Data.(metricdata.Summary); !ok || len(s.DataPoints) != 1 || s.DataPoints[0].Sum != 2.5 || s.DataPoints[0].Count != 7 {
		t.Errorf("%+v", got[2])
	}
}

// TestMeasured: metrics are sent while events are, and while the collector takes none.
func TestMeasured(t *testing.T) {
	r := newRig(t, audit.Options{})
	measured := func() bool { r.to.mu.Lock(); defer r.to.mu.Unlock(); return len(r.to.counts) == 1 }
	r.to.answers(func([]uint64) verdict { return verdict{kind: again, why: "away", after: time.Hour} })
	r.write(5)
	r.start()
	for end := time.Now().Add(time.Minute); !measured(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no metrics while events wait")
		}
	}
	r.end()
}

// TestScraped: Prometheus is answered, and nobody from in here.
func TestScraped(t *testing.T) {
	asked, err := 0, error(nil)
	s := &scraped{
		refused: []netip.Prefix{netip.MustParsePrefix("172.30.0.0/24"), netip.MustParsePrefix("10.0.0.7/32")},
		ask:     func(context.Context) ([]metric.Metric, error) { asked++; return counts(), err },
	}
	get := func(method, path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequest(method, path, nil))
		return w
	}
	err = errors.New("not now")
	if w := get("GET", "/metrics"); w.Code != http.StatusServiceUnavailable {
		t.Errorf("%d", w.Code)
	}
	err = nil
	for range 3 {
		if w := get("GET", "/metrics"); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "\nagent_init_a_total{decision=\"deny\"} 4\n") {
			t.Errorf("%d: %s", w.Code, w.Body)
		}
	}
	if asked != 2 {
		t.Errorf("the keeper was asked %d times", asked)
	}
	for path, code := range map[string]int{"/": 404, "/metrics/": 404, "/debug/pprof/": 404} {
		if w := get("GET", path); w.Code != code {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	if w := get("POST", "/metrics"); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", w.Code)
	}
	for a, refused := range map[string]bool{"127.0.0.1": true, "127.8.8.8": true, "::1": true, "10.0.0.7": true, "172.30.0.9": true, "10.0.0.8": false, "2001:db8::1": false} {
		if s.refuses(netip.MustParseAddr(a)) != refused {
			t.Errorf("%s: %v", a, !refused)
		}
	}
}
