package main

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/agent-init/agent-init/internal/metric"
)

// meter sends what the keeper has counted, under the names that agent-init metrics has.
type meter struct {
	ask   func(context.Context) ([]metric.Metric, error)
	tell  func(why string) // they are not taken; "": they are
	since time.Time        // it is counted
	due   *time.Timer
	every time.Duration
}

// next has the metrics be due.
func (m *meter) next(d time.Duration) {
	if m.due.Stop(); m.every > 0 {
		m.due.Reset(d)
	}
}

// measure sends the metrics once. What a collector does not take is out of date by the next time.
func (s *shipper) measure(ctx context.Context) {
	m := &s.meter
	defer m.next(m.every)
	if s.to == nil {
		return
	}
	metrics, err := m.ask(ctx)
	if err == nil {
		err = s.to.measure(ctx, &metricdata.ResourceMetrics{
			Resource: resourceOf(s.config.Resource),
			ScopeMetrics: []metricdata.ScopeMetrics{{
				Scope: instrumentation.Scope{Name: "agent-init"}, Metrics: dataOf(metrics, m.since, time.Now()),
			}},
		})
	}
	why := ""
	if err != nil {
		s.log.Info("the metrics were not sent", "why", err)
		why = err.Error()
	}
	m.tell(why)
}

// dataOf has the metrics in the form of the SDK. A counter of which parts are told by labels is a sum with as many points.
func dataOf(metrics []metric.Metric, since, now time.Time) (out []metricdata.Metrics) {
	for _, m := range metrics {
		d := metricdata.Metrics{Name: m.Name, Description: m.Help}
		var points []metricdata.DataPoint[float64]
		summary := metricdata.SummaryDataPoint{StartTime: since, Time: now}
		for _, p := range m.Points {
			switch p.Part {
			case "_sum":
				summary.Sum = p.Value
			case "_count":
				summary.Count = uint64(p.Value)
			default:
				points = append(points, metricdata.DataPoint[float64]{Attributes: labelsOf(p.Labels), StartTime: since, Time: now, Value: p.Value})
			}
		}
		switch m.Kind {
		case "counter":
			d.Data = metricdata.Sum[float64]{DataPoints: points, Temporality: metricdata.CumulativeTemporality, IsMonotonic: true}
		case "summary":
			d.Data = metricdata.Summary{DataPoints: []metricdata.SummaryDataPoint{summary}}
		default:
			for i := range points {
				points[i].StartTime = time.Time{}
			}
			d.Data = metricdata.Gauge[float64]{DataPoints: points}
		}
		out = append(out, d)
	}
	return out
}

func labelsOf(pairs []string) attribute.Set {
	var out []attribute.KeyValue
	for i := 0; i+1 < len(pairs); i += 2 {
		out = append(out, attribute.String(pairs[i], pairs[i+1]))
	}
	return attribute.NewSet(out...)
}
