package policy

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	allowlist "github.com/agent-init/agent-init/allowlist.d"
	"github.com/agent-init/agent-init/pkg/route"
)

// under parses a policy below a ceiling; a text that begins with a key of YAML is a file in YAML.
func under(t testing.TB, ceiling, text string) *Policy {
	t.Helper()
	p, err := Parse(&Bundle{Files: []File{{"p" + form(text), []byte(text)}}, Ceiling: []File{{"ceiling.d/c" + form(ceiling), []byte(ceiling)}}}, allowlist.Files)
	if err != nil {
		t.Fatalf("%q below %q: %v", text, ceiling, err)
	}
	return p
}

func form(text string) string {
	if first, _, _ := strings.Cut(text, "\n"); strings.Contains(first, ": ") || strings.HasSuffix(first, ":") {
		return ".yaml"
	}
	return ".txt"
}

// What is left of a policy below a ceiling, entry by entry, and what is said of the rest.
func TestCeilingEntries(t *testing.T) {
	for _, tt := range []struct{ ceiling, policy, left, said string }{
		{"a.example", "a.example", "a.example", ""},
		{"a.example", "b.example", "", "p.txt:1:1: above the ceiling: no line of it admits this"},
		{"*.example.com", "x.example.com\nexample.com:22", "x.example.com", "(ceiling.d/c.txt:1)"},
		{"x.example.com\ny.example.com:443", "*.example.com", "x.example.com;y.example.com:443", "(ceiling.d/c.txt:2); what is left is x.example.com, y.example.com:443"},
		{"a.example:443", "a.example", "a.example:443", "it admits less (ceiling.d/c.txt:1); what is left is a.example:443"},
		{"a.example:443\na.example:80", "a.example", "a.example:443;a.example:80", ""},
		{"a.example:8080", "a.example", "", "it admits a.example:8080 alone (ceiling.d/c.txt:1)"},
		{"a.example:53/udp", "a.example:53", "", "it admits a.example:53/udp alone"},
		{"*.example.com\n!x.example.com", "x.example.com\n*.example.com", "*.example.com;!x.example.com", "denied for good (ceiling.d/c.txt:2)"},
		{"*.example.com\n!*.y.example.com:443", "*.y.example.com", "*.y.example.com:80;!*.y.example.com:443", "denied for good (ceiling.d/c.txt:2)"},
		{"a.example", "!a.example\n!b.example", "!a.example;!b.example", ""},

		{"a.example private", "a.example private", "a.example private", ""},
		{"a.example", "a.example private", "a.example", "it admits less"},
		{"a.example private", "a.example", "a.example", ""},
		{"a.example upgrade connect", "a.example upgrade", "a.example upgrade", ""},
		{"a.example", "a.example upgrade connect", "a.example", "it admits less"},
		{"a.example:8443 tls", "a.example:8443", "a.example:8443 tls", "what is left is a.example:8443 tls"},
		{"a.example:8443", "a.example:8443 tls", "a.example:8443 tls", ""},
		{"a.example:8443 http", "a.example:8443 tls", "", "it admits a.example:8443 http alone"},
		{"a.example:8443 read", "a.example:8443 http", "", "alone"},
		{"a.example direct", "a.example direct", "a.example direct", ""},
		{"a.example", "a.example direct", "a.example", "it admits less"},
		{"a.example:22", "a.example:22 direct", "a.example:22 direct", ""},
		{"a.example:8443 tls", "a.example:8443 direct", "a.example:8443 tls", "it admits less"},

		{"a.example read", "a.example", "a.example read", "what is left is a.example read"},
		{"a.example.com read\na.example.com POST /x", "*.example.com", "a.example.com read;a.example.com POST /x", "it admits less"},
		{"a.example", "a.example GET /x", "a.example GET /x", ""},
		{"a.example * /**", "a.example GET /x", "a.example GET /x", "it admits less"}, // no WebSocket
		{"a.example GET /x", "a.example GET /x", "a.example GET /x", ""},
		{"a.example GET /y", "a.example GET /x", "a.example GET /x", "it admits less"},
		{"a.example read", "a.example observe", "a.example read", "it admits less"},
		{"a.example", "a.example observe", "a.example observe", ""},
		{"a.example * /**\n!a.example DELETE /**", "a.example", "a.example * /**;!a.example DELETE /**", "it admits less"},

		{"10.0.0.0/8:443", "10.1.0.0/16:443\n11.0.0.1:443", "10.1.0.0/16:443", "no line of it admits this"},
		{"10.1.0.0/17:443\n10.1.128.0/17:443", "10.1.0.0/16:443", "10.1.0.0/17:443;10.1.128.0/17:443", "what is left is 10.1.0.0/17:443, 10.1.128.0/17:443"},
		{"10.0.0.0/8:443\n!10.1.0.0/16", "10.1.2.3:443", "!10.1.0.0/16", "denied for good (ceiling.d/c.txt:2)"},
		{"[2001:db8::]/32:443", "[2001:db8::1]:443\n1.2.3.4:443", "[2001:db8::1]:443", "p.txt:2:1: above the ceiling"},
		{"a.example", "1.2.3.4", "", "above the ceiling"},

		{"entries: any\ndeny: [b.example, 10.0.0.0/8]", "a.example private\nb.example\n10.0.0.1:80", "a.example private;!b.example;!10.0.0.0/8", "denied for good (ceiling.d/c.yaml:2)"},
		{"entries: none", "a.example", "", "no line of it admits this"},
		{"services: [pypi]", "@github\npypi.org", "pypi.org", "above the ceiling"},
	} {
		p := under(t, tt.ceiling, tt.policy)
		if left := strings.Join(rules(p), ";"); left != tt.left {
			t.Errorf("%q below %q leaves %q, want %q", tt.policy, tt.ceiling, left, tt.left)
		}
		if said := warnings(p); !strings.Contains(said, tt.said) || (tt.said == "") != (len(p.Cuts()) == 0) {
			t.Errorf("%q below %q: %q, want %q", tt.policy, tt.ceiling, said, tt.said)
		}
	}
}

