package policy

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/pkg/route"
)

func TestBuiltInRoute(t *testing.T) {
	p := parse(t, "p.yaml", "broker: {anthropic: }\n")
	want, _ := route.Builtin("anthropic")
	if len(p.Settings.Broker) != 1 || p.Settings.Broker[0].To != want.To || !slices.Equal(p.Settings.Broker[0].Credential, want.Credential) {
		t.Errorf("%+v", p.Settings.Broker)
	}
	if p.Broker == nil || !p.Broker.Decide("api.anthropic.com", HTTPS).Allowed || p.Broker.Decide("api.anthropic.com", HTTP).Allowed {
		t.Errorf("the broker's own policy: %+v", p.Broker)
	}
	if p.Decide("api.anthropic.com", HTTPS).Allowed {
		t.Error("the agent reaches the host of a route")
	}
}

func TestWithoutRoutes(t *testing.T) {
	for _, data := range []string{"", "broker:\n", "broker: {}\n"} {
		if p := parse(t, "p.yaml", data); p.Broker != nil || p.Settings.Broker != nil || p.AbsentRoutes != nil {
			t.Errorf("%q: %+v, %+v", data, p.Broker, p.Settings.Broker)
		}
	}
}

func TestAbsentRoute(t *testing.T) {
	b := &Bundle{Files: []File{
		{Name: "p.yaml", Data: []byte("broker: {openai: {optional: true}, anthropic: {optional: true}, gemini: }\n")},
		{Name: "a.txt", Data: []byte("api.anthropic.com unbrokered\napi.openai.com unbrokered\n")},
	}, Absent: []string{"anthropic", "gemini"}}
	p, err := Parse(b, nil)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range p.Settings.Broker {
		names = append(names, r.Name)
	}
	if !slices.Equal(names, []string{"openai", "gemini"}) || !slices.Equal(p.AbsentRoutes, []string{"anthropic"}) {
		t.Errorf("routes %q, absent %q: only an optional one can be", names, p.AbsentRoutes)
	}
	if !p.Decide("api.anthropic.com", HTTPS).Allowed || p.Decide("api.openai.com", HTTPS).Allowed {
		t.Error("an unbrokered entry counts while there is a route, or doesn't while there is none")
	}
	if p.Broker.Decide("api.anthropic.com", HTTPS).Allowed || !p.Broker.Decide("api.openai.com", HTTPS).Allowed {
		t.Error("the broker reaches the host of an absent route, or not that of a present one")
	}
}

