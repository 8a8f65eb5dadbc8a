package policy

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/pkg/route"
)

// inspecting returns what a policy says of requests, one name a line.
func inspecting(t *testing.T, p *Policy) string {
	t.Helper()
	var lines []string
	for _, i := range p.Settings.Inspected {
		line, err := json.Marshal(i)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, string(line))
	}
	return strings.Join(lines, "\n")
}

func TestInspectedNames(t *testing.T) {
	for _, tt := range []struct{ list, want string }{
		{"a.example", ""},
		{"a.example GET,HEAD /repos/my-org/**",
			`{"name":"a.example","port":443,"allow":[{"methods":["GET","HEAD"],"path":"/repos/my-org/**","rule":"f:1"}]}`},
		{"a.example * /**\n!a.example * /gists/**\n!a.example DELETE /**",
			`{"name":"a.example","port":443,"allow":[{"path":"/**","rule":"f:1"}],"deny":[{"path":"/gists/**","rule":"f:2"},{"methods":["DELETE"],"path":"/**","rule":"f:3"}]}`},
		{"a.example POST /graphql graphql=query\na.example read max_upload=64KiB private",
			`{"name":"a.example","port":443,"private":true,"allow":[{"methods":["POST"],"path":"/graphql","graphql":"query","rule":"f:1"},{"methods":["GET","HEAD","OPTIONS"],"max_upload":65536,"rule":"f:2"}]}`},
		{"a.example GET /projects/my-org%2F*/x%20y/caf%C3%A9/**",
			`{"name":"a.example","port":443,"allow":[{"methods":["GET"],"path":"/projects/my-org%2F*/x%20y/caf%C3%A9/**","rule":"f:1"}]}`},
		{"a.example max_upload=0\na.example:8080 http websocket\nb.example:80 GET /\nc.example:9443 observe",
			`{"name":"a.example","port":443,"allow":[{"max_upload":-1,"rule":"f:1"}]}` + "\n" +
				`{"name":"a.example","port":8080,"plain":true,"allow":[{"websocket":true,"rule":"f:2"}]}` + "\n" +
				`{"name":"b.example","port":80,"plain":true,"allow":[{"methods":["GET"],"path":"/","rule":"f:3"}]}` + "\n" +
				`{"name":"c.example","port":9443,"observe":true}`},
		{"*.x.example GET /a\nb.x.example GET /b\n!*.c.x.example GET /c\n!d.x.example:8443 GET /d\n!e.example GET /e",
			`{"name":"x.example","wildcard":true,"port":443,"allow":[{"methods":["GET"],"path":"/a","rule":"f:1"}]}` + "\n" +
				`{"name":"b.x.example","port":443,"allow":[{"methods":["GET"],"path":"/a","rule":"f:1"},{"methods":["GET"],"path":"/b","rule":"f:2"}]}` + "\n" +
				`{"name":"c.x.example","wildcard":true,"port":443,"allow":[{"methods":["GET"],"path":"/a","rule":"f:1"}],"deny":[{"methods":["GET"],"path":"/c","rule":"f:3"}]}`},
		{"*.x.example observe\na.x.example GET /\n!b.x.example GET /b\n*.c.x.example GET /c observe\nd.c.x.example GET /d\nd.c.x.example observe",
			`{"name":"x.example","wildcard":true,"port":443,"observe":true}` + "\n" +
				`{"name":"a.x.example","port":443,"allow":[{"methods":["GET"],"path":"/","rule":"f:2"}]}` + "\n" +
				`{"name":"b.x.example","port":443,"observe":true,"deny":[{"methods":["GET"],"path":"/b","rule":"f:3"}]}` + "\n" +
				`{"name":"c.x.example","wildcard":true,"port":443,"observe":true,"allow":[{"methods":["GET"],"path":"/c","rule":"f:4"}]}` + "\n" +
				`{"name":"d.c.x.example","port":443,"observe":true,"allow":[{"methods":["GET"],"path":"/c","rule":"f:4"},{"methods":["GET"],"path":"/d","rule":"f:5"}]}`},
		{"*.x.example GET /a\n!b.x.example\n!*.c.x.example:443\n!d.x.example:80\n!e.example\ny.example GET /y\n!*.y.example",
			`{"name":"x.example","wildcard":true,"port":443,"allow":[{"methods":["GET"],"path":"/a","rule":"f:1"}]}` + "\n" +
				`{"name":"b.x.example","port":443,"allow":[{"methods":["GET"],"path":"/a","rule":"f:1"}],"deny":[{"rule":"f:2"}]}` + "\n" +
				`{"name":"c.x.example","wildcard":true,"port":443,"allow":[{"methods":["GET"],"path":"/a","rule":"f:1"}],"deny":[{"rule":"f:3"}]}` + "\n" +
				`{"name":"y.example","port":443,"allow":[{"methods":["GET"],"path":"/y","rule":"f:6"}],"deny":[{"rule":"f:7"}]}`},
	} {
		p := parse(t, "f", tt.list)
		if got := inspecting(t, p); got != tt.want {
			t.Errorf("%s\n got %s\nwant %s", tt.list, got, tt.want)
		}
		if again := parse(t, "again", effective(t, p)); bare(again) != bare(p) {
			t.Errorf("%s\nreads as %s", tt.list, bare(again))
		}
	}
}