// What is no ceiling.
func TestCeilingErrors(t *testing.T) {
	for ceiling, want := range map[string]string{
		"":                                    "the ceiling admits no entry",
		"!a.example":                          "the ceiling admits no entry",
		"a.example required":                  "c.txt:1:1: a ceiling opens nothing",
		"a.example observe":                   "write * /** in place of observe",
		"*.com":                               "c.txt:1:1: the wildcard covers a public suffix",
		"a.example\na.example GET /":          "allows a.example on 443/tcp without a look at its requests",
		"entries: any\ndomains: [a.example]":  "with entries: any",
		"entries: none\ndomains: [a.example]": "with entries: none",
		"entries: some":                       "entries is any or none",
		"mode: loose\ndomains: [a.example]":   "mode is enforce or monitor",
		"env: {A: b}\ndomains: [a.example]":   "unknown key",
		"broker: {nobody: {}}\nentries: any":  "no route of this name is built in",
	} {
		for _, text := range []string{"a.example", "nonsense here"} { // whatever is below it
			_, err := Parse(&Bundle{Files: []File{{"p.txt", []byte(text)}}, Ceiling: []File{{"c" + form(ceiling), []byte(ceiling)}}}, allowlist.Files)
			if e := (*CeilingError)(nil); err == nil || !strings.Contains(err.Error(), want) || !asCeiling(err, &e) {
				t.Errorf("%q: %v, want %q", ceiling, err, want)
			}
		}
	}
	if _, err := Parse(&Bundle{Ceiling: []File{}}, nil); err == nil {
		t.Error("a ceiling without a file is none")
	}
}

func asCeiling(err error, to **CeilingError) (ok bool) {
	*to, ok = err.(*CeilingError)
	return ok
}