// What a line of a route comes to.
func TestRouteWords(t *testing.T) {
	for _, tt := range []struct {
		text string
		is   func(route.Route) bool
	}{
		{`anthropic: {to: 'https://Gateway.Corp.Example:8443/claude/v1'}`, func(r route.Route) bool {
			return r.To == "https://gateway.corp.example:8443/claude/" && r.Inject.Header == "x-api-key"
		}},
		{`anthropic: {to: 'https://gateway.corp.example:443'}`, func(r route.Route) bool { return r.To == "https://gateway.corp.example/" }},
		{`gemini: {to: 'https://gateway.corp.example/v1beta/'}`, func(r route.Route) bool { return r.To == "https://gateway.corp.example/" }},
		{`openai: {to: 'https://gateway.corp.example/v2'}`, func(r route.Route) bool { return r.To == "https://gateway.corp.example/v2/" }},
		{`openai: {to: 'http://10.0.0.1:80', plaintext: true}`, func(r route.Route) bool { return r.To == "http://10.0.0.1/" && r.Plaintext }},
		{`openai: {to: 'http://[fd00::1]:8000/', credential: none}`, func(r route.Route) bool {
			return r.To == "http://[fd00::1]:8000/" && r.Keyless && r.Credential == nil && r.Inject.Header == ""
		}},
		{`anthropic: {credential: [file:/run/secrets/key, 'env:KEY']}`, func(r route.Route) bool {
			return slices.Equal(r.Credential, []route.Source{{File: "/run/secrets/key"}, {Env: "KEY"}}) && len(r.Inject.ByPrefix) > 0
		}},
		{`anthropic: {credential: env:KEY, inject: {header: Authorization, value: "Bearer {}"}}`, func(r route.Route) bool {
			return r.Inject.Header == "authorization" && r.Inject.Value == "Bearer {}" && r.Inject.ByPrefix == nil
		}},
		{`anthropic: {tenant: org-1}`, func(r route.Route) bool {
			return slices.Equal(r.Add, []route.Header{{Name: "anthropic-allowed-org-ids", Value: "org-1"}})
		}},
		{`openai: {tenant: [org-a, org-b]}`, func(r route.Route) bool {
			return slices.Equal(r.Add, []route.Header{{Name: "openai-allowed-organization-ids", Value: "org-a,org-b"}})
		}},
		{`openai: {provider_tools: [web_search], models: ["gpt-5*", anthropic/claude], fields: [x_y], optional: true, private: true}`, func(r route.Route) bool {
			return slices.Equal(r.ProviderTools, []string{"web_search"}) && slices.Equal(r.Models, []string{"gpt-5*", "anthropic/claude"}) &&
				slices.Contains(r.Fields, "x_y") && r.Optional && r.Private
		}},
		{`openai: {limits: {requests_per_minute: 120, tokens_per_day: 5000000}}`, func(r route.Route) bool {
			return r.Limits == route.Limits{RequestsPerMinute: 120, TokensPerDay: 5_000_000}
		}},
		{`vllm-1: {to: 'http://10.0.0.1:8000/v1', api: openai, credential: none}`, func(r route.Route) bool {
			openai, _ := route.Builtin("openai")
			return r.To == "http://10.0.0.1:8000/" && r.Shape == openai.Shape && len(r.Endpoints) == len(openai.Endpoints) && r.TenantHeader == ""
		}},
		{`openrouter: {to: 'https://gateway.corp.example/or/api/v1'}`, func(r route.Route) bool { return r.To == "https://gateway.corp.example/or/" }},
		{`azure-openai: {resource: my-corp}`, func(r route.Route) bool { return r.To == "https://my-corp.openai.azure.com/" }},
		{`azure-openai: {to: 'https://my-corp.services.ai.azure.com/openai/v1/'}`, func(r route.Route) bool {
			return r.To == "https://my-corp.services.ai.azure.com/"
		}},
		{`bedrock: {region: eu-central-1}`, func(r route.Route) bool { return r.To == "https://bedrock-runtime.eu-central-1.amazonaws.com/" }},
		{`ollama: {to: 'http://host.docker.internal:11434/v1', private: true}`, func(r route.Route) bool {
			return r.To == "http://host.docker.internal:11434/" && r.Keyless && r.Inject.Header == ""
		}},
		{`vllm: {to: 'https://llm.corp.example/', credential: env:K}`, func(r route.Route) bool {
			return !r.Keyless && r.Inject.Value == "Bearer {}" && r.Endpoints[0].Path == "/v1/chat/completions"
		}},
		{`tickets: {to: 'https://t.example/api', credential: 'env:T', inject: {basic: {user: me}}, allow: [GET /v2/**, POST /v2/search]}`, func(r route.Route) bool {
			return r.To == "https://t.example/api/" && r.Inject.Basic == "me" && r.Endpoints[0].Path == "/v2/**" && r.Endpoints[0].Body == route.Empty &&
				r.Endpoints[1].Method == "POST" && r.Endpoints[1].Body == route.Opaque
		}},
		{`tickets: {to: 'https://t.example/', credential: none, allow: [GET /], headers: [X-My-*], env: {TICKETS: '{base}/v2', KEY: '{token}'}}`, func(r route.Route) bool {
			return slices.Contains(r.Headers, "x-my-*") && slices.Contains(r.Headers, "if-*") && maps.Equal(r.Env, map[string]string{"TICKETS": "{base}/v2", "KEY": "{token}"})
		}},
		{`tickets: {to: 'https://t.example/', credential: none, allow: [GET /], query: [Page, 'sort_*', '*']}`, func(r route.Route) bool {
			return slices.Equal(r.Query, []string{"page", "sort_*", "*"}) && slices.Equal(r.Endpoints[0].Query, []string{"*"})
		}},
		{`openrouter: {provider_tools: ['openrouter:web_search']}`, func(r route.Route) bool { return r.ProviderTools[0] == "openrouter:web_search" }},
		{`tickets: {to: 'https://t.example/', credential: 'env:T', inject: {query: key}, allow: [GET /]}`, func(r route.Route) bool {
			return r.Inject.Query == "key" && r.Inject.Value == ""
		}},
		{`tickets: {to: 'https://t.example/', credential: 'env:T', inject: {header: X-Key}, allow: [GET /]}`, func(r route.Route) bool {
			return r.Inject.Header == "x-key" && r.Inject.Value == "{}"
		}},
	} {
		p := parse(t, "p.yaml", "broker:\n  "+tt.text+"\n")
		if routes := p.Settings.Broker; len(routes) != 1 || !tt.is(routes[0]) {
			t.Errorf("%s: %+v", tt.text, routes)
		}
	}
}

