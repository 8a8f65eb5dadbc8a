package policy

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Telemetry is where the audit log and the metrics are sent, by OpenTelemetry's protocol: without an Endpoint, nothing is.
// Prometheus has the metrics asked for instead, or as well.
type Telemetry struct {
	Endpoint    string            `json:"endpoint,omitempty"` // a URL: the signal's path is put behind it
	Protocol    string            `json:"protocol"`           // OTLPHTTP or OTLPgRPC
	Headers     string            `json:"headers,omitempty"`  // a file of root's, as OTEL_EXPORTER_OTLP_HEADERS has them
	CA          string            `json:"ca,omitempty"`       // a file of root's: who vouches for the collector; "": the system's
	Private     bool              `json:"private,omitempty"`  // the collector may be a machine of one's own network
	Timeout     ttl               `json:"timeout"`            // of one request
	Compression string            `json:"compression"`        // gzip or none
	Service     string            `json:"service"`            // service.name
	Resource    map[string]string `json:"resource,omitempty"` // further attributes of all that is sent
	Environment bool              `json:"environment"`        // what is not said here, the standard variables say
	Metrics     ttl               `json:"metrics"`            // how often they are sent; 0: never

	Prometheus string `json:"prometheus,omitempty"` // ADDRESS:PORT where they are asked for; "": nowhere

	rule *Rule // the collector, as what may be reached; nil: none
}

// The protocols, as OTEL_EXPORTER_OTLP_PROTOCOL has them.
const (
	OTLPHTTP = "http/protobuf"
	OTLPgRPC = "grpc"
)

// IsZero says whether nothing is said of it.
func (t Telemetry) IsZero() bool { return t.Endpoint == "" && !t.Environment && t.Prometheus == "" }

// ScrapedAt is where the metrics are asked for, with an address of each family: an unspecified one stands for all.
func (t Telemetry) ScrapedAt() []netip.AddrPort {
	at, err := netip.ParseAddrPort(t.Prometheus)
	if err == nil {
		return []netip.AddrPort{at}
	}
	if at, err = netip.ParseAddrPort("0.0.0.0" + t.Prometheus); err == nil {
		return []netip.AddrPort{at, netip.AddrPortFrom(netip.IPv6Unspecified(), at.Port())}
	}
	return nil
}

// HeadersVariable holds secrets: of it, a Bundle has the name alone.
const HeadersVariable = otlp + "HEADERS"

const otlp = "OTEL_EXPORTER_OTLP_"

// TelemetryVariable says whether a variable is agent-init's own where telemetry.environment is set: the agent has none.
func TelemetryVariable(name string) bool { return strings.HasPrefix(name, otlp) }

// TelemetryEnviron picks what of environ is for a Bundle: no secret is in it.
func TelemetryEnviron(environ map[string]string) map[string]string {
	var out map[string]string
	for name, value := range environ {
		if !TelemetryVariable(name) && name != "OTEL_SERVICE_NAME" && name != "OTEL_RESOURCE_ATTRIBUTES" {
			continue
		}
		if strings.HasSuffix(name, "_HEADERS") {
			value = ""
		}
		if out == nil {
			out = map[string]string{}
		}
		out[name] = value
	}
	return out
}

func (ps *parser) telemetryKeys() []key {
	t := &ps.settings.Telemetry
	return []key{
		{name: "endpoint", read: func(n node) {
			if text, ok := ps.value(n); ok && text != none {
				if problem := t.lead(text); problem != "" {
					ps.errs.add(Error{Source: n.at(), Text: n.name, Message: problem}) // the text may have a password in it
				}
			}
		}},
		{name: "protocol", read: setting(ps, &t.Protocol, oneOf(OTLPHTTP, OTLPgRPC))},
		{name: "headers", read: setting(ps, &t.Headers, rootsFile)},
		{name: "ca", read: setting(ps, &t.CA, func(key, text string) (string, string) {
			if text == "system" {
				return "", ""
			}
			return rootsFile(key, text)
		})},
		{name: "private", read: setting(ps, &t.Private, boolean)},
		{name: "timeout", read: setting(ps, &t.Timeout, span(time.Second, time.Minute))},
		{name: "compression", read: setting(ps, &t.Compression, oneOf("gzip", "none"))},
		{name: "service", read: setting(ps, &t.Service, attributeValue)},
		{name: "resource", read: func(n node) {
			ps.mapping(n, nil, func(name string, n node) {
				text, ok := ps.value(n)
				if !ok {
					return
				}
				_, problem := attributeValue(n.name, text)
				if problem == "" {
					problem = attributeName(name)
				}
				if problem != "" {
					ps.wrong(n, problem)
					return
				}
				t.put(name, text)
			})
		}},
		{name: "environment", read: setting(ps, &t.Environment, boolean)},
		{name: "metrics", read: setting(ps, &t.Metrics, func(key, text string) (ttl, string) {
			if text == none {
				return 0, ""
			}
			return span(time.Second, time.Hour)(key, text)
		})},
		{name: "prometheus", read: setting(ps, &t.Prometheus, scraped)},
	}
}

