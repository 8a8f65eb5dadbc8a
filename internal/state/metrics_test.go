package state

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/metric"
	"github.com/agent-init/agent-init/pkg/audit"
)

// TestMetricNames: names have the form and the units of OpenMetrics, each family stands once, and so does each series.
func TestMetricNames(t *testing.T) {
	s := State{SelfTest: &SelfTest{}, Audit: Audit{Head: audit.Head{Seq: 7, Hash: strings.Repeat("0f", 32)}}}
	s.Broker = Broker{UID: 1, Routes: []Route{{Name: "anthropic", Present: true}, {Name: "openai", Present: true}}}
	name := regexp.MustCompile(`^agent_init_[a-z][a-z0-9_]*[a-z0-9]$`)
	label := regexp.MustCompile(`^[a-z_]+$`)
	units := []string{"_seconds", "_bytes"}
	var seen []string
	for _, m := range s.Metrics("1.0", time.Now()) {
		if !name.MatchString(m.Name) || slices.Contains(seen, m.Name) || m.Help == "" || strings.ContainsAny(m.Help, "\\\n") {
			t.Errorf("%+v", m)
		}
		seen = append(seen, m.Name)
		if total := strings.HasSuffix(m.Name, "_total"); total != (m.Kind == "counter") {
			t.Errorf("%s is a %s", m.Name, m.Kind)
		}
		for _, wrong := range []string{"_ms", "_millis", "_nanos", "_minutes", "_kb", "_mib", "_count", "_sum", "_bucket"} {
			if strings.HasSuffix(strings.TrimSuffix(m.Name, "_total"), wrong) {
				t.Errorf("%s: the units are %v", m.Name, units)
			}
		}
		var series []string
		for _, p := range m.Points {
			for i := 0; i < len(p.Labels); i += 2 {
				if !label.MatchString(p.Labels[i]) {
					t.Errorf("%s has the label %q", m.Name, p.Labels[i])
				}
			}
			if (p.Part != "") != (m.Kind == "summary") {
				t.Errorf("%s, a %s, has %q", m.Name, m.Kind, p.Part)
			}
			series = append(series, p.Part+strings.Join(p.Labels, "\x00"))
		}
		if slices.Sort(series); len(slices.Compact(series)) != len(m.Points) {
			t.Errorf("%s has a series twice: %q", m.Name, series)
		}
	}
	if !slices.Contains(seen, "agent_init_broker_requests_total") || !slices.Contains(seen, "agent_init_audit_head") {
		t.Errorf("proves little: %q", seen)
	}
	var text strings.Builder
	if err := metric.WriteText(&text, s.Metrics("1.0", time.Now())); err != nil || text.Len() > 1<<16 {
		t.Errorf("%v, %d bytes", err, text.Len())
	}
}

// TestMetricsStale: what a keeper wrote that has not reported since, or before the clock was set back, is not shown.
func TestMetricsStale(t *testing.T) {
	d, now := Dir(t.TempDir()), time.Now()
	if _, err := d.metrics(now); err == nil {
		t.Error("there are none, and no error")
	}
	for range 2 { // the second replaces the first
		if err := d.Renew(MetricFile, 0o644, []byte("a 1\n")); err != nil {
			t.Fatal(err)
		}
	}
	for age, ok := range map[time.Duration]bool{0: true, stale - time.Second: true, stale + time.Second: false, -stale - time.Second: false} {
		if err := os.Chtimes(string(d)+"/"+MetricFile, now, now.Add(-age)); err != nil {
			t.Fatal(err)
		}
		data, err := d.metrics(now)
		if (err == nil) != ok || ok && string(data) != "a 1\n" {
			t.Errorf("%v old: %q, %v", age, data, err)
		}
	}
}
