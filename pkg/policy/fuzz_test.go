package policy

import (
	"fmt"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	allowlist "github.com/agent-init/agent-init/allowlist.d"
	"github.com/agent-init/agent-init/pkg/route"
)

var fuzzSeeds = []string{
	sample,
	"@claude\n!@github\n*.example.com:53/udp private\n",
	"a.example upgrade\n*.a.example:80 upgrade\nb.example:80 connect private\n!b.example:80\nc.example:443 upgrade connect\n",
	"\ufeffa.example\r\n\tb.example \r\n",
	"https://a.example/x\n0x7f.1\n*.com\n[::1]:80\n::ffff:1.2.3.4\nmünchen.example\n",
	"a.example GET,HEAD /a/*/**\n!a.example * /b\n*.a.example:8080 http read max_upload=1K websocket\na.example POST /g graphql=query private\n",
	"a.example unbrokered\na.example observe\nb.example:8443 tls\nc.example direct\n*.b.example:8443 required\n!b.example DELETE /\n",
	"1.2.3.4/0\n[2001:db8::]/32:443\n![::]/0\n160.0.0.0/3\nfd00:ec2::254\n",
}

func FuzzParseText(f *testing.F) {
	for _, s := range fuzzSeeds {
		f.Add(s, "a.example.com", uint32(0x0a000001))
	}
	f.Fuzz(func(t *testing.T, data, name string, v4 uint32) {
		check(t, "fuzz.txt", data, name, v4)
	})
}

func FuzzParseYAML(f *testing.F) {
	for _, s := range append(fuzzSeeds,
		"services: [claude]\ndomains:\n - a.example\n - '*.b.example private'\ndeny: [c.example:22]\nnetworks: [10.0.0.0/8]\n",
		"a: &x [*x]\n", "domains: [!a, *b, @c]\n", "inbound: [3000]\nuser: a\ncommand: sh\nenv: {A: b}\n",
		"selftest: {reach: [a.example]}\ndns: {upstream: ['tls://192.0.2.1#a.example'], max_ttl: 5m}\nlimits: {leases: 7}\nlog: {max_size: 1MiB}\n",
		"broker: {anthropic: , openai: {credential: 'env:A', optional: true, models: ['gpt-5*'], provider_tools: [web_search], tenant: [org-1]}}\n",
		"broker:\n  a: {to: 'https://a.example/x/', private: true, credential: [file:/k, 'env:K'], inject: {basic: {user: u}}, allow: [GET /**, POST /v1/*]}\n"+
			"domains: [a.example unbrokered]\n",
		"broker: {vllm-1: {to: 'http://10.0.0.1:8000/v1', api: openai, credential: none, limits: {requests_per_minute: 1, tokens_per_day: 2}}}\n",
		"broker: {a: {inspect: 'a.example', credential: 'env:K', inject: {query: k}, add: {b: c}}}\ndomains: ['*.a.example GET /', 'a.example unbrokered']\n",
		"broker: {a: {to: 'http://[fd00::1]:80/', plaintext: true, credential: 'env:K', inject: {query: k}, allow: [GET /]}}\ndomains: [a.example]\n",
	) {
		f.Add(s, "b.example", uint32(0xa9fea9fe))
	}
	f.Fuzz(func(t *testing.T, data, name string, v4 uint32) {
		check(t, "fuzz.yaml", data, name, v4)
	})
}

// check holds what is true of every policy.
func check(t *testing.T, file, data, name string, v4 uint32) {
	p, err := Parse(&Bundle{Files: []File{{Name: file, Data: []byte(data)}}, Hosts: []byte(data)}, allowlist.Files)
	if err != nil {
		if p != nil || err.Error() == "" || len(err.(ErrorList)) > maxErrors+1 {
			t.Fatalf("a policy with errors: %v", err)
		}
		return
	}
	v := netip.AddrFrom4([4]byte{byte(v4 >> 24), byte(v4 >> 16), byte(v4 >> 8), byte(v4)})
	names := []string{name}
	for _, r := range p.rules {
		if r.Name != "" {
			names = append(names, r.Name, "x."+r.Name)
		}
	}
	for _, n := range names[:min(len(names), 50)] {
		for _, port := range []Port{{TCP, 443}, {TCP, 80}, {UDP, 53}} {
			d := p.Decide(n, port)
			if d.Reason == "" || d.Allowed && (d.Rule == nil || d.Rule.Deny) {
				t.Fatalf("%q %v: %+v", n, port, d)
			}
			if d.Allowed && p.Way(n, port) == Inspected != (port.Proto == TCP && route.FindInspected(p.Settings.Inspected, canonicalName(n), port.Number) != nil) {
				t.Fatalf("%q goes %v on %v, and not as %+v say", n, p.Way(n, port), port, p.Settings.Inspected)
			}
			if r := p.Upgrades(n, port); r != nil && (!r.Upgrade || r.Deny || port != HTTP) {
				t.Fatalf("%q may switch protocols on %v by %+v", n, port, r)
			}
			if m := p.Lookup(n); d.Allowed && !m.Allowed {
				t.Fatalf("%q is allowed on %v, but not resolved: %+v", n, port, m)
			}
		}
		for _, a := range []netip.Addr{v, netip.AddrFrom16(v.As16())} {
			ports := p.Admit(n, a)
			if len(ports) > 0 && Classify(a) > Private {
				t.Fatalf("%q opens %v, which is %v", n, a, Classify(a))
			}
			for _, port := range ports {
				if !p.Decide(n, port).Allowed {
					t.Fatalf("%q opens %v at %v, but is not allowed there", n, port, a)
				}
			}
		}
	}
	if d := p.DecideAddr(v, Port{TCP, 443}); d.Allowed && (d.Rule == nil || d.Rule.Deny || Classify(v) > Private) {
		t.Fatalf("%v: %+v", v, d)
	}
	for _, r := range p.Proxies {
		if r.Deny || r.Wildcard || r.Name == "" || !slices.Contains(r.Ports, HTTP) {
			t.Fatalf("a proxy: %+v", r)
		}
	}
	for _, s := range p.Static {
		if s.Rule == nil || s.Port.Number == 0 || s.Prefix != s.Prefix.Masked() || s.Prefix.Bits() == 0 {
			t.Fatalf("static %+v", s)
		}
	}
	checkRoutes(t, p)
	checkNext(t, p, &Bundle{Files: []File{{Name: file, Data: []byte(data)}}, Hosts: []byte(data)})
	text := effective(t, p)
	again, err := Parse(&Bundle{Files: []File{{Name: "again.txt", Data: []byte(text)}}}, nil)
	if err != nil {
		t.Fatalf("what is written can't be read: %v\n%s", err, text)
	}
	if bare(again) != bare(p) {
		t.Fatalf("what is written reads differently:\n%s\nbut was\n%s", bare(again), strings.TrimSpace(bare(p)))
	}
}

