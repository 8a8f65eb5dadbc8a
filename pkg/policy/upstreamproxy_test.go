package policy

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/pkg/route"
)

const corpProxy = "upstream_proxy: http://proxy.corp.example:3128\n"

func TestUpstreamProxy(t *testing.T) {
	for name, tc := range map[string]struct {
		yaml string
		want route.Proxy
	}{
		"the URL alone": {corpProxy, route.Proxy{Host: "proxy.corp.example", Port: 3128}},
		"an address":    {"upstream_proxy: http://10.0.0.7:8080/\n", route.Proxy{Host: "10.0.0.7", Port: 8080}},
		"a credential": {"upstream_proxy: {to: 'http://[fd00::7]:8080', credential: 'file:/run/secrets/proxy'}\n",
			route.Proxy{Host: "fd00::7", Port: 8080, Credential: "/run/secrets/proxy", Scheme: route.Basic}},
		"all": {"upstream_proxy: {to: 'http://p.example:3128', credential: 'file:/t', auth: negotiate, resolve: proxy, straight: ['*.corp.example', '10.0.0.0/8:22']}\n",
			route.Proxy{Host: "p.example", Port: 3128, Credential: "/t", Scheme: route.Negotiate, ByName: true, Resolves: true,
				Straight: []route.Straight{{Name: "corp.example", Wildcard: true}, {Prefix: netip.MustParsePrefix("10.0.0.0/8"), Port: 22}}}},
	} {
		t.Run(name, func(t *testing.T) {
			p := parse(t, "policy.yaml", tc.yaml)
			got := p.Settings.UpstreamProxy
			if got.String() != tc.want.String() || got.Credential != tc.want.Credential || got.Scheme != tc.want.Scheme || len(got.Straight) != len(tc.want.Straight) {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
			for i := range tc.want.Straight {
				if got.Straight[i] != tc.want.Straight[i] {
					t.Errorf("straight: got %+v, want %+v", got.Straight[i], tc.want.Straight[i])
				}
			}
		})
	}
}

// What can't go by the proxy is an error, unless a word says that it goes straight. No error repeats a password.
func TestUpstreamProxyErrors(t *testing.T) {
	const all = "upstream_proxy: {to: 'http://proxy.corp.example:3128', "
	for name, tc := range map[string]struct{ yaml, list, want string }{
		"a user in the URL":    {"upstream_proxy: http://u:hunter2@p.example:3128\n", "", "no credential stands in the URL"},
		"no port":              {"upstream_proxy: http://p.example\n", "", "a proxy is http://HOST:PORT"},
		"https":                {"upstream_proxy: https://p.example:443\n", "", "without TLS"},
		"socks":                {"upstream_proxy: socks5://p.example:1080\n", "", "a proxy is http://HOST:PORT"},
		"loopback":             {"upstream_proxy: http://127.0.0.1:3128\n", "", "loopback"},
		"metadata":             {"upstream_proxy: http://169.254.169.254:80\n", "", "never reached"},
		"no proxy":             {"upstream_proxy: {resolve: proxy}\n", "", "say which proxy it is"},
		"auth alone":           {all + "auth: bearer}\n", "", "say where it is"},
		"a secret":             {all + "credential: hunter2}\n", "", "file:/PATH"},
		"an address to name":   {all + "resolve: proxy, connect: address}\n", "", "there is no address to ask the proxy for"},
		"an entry by address":  {corpProxy, "192.0.2.1:5432", "an entry by address can't go by upstream_proxy"},
		"a block":              {all + "straight: ['10.1.0.0/16']}\n", "10.0.0.0/8:22", "an entry by address can't go by upstream_proxy"},
		"direct":               {corpProxy, "a.example direct", "what is direct can't go by upstream_proxy"},
		"another port":         {corpProxy, "a.example:22", "port 22/tcp is not"},
		"udp":                  {corpProxy, "a.example:443/udp", "nothing but TCP"},
		"a part of a wildcard": {all + "straight: [b.a.example]}\n", "*.a.example:22", "port 22/tcp is not"},
		"the proxy":            {corpProxy, "proxy.corp.example:3128", "this is the upstream proxy"},
		"the proxy's address":  {"upstream_proxy: {to: 'http://10.0.0.7:3128', straight: ['10.0.0.7']}\n", "10.0.0.7:3128", "the agent never reaches it"},
		"a block with it":      {all + "straight: ['10.0.0.0/8']}\n", "10.0.0.0/8:3128", "may be in this block"},
		"two ways, one name":   {all + "resolve: proxy, straight: ['a.example:22']}\n", "a.example\na.example:22", "on all of its ports, or on none"},
		"stand-ins by address": {all + "resolve: proxy, straight: ['198.18.0.0/15']}\n", "198.18.0.1:22", "stand in for names"},
		"stand-ins denied":     {all + "resolve: proxy}\n", "!198.18.1.0/24", "stand in for names"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse(&Bundle{Files: []File{{Name: "policy.yaml", Data: []byte(tc.yaml)}, {Name: "a.txt", Data: []byte(tc.list)}}}, nil)
			if err == nil || !strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "hunter2@") {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
	for name, list := range map[string]string{
		"by name": "a.example\n*.b.example\nc.example:8443 tls\nd.example:8080 http\ne.example read\n", "past it": "git.corp.example:22\n10.1.2.3:5432\nntp.corp.example:123/udp\nd.corp.example direct\n",
	} {
		t.Run(name, func(t *testing.T) {
			p, err := Parse(&Bundle{Files: []File{{Name: "policy.yaml", Data: []byte(all + "straight: ['*.corp.example', '10.0.0.0/8']}\n")}, {Name: "a.txt", Data: []byte(list)}}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			for r := range p.Rules() {
				if r.Name != "" && p.Proxied(r.Name, r.Ports[0]) != (name == "by name") {
					t.Errorf("%s goes another way", r)
				}
			}
		})
	}
}

// Where the proxy resolves, a name may have the one address that stands in for it, on what goes by the proxy.
func TestStandIn(t *testing.T) {
	p, err := Parse(&Bundle{Files: []File{
		{Name: "policy.yaml", Data: []byte("upstream_proxy: {to: 'http://p.example:3128', resolve: proxy, straight: [near.example]}\n")},
		{Name: "a.txt", Data: []byte("a.example\nb.example\nnear.example\n")},
	}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	a, ok := p.StandIn("A.example.")
	b, _ := p.StandIn("b.example")
	if !ok || a == b || !standIns.Contains(a) {
		t.Fatalf("%v and %v stand in, %v", a, b, ok)
	}
	for _, name := range []string{"near.example", "c.example", "p.example"} {
		if a, ok := p.StandIn(name); ok {
			t.Errorf("%v stands in for %s", a, name)
		}
	}
	if len(p.Admit("a.example", a)) != 2 || p.Admit("a.example", b) != nil || p.Admit("a.example", netip.MustParseAddr("192.0.2.1")) != nil {
		t.Error("a.example may have another address")
	}
	if p.Admit("near.example", a) != nil || len(p.Admit("near.example", netip.MustParseAddr("192.0.2.1"))) != 2 {
		t.Error("what goes past the proxy is not resolved as ever")
	}
	if _, ok := p.Broker.StandIn("p.example"); ok || len(p.Broker.Admit("p.example", netip.MustParseAddr("10.0.0.7"))) != 1 {
		t.Error("the proxy's own name is not resolved as ever")
	}
}