// The broker's own policy has the hosts of its routes, each on its port alone.
func TestBrokersOwnPolicy(t *testing.T) {
	p, err := Parse(&Bundle{Hosts: []byte("192.168.65.254 models.corp.example\n"), Files: []File{{Name: "p.yaml", Data: []byte(`
broker:
  openai: {credential: env:A}
  internal: {api: openai, to: "https://llm.corp.example:8443/", private: true, credential: none}
  plain: {api: openai, to: "http://10.0.0.1:8000/", credential: none}
  host: {api: openai, to: "https://models.corp.example/", credential: none}
deny: [api.openai.com, 10.0.0.1]
`)}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var rules []string
	for r := range p.Broker.Rules() {
		rules = append(rules, r.String())
	}
	want := []string{"api.openai.com:443", "llm.corp.example:8443 private", "10.0.0.1:8000", "models.corp.example:443"}
	if !slices.Equal(rules, want) {
		t.Errorf("rules %q, want %q", rules, want)
	}
	if got := p.Broker.Admit("models.corp.example", netip.MustParseAddr("192.168.65.254")); len(got) != 1 {
		t.Errorf("the hosts file does not count: %v", got)
	}
	if got := p.Broker.Admit("api.openai.com", netip.MustParseAddr("10.0.0.9")); got != nil {
		t.Errorf("a route to a public server leads to a private address: %v", got)
	}
}

func TestRoutesOfSeveralFiles(t *testing.T) {
	files := func(second string) *Bundle {
		return &Bundle{Files: []File{
			{Name: "a.yaml", Data: []byte("broker:\n  openai: {credential: env:A}\n")},
			{Name: "b.yaml", Data: []byte(second)},
		}}
	}
	_, err := Parse(files("broker:\n  anthropic: {}\n  openai: {credential: 5, to: x}\n"), nil)
	if want := `b.yaml:3:3: already set in a.yaml:2: "broker.openai"`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	p, err := Parse(files("broker:\n  mine: {to: 'https://m.example/', api: openai, credential: env:B}\n"), nil)
	if err != nil || len(p.Settings.Broker) != 2 || p.Settings.Broker[1].Name != "mine" {
		t.Fatalf("%+v, %v", p, err)
	}
	if first, second := p.Settings.Broker[0].Env, p.Settings.Broker[1].Env; first["OPENAI_BASE_URL"] == "" || len(second) != 0 {
		t.Errorf("two routes set one variable: %v, %v", first, second)
	}
	p, err = Parse(files("broker:\n  mine: {to: 'https://m.example/', api: openai, credential: env:B, env: {OPENAI_BASE_URL: '{base}/v1'}}\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if first, second := p.Settings.Broker[0].Env, p.Settings.Broker[1].Env; first["OPENAI_BASE_URL"] != "" || first["OPENAI_API_KEY"] == "" || len(second) != 1 {
		t.Errorf("what is named for a route is another's: %v, %v", first, second)
	}
}

// What makes an entry for the host of a route harmless, and what does not.
func TestEntriesBesideARoute(t *testing.T) {
	const (
		anthropic = "anthropic: {}"
		named     = "mine: {to: 'http://llm:8000/', api: openai, credential: none, private: true}"
		address   = "mine: {to: 'http://10.0.0.1:8000/', api: openai, credential: none}"
		optional  = "anthropic: {optional: true}"
	)
	for _, tt := range []struct {
		route, list string
		ok          bool
	}{
		{anthropic, "api.anthropic.com", false},
		{anthropic, "api.anthropic.com:22", false}, // a provider may serve its API there
		{anthropic, "api.anthropic.com:443/udp", false},
		{anthropic, "*.anthropic.com", false},
		{anthropic, "@claude", false},
		{anthropic, "api.anthropic.com\n!api.anthropic.com", true},
		{anthropic, "*.anthropic.com\n!api.anthropic.com", true},
		{anthropic, "*.anthropic.com\n!api.anthropic.com:443", false},
		{anthropic, "@claude\n!api.anthropic.com", true},
		{anthropic, "!api.anthropic.com", true},
		{anthropic, "api.anthropic.com unbrokered", true},
		{anthropic, "api.anthropic.com required unbrokered\n*.anthropic.com unbrokered", true},
		{anthropic, "api.anthropic.com unbrokered\napi.anthropic.com", false},
		{anthropic, "console.anthropic.com", true},
		{anthropic, "192.0.2.0/24", true},
		{optional, "api.anthropic.com", true},
		{named, "llm:8000", false},
		{named, "llm:8000/udp", false},
		{named, "llm", true}, // other ports of one's own server are other servers
		{named, "llm:5432", true},
		{address, "10.0.0.0/24:8000", false},
		{address, "10.0.0.1", true},
		{address, "10.0.0.1:8000 unbrokered", true},
		{address, "10.0.0.0/24:8000\n!10.0.0.1:8000", true},
	} {
		_, err := Parse(&Bundle{Absent: []string{"anthropic"}, Files: []File{
			{Name: "p.yaml", Data: []byte("broker: {" + tt.route + "}\n")}, {Name: "a.txt", Data: []byte(tt.list)},
		}}, fsys("claude.txt", "api.anthropic.com\nplatform.claude.com\n"))
		if (err == nil) != tt.ok {
			t.Errorf("%s beside %q: %v", tt.route, tt.list, err)
		}
	}
}

// What is published of routes comes back as it was, and decides as it did.
func TestRebuildRoutes(t *testing.T) {
	b := &Bundle{Absent: []string{"gemini"}, Files: []File{
		{Name: "p.yaml", Data: []byte(`
broker:
  anthropic: {tenant: org-1, limits: {requests_per_minute: 5}}
  gemini: {optional: true}
  llm: {api: openai, to: "http://llm:8000/v1", private: true, credential: none}
  tickets: {to: "https://[2001:db8::1]/api", credential: env:T, inject: {query: key}, allow: [GET /**]}
`)},
		{Name: "a.txt", Data: []byte("api.anthropic.com unbrokered\ngenerativelanguage.googleapis.com unbrokered\nllm:5432\n")},
	}}
	p, err := Parse(b, nil)
	if err != nil {
		t.Fatal(err)
	}
	var rules []Entry
	for r := range p.Rules() {
		rules = append(rules, r.Entry())
	}
	data, err := json.Marshal(p.RouteEntries())
	var routes []RouteEntry
	if err == nil {
		err = json.Unmarshal(data, &routes)
	}
	if err != nil {
		t.Fatal(err)
	}
	again, err := Rebuild(rules, nil, Resolv{}, routes, route.Proxy{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(again.Settings.Broker, p.Settings.Broker) || !reflect.DeepEqual(again.RouteEntries(), p.RouteEntries()) || !slices.Equal(again.AbsentRoutes, p.AbsentRoutes) {
		t.Errorf("got\n%+v\nwant\n%+v", again.RouteEntries(), p.RouteEntries())
	}
	for target, want := range map[string]string{
		"api.anthropic.com:443":                 reasonBrokered,
		"api.anthropic.com:80":                  reasonBrokered,
		"api.anthropic.com:22":                  reasonBrokered,
		"generativelanguage.googleapis.com:443": reasonAllowed,
		"llm:8000":                              reasonBrokered,
		"llm:5432":                              reasonAllowed,
		"llm:22":                                reasonPort,
		"[2001:db8::1]:443":                     reasonBrokered,
		"[2001:db8::1]:80":                      reasonUnlisted,
		"other.example:443":                     reasonUnlisted,
	} {
		var r Rule
		if f := parseTarget(target, &r); f != nil {
			t.Fatal(f)
		}
		for _, q := range []*Policy{p, again} {
			got, line := q.Decide(r.Name, r.Ports[0]), q.LineFor(r.Name, netip.Addr{}, r.Ports[0])
			if r.Name == "" {
				got, line = q.DecideAddr(r.Prefix.Addr(), r.Ports[0]), q.LineForAddr(r.Prefix.Addr(), r.Ports[0])
			}
			if got.Reason != want || (line != "") != (want == reasonPort || want == reasonUnlisted) {
				t.Errorf("%s: %+v, to be allowed by %q", target, got, line)
			}
		}
	}
	if got := again.Brokered("API.Anthropic.com.", HTTPS); len(got) != 1 || got[0].Source != "p.yaml:3" || got[0].Absent {
		t.Errorf("%+v", got)
	}
	if got := again.Brokered("generativelanguage.googleapis.com", Port{}); len(got) != 1 || !got[0].Absent {
		t.Errorf("%+v", got)
	}
	if _, err := Rebuild(nil, nil, Resolv{}, []RouteEntry{{Source: "p.yaml:3"}}, route.Proxy{}, nil); err == nil {
		t.Error("a route to nowhere is taken")
	}
}

func TestManyRoutes(t *testing.T) {
	var b strings.Builder
	b.WriteString("broker:\n")
	for i := range maxRoutes + 2 {
		fmt.Fprintf(&b, "  r%d: {to: 'http://10.0.0.1:%d', api: openai, credential: none}\n", i, 1000+i)
	}
	want := join(`p.yaml:102:3: a policy has 100 routes at most: "r100"`, `p.yaml:103:3: a policy has 100 routes at most: "r101"`)
	if got := failure(t, "p.yaml", b.String()); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Where a push may go, somebody says.
func TestPushesAnywhere(t *testing.T) {
	for words, want := range map[string]string{
		"git: write":                      `p.yaml:1:56: any repository may be pushed to that the credential opens: say which, as in repos: [my-org/*]: "github"`,
		"git: write, repos: [my-org/one]": "",
		"git: read":                       "",
	} {
		if got := warnings(parse(t, "p.yaml", "broker: {github: {optional: true, credential: 'env:K', "+words+"}}\n")); got != want {
			t.Errorf("%s: %s", words, got)
		}
	}
}