// Each key of a policy is one that a ceiling bounds, or one of those that open nothing. A new one is neither.
func TestCeilingKnowsEverySetting(t *testing.T) {
	known := slices.Sorted(slices.Values(slices.Concat(bindable, free)))
	if all := slices.Sorted(slices.Values(names(newParser(nil).keys()))); !slices.Equal(all, known) {
		t.Errorf("a policy has %q, and a ceiling knows %q", all, known)
	}
	c := &Ceiling{set: map[string]Source{}}
	c.settings.TLS.ECH = "refuse"
	all := map[string]bool{}
	for _, k := range newParser(nil).keys() {
		for _, inner := range k.keys {
			all[k.name+"."+inner.name] = slices.Contains(bindable, k.name)
		}
	}
	for key, binds := range all {
		c.set[key] = Source{File: "c.yaml", Line: 1}
		changed := defaults()
		var cuts []*Cut
		ps := newParser(nil)
		ps.set[key] = Source{File: "p.yaml", Line: 2}
		widest(&changed)
		c.fix(&changed, ps, func(key, _, _, _ string) { cuts = append(cuts, &Cut{Text: key}) })
		if key == "dns.upstream" { // of which the list is compared
			binds = false
		}
		if (len(cuts) == 1) != binds {
			t.Errorf("%s: fixed by a ceiling, it is %+v", key, cuts)
		}
		delete(c.set, key)
	}
}

// widest has every setting be other than all of zero, which c fixes above.
func widest(s *Settings) {
	s.Log.Stdout = true
}

// What a ceiling leaves of settings.
func TestCeilingSettings(t *testing.T) {
	p := under(t, "entries: any\ninbound: [3000]\ndns: {upstream: [10.0.0.53], max_ttl: 60s, qps: 50}\nlimits: {leases: 10}\n"+
		"log: {stdout: true, files: 5}\nsession: {clipboard: false}\ntls: {ech: refuse}\nuser_namespaces: false\nnice: 5\ndeny: [hooks.example]",
		"inbound: [3000, 4000]\ndns: {upstream: [9.9.9.9], max_ttl: 30s, qps: 100}\nlimits: {leases: 20}\nlog: {stdout: false, files: 2}\n"+
			"session: {clipboard: true}\ntls: {ech: pass}\nnice: 0\nnotify: {webhook: {to: 'https://hooks.example/x'}}\n")
	s := p.Settings
	got := fmt.Sprintln(s.Inbound, s.DNS.Upstream, s.DNS.QPS, s.Limits.Leases, s.Log.Stdout, s.Log.Files, s.Session.Clipboard, s.TLS.ECH, s.UserNamespaces, s.Nice, s.Notify.Webhook.To)
	if want := "[3000/tcp] [10.0.0.53:53] 50 10 true 5 false refuse false 5 \n"; got != want || s.DNS.MaxTTL != ttl(30*time.Second) {
		t.Errorf("left is %s, want %s", got, want)
	}
	if p.Broker != nil {
		t.Error("the broker reaches the webhook")
	}
	for _, said := range []string{"inbound 4000/tcp", "dns.upstream 9.9.9.9:53", "dns.qps", "limits.leases", "log.stdout", "log.files", "session.clipboard", "tls.ech", "notify.webhook.to"} {
		if !strings.Contains(warnings(p), `"`+said+`"`) {
			t.Errorf("%s is not said: %s", said, warnings(p))
		}
	}
	if strings.Contains(warnings(p), "max_ttl") || !strings.Contains(warnings(p), "p.yaml:2") || !strings.Contains(warnings(p), "ceiling.d/c.yaml:3") {
		t.Errorf("%s", warnings(p))
	}
	// What a ceiling does not name opens nothing, and fixes nothing.
	p = under(t, "a.example", "inbound: [80]\ndns: {upstream: [9.9.9.9]}\nlog: {files: 9}\n")
	if s := p.Settings; len(s.Inbound)+len(s.DNS.Upstream) != 0 || s.Log.Files != 9 || !s.UserNamespaces {
		t.Errorf("%+v", s)
	}
	p = under(t, "hooks.example:443", "notify: {webhook: {to: 'https://hooks.example/x'}}\n")
	if p.Settings.Notify.Webhook.To == "" || p.Broker == nil {
		t.Error("a webhook below the ceiling is gone")
	}
}