// What is found is what all entries for the name say.
func TestFindInspected(t *testing.T) {
	p := parse(t, "f", "*.x.example GET /a\nb.x.example GET /b\n*.b.x.example:8443 GET /c\nx.example GET /x\n")
	for name, want := range map[string]int{"x.example": 2, "a.x.example": 1, "b.x.example": 2, "c.b.x.example": 1, "y.example": 0, "xx.example": 0} {
		got := 0
		if i := route.FindInspected(p.Settings.Inspected, name, 443); i != nil {
			got = len(i.Allow)
		}
		if got != want || (got > 0) != (p.Way(name, HTTPS) == Inspected) {
			t.Errorf("%s: %d entries, not %d; %v", name, got, want, p.Way(name, HTTPS))
		}
	}
	if i := route.FindInspected(p.Settings.Inspected, "x.b.x.example", 8443); i == nil || len(i.Allow) != 1 {
		t.Errorf("on another port: %+v", i)
	}
}

func TestWays(t *testing.T) {
	p := parse(t, "f", join("a.example", "b.example:8443 tls", "c.example:8080 http", "d.example direct", "e.example GET /", "e.example:22",
		"*.f.example", "g.f.example direct", "h.example:8443", "*.h.example:8443 tls", "i.example:443/udp", "j.example", "j.example direct"))
	for _, tt := range []struct {
		name  string
		port  Port
		want  Way
		plain bool
	}{
		{"a.example", HTTPS, Gated, false}, {"A.example.", HTTP, Gated, true}, {"b.example", tcp(8443), Gated, false},
		{"c.example", tcp(8080), Gated, true}, {"d.example", HTTPS, ByAddress, false}, {"d.example", HTTP, ByAddress, true},
		{"e.example", HTTPS, Inspected, false}, {"e.example", tcp(22), ByAddress, false},
		{"x.f.example", HTTPS, Gated, false}, {"g.f.example", HTTPS, ByAddress, false},
		{"h.example", tcp(8443), Gated, false}, {"x.h.example", tcp(8443), Gated, false}, {"h.example", tcp(8444), ByAddress, false},
		{"i.example", Port{UDP, 443}, ByAddress, false}, {"j.example", HTTPS, ByAddress, false},
	} {
		if got, plain := p.Way(tt.name, tt.port), p.Plain(tt.name, tt.port); got != tt.want || plain != tt.plain {
			t.Errorf("%s %v: %v, plain %v", tt.name, tt.port, got, plain)
		}
	}
	if p.Direct("d.example", HTTPS) == nil || p.Direct("a.example", HTTPS) != nil || p.Direct("e.example", tcp(22)) != nil {
		t.Error("what passes by the name gate is not said, or of what doesn't")
	}
}

