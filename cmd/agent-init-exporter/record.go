package main

import (
	"context"
	"strconv"
	"strings"
	"unicode"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/log"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	"go.opentelemetry.io/otel/sdk/resource"

	"github.com/agent-init/agent-init/pkg/audit"
)

// records makes the SDK's records of events.
type records struct {
	logger log.Logger
	made   []sdklog.Record
}

func newRecords(of map[string]string) *records {
	r := &records{}
	p := sdklog.NewLoggerProvider(sdklog.WithResource(resourceOf(of)), sdklog.WithProcessor(r), sdklog.WithAttributeCountLimit(-1))
	r.logger = p.Logger("agent-init")
	return r
}

// resourceOf is what all that is sent has.
func resourceOf(of map[string]string) *resource.Resource {
	var attrs []attribute.KeyValue
	for k, v := range of {
		attrs = append(attrs, attribute.String(k, v))
	}
	return resource.NewSchemaless(attrs...)
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

// of are the records of a batch, which are valid until the next.
func (r *records) of(batch []item) []sdklog.Record {
	r.made = r.made[:0]
	for i := range batch {
		r.add(&batch[i].Event)
	}
	return r.made
}

// The classes of OCSF (https://schema.ocsf.io) that events fit in; its numbers are stable.
var classes = map[audit.Kind]int64{
	audit.DNS: 4003, audit.Connect: 4001, audit.Drop: 4001, audit.HTTP: 4002, audit.Broker: 4002, // of network activity
	audit.SelfTest: 2003,                                                             // a compliance finding
	audit.Guard:    6002, audit.Policy: 6002, audit.Session: 6002, audit.Phase: 6002, // application lifecycle
}

// OCSF's dispositions, of what was decided.
var dispositions = map[audit.Verdict]int64{audit.Allow: 1, audit.Deny: 2}

var severities = map[audit.Verdict]log.Severity{
	audit.Allow: log.SeverityInfo, audit.Info: log.SeverityInfo, audit.Deny: log.SeverityWarn, audit.Fault: log.SeverityError,
}

// attr is an attribute of a record: the name is public, docs/telemetry.md has them all. OCSF's names stand where it has
// one, and OpenTelemetry's for what models are asked.
type attr struct {
	of    string // the field of audit.Event
	name  func(*audit.Event) string
	value func(*audit.Event) attribute.Value // the empty one: there is none
}

var attrs = []attr{
	{"Seq", named("metadata.sequence"), func(e *audit.Event) attribute.Value { return attribute.Int64Value(int64(e.Seq)) }},
	{"Kind", named("class_uid"), func(e *audit.Event) attribute.Value { return number(uint64(classes[e.Kind])) }},
	{"Verdict", named("agent_init.verdict"), func(e *audit.Event) attribute.Value { return words(string(e.Verdict)) }},
	{"Verdict", named("disposition_id"), func(e *audit.Event) attribute.Value { return number(uint64(dispositions[e.Verdict])) }},
	{"Enforce", named("agent_init.enforce"), func(e *audit.Event) attribute.Value { return words(string(e.Enforce)) }},
	{"Name", nameOf, func(e *audit.Event) attribute.Value { return words(e.Name) }},
	{"IP", addrOf, func(e *audit.Event) attribute.Value { return words(e.IP) }},
	{"Port", named("dst_endpoint.port"), func(e *audit.Event) attribute.Value { return number(uint64(e.Port)) }},
	{"Proto", named("connection_info.protocol_name"), func(e *audit.Event) attribute.Value { return words(e.Proto) }},
	{"Rule", named("firewall_rule.name"), func(e *audit.Event) attribute.Value { return words(e.Rule) }},
	{"Asker", named("agent_init.by"), func(e *audit.Event) attribute.Value { return words(string(e.Asker)) }},
	{"UID", named("actor.user.uid"), func(e *audit.Event) attribute.Value {
		if e.UID == nil {
			return attribute.Value{}
		}
		return words(strconv.FormatUint(uint64(*e.UID), 10))
	}},
	{"PID", named("actor.process.pid"), func(e *audit.Event) attribute.Value { return number(uint64(max(0, e.PID))) }},
	{"Comm", named("actor.process.name"), func(e *audit.Event) attribute.Value { return words(e.Comm) }},
	{"Route", named("agent_init.route"), func(e *audit.Event) attribute.Value { return words(e.Route) }},
	{"Method", named("http_request.http_method"), func(e *audit.Event) attribute.Value { return words(e.Method) }},
	{"Path", named("http_request.url.path"), func(e *audit.Event) attribute.Value { return words(e.Path) }},
	{"Model", named("gen_ai.request.model"), func(e *audit.Event) attribute.Value { return words(e.Model) }},
	{"Status", named("http_response.code"), func(e *audit.Event) attribute.Value { return number(uint64(e.Status)) }},
	{"Out", named("traffic.bytes_out"), func(e *audit.Event) attribute.Value { return number(e.Out) }},
	{"In", named("traffic.bytes_in"), func(e *audit.Event) attribute.Value { return number(e.In) }},
	{"TokensIn", named("gen_ai.usage.input_tokens"), func(e *audit.Event) attribute.Value { return number(e.TokensIn) }},
	{"TokensOut", named("gen_ai.usage.output_tokens"), func(e *audit.Event) attribute.Value { return number(e.TokensOut) }},
	{"Millis", named("duration"), func(e *audit.Event) attribute.Value { return number(e.Millis) }},
	{"Key", named("agent_init.fingerprint"), func(e *audit.Event) attribute.Value { return words(e.Key) }},
	{"Suppressed", named("count"), func(e *audit.Event) attribute.Value { return attribute.Int64Value(int64(1 + e.Suppressed)) }},
	{"Prev", named("agent_init.prev"), func(e *audit.Event) attribute.Value { return words(e.Prev) }},
}

func named(name string) func(*audit.Event) string { return func(*audit.Event) string { return name } }

func nameOf(e *audit.Event) string {
	switch e.Kind {
	case audit.DNS:
		return "query.hostname"
	case audit.Grant:
		return "agent_init.target"
	}
	return "dst_endpoint.hostname"
}

func addrOf(e *audit.Event) string {
	if e.Asker == audit.ByOutside {
		return "src_endpoint.ip"
	}
	return "dst_endpoint.ip"
}

// words are s without what would be a line or a colour of its own where somebody shows it: the agent chooses some of it.
func words(s string) attribute.Value {
	if s == "" {
		return attribute.Value{}
	}
	return attribute.StringValue(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?")))
}

func number(n uint64) attribute.Value {
	if n == 0 {
		return attribute.Value{}
	}
	return attribute.Int64Value(int64(min(n, 1<<63-1)))
}

// add makes a record of e.
func (r *records) add(e *audit.Event) {
	var out log.Record
	out.SetTimestamp(e.Time)
	out.SetObservedTimestamp(e.Time)
	out.SetEventName("agent_init." + string(e.Kind))
	out.SetSeverity(severities[e.Verdict])
	out.SetSeverityText(string(e.Verdict))
	if e.Reason != "" {
		out.SetBody(words(e.Reason))
	}
	with := make([]attribute.KeyValue, 0, len(attrs))
	for _, a := range attrs {
		if v := a.value(e); v.Type() != attribute.EMPTY {
			with = append(with, attribute.KeyValue{Key: attribute.Key(a.name(e)), Value: v})
		}
	}
	out.AddAttributes(with...)
	r.logger.Emit(context.Background(), out)
}
