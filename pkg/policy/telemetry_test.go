package policy

import (
	"strings"
	"testing"
	"time"
)

// TestTelemetry: a collector is a host of its own, which the exporter alone reaches.
func TestTelemetry(t *testing.T) {
	for text, want := range map[string]string{
		"telemetry: {endpoint: 'https://otel.test:4318'}":                                                                   "",
		"telemetry: {endpoint: 'https://otel.test:4318/base/', protocol: http/protobuf}":                                    "",
		"telemetry: {endpoint: 'https://otel.test:4317', protocol: grpc}":                                                   "",
		"telemetry: {endpoint: 'http://otel:4318'}":                                                                         "",
		"telemetry: {endpoint: 'http://10.0.0.9:4318'}":                                                                     "",
		"telemetry: {endpoint: 'https://[2001:db9::1]:4318'}":                                                               "",
		"telemetry: {endpoint: 'http://otel.test:4318', private: true}":                                                     "",
		"telemetry: {endpoint: 'https://otel.test', headers: 'file:/run/secrets/otel'}":                                     "",
		"telemetry: {endpoint: none, headers: none, ca: system}":                                                            "",
		"telemetry: {environment: true}":                                                                                    "",
		"telemetry: {prometheus: ':9464'}":                                                                                  "",
		"telemetry: {prometheus: '10.0.0.7:9464', endpoint: 'https://otel.test:4318', metrics: none}":                       "",
		"telemetry: {prometheus: '[2001:db9::7]:9464', metrics: 10s}":                                                       "",
		"telemetry: {prometheus: '0.0.0.0:9464'}":                                                                           "",
		"telemetry: {prometheus: none}":                                                                                     "",
		"telemetry: {prometheus: '127.0.0.1:9464'}":                                                                         "for the agent as well",
		"telemetry: {prometheus: '[::1]:9464'}":                                                                             "for the agent as well",
		"telemetry: {prometheus: 'localhost:9464'}":                                                                         "is a port or an address",
		"telemetry: {prometheus: '9464'}":                                                                                   "is a port or an address",
		"telemetry: {prometheus: ':0'}":                                                                                     "is a port or an address",
		"telemetry: {prometheus: '224.0.0.1:9464'}":                                                                         "is a port or an address",
		"telemetry: {prometheus: '[::ffff:127.0.0.1]:9464'}":                                                                "for the agent as well",
		"telemetry: {prometheus: '[::ffff:10.0.0.7]:9464'}":                                                                 "is a port or an address",
		"telemetry: {prometheus: '[fe80::1%eth0]:9464'}":                                                                    "is a port or an address",
		"telemetry: {endpoint: 'https://otel.test:4318', metrics: 10ms}":                                                    "from 1s to 1h",
		"telemetry: {endpoint: 'https://otel.test:4318'}\ndomains: [other.test]":                                            "",
		"telemetry: {endpoint: 'https://otel.test:4318'}\ndomains: ['*.test', '!otel.test']":                                "",
		"telemetry: {endpoint: 'https://otel.corp.test'}\ndomains: ['*.corp.test']":                                         "is the collector of telemetry",
		"telemetry: {endpoint: 'https://otel.corp.test'}\ndomains: ['*.corp.test', '!otel.corp.test']":                      "",
		"telemetry: {endpoint: 'https://otel.corp.test:4318'}\ndomains: [otel.corp.test]":                                   "is the collector of telemetry",
		"telemetry: {endpoint: 'http://10.0.0.9:4318'}\nnetworks: ['10.0.0.0/8:4318']":                                      "is the collector of telemetry",
		"telemetry: {endpoint: 'http://10.0.0.9:4318'}\nnetworks: ['10.0.0.0/8:80']":                                        "",
		"telemetry: {endpoint: 'http://otel.test:4318'}":                                                                    "by https alone",
		"telemetry: {endpoint: 'http://45.0.0.9:4318'}":                                                                     "by https alone",
		"telemetry: {endpoint: 'https://otel.test/x', protocol: grpc}":                                                      "has no path",
		"telemetry: {endpoint: 'https://localhost:4318'}":                                                                   "on loopback",
		"telemetry: {endpoint: 'http://127.0.0.1:4318'}":                                                                    "on loopback",
		"telemetry: {endpoint: 'http://169.254.169.254'}":                                                                   "never reached",
		"telemetry: {endpoint: 'https://otel.test:53'}":                                                                     "port 53",
		"telemetry: {endpoint: 'https://*.test'}":                                                                           "goes to one host",
		"telemetry: {endpoint: 'https://a:geheim@otel.test'}":                                                               "no credential stands in the URL",
		"telemetry: {endpoint: 'https://otel.test?k=v'}":                                                                    "is the URL of a host",
		"telemetry: {endpoint: otel.test}":                                                                                  "is the URL of a host",
		"telemetry: {endpoint: 'https://otel.test', protocol: http/json}":                                                   "telemetry.protocol is http/protobuf or grpc",
		"telemetry: {endpoint: 'https://otel.test', headers: /run/secrets/otel}":                                            "is file:/PATH",
		"telemetry: {endpoint: 'https://otel.test', ca: 'file:ca.pem'}":                                                     "is file:/PATH",
		"telemetry: {endpoint: 'https://otel.test', timeout: 2m}":                                                           "from 1s to 1m0s",
		"telemetry: {endpoint: 'https://otel.test', resource: {'a b': c}}":                                                  "an attribute has a name",
		"telemetry: {endpoint: 'https://otel.test', resource: {a: \"b\\nc\"}}":                                              "is a line of at most",
		"telemetry: {headers: 'file:/run/secrets/otel'}":                                                                    "say where the collector is",
		"telemetry: {url: 'https://otel.test'}":                                                                             "unknown key",
		"telemetry: {endpoint: 'https://otel.test'}\nupstream_proxy: http://proxy.test:3128":                                "name the collector in upstream_proxy.straight",
		"telemetry: {endpoint: 'https://otel.test'}\nupstream_proxy: {to: 'http://proxy.test:3128', straight: [otel.test]}": "",
	} {
		p, err := Parse(&Bundle{Files: []File{{Name: "policy.yaml", Data: []byte(text + "\n")}}}, nil)
		switch {
		case want == "" && err != nil, want != "" && (err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "geheim")):
			t.Errorf("%s: %v, want %q", text, err, want)
		case want == "" && p.Settings.Telemetry.Endpoint == "" && p.Settings.Telemetry.Prometheus != "":
			if p.Exporter == nil || len(p.Exporter.rules) != 0 || p.Collector() != "" {
				t.Errorf("%s: an exporter that is only asked reaches nobody", text)
			}
		case want == "" && p.Settings.Telemetry.Endpoint != "":
			if p.Exporter == nil || p.Broker != nil && p.Settings.UpstreamProxy.Host == "" || len(p.Exporter.rules) != 1 || p.Lookup("otel.test").Allowed {
				t.Errorf("%s: the exporter alone is to reach the collector", text)
			}
			if name := p.Exporter.rules[0].Name; name != "" && !p.Exporter.Lookup(name).Allowed {
				t.Errorf("%s: the exporter does not reach %s", text, name)
			}
		case want == "" && p.Exporter != nil:
			t.Errorf("%s: there is no collector", text)
		}
	}
}

