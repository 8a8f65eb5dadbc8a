package policy

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestYAML(t *testing.T) {
	p := parse(t, "policy.yaml", `
# every key
services: [claude, "@pypi"]
domains:
  - registry.corp.example:443 private
  - "*.example.com"
  - '@localai'
  - "!gist.github.com"
  - localai:9090
networks:
  - 10.200.0.0/16:11434
  - "[2001:db8::]/32:443"
deny: [ssh.example.com:22, "*.evil.example", 192.0.2.0/24]
inbound: [3000, 53/udp]
user: 1000:1000
command: [claude, -p, "say hello"]
env:
  FOO: bar
  N: 1
  EMPTY: ""
selftest:
  reach: [registry.corp.example, "10.200.0.1:11434"]
  block: [example.org, "[2001:db9::1]:53"]
dns:
  upstream: [192.0.2.53, "[2001:db8::53]:5353", "tls://192.0.2.54#dns.Example"]
  max_ttl: 2m
  qps: 50
limits: {addrs_per_name: 8, leases: 1000, new_names_per_wildcard_per_minute: 10}
log: {stdout: true, max_size: 1MiB, files: 5}
session: {clipboard: false}
user_namespaces: false
nice: 3
`)
	var want Settings
	want.Inbound = []Port{{TCP, 3000}, {UDP, 53}}
	want.User = "1000:1000"
	want.Command = []string{"claude", "-p", "say hello"}
	want.Env = map[string]string{"FOO": "bar", "N": "1", "EMPTY": ""}
	want.SelfTest.Reach = []string{"registry.corp.example:443", "10.200.0.1:11434"}
	want.SelfTest.Block = []string{"example.org:443", "[2001:db9::1]:53"}
	want.DNS.Upstream = []string{"192.0.2.53:53", "[2001:db8::53]:5353", "tls://192.0.2.54:853#dns.example"}
	want.Nice = 3
	want.DNS.MaxTTL, want.DNS.QPS = ttl(2*time.Minute), 50
	want.Approvals = defaults().Approvals
	want.Limits.AddrsPerName, want.Limits.Leases, want.Limits.NewNamesPerWildcardPerMinute = 8, 1000, 10
	want.Log.Stdout, want.Log.MaxSize, want.Log.Files = true, 1<<20, 5
	want.TLS.ECH = "pass"
	if got := p.Settings; !reflect.DeepEqual(got, want) {
		t.Errorf("settings:\n got %+v\nwant %+v", got, want)
	}
	if w := warnings(p); w != "" {
		t.Errorf("warnings: %s", w)
	}
	for _, rule := range []string{"api.anthropic.com required unbrokered", "pypi.org unbrokered", "registry.corp.example:443 private", "*.example.com",
		"localai:8080 unbrokered", "!gist.github.com", "localai:9090", "10.200.0.0/16:11434", "[2001:db8::]/32:443", "!ssh.example.com:22", "!*.evil.example", "!192.0.2.0/24"} {
		if !slices.Contains(rules(p), rule) {
			t.Errorf("no rule %s", rule)
		}
	}
	r := p.Decide("registry.corp.example", tcp(443)).Rule
	if r.Source != (Source{"policy.yaml", 5, 5}) {
		t.Errorf("the source of a rule is %+v", r.Source)
	}
	if r := p.Decide("a.example.com", tcp(443)).Rule; r.Source != (Source{"policy.yaml", 6, 6}) {
		t.Errorf("the source of a quoted rule is %+v", r.Source)
	}
	if r := p.Decide("api.anthropic.com", tcp(443)).Rule; r.Preset != "claude" || r.Source.Line != 3 {
		t.Errorf("the source of a preset's rule is %+v", r)
	}
}

func TestYAMLDefaults(t *testing.T) {
	want := Settings{Inbound: []Port{}, UserNamespaces: true, Nice: 19}
	want.SelfTest.Reach, want.SelfTest.Block, want.DNS.Upstream = []string{}, []string{}, []string{}
	want.DNS.MaxTTL, want.DNS.QPS = ttl(300*time.Second), 200
	want.Approvals.Most = ttl(10 * time.Minute)
	want.Limits.AddrsPerName, want.Limits.Leases, want.Limits.NewNamesPerWildcardPerMinute = 32, 65536, 120
	want.Log.MaxSize, want.Log.Files = 16<<20, 3
	want.Session.Clipboard = true
	want.TLS.ECH = "pass"
	for _, data := range []string{"", "# nothing\n", "---\n", "null\n", "\ufeff# nothing\r\n", "domains:\ndns:\nenv:\nservices: []\n"} {
		if got := parse(t, "p.yaml", data).Settings; !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v", data, got)
		}
	}
}