// checkNext holds that what comes after p, which was read from b, is the same as if it had been read by itself, and p what it was.
func checkNext(t *testing.T, p *Policy, b *Bundle) {
	t.Helper()
	first := b.Files[0]
	for what, files := range map[string][]File{
		"the same":         b.Files,
		"a denial":         append(slices.Clip(b.Files), File{"grants", []byte("!a.test\n!@npm\n!10.0.0.0/8\n")}),
		"presets before":   append([]File{{"0.txt", []byte("@npm\n@github\nb.test required\n")}}, b.Files...),
		"requests beside":  append(slices.Clip(b.Files), File{"z.txt", []byte("c.test GET /x\nb.example GET /\n")}),
		"errors beside":    append(slices.Clip(b.Files), File{"z.txt", []byte("*.com\n")}),
		"something else":   {{first.Name, []byte("d.test\n")}},
		"under other name": {{"other.txt", first.Data}},
		"twice":            {first, {first.Name, []byte("d.test\n")}, first},
	} {
		next := *b
		next.Files = files
		want, wantErr := Parse(&next, allowlist.Files)
		for _, b := range []*Bundle{&next, p.Brief(&next)} {
			got, gotErr := p.Next(b, allowlist.Files)
			if fmt.Sprint(gotErr) != fmt.Sprint(wantErr) || !reflect.DeepEqual(got, want) {
				t.Fatalf("%s: after another it is\n%+v, %v, by itself\n%+v, %v", what, got, gotErr, want, wantErr)
			}
		}
	}
	if was, err := Parse(b, allowlist.Files); err != nil || !reflect.DeepEqual(p, was) {
		t.Fatalf("%v: a policy that came after it has changed it:\n%+v\nwas\n%+v", err, p, was)
	}
}

func canonicalName(s string) string {
	name, _ := canonical(s)
	return name
}

// checkRoutes holds what is true of every route.
func checkRoutes(t *testing.T, p *Policy) {
	if p.Broker == nil && len(p.Settings.Inspected) > 0 {
		t.Fatalf("no policy of the broker's beside %d inspected names", len(p.Settings.Inspected))
	}
	for _, i := range p.Settings.Inspected {
		port := Port{TCP, i.Port}
		if len(i.Allow) == 0 && !i.Observe || p.Way(i.Name, port) != Inspected || p.Plain(i.Name, port) != i.Plain {
			t.Fatalf("%+v goes %v", i, p.Way(i.Name, port))
		}
		for _, r := range p.rules {
			sharing := slices.ContainsFunc(r.Ports, func(at Port) bool { return at.Number == i.Port && p.Decide(i.Name, at).Allowed })
			if !r.Deny && !r.Inspects() && r.Name != "" && r.goes(&Rule{Name: i.Name}) && sharing {
				t.Fatalf("%+v is reached by %v, too", i, r)
			}
		}
		if p.Decide(i.Name, port).Allowed && (!p.Broker.Decide(i.Name, port).Allowed || p.Broker.Way(i.Name, port) != Inspected) {
			t.Fatalf("the broker does not reach %+v", i)
		}
	}
	for _, r := range p.Settings.Broker {
		if r.Inspects != "" {
			continue
		}
		u, err := url.Parse(r.To)
		if err != nil || u.Host == "" || u.User != nil || !strings.HasSuffix(u.Path, "/") || u.Path != u.EscapedPath() || u.RawQuery != "" {
			t.Fatalf("it leads to %q: %v", r.To, err)
		}
		if in := r.Inject; r.Keyless == (in.Header != "" || in.Basic != "" || in.Query != "") || r.Keyless != (len(r.Credential) == 0) || len(r.Endpoints) == 0 {
			t.Fatalf("%+v", r)
		}
		if u.Scheme == "http" && !r.Keyless && !r.Plaintext || u.Scheme != "http" && u.Scheme != "https" {
			t.Fatalf("%+v goes over %s", r, u.Scheme)
		}
		port := HTTPS
		if u.Scheme == "http" {
			port = HTTP
		}
		if n, err := strconv.ParseUint(u.Port(), 10, 16); err == nil {
			port.Number = uint16(n)
		}
		theirs, agents := p.Broker.Decide(u.Hostname(), port), p.Decide(u.Hostname(), port)
		if a, err := netip.ParseAddr(u.Hostname()); err == nil {
			theirs, agents = p.Broker.DecideAddr(a, port), p.DecideAddr(a, port)
		}
		if !theirs.Allowed || agents.Allowed {
			t.Fatalf("%s: the broker %+v, the agent %+v", r.To, theirs, agents)
		}
	}
}