// The broker's own policy has of inspected names what the agent's has, and is free with routes' hosts.
func TestBrokerOfInspectedNames(t *testing.T) {
	p := parse(t, "p.yaml", join("domains:", "- '*.x.example GET /'", "- y.example:8443 read private", "- plain.example",
		"deny: [secret.x.example, 10.0.0.0/8, 203.0.113.0/24, tickets.example]",
		"broker: {tickets: {to: 'https://tickets.example/', private: true, credential: none, allow: [GET /]}}"))
	b := p.Broker
	if b == nil {
		t.Fatal("no policy of the broker's")
	}
	for name, want := range map[string]bool{"a.x.example": true, "secret.x.example": false, "plain.example": false, "tickets.example": true} {
		if got := b.Decide(name, HTTPS).Allowed; got != want || b.Lookup(name).Allowed != want || slices.Contains(b.Ports(name), HTTPS) != want {
			t.Errorf("%s: %v, looked up %v, ports %v", name, got, b.Lookup(name).Allowed, b.Ports(name))
		}
	}
	for _, tt := range []struct {
		name, addr string
		want       int
	}{
		{"a.x.example", "8.8.8.8", 1}, {"a.x.example", "203.0.113.7", 0}, {"a.x.example", "192.168.0.1", 0}, {"a.x.example", "169.254.169.254", 0},
		{"y.example", "192.168.0.1", 1}, {"y.example", "10.0.0.1", 0}, {"tickets.example", "10.0.0.1", 1}, {"tickets.example", "203.0.113.7", 1},
		{"secret.x.example", "8.8.8.8", 0},
	} {
		if got := b.Admit(tt.name, addr(tt.addr)); len(got) != tt.want {
			t.Errorf("%s at %s: %v", tt.name, tt.addr, got)
		}
	}
	if p := parse(t, "f", "a.example read"); p.Broker == nil || p.Settings.Broker != nil || !p.Broker.Decide("a.example", HTTPS).Allowed {
		t.Errorf("without routes: %+v", p.Broker)
	}
}

