// Package otelcheck holds the exporter against the receiver of the OpenTelemetry Collector. It is a module of its own:
// what it is made of has no place in agent-init's.
package otelcheck

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
)

// TestMain is a collector, if it is told to be one.
func TestMain(m *testing.M) {
	if len(os.Args) != 5 || os.Args[1] != "collect" {
		os.Exit(m.Run())
	}
	if err := collect(os.Args[2], os.Args[3], os.Args[4]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// collect receives at an address, and writes the number of each event into a file before it says that it has it.
func collect(protocol, addr, file string) error {
	out, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	next, err := consumer.NewLogs(func(_ context.Context, logs plog.Logs) error {
		var b strings.Builder
		for _, r := range logs.ResourceLogs().All() {
			pod, _ := r.Resource().Attributes().Get("k8s.pod.name")
			for _, s := range r.ScopeLogs().All() {
				for _, l := range s.LogRecords().All() {
					seq, _ := l.Attributes().Get("metadata.sequence")
					name, _ := l.Attributes().Get("query.hostname")
					fmt.Fprintf(&b, "%d %s %s %s\n", seq.Int(), l.EventName(), name.Str(), pod.Str())
				}
			}
		}
		_, err := out.WriteString(b.String())
		return err
	})
	if err != nil {
		return err
	}
	counts, err := consumer.NewMetrics(func(_ context.Context, metrics pmetric.Metrics) error {
		var b strings.Builder
		for _, r := range metrics.ResourceMetrics().All() {
			pod, _ := r.Resource().Attributes().Get("k8s.pod.name")
			for _, s := range r.ScopeMetrics().All() {
				for _, m := range s.Metrics().All() {
					fmt.Fprintf(&b, "%s %s %s %s\n", m.Name(), m.Type(), pod.Str(), value(m))
				}
			}
		}
		return os.WriteFile(file+".metrics", []byte(b.String()), 0o600)
	})
	if err != nil {
		return err
	}
	f := otlpreceiver.NewFactory()
	c := f.CreateDefaultConfig()
	if err := confmap.NewFromStringMap(map[string]any{"protocols": map[string]any{protocol: map[string]any{"endpoint": addr}}}).Unmarshal(c); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	r, err := f.CreateLogs(ctx, receivertest.NewNopSettings(f.Type()), c, next)
	if err != nil {
		return err
	}
	m, err := f.CreateMetrics(ctx, receivertest.NewNopSettings(f.Type()), c, counts) // the same one, for both
	if err != nil {
		return err
	}
	host := componenttest.NewNopHost()
	if err := errors.Join(r.Start(ctx, host), m.Start(ctx, host)); err != nil {
		return err
	}
	<-ctx.Done()
	return errors.Join(r.Shutdown(context.Background()), m.Shutdown(context.Background()))
}

// value is that of a metric's only point.
func value(m pmetric.Metric) string {
	switch m.Type() {
	case pmetric.MetricTypeSum:
		return fmt.Sprint(m.Sum().IsMonotonic(), m.Sum().DataPoints().At(0).DoubleValue())
	case pmetric.MetricTypeGauge:
		return fmt.Sprint(m.Gauge().DataPoints().At(0).DoubleValue())
	case pmetric.MetricTypeSummary:
		return fmt.Sprint(m.Summary().DataPoints().At(0).Sum(), m.Summary().DataPoints().At(0).Count())
	}
	return ""
}