func TestYAMLNames(t *testing.T) {
	const data = `{"domains": ["a.example"]}`
	for _, name := range []string{"a.yaml", "a.yml", "a.json"} {
		if got := rules(parse(t, name, data)); len(got) != 1 || got[0] != "a.example" {
			t.Errorf("%s: %q", name, got)
		}
	}
	for _, name := range []string{"a.txt", "yaml", "a.yaml.txt"} {
		failure(t, name, data)
	}
}

// A command in one line is the shell's.
func TestCommandLine(t *testing.T) {
	if got := parse(t, "p.yaml", "command: npm start -- 'a b'\n").Settings.Command; !slices.Equal(got, []string{"/bin/sh", "-c", "npm start -- 'a b'"}) {
		t.Errorf("got %q", got)
	}
}

func TestYAMLErrors(t *testing.T) {
	for _, tt := range []struct{ data, want string }{
		{"log: {}\n\ntelemetry: {endpoint: 'https://otel.test'}\n", `p.yaml:3:1: agent-init sends nothing: an OpenTelemetry Collector or Fluent Bit reads the log, and Prometheus the metrics, see docs/migrating.md: "telemetry"`},
		{"log: {}\nagents:\n  - {name: a, address: 10.0.0.1}\n", `p.yaml:2:1: a gateway has one policy for all agents behind it: start another gateway for another policy, see docs/migrating.md: "agents"`},
		{"service: [claude]\n", `p.yaml:1:1: unknown key: "service" (did you mean services?)`},
		{"services: [cluade]\n", `p.yaml:1:12: unknown preset: "cluade" (did you mean claude?)`},
		{"services:\n  - claude required\n", `p.yaml:2:5: unknown preset: "claude required"`},
		{"domains: a.example\n", `p.yaml:1:10: domains must be a list, with - in front of each item: "a.example"`},
		{"domains:\n  - a.example\n  - https://b.example/\n", `p.yaml:3:5: an entry is a name, not a URL: "https://b.example/" (did you mean b.example?)`},
		{"domains:\n  - 'a.example optional'\n", `p.yaml:2:16: unknown flag: "optional"`},
		{"domains: [a.example: 443]\n", `p.yaml:1:11: an item of domains must be one value`},
		{"domains:\n  - host: a.example\n    rules:\n      - methods: [GET]\n", `p.yaml:2:5: rules for single requests stand behind the name, in an entry for each: "a.example" (did you mean a.example GET /PATH/**?)`},
		{"services:\n  - name: github\n    readonly: true\n", `p.yaml:2:5: a preset takes no rules: name its hosts under domains, with the requests behind them, or write a route under broker: "github"`},
		{"networks:\n  - host: 10.0.0.1\n", `p.yaml:2:5: an item of networks must be one value`},
		{"domains: ['']\n", `p.yaml:1:12: an item of domains is empty`},
		{"domains:\n  -\n", `p.yaml:2:4: an item of domains must be one value`},
		{"domains:\n  - |\n    a.example\n    b.example\n", `p.yaml:2:5: one entry per item: "a.example\nb.example\n"`},
		{"domains:\n  - *.example.com\n", `p.yaml:2:5: YAML needs quotes around this: "*.example.com" (did you mean "*.example.com"?)`},
		{"domains: [a.example, *.example.com]\n", `p.yaml:1:22: YAML needs quotes around this: "*.example.com" (did you mean "*.example.com"?)`},
		{"domains:\n  - a.example\n  - @github\n", `p.yaml:3:5: YAML needs quotes around this: "@github" (did you mean "@github"?)`},
		{"domains:\n  - !gist.github.com\n", `p.yaml:2:5: YAML needs quotes around this: "!gist.github.com" (did you mean "!gist.github.com"?)`},
		{"deny: ['!a.example']\n", `p.yaml:1:9: what stands here is denied already: leave out the !: "!a.example" (did you mean a.example?)`},
		{"networks: [a.example]\n", `p.yaml:1:12: networks are addresses; names stand under domains: "a.example"`},
		{"networks: [0.0.0.0/0]\n", `p.yaml:1:12: this allows everything: name the blocks that the agent needs: "0.0.0.0/0"`},
		{"a: &x [b]\ndomains: *x\n", "p.yaml:1:1: unknown key: \"a\"\np.yaml:2:10: domains must be a list, with - in front of each item: \"x\""},
		{"domains: [&x a.example, *x]\n", "p.yaml:1:11: anchors and aliases are not supported: \"a.example\"\np.yaml:1:25: anchors and aliases are not supported: \"x\""},
		{"env: {A: b, A: c}\n", `p.yaml:1:13: the key is there twice: "A"`},
		{"domains: []\ndomains: []\n", `p.yaml:2:1: the key is there twice: "domains"`},
		{"- a.example\n", `p.yaml:1:1: the file must be a list of key: value`},
		{"a.example\n", `p.yaml:1:1: the file must be a list of key: value: "a.example"`},
		{"domains: []\n---\ndomains: []\n", `p.yaml:2:1: only one document per file`},
		{"domains: [\n", `p.yaml:1:1: not valid YAML: did not find expected node content: "domains: ["`},
		{"domains:\n\t- a\n", `p.yaml:2:1: not valid YAML: found character that cannot start any token: "- a"`},
		{"inbound: [0]\n", `p.yaml:1:11: a port is one number from 1 to 65535: "0"`},
		{"user: ''\n", `p.yaml:1:8: a user is NAME, UID or UID:GID`},
		{"user: [a]\n", `p.yaml:1:7: user must be one value`},
		{"command: []\n", `p.yaml:1:10: a command is a list of arguments, or one line for the shell`},
		{"user: a b\n", `p.yaml:1:7: a user is NAME, UID or UID:GID: "a b"`},
		{"user: a,b\n", `p.yaml:1:7: a user is NAME, UID or UID:GID: "a,b"`},
		{"command: ' '\n", `p.yaml:1:11: the command is empty: " "`},
		{"command: \"a\\0b\"\n", `p.yaml:1:11: the command is empty: "a\x00b"`},
		{"command: [\"\"]\n", `p.yaml:1:12: not a valid argument`},
		{"command: [a, \"b\\0c\"]\n", `p.yaml:1:15: not a valid argument: "b\x00c"`},
		{"command: [a, [b]]\n", `p.yaml:1:14: an argument must be one value`},
		{"command: {}\n", `p.yaml:1:10: a command is a list of arguments, or one line for the shell`},
		{"env: [A=b]\n", `p.yaml:1:6: env must be a list of key: value`},
		{"env: {A: null}\n", `p.yaml:1:10: env.A must be one value: "null"`},
		{"env: {A=B: c}\n", `p.yaml:1:12: not a valid environment variable: "c"`},
		{"selftest: {raech: []}\n", `p.yaml:1:12: unknown key: "raech" (did you mean reach?)`},
		{"selftest: {reach: ['*.example.com']}\n", `p.yaml:1:21: a probe is one name or address, with a TCP port if it is not 443: "*.example.com"`},
		{"selftest: {reach: ['@github']}\n", `p.yaml:1:21: a probe is one name or address, with a TCP port if it is not 443: "@github"`},
		{"selftest: {reach: ['!a.example']}\n", `p.yaml:1:21: a probe is one name or address, with a TCP port if it is not 443: "!a.example"`},
		{"selftest: {reach: [a.example private]}\n", `p.yaml:1:20: a probe is one name or address, with a TCP port if it is not 443: "a.example private"`},
		{"selftest: {reach: [a.example required]}\n", `p.yaml:1:20: a probe is one name or address, with a TCP port if it is not 443: "a.example required"`},
		{"selftest: {reach: [10.0.0.0/8]}\n", `p.yaml:1:20: a probe is one name or address, with a TCP port if it is not 443: "10.0.0.0/8"`},
		{"selftest: {reach: ['https://a.example']}\n", `p.yaml:1:21: an entry is a name, not a URL: "https://a.example" (did you mean a.example?)`},
		{"selftest: {block: [a.example:53/udp]}\n", `p.yaml:1:20: a probe is one name or address, with a TCP port if it is not 443: "a.example:53/udp"`},
		{"dns: {upstream: [dns.example]}\n", `p.yaml:1:18: a DNS server is given by its address, as in 192.0.2.1 or 192.0.2.1:53: "dns.example"`},
		{"dns: {upstream: ['tls://192.0.2.1']}\n", `p.yaml:1:19: a server over TLS needs the name of its certificate, as in tls://192.0.2.1#dns.example: "tls://192.0.2.1"`},
		{"dns: {upstream: ['127.0.0.1:5353']}\n", `p.yaml:1:19: this is the container itself, where the agent can listen too: if your own server listens there as another user, write the word local behind it: "127.0.0.1:5353"`},
		{"dns: {upstream: ['[::ffff:127.0.0.53]:53']}\n", `p.yaml:1:19: this is the container itself, where the agent can listen too: if your own server listens there as another user, write the word local behind it: "[::ffff:127.0.0.53]:53"`},
		{"dns: {upstream: ['192.0.2.1 nearby']}\n", "p.yaml:1:19: behind a DNS server only the word local may stand, as in `127.0.0.1:5353 local`: \"192.0.2.1 nearby\""},
		{"dns: {upstream: [224.0.0.251]}\n", `p.yaml:1:18: not the address of a DNS server: "224.0.0.251"`},
		{"dns: {upstream: ['192.0.2.1:0']}\n", `p.yaml:1:19: not the address of a DNS server: "192.0.2.1:0"`},
		{"dns: {upstream: ['fe80::1%eth0']}\n", `p.yaml:1:19: not the address of a DNS server: "fe80::1%eth0"`},
		{"dns: {max_ttl: 0}\n", `p.yaml:1:16: dns.max_ttl is a time from 1s to 1h0m0s, as in 300s or 5m: "0"`},
		{"dns: {qps: many}\n", `p.yaml:1:12: dns.qps is a number from 1 to 1000000: "many"`},
		{"dns: {qps: 1000001}\n", `p.yaml:1:12: dns.qps is a number from 1 to 1000000: "1000001"`},
		{"dns: {qps: [1]}\n", `p.yaml:1:12: dns.qps must be one value`},
		{"dns: {max_ttl: [1]}\n", `p.yaml:1:16: dns.max_ttl must be one value`},
		{"dns: {max_ttl: 61m}\n", `p.yaml:1:16: dns.max_ttl is a time from 1s to 1h0m0s, as in 300s or 5m: "61m"`},
		{"log: {stdout: [true]}\n", `p.yaml:1:15: log.stdout must be one value`},
		{"log: {max_size: [1]}\n", `p.yaml:1:17: log.max_size must be one value`},
		{"log: {max_size: 1X}\n", `p.yaml:1:17: log.max_size is a size of at least 64KiB, as in 16MiB: "1X"`},
		{"log: {max_size: 64KiBB}\n", `p.yaml:1:17: log.max_size is a size of at least 64KiB, as in 16MiB: "64KiBB"`},
		{"limits: {lease: 1}\n", `p.yaml:1:10: unknown key: "lease" (did you mean leases?)`},
		{"limits: {leases: 0}\n", `p.yaml:1:18: limits.leases is a number from 1 to 1000000: "0"`},
		{"user_namespaces: never\n", `p.yaml:1:18: user_namespaces is true or false: "never"`},
		{"nice: -1\n", `p.yaml:1:7: nice is a number from 0 to 19: "-1"`},
		{"nice: 20\n", `p.yaml:1:7: nice is a number from 0 to 19: "20"`},
		{"session: {clipboard: off}\n", `p.yaml:1:22: session.clipboard is true or false: "off"`},
		{"log: {stdout: yes}\n", `p.yaml:1:15: log.stdout is true or false: "yes"`},
		{"log: {max_size: 1}\n", `p.yaml:1:17: log.max_size is a size of at least 64KiB, as in 16MiB: "1"`},
		{"log: {max_size: 9999999999G}\n", `p.yaml:1:17: log.max_size is a size of at least 64KiB, as in 16MiB: "9999999999G"`},
	} {
		if got := failure(t, "p.yaml", tt.data); got != tt.want {
			t.Errorf("%q:\n got %s\nwant %s", tt.data, got, tt.want)
		}
	}
}

