package broker

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// negotiation has squid take one token of a negotiation, by a helper that speaks as negotiate_kerberos_auth does: YR
// and a token come, and AF with a token and a user, or NA with a reason, is said.
func negotiation(t *testing.T, token string) string {
	t.Helper()
	dir := t.TempDir()
	rig.Must(t, os.Chmod(dir, 0o755))
	helper := filepath.Join(dir, "helper")
	rig.Must(t, os.WriteFile(helper, []byte("#!/bin/sh\nwhile read word token; do\n  [ \"$word $token\" = 'YR "+token+"' ] && echo 'AF = corp' || echo 'NA = wrong'\ndone\n"), 0o755))
	return "auth_param negotiate program " + helper + "\nauth_param negotiate children 1\nacl known proxy_auth REQUIRED\nhttp_access deny !known\n"
}

// TestProxyCredentials: Debian's squid lets in who shows the credential, by each scheme, and nobody else. One that
// changes is shown from the next connection on. squid knows no scheme of bearers, so there a rule looks at the header.
func TestProxyCredentials(t *testing.T) {
	const token = "Y2FuYXJ5LW9mLXRoZS1wcm94eS0wMTIzNDU2Nzg5" // which every scheme can carry
	for scheme, rules := range map[string]func(t *testing.T) string{
		"basic":     func(t *testing.T) string { return basicUsers(t, "corp:"+token) },
		"negotiate": func(t *testing.T) string { return negotiation(t, token) },
		"bearer": func(*testing.T) string {
			return "acl known req_header Proxy-Authorization ^Bearer[[:space:]]" + token + "$\nhttp_access deny !known\n"
		},
	} {
		t.Run(scheme, func(t *testing.T) {
			l := rig.NewLab(t)
			secret := map[bool]string{true: "corp:" + token, false: token}[scheme == "basic"]
			refusal := map[bool]string{true: "the proxy refused (403)", false: "credential (407)"}[scheme == "bearer"]
			policy := "upstream_proxy: {to: 'http://proxy.corp.test:3128', credential: 'file:/run/secrets/proxy', auth: " + scheme + "}\n"
			c := behind(t, l, rig.Squid(t, l, rules(t)), policy, "ok.test\nok2.test\n", lab.File{Path: "/run/secrets/proxy", Data: []byte("wrong:wrong\n"), Mode: 0o400})
			c.Blocked("http", "-ca", rig.Bundle, "https://ok.test/")
			c.Audited("the refusal", func(e rig.Event) bool {
				return e.Kind == "connect" && e.Name == "ok.test" && strings.Contains(e.Reason, refusal)
			})
			rig.Must(t, c.Box.WriteFile("/run/secrets/proxy", []byte(secret+"\n"), 0o400))
			if !rig.Eventually(lab.Patience, func() bool { return c.Poke("http", "-ca", rig.Bundle, "https://ok2.test/").OK }) {
				t.Errorf("the credential is not taken: %q", c.Asked())
			}
			if p := c.Works("http", "-ca", rig.Bundle, "https://ok.test/"); !strings.Contains(fmt.Sprint(p.Detail["body"]), "sni=ok.test") {
				t.Errorf("not the name's own server: %s", p)
			}
			if got := askedBy(c); scheme != "bearer" && !slices.ContainsFunc(got, func(s string) bool { return strings.HasSuffix(s, " 200 corp") }) {
				t.Errorf("squid knows nobody: %q", got)
			}
			c.OnlyByProxy()
			if r := c.Launch("sh", "-c", "cat /run/secrets/proxy; env; grep -ral "+token[:20]+" /run /var/log /tmp 2>/dev/null").Wait(0); strings.Contains(r.Stdout, token[20:]) {
				t.Errorf("the agent has the credential: %s", r)
			}
		})
	}
}