func TestRequestErrors(t *testing.T) {
	for _, tt := range []struct{ list, want string }{
		{"a.example GET", `f:1:11: a path stands behind the methods, from / on: "GET" (did you mean GET /**?)`},
		{"a.example GET read", `f:1:11: a path stands behind the methods, from / on: "GET" (did you mean GET /**?)`},
		{"a.example /x", `f:1:11: methods stand in front of a path, or * for any of them: "/x" (did you mean GET /x?)`},
		{"a.example get /x", `f:1:11: methods are written in capitals: "get" (did you mean GET?)`},
		{"a.example GET, HEAD /x", `f:1:11: methods stand without blanks, as in GET,HEAD: "GET, HEAD" (did you mean GET,HEAD?)`},
		{"a.example GET POST", `f:1:11: methods stand without blanks, as in GET,HEAD: "GET POST" (did you mean GET,POST?)`},
		{"a.example GET|head /x", `f:1:11: methods stand with commas between them: "GET|head" (did you mean GET,HEAD?)`},
		{"a.example GET x/**", `f:1:15: a path stands behind the methods, from / on: "x/**" (did you mean GET /x/**?)`},
		{"a.example GET private", `f:1:11: a path stands behind the methods, from / on: "GET" (did you mean GET /**?)`},
		{"GET a.example /x", `f:1:1: the name stands first, and behind it METHODS /PATH: "GET a.example /x" (did you mean a.example GET /x?)`},
		{"!GET https://a.example/x", `f:1:2: the name stands first, and behind it METHODS /PATH: "GET https://a.example/x" (did you mean a.example GET /x?)`},
		{"GET a.example //x", `f:1:1: the name stands first, and behind it METHODS /PATH: "GET a.example //x"`},
		{"a.example read-only", `f:1:11: unknown flag: "read-only" (did you mean read?)`},
		{"a.example max-upload=1KiB", `f:1:11: unknown flag: "max-upload=1KiB" (did you mean max_upload=1KiB?)`},
		{"a.example graph-ql=queries", `f:1:11: unknown flag: "graph-ql=queries" (did you mean graphql=query?)`},
		{"a.example max_upload=64kb", `f:1:11: behind max_upload= stands a size, as in max_upload=64KiB: "max_upload=64kb" (did you mean max_upload=64KiB?)`},
		{"a.example GTE /x", `f:1:11: a method is one of GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS, or of WebDAV's: "GTE" (did you mean GET?)`},
		{"a.example GET,GET /x", `f:1:11: a method stands there twice: GET: "GET,GET"`},
		{"a.example CONNECT /x", `f:1:11: a method is one of GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS, or of WebDAV's: "CONNECT"`},
		{"a.example GET /a GET /b", `f:1:18: an entry has methods and a path once: write another entry for others: "GET"`},
		{"a.example * /a read", `f:1:16: an entry has methods and a path once: write another entry for others: "read"`},
		{"a.example GET /a/../b", `f:1:15: no path that is asked has such a segment: "/a/../b" (did you mean /b?)`},
		{"a.example GET /a%2fb", `f:1:15: of escapes, a path has only those that it can't do without, in capitals, as in my-org%2Frepo: "/a%2fb"`},
		{"a.example GET /a%2E%2E/b", `f:1:15: of escapes, a path has only those that it can't do without, in capitals, as in my-org%2Frepo: "/a%2E%2E/b"`},
		{"a.example GET /a%2A", `f:1:15: of escapes, a path has only those that it can't do without, in capitals, as in my-org%2Frepo: "/a%2A"`},
		{"a.example GET /a%252Fb", `f:1:15: of escapes, a path has only those that it can't do without, in capitals, as in my-org%2Frepo: "/a%252Fb"`},
		{"a.example GET /a%C3", `f:1:15: the path is not in UTF-8: "/a%C3"`},
		{"a.example GET /a?b=c", `f:1:15: a path is written without escapes and without a query; * stands for a segment or a part of one: "/a?b=c"`},
		{"a.example graphql=mutation", `f:1:11: of GraphQL, only queries can be told apart: "graphql=mutation" (did you mean graphql=query?)`},
		{"a.example GET /graphql graphql=query websocket", `f:1:1: of what a WebSocket carries, queries can't be told apart: leave websocket or graphql=query out: "a.example"`},
		{"a.example graphql=query", `f:1:1: graphql=query is about one endpoint: name it, as in POST /graphql graphql=query: "a.example"`},
		{"a.example max_upload=many", `f:1:11: behind max_upload= stands a size, as in max_upload=64KiB: "max_upload=many"`},
		{"a.example raed", `f:1:11: unknown flag: "raed" (did you mean read?)`},
		{"!a.example websocket", `f:1:12: a deny entry takes METHODS /PATH, and no words: "websocket"`},
		{"10.0.0.1 GET /", `f:1:1: what is inside a connection is judged by its name: name the host: "10.0.0.1"`},
		{"10.0.0.1:8443 tls", `f:1:1: what is inside a connection is judged by its name: name the host: "10.0.0.1"`},
		{"!10.0.0.1 GET /", `f:1:1: what is inside a connection is judged by its name: name the host: "10.0.0.1"`},
		{"a.example:443/udp GET /", `f:1:1: only TCP is looked into: what goes over UDP passes by address: "a.example"`},
		{"a.example:8443 tls http", `f:1:1: a port carries tls or http: leave one of the words out: "a.example"`},
		{"a.example direct GET /", `f:1:1: direct is past all that looks into a connection: leave it out, or what goes beside it: "a.example"`},
		{"*.a.example direct", `f:1:1: a wildcard can't be direct: name the host whose addresses are its own: "*.a.example"`},
		{"a.example:80 tls", `f:1:1: port 80 carries HTTP: name the port that carries TLS, as in host:8443 tls: "a.example"`},
		{"a.example:443 http", `f:1:1: port 443 carries TLS: name the port that carries HTTP, as in host:8080 http: "a.example"`},
		{"a.example:80 GET / connect", `f:1:1: of a proxy, the broker could not look into what it asks for: leave connect out: "a.example"`},
		{"a.example:80 GET / upgrade", `f:1:1: upgrade is for connections that are not inspected: write websocket behind the requests that may become one: "a.example"`},

		{"a.example\na.example GET /", `f:2:1: f:1 allows a.example on 443/tcp without a look at its requests: take one of the two out: "a.example GET /"`},
		{"a.example GET /\na.example:443", `f:1:1: f:2 allows a.example on 443/tcp without a look at its requests: take one of the two out: "a.example GET /"`},
		{"a.example GET /\na.example:443/udp", `f:1:1: f:2 allows a.example on 443/udp without a look at its requests: take one of the two out: "a.example GET /"`},
		{"*.x.example\na.x.example GET /", `f:2:1: f:1 allows *.x.example on 443/tcp without a look at its requests: name what else you need below the wildcard in its place: "a.x.example GET /"`},
		{"*.x.example GET /\na.x.example", `f:1:1: f:2 allows a.x.example on 443/tcp without a look at its requests: take one of the two out: "*.x.example GET /"`},
		{"*.x.example GET /\n*.a.x.example", `f:1:1: f:2 allows *.a.x.example on 443/tcp without a look at its requests: name what else you need below the wildcard in its place: "*.x.example GET /"`},
		{"a.example\n!a.example DELETE /**", `f:2:1: f:1 allows a.example on 443/tcp without a look at its requests: write a.example * /** in its place, to have its requests looked at: "!a.example DELETE /**"`},
		{"@mistral\napi.mistral.ai read", `f:2:1: @mistral (f:1) allows api.mistral.ai on 443/tcp without a look at its requests: name what you need of the preset in its place: "api.mistral.ai read"`},
		{"a.example:8443 tls\na.example:8443 http", "f:1:1: f:2 says http of the same port: take one of the words out: \"a.example:8443 tls\"\nf:2:1: f:1 says tls of the same port: take one of the words out: \"a.example:8443 http\""},
		{"*.example.com:8443 tls\na.example.com:8443 direct", `f:2:1: f:1 says tls of the same port: take one of the words out: "a.example.com:8443 direct"`},
	} {
		_, err := Parse(&Bundle{Files: []File{{Name: "f", Data: []byte(tt.list)}}}, fsys("mistral.txt", "api.mistral.ai\n"))
		if err == nil || err.Error() != tt.want {
			t.Errorf("%s\n got %v\nwant %s", tt.list, err, tt.want)
		}
	}
}