// Below a ceiling with a proxy, all goes by that one, also what a policy would send straight. A policy with another is
// wrong below a ceiling without.
func TestCeilingProxy(t *testing.T) {
	const own = "domains: [a.example]\nupstream_proxy: {to: 'http://10.0.0.9:3128', straight: [a.example]}\n"
	for policy, said := range map[string]string{"a.example": "", own: "it fixes this"} {
		p := under(t, "entries: any\nupstream_proxy: {to: 'http://10.0.0.1:3128', straight: ['*.corp.example']}\n", policy)
		if x := p.Settings.UpstreamProxy; x.Host != "10.0.0.1" || !p.Proxied("a.example", HTTPS) || p.Proxied("x.corp.example", HTTPS) || !strings.Contains(warnings(p), said) {
			t.Errorf("%q: %+v, %s", policy, x, warnings(p))
		}
	}
	for ceiling, policy := range map[string]string{"entries: any": own, "entries: any\nupstream_proxy: http://10.0.0.1:3128": "a.example\n1.2.3.4"} {
		_, err := Parse(&Bundle{Files: []File{{"p" + form(policy), []byte(policy)}}, Ceiling: []File{{"c.yaml", []byte(ceiling)}}}, allowlist.Files)
		if err == nil || !strings.Contains(err.Error(), "upstream_proxy") {
			t.Errorf("%q below %q: %v", policy, ceiling, err)
		}
	}
}

// The words from which random policies and ceilings are made.
var (
	someNames = []string{"a.example", "b.a.example", "c.b.a.example", "d.example", "*.a.example", "*.b.a.example", "*.d.example", "localai"}
	someAddrs = []string{"10.0.0.0/8", "10.1.0.0/16", "10.1.2.3", "1.2.3.4", "1.2.0.0/16", "[2001:db8::]/32", "[64:ff9b::]/96", "[64:ff9b::a01:203]"}
	somePorts = []string{"", "", ":8443", ":443", ":80", ":8443", ":53/udp", ":443/udp"}
	someWords = []string{"", "", "", " private", " upgrade", " connect", " tls", " http", " direct", " unbrokered", " read", " GET /x/**", " POST /x", " * /**", " observe"}
)

// randomly returns a list of random entries that is one, or "".
func randomly(r *rand.Rand, ceiling bool) string {
	pick := func(of []string) string { return of[r.IntN(len(of))] }
	var lines []string
	for range 1 + r.IntN(6) {
		entry := pick(someNames)
		if r.IntN(4) == 0 {
			entry = pick(someAddrs)
		}
		entry += pick(somePorts)
		if deny := r.IntN(5) == 0; deny {
			entry = "!" + entry + pick([]string{"", "", "", " GET /x/y", " * /z"})
		} else {
			entry += pick(someWords)
		}
		all := strings.Join(append(lines, entry), "\n")
		b := &Bundle{Files: []File{{"p.txt", []byte(all)}}}
		if ceiling {
			b = &Bundle{Ceiling: []File{{"c.txt", []byte("z.example\n" + all)}}}
		}
		if _, err := Parse(b, nil); err == nil { // entries that don't go together are no list
			lines = append(lines, entry)
		}
	}
	if ceiling {
		lines = append(lines, "z.example")
	}
	return strings.Join(lines, "\n")
}

// FuzzCeiling: of no policy and no ceiling does anything pass that the other does not let pass.
func FuzzCeiling(f *testing.F) {
	for seed := range uint64(3000) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 1))
		exceeds(t, randomly(r, true), randomly(r, false))
	})
}