// TestProxyRequests: squid as Debian has it takes plain HTTP as requests with whole URLs alone. So go the requests that
// the broker has judged, one by one, where the proxy is asked for names. Each shows the credential, and no answer does.
func TestProxyRequests(t *testing.T) {
	l := rig.NewLab(t)
	const token = "Y2FuYXJ5LW9mLXRoZS1wcm94eS0wMTIzNDU2Nzg5"
	policy := "upstream_proxy: {to: 'http://proxy.corp.test:3128', connect: name, credential: 'file:/run/secrets/proxy', auth: negotiate}\n"
	l.DNS.SetAddrs("lost.test", "45.30.70.70")
	l.DNS.SetAddrs("fresh.test", "45.30.70.71")
	c := behind(t, l, rig.Squid(t, l, negotiation(t, token)), policy, "ok.test:80 read\nok.test:443\nok2.test:80 POST /take/**\nlost.test:80 read\nfresh.test:80 read\nshared.test\n",
		lab.File{Path: "/run/secrets/proxy", Data: []byte(token + "\n"), Mode: 0o400})
	for range 3 {
		if p := c.Works("http", "http://ok.test/deb?x=1"); !strings.Contains(fmt.Sprint(p.Detail["body"]), "GET ok.test /deb") {
			t.Errorf("not the name's own server: %s", p)
		}
	}
	c.Works("http", "-method", "POST", "-body", "some", "http://ok2.test/take/it")
	want := []string{"GET http://ok.test/deb? 200 corp", "GET http://ok.test/deb? 200 corp", "GET http://ok.test/deb? 200 corp", "POST http://ok2.test/take/it 200 corp"}
	if got := askedBy(c); !slices.Equal(got, want) {
		t.Errorf("the proxy was asked %q, want %q", got, want)
	}
	for _, r := range l.Web.Requests("ok.test", "ok2.test") {
		if r.Header.Get("Proxy-Authorization") != "" {
			t.Errorf("the server was shown the credential: %v", r.Header)
		}
	}
	c.Says([]string{"explain", "http://ok.test/deb"}, "each request, by the broker", "onward by upstream_proxy", "by requests with whole URLs")
	// What is not allowed does not get to the proxy.
	addr := lab.Names()["ok.test"][0].String() + ":80"
	for _, args := range [][]string{
		{"-method", "POST", "http://ok.test/deb"}, {"-addr", addr, "http://evil.test/"}, {"-addr", addr, "http://ok2.test/take/it"},
		{"-method", "TRACE", "-header", "Max-Forwards: 0", "http://ok.test/"}, {"-method", "CONNECT", "http://ok.test/"}, {"http://shared.test/"},
	} {
		p := c.Poke(append([]string{"http"}, args...)...)
		if p.OK && rig.StatusOf(p) == "200" {
			t.Errorf("got through: %v: %s", args, p)
		}
	}
	if got := askedBy(c)[len(want):]; slices.ContainsFunc(got, func(s string) bool { return !strings.HasPrefix(s, "CONNECT shared.test:80 403") }) {
		t.Errorf("the proxy was asked %q", got)
	}
	// A page of the proxy's own, which may have in it what the proxy was asked.
	l.DNS.SetAddrs("lost.test") // the proxy finds no address
	p := c.Poke("http", "-timeout", "30s", "http://lost.test/")
	if body := fmt.Sprint(p.Detail["body"]); strings.Contains(body, token[:20]) || !strings.Contains(body, "by the upstream proxy: ") {
		t.Errorf("a page of the proxy's: %s", p)
	}
	c.Audited("it", func(e rig.Event) bool {
		return e.Name == "lost.test" && strings.Contains(e.Reason, "by the upstream proxy: ")
	})
	// As with a credential that it does not take. Connections that it has let in are so for as long as they last.
	rig.Must(t, c.Box.WriteFile("/run/secrets/proxy", []byte("wrong\n"), 0o400))
	c.Audited("another credential", func(e rig.Event) bool {
		return e.Reason == "credentials or certificate authorities of the broker have changed"
	})
	if p := c.Poke("http", "http://fresh.test/"); !strings.Contains(fmt.Sprint(p.Detail["body"]), "as a credential (407)") {
		t.Errorf("a wrong credential: %s", p)
	}
	c.OnlyByProxy()
}