func TestSettingsAreMadeOnce(t *testing.T) {
	_, err := Parse(&Bundle{Files: []File{
		{Name: "policy.yaml", Data: []byte("user: agent\ninbound: [1]\nenv: {A: b}\ncommand: [a]\n")},
		{Name: "allowlist.d/a.yaml", Data: []byte("user: agent\ninbound: [2]\nenv: {B: b}\ncommand: [b]\n")},
	}}, nil)
	want := join(
		`allowlist.d/a.yaml:1:7: already set in policy.yaml:1: "user"`,
		`allowlist.d/a.yaml:4:10: already set in policy.yaml:4: "command"`,
	)
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func TestSelfTestWarnings(t *testing.T) {
	p := parse(t, "p.yaml", "domains: [a.example]\nselftest: {reach: [b.example], block: [a.example]}\n")
	want := join(
		`p.yaml:2:20: selftest.reach names what the policy does not allow: the self-test will fail: "b.example:443"`,
		`p.yaml:2:40: selftest.block names what the policy allows: the self-test will fail: "a.example:443"`)
	if got := warnings(p); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A bomb of aliases is refused, and costs nothing: no node is expanded.
func TestYAMLBomb(t *testing.T) {
	var b strings.Builder
	b.WriteString("domains:\n - &a0 [x]\n")
	for i := 1; i < 40; i++ {
		fmt.Fprintf(&b, " - &a%d [%s]\n", i, strings.Repeat(fmt.Sprintf("*a%d,", i-1), 9))
	}
	if got := failure(t, "p.yaml", b.String()); !strings.Contains(got, "anchors and aliases are not supported") {
		t.Errorf("got %s", got)
	}
	failure(t, "p.yaml", strings.Repeat("[", 1<<16))
	failure(t, "p.yaml", "domains: "+strings.Repeat("{a: ", 1<<14))
}
