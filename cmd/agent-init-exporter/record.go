package main

import (
	"context"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/log"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/sdk/resource"

	"github.com/agent-init/agent-init/pkg/audit"
)

// records makes the SDK's records of events, and keeps them until they are sent.
type records struct {
	logger log.Logger
	made   []sdklog.Record
}

func newRecords(of map[string]string) *records {
	var attrs []attribute.KeyValue
	for k, v := range of {
		attrs = append(attrs, attribute.String(k, v))
	}
	r := &records{}
	p := sdklog.NewLoggerProvider(sdklog.WithResource(resource.NewSchemaless(attrs...)), sdklog.WithProcessor(r))
	r.logger = p.Logger("agent-init")
	return r
}

// OnEmit makes it, with the methods below, the processor that gets what the logger emits.
func (r *records) OnEmit(_ context.Context, record *sdklog.Record) error {
	r.made = append(r.made, record.Clone())
	return nil
}

// Enabled says that every event is wanted.
func (r *records) Enabled(context.Context, sdklog.EnabledParameters) bool { return true }

// Shutdown does nothing: who sends the records knows which are left.
func (r *records) Shutdown(context.Context) error { return nil }

// ForceFlush does nothing, either.
func (r *records) ForceFlush(context.Context) error { return nil }

// The classes of OCSF that events fit in; its numbers are stable.
var classes = map[audit.Kind]int64{
	audit.DNS: 4003, audit.Connect: 4001, audit.Drop: 4001, audit.HTTP: 4002, audit.Broker: 4002, audit.SelfTest: 2004, audit.Guard: 2004,
}

// OCSF's dispositions: what was done about it.
var dispositions = map[audit.Verdict]int64{audit.Allow: 1, audit.Deny: 2, audit.Info: 0, audit.Fault: 99}

var severities = map[audit.Verdict]log.Severity{
	audit.Allow: log.SeverityInfo, audit.Info: log.SeverityInfo, audit.Deny: log.SeverityWarn, audit.Fault: log.SeverityError,
}

// add makes a record of e. The names of its attributes are public: OpenTelemetry's where it has one, else OCSF's or ours.
func (r *records) add(e audit.Event) {
	var out log.Record
	out.SetTimestamp(e.Time)
	out.SetObservedTimestamp(e.Time)
	out.SetEventName("agent_init." + string(e.Kind))
	out.SetSeverity(severities[e.Verdict])
	out.SetSeverityText(string(e.Verdict))
	if e.Reason != "" {
		out.SetBody(attribute.StringValue(e.Reason))
	}
	attrs := []attribute.KeyValue{attribute.Int64("agent_init.seq", int64(e.Seq)), attribute.String("agent_init.verdict", string(e.Verdict)),
		attribute.Int64("ocsf.disposition_id", dispositions[e.Verdict])}
	if class := classes[e.Kind]; class > 0 {
		attrs = append(attrs, attribute.Int64("ocsf.class_uid", class))
	}
	name := "server.address"
	if e.Kind == audit.DNS {
		name = "dns.question.name"
	} else if e.Kind == audit.Grant {
		name = "agent_init.target"
	}
	for key, value := range map[string]string{
		name: e.Name, "network.peer.address": e.IP, "network.transport": e.Proto, "agent_init.enforce": string(e.Enforce), "agent_init.rule": e.Rule,
		"agent_init.by": string(e.Asker), "process.executable.name": e.Comm, "agent_init.route": e.Route, "http.request.method": e.Method,
		"url.path": e.Path, "gen_ai.request.model": e.Model, "agent_init.fingerprint": e.Key, "agent_init.prev": e.Prev,
	} {
		if value != "" {
			attrs = append(attrs, attribute.String(key, value))
		}
	}
	for key, value := range map[string]uint64{
		"network.peer.port": uint64(e.Port), "process.pid": uint64(max(0, e.PID)), "http.response.status_code": uint64(e.Status),
		"agent_init.bytes_out": e.Out, "agent_init.bytes_in": e.In, "gen_ai.usage.input_tokens": e.TokensIn, "gen_ai.usage.output_tokens": e.TokensOut,
		"agent_init.duration_ms": e.Millis, "agent_init.suppressed": e.Suppressed,
	} {
		if value != 0 {
			attrs = append(attrs, attribute.Int64(key, int64(value)))
		}
	}
	if e.UID != nil {
		attrs = append(attrs, attribute.Int64("user.id", int64(*e.UID)))
	}
	slices.SortFunc(attrs, func(a, b attribute.KeyValue) int {
		if a.Key < b.Key {
			return -1
		}
		return 1
	})
	out.AddAttributes(attrs...)
	r.logger.Emit(context.Background(), out)
}