// TestTelemetryEnvironment: the standard variables say what files leave open, where the policy has them count.
func TestTelemetryEnvironment(t *testing.T) {
	parse := func(text string, environ map[string]string) (*Policy, error) {
		return Parse(&Bundle{Files: []File{{Name: "policy.yaml", Data: []byte("telemetry: {" + text + "}\n")}}, Environ: TelemetryEnviron(environ)}, nil)
	}
	environ := map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": "https://otel.test:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_TIMEOUT": "2500",
		"OTEL_EXPORTER_OTLP_HEADERS": "api-key=geheim", "OTEL_EXPORTER_OTLP_COMPRESSION": "none", "OTEL_EXPORTER_OTLP_CERTIFICATE": "/etc/otel/ca.pem",
		"OTEL_RESOURCE_ATTRIBUTES": "service.name=other,team=a%20b,k=env", "OTEL_SERVICE_NAME": "agents", "OTEL_LOG_LEVEL": "debug", "HOME": "/root",
	}
	if _, has := TelemetryEnviron(environ)["HOME"]; has || TelemetryEnviron(environ)[HeadersVariable] != "" {
		t.Error("a bundle has more than it needs")
	}
	p, err := parse("environment: true, resource: {k: file}", environ)
	if err != nil {
		t.Fatal(err)
	}
	got := p.Settings.Telemetry
	if got.Endpoint != "https://otel.test:4317" || got.Protocol != OTLPgRPC || time.Duration(got.Timeout) != 2500*time.Millisecond || got.Compression != "none" ||
		got.CA != "/etc/otel/ca.pem" || got.Service != "agents" || got.Resource["team"] != "a b" || got.Resource["k"] != "file" || p.Collector() != "otel.test:4317" {
		t.Errorf("%+v", got)
	}
	p, err = parse("environment: true, endpoint: 'https://own.test'", environ)
	if err != nil || p.Collector() != "own.test:443" {
		t.Errorf("%v, %v", p, err)
	}
	if p, err = parse("", environ); err != nil || p.Exporter != nil {
		t.Errorf("variables count unasked: %v, %v", p, err)
	}
	for name, value := range map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": "https://a:geheim@otel.test", "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": "https://logs.test", "OTEL_EXPORTER_OTLP_CLIENT_KEY": "/k",
		"OTEL_EXPORTER_OTLP_LOGS_HEADERS": "k=geheim", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json", "OTEL_EXPORTER_OTLP_TIMEOUT": "soon", "OTEL_RESOURCE_ATTRIBUTES": "a",
	} {
		if _, err := parse("environment: true", map[string]string{name: value}); err == nil || !strings.Contains(err.Error(), name) || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if p, err := parse("environment: true", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "otel:4317", "OTEL_EXPORTER_OTLP_INSECURE": "true", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}); err != nil || p.Settings.Telemetry.Endpoint != "http://otel:4317" {
		t.Errorf("%v", err)
	}
}

// TestTelemetryBelowCeiling: a collector that a ceiling does not admit is none.
func TestTelemetryBelowCeiling(t *testing.T) {
	const send = "telemetry: {endpoint: 'https://otel.example:4318', headers: 'file:/h'}\n"
	p := under(t, "a.example", send)
	if p.Exporter != nil || p.Settings.Telemetry.Endpoint != "" || !strings.Contains(warnings(p), `"telemetry.endpoint"`) {
		t.Errorf("above the ceiling: %s", warnings(p))
	}
	if p := under(t, "otel.example:4318", send); p.Exporter == nil {
		t.Errorf("below the ceiling: %s", warnings(p))
	}
	const asked = "telemetry: {prometheus: ':9464'}\n"
	if p := under(t, "inbound: [9464]\nentries: any\n", asked); p.Exporter == nil {
		t.Errorf("below the ceiling: %s", warnings(p))
	}
	if p := under(t, "a.example", asked); p.Exporter != nil || !strings.Contains(warnings(p), `"telemetry.prometheus"`) {
		t.Errorf("above the ceiling: %s", warnings(p))
	}
}