func (t *Telemetry) put(name, value string) {
	if t.Resource == nil {
		t.Resource = map[string]string{}
	}
	t.Resource[name] = value
}

func rootsFile(key, text string) (string, string) {
	if text == none {
		return "", ""
	}
	path, isFile := strings.CutPrefix(text, "file:")
	if !isFile || !filepath.IsAbs(path) || filepath.Clean(path) != path {
		return "", key + " is file:/PATH"
	}
	return path, ""
}

// scraped reads where the metrics are asked for.
func scraped(key, text string) (string, string) {
	if text == none {
		return "", ""
	}
	all := Telemetry{Prometheus: text}.ScrapedAt()
	for _, at := range all {
		switch a := at.Addr(); {
		case a.IsLoopback():
			return "", "metrics on loopback are for the agent as well: root has agent-init metrics and metrics.sock there"
		case at.Port() == 0 || a.Zone() != "" || a.Is4In6() || !a.IsUnspecified() && !a.IsGlobalUnicast():
			all = nil
		}
	}
	if len(all) == 0 {
		return "", key + " is a port or an address of the container with a port, as in :9464 or 10.0.0.7:9464"
	}
	return text, ""
}

const maxAttribute = 256

func attributeName(name string) string {
	if !only(name, lower+upper+"0123456789._-") || len(name) > maxAttribute {
		return "an attribute has a name of letters, digits, dots, lines and underscores"
	}
	return ""
}

func attributeValue(key, text string) (string, string) {
	if text == "" || len(text) > maxAttribute || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return "", fmt.Sprintf("%s is a line of at most %d bytes", key, maxAttribute)
	}
	return text, ""
}

// lead takes in where the collector is, or says why it can't be there.
func (t *Telemetry) lead(text string) (problem string) {
	const form = "a collector is the URL of a host, as in https://otel.example.com:4318"
	u, err := url.Parse(text)
	switch {
	case err == nil && u.User != nil:
		return "no credential stands in the URL of a collector, which anybody can read: write headers: file:/PATH"
	case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.RawQuery != "" || u.Fragment != "" || u.Opaque != "":
		return form
	}
	r := Rule{}
	host := u.Host
	if u.Port() == "" {
		host = strings.TrimSuffix(host, ":") + ":" + map[string]string{"https": "443", "http": "80"}[u.Scheme]
	}
	if f := parseTarget(strings.ToLower(host), &r); f != nil {
		return form
	}
	if problem := reachable(&r); problem != "" {
		if r.Name == "localhost" || strings.HasSuffix(r.Name, ".localhost") || r.Name == "" && Classify(r.Prefix.Addr()) == Loopback {
			return "a collector on loopback is one that the agent reaches as well: name one that is elsewhere"
		}
		return strings.NewReplacer("a route leads", "telemetry goes", "no route leads", "no telemetry goes").Replace(problem)
	}
	t.Endpoint, t.rule = strings.TrimSuffix(text, "/"), &r
	return ""
}

// takeTelemetry completes what files say of telemetry by the variables of the container.
func (ps *parser) takeTelemetry(environ map[string]string) {
	t := &ps.settings.Telemetry
	if !t.Environment {
		ps.checkTelemetry()
		return
	}
	insecure := environ[otlp+"INSECURE"] == "true"
	for _, name := range slices.Sorted(maps.Keys(environ)) {
		value, of := environ[name], ""
		if value == "" && !strings.HasSuffix(name, "_HEADERS") { // the standard has it so
			continue
		}
		var read func() string
		take := func(key string, do func() string) { of, read = "telemetry."+key, do }
		switch short := strings.TrimPrefix(name, otlp); {
		case name == "OTEL_SERVICE_NAME":
			take("service", func() (problem string) { return taken(&t.Service, name, value, attributeValue) })
		case name == "OTEL_RESOURCE_ATTRIBUTES":
			read = func() string { return t.attributes(ps, value) }
		case short == "ENDPOINT":
			take("endpoint", func() string {
				if !strings.Contains(value, "://") { // as the protocol over gRPC may have it
					value = map[bool]string{true: "http://", false: "https://"}[insecure] + value
				}
				return t.lead(value)
			})
		case short == "PROTOCOL":
			take("protocol", func() string { return taken(&t.Protocol, name, value, oneOf(OTLPHTTP, OTLPgRPC)) })
		case short == "TIMEOUT":
			take("timeout", func() string {
				if _, err := strconv.Atoi(value); err == nil {
					value += "ms"
				}
				return taken(&t.Timeout, name, value, span(time.Second, time.Minute))
			})
		case short == "COMPRESSION":
			take("compression", func() string { return taken(&t.Compression, name, value, oneOf("gzip", "none")) })
		case short == "CERTIFICATE":
			take("ca", func() string { return taken(&t.CA, name, "file:"+value, rootsFile) })
		case short == "HEADERS" || short == "INSECURE":
			continue
		default:
			read = func() string {
				return "agent-init knows no such variable: it sends all to one collector, see docs/telemetry.md"
			}
		}
		if _, said := ps.set[of]; said {
			continue
		}
		src := Source{File: name}
		if problem := read(); problem != "" {
			ps.errs.add(Error{Source: src, Text: name, Message: problem})
		} else if of != "" {
			ps.set[of] = src
		}
	}
}

