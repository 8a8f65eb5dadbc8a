package attack

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab"
)

// negotiation has squid take one token of a negotiation, by a helper that speaks as negotiate_kerberos_auth does: YR and a
// token come, and AF with a token and a user, or NA with a reason, is said.
func negotiation(t *testing.T, token string) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o755))
	helper := filepath.Join(dir, "helper")
	must(t, os.WriteFile(helper, []byte("#!/bin/sh\nwhile read word token; do\n  [ \"$word $token\" = 'YR "+token+"' ] && echo 'AF = corp' || echo 'NA = wrong'\ndone\n"), 0o755))
	return "auth_param negotiate program " + helper + "\nauth_param negotiate children 1\nacl known proxy_auth REQUIRED\nhttp_access deny !known\n"
}

// TestLabProxyCredentials: Debian's squid lets in who shows the credential, by each scheme, and nobody else. One that
// changes is shown from the next connection on. squid knows no scheme of bearers, so there a rule looks at the header.
func TestLabProxyCredentials(t *testing.T) {
	const token = "Y2FuYXJ5LW9mLXRoZS1wcm94eS0wMTIzNDU2Nzg5" // which every scheme can carry
	for scheme, rules := range map[string]func(t *testing.T) string{
		"basic":     func(t *testing.T) string { return basicUsers(t, "corp:"+token) },
		"negotiate": func(t *testing.T) string { return negotiation(t, token) },
		"bearer": func(*testing.T) string {
			return "acl known req_header Proxy-Authorization ^Bearer[[:space:]]" + token + "$\nhttp_access deny !known\n"
		},
	} {
		t.Run(scheme, func(t *testing.T) {
			l := newLab(t)
			secret := map[bool]string{true: "corp:" + token, false: token}[scheme == "basic"]
			refusal := map[bool]string{true: "the proxy refused (403)", false: "credential (407)"}[scheme == "bearer"]
			policy := "upstream_proxy: {to: 'http://proxy.corp.test:3128', credential: 'file:/run/secrets/proxy', auth: " + scheme + "}\n"
			c := behind(t, l, squid(t, l, rules(t)), policy, "ok.test\nok2.test\n", lab.File{Path: "/run/secrets/proxy", Data: []byte("wrong:wrong\n"), Mode: 0o400})
			c.blocked("http", "-ca", bundle, "https://ok.test/")
			c.audited("the refusal", func(e event) bool { return e.Kind == "connect" && e.Name == "ok.test" && strings.Contains(e.Reason, refusal) })
			must(t, c.box.WriteFile("/run/secrets/proxy", []byte(secret+"\n"), 0o400))
			if !eventually(lab.Patience, func() bool { return c.poke("http", "-ca", bundle, "https://ok2.test/").OK }) {
				t.Errorf("the credential is not taken: %q", c.asked())
			}
			if p := c.works("http", "-ca", bundle, "https://ok.test/"); !strings.Contains(fmt.Sprint(p.Detail["body"]), "sni=ok.test") {
				t.Errorf("not the name's own server: %s", p)
			}
			if got := c.askedBy(); scheme != "bearer" && !slices.ContainsFunc(got, func(s string) bool { return strings.HasSuffix(s, " 200 corp") }) {
				t.Errorf("squid knows nobody: %q", got)
			}
			c.onlyByProxy()
			if r := c.launch("sh", "-c", "cat /run/secrets/proxy; env; grep -ral "+token[:20]+" /run /var/log /tmp 2>/dev/null").Wait(0); strings.Contains(r.Stdout, token[20:]) {
				t.Errorf("the agent has the credential: %s", r)
			}
		})
	}
}