// What counts only without the broker gives way to entries about requests, and what is denied is in nobody's way.
func TestUnmixed(t *testing.T) {
	for list, want := range map[string]string{
		"a.example unbrokered\na.example GET /":        "a.example GET /\n",
		"*.x.example unbrokered\na.x.example GET /":    "a.x.example GET /\n",
		"a.x.example unbrokered\n*.x.example GET /":    "*.x.example GET /\n",
		"a.example:22 unbrokered\na.example GET /":     "a.example:22 unbrokered\na.example GET /\n",
		"a.example unbrokered\nb.example GET /":        "a.example unbrokered\nb.example GET /\n",
		"a.example:80\na.example GET /":                "a.example:80\na.example GET /\n",
		"*.x.example GET /\na.x.example\n!a.x.example": "!a.x.example\n*.x.example GET /\na.x.example\n",
	} {
		if got := bare(parse(t, "f", list)); got != want {
			t.Errorf("%s: %q, want %q", list, got, want)
		}
	}
}

func TestRoutesOntoInspectedNames(t *testing.T) {
	const tail = "broker: {m: {inspect: 'api.x.example', credential: 'env:K', inject: {header: Authorization, value: 'Bearer {}'}, env: {K2: '{token}'}, add: {X-Tenant: t}}}\n"
	p := parse(t, "p.yaml", "domains: ['*.x.example * /**']\n"+tail)
	r := p.Settings.Broker[0]
	if r.Inspects != "api.x.example:443" || r.To != "https://api.x.example/" || len(r.Add) != 1 || r.Add[0].Name != "x-tenant" || r.Env["K2"] != "{token}" || r.Endpoints != nil {
		t.Errorf("%+v", r)
	}
	if !p.Decide("api.x.example", HTTPS).Allowed || p.Way("api.x.example", HTTPS) != Inspected || len(p.Brokered("api.x.example", HTTPS)) > 0 {
		t.Error("the agent does not reach what it shall, request by request")
	}
	if q, err := Rebuild([]Entry{p.rules[0].Entry()}, nil, Resolv{}, p.RouteEntries(), route.Proxy{}, nil); err != nil || inspecting(t, q) != inspecting(t, p) {
		t.Errorf("built again: %v", err)
	}
	for data, want := range map[string]string{
		tail:                                `p.yaml:1:14: no entry says which requests may be asked there: write one, as in api.x.example * /**: "api.x.example:443"`,
		"domains: [api.x.example]\n" + tail: `p.yaml:2:14: no entry says which requests may be asked there: write one, as in api.x.example * /**: "api.x.example:443"`,
		"domains: ['a.example:80 GET /']\nbroker: {m: {inspect: 'a.example:80', credential: 'env:K', inject: {query: k}}}\n":                                                           `p.yaml:2:14: the credential would go over the network in the clear: inspect a port with TLS, or write plaintext: true: "a.example:80"`,
		"domains: ['a.example GET /']\nbroker: {m: {inspect: a.example, credential: 'env:K', inject: {query: k}}, n: {inspect: a.example, credential: 'env:K', inject: {query: k}}}\n": `p.yaml:2:80: the route m puts a credential onto this name already: take one of them out: "a.example:443"`,
	} {
		if got := failure(t, "p.yaml", data); got != want {
			t.Errorf("%s\n got %s\nwant %s", data, got, want)
		}
	}
}