// checkTelemetry says that there is no collector.
func (ps *parser) checkTelemetry() {
	t := &ps.settings.Telemetry
	if ps.errs.list != nil || t.rule != nil || t.Headers == "" && t.CA == "" && !t.Private && t.Resource == nil {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(ps.set)) {
		if strings.HasPrefix(key, "telemetry.") {
			ps.errs.add(Error{Source: ps.set[key], Text: key, Message: "say where the collector is, as in endpoint: https://otel.example.com:4318"})
			return
		}
	}
}

func taken[T any](to *T, key, text string, parse func(key, text string) (T, string)) (problem string) {
	v, problem := parse(key, text)
	if problem == "" {
		*to = v
	}
	return problem
}

// attributes reads OTEL_RESOURCE_ATTRIBUTES: name=value,name=value, with percent escapes in the values. What files say
// counts more.
func (t *Telemetry) attributes(ps *parser, list string) (problem string) {
	for pair := range strings.SplitSeq(list, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		name = strings.TrimSpace(name)
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if _, problem := attributeValue(name, value); !ok || err != nil || problem != "" || attributeName(name) != "" {
			return "attributes are name=value,name=value, with percent escapes in the values"
		}
		_, said := ps.set["telemetry.resource."+name]
		_, service := ps.set["telemetry.service"]
		switch {
		case said:
		case name != "service.name":
			t.put(name, value)
		case !service:
			t.Service = value // OTEL_SERVICE_NAME, which is read later, counts more
		}
	}
	return ""
}

// exports makes the exporter's own policy: the collector, and nothing else. One that is only asked reaches nobody.
func (p *Policy) exports(ps *parser) {
	t := &p.Settings.Telemetry
	at := ps.set["telemetry.endpoint"]
	wrong := func(message string) {
		ps.errs.add(Error{Source: at, Text: "telemetry.endpoint", Message: message})
	}
	if t.rule == nil && t.Prometheus == "" {
		return
	}
	p.Exporter = &Policy{Settings: p.Settings, Resolv: p.Resolv, hosts: p.hosts, bound: p}
	defer p.Exporter.index()
	if t.rule == nil {
		return
	}
	r := *t.rule
	r.Source, r.Text, r.routes = at, "telemetry", true
	r.Private = t.Private && r.Name != ""
	x := &p.Settings.UpstreamProxy
	ours := r.Private || r.Name != "" && !strings.Contains(r.Name, ".") || r.Name == "" && Classify(r.Prefix.Addr()) == Private
	switch {
	case strings.HasPrefix(t.Endpoint, "http:") && !ours:
		wrong("over the internet the log goes by https alone: write private: true if the collector is in a network of your own")
	case t.Protocol == OTLPgRPC && strings.Count(t.Endpoint, "/") > 2:
		wrong("over grpc a collector has no path")
	case x.Host != "" && (r.Name != "" && !x.Passes(r.Name, false, r.Ports[0].Number) || r.Name == "" && !x.PassesBlock(r.Prefix, r.Ports[0].Number)):
		wrong("telemetry can't go by upstream_proxy: name the collector in upstream_proxy.straight")
	}
	for _, by := range p.besides(&r) {
		ps.errs.add(Error{Source: by.Source, Text: by.Text, Message: r.Target() + " is the collector of telemetry, and the agent never reaches it: take this entry out, or deny it (!" + r.Target() + ")"})
	}
	p.Exporter.rules = []*Rule{&r}
}

// Collector is where telemetry goes, for words; "" without.
func (p *Policy) Collector() string {
	host, port := p.CollectorHost()
	if host == "" {
		return ""
	}
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// CollectorHost is its name or address, and its port; "" without.
func (p *Policy) CollectorHost() (host string, port uint16) {
	if p.Exporter == nil || len(p.Exporter.rules) == 0 {
		return "", 0
	}
	r := p.Exporter.rules[0]
	return r.Target(), r.Ports[0].Number
}