func exceeds(t *testing.T, ceiling, text string) {
	hosts := []byte("10.1.2.3 a.example localai\n1.2.3.4 b.a.example\n")
	with := func(files, ceiling []File) *Policy {
		p, err := Parse(&Bundle{Files: files, Ceiling: ceiling, Hosts: hosts}, nil)
		if err != nil {
			t.Fatalf("%v\n-- ceiling:\n%s\n-- policy:\n%s", err, ceiling, text)
		}
		return p
	}
	mine, top := []File{{"p.txt", []byte(text)}}, []File{{"c.txt", []byte(ceiling)}}
	p, c, e := with(mine, nil), with(top, nil), with(mine, top)
	fails := func(format string, args ...any) {
		t.Helper()
		t.Fatalf("%s\n-- ceiling:\n%s\n-- policy:\n%s\n-- left:\n%s", fmt.Sprintf(format, args...), ceiling, text, strings.Join(rules(e), "\n"))
	}
	addrs := []netip.Addr{addr("10.1.2.3"), addr("10.9.9.9"), addr("1.2.3.4"), addr("1.2.9.9"), addr("8.8.8.8"), addr("2001:db8::1"), addr("64:ff9b::a01:203"), addr("64:ff9b::102:304")}
	for _, port := range []Port{HTTPS, HTTP, tcp(8443), {UDP, 53}, {UDP, 443}} {
		for _, name := range []string{"a.example", "b.a.example", "c.b.a.example", "x.b.a.example", "x.a.example", "d.example", "x.d.example", "localai", "other.example"} {
			for what, of := range map[string]*Policy{"policy": p, "ceiling": c} {
				if !e.Decide(name, port).Allowed {
					break
				}
				if !of.Decide(name, port).Allowed {
					fails("%s on %v is above the %s", name, port, what)
				}
				way, most := e.Way(name, port), of.Way(name, port)
				if way < most || way == most && way != ByAddress && e.Plain(name, port) != of.Plain(name, port) {
					fails("%s on %v goes out %v, and by the %s %v", name, port, way, what, most)
				}
				if e.Upgrades(name, port) != nil && of.Upgrades(name, port) == nil && of.Way(name, port) == Gated {
					fails("%s on %v may switch, and not by the %s", name, port, what)
				}
				for _, a := range addrs {
					if slices.Contains(e.Admit(name, a), port) && !slices.Contains(of.Admit(name, a), port) {
						fails("%s opens %v on %v, and not by the %s", name, a, port, what)
					}
				}
			}
			if both := p.Decide(name, port).Allowed && c.Decide(name, port).Allowed; both && !e.Decide(name, port).Allowed && !excluding(p, c, name, port) {
				fails("%s on %v passes in both, and is not left", name, port)
			}
		}
		for _, a := range addrs {
			if e.DecideAddr(a, port).Allowed && !(c.DecideAddr(a, port).Allowed && p.DecideAddr(a, port).Allowed) {
				fails("%v on %v is above the ceiling", a, port)
			}
			if opened(e, a, port) && !(opened(c, a, port) && opened(p, a, port)) {
				fails("the kernel opens %v on %v", a, port)
			}
		}
	}
	for _, r := range e.Proxies {
		if !slices.ContainsFunc(c.Proxies, func(q *Rule) bool { return q.Name == r.Name }) {
			fails("%s is a proxy", r.Name)
		}
	}
	q, err := Rebuild(entriesOf(e.Written()), hosts, Resolv{}, nil, route.Proxy{}, e.Below())
	if err != nil || strings.Join(rules(q), "\n") != strings.Join(rules(e), "\n") || fmt.Sprint(q.Settings.Inspected) != fmt.Sprint(e.Settings.Inspected) {
		fails("rebuilt, it is %v: %v", rules(q), err)
	}
}

// excluding says whether what two policies say a port carries can't both be.
func excluding(p, c *Policy, name string, port Port) bool {
	return port.Proto == TCP && port != HTTPS && port != HTTP && p.Plain(name, port) != c.Plain(name, port) && p.Way(name, port) != ByAddress && c.Way(name, port) != ByAddress
}

func entriesOf(rules []*Rule) (out []Entry) {
	for _, r := range rules {
		out = append(out, r.Entry())
	}
	return out
}