// An address that the hosts file has opens to the broker, and not to the agent, which would pass by it.
func TestInspectedNameOfHostsFile(t *testing.T) {
	p, err := Parse(&Bundle{Files: []File{{Name: "f", Data: []byte("db.example GET /\nweb.example\n")}}, Hosts: []byte("10.0.0.9 db.example\n10.0.0.8 web.example\n")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if p.DecideAddr(addr("10.0.0.9"), HTTPS).Allowed || opened(p, addr("10.0.0.9"), HTTPS) || !opened(p, addr("10.0.0.8"), HTTPS) {
		t.Errorf("the agent reaches %v", p.Static)
	}
	if !opened(p.Broker, addr("10.0.0.9"), HTTPS) || opened(p.Broker, addr("10.0.0.8"), HTTPS) {
		t.Errorf("the broker reaches %v", p.Broker.Static)
	}
	if got := warnings(p); !strings.HasPrefix(got, "f:1:1: the hosts file has addresses for it") || len(p.Warnings) != 1 {
		t.Errorf("%q", got)
	}
}

// An entry about requests may be for a name only while no route goes there.
func TestInspectedUnlessRouted(t *testing.T) {
	const data = "domains: ['api.mistral.ai GET /v1/models unbrokered']\nbroker: {mistral: {optional: true, credential: 'env:K'}}\n"
	for _, absent := range [][]string{nil, {"mistral"}} {
		p, err := Parse(&Bundle{Files: []File{{Name: "p.yaml", Data: []byte(data)}}, Absent: absent}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(p.Settings.Inspected) == 1; got != (absent != nil) || got != p.Decide("api.mistral.ai", HTTPS).Allowed || got != (p.Way("api.mistral.ai", HTTPS) == Inspected) {
			t.Errorf("absent %q: inspected %+v", absent, p.Settings.Inspected)
		}
	}
}

// Over port 80, a server may take the requests that are judged on port 443.
func TestInspectedBesidePort80(t *testing.T) {
	for list, want := range map[string]string{
		"a.example GET /\na.example:80":                "f:2:1: its requests are judged on port 443, and not on port 80: a server may take the same ones there: \"a.example:80\"",
		"*.x.example GET /\na.x.example GET /":         "",
		"a.x.example GET /\n*.x.example:80":            "f:2:1: its requests are judged on port 443, and not on port 80: a server may take the same ones there: \"*.x.example:80\"",
		"a.example GET /\na.example:80 GET /":          "",
		"a.example GET /\na.example:80\n!a.example:80": "f:2:1: has no effect: !a.example:80 at f:3 denies it: \"a.example:80\"",
		"a.example:8443 GET /\na.example:80":           "",
	} {
		if got := warnings(parse(t, "f", list)); got != want {
			t.Errorf("%s: %s", list, got)
		}
	}
}
