package broker

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// basicUsers are rules by which squid lets in who shows one of these, USER:PASSWORD.
func basicUsers(t *testing.T, users ...string) string {
	t.Helper()
	dir := t.TempDir()
	rig.Must(t, os.WriteFile(filepath.Join(dir, "users"), []byte(strings.Join(users, "\n")+"\n"), 0o644))
	helper := filepath.Join(dir, "helper")
	rig.Must(t, os.WriteFile(helper, []byte("#!/bin/sh\nwhile read user pass; do grep -q \"^$user:$pass\\$\" "+dir+"/users && echo OK || echo ERR; done\n"), 0o755))
	rig.Must(t, os.Chmod(dir, 0o755))
	return "auth_param basic program " + helper + "\nauth_param basic children 1\nacl known proxy_auth REQUIRED\nhttp_access deny !known\n"
}

// askedBy is asked, with who has asked behind each, and without what was refused.
func askedBy(c *rig.Corporate) (all []string) {
	data, _ := os.ReadFile(filepath.Join(c.Dir, "access.log"))
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 7 && f[7] != "-" {
			_, status, _ := strings.Cut(f[3], "/")
			all = append(all, f[5]+" "+f[6]+" "+status+" "+f[7])
		}
	}
	return all
}

// behind confines a box whose only way out is the proxy.
func behind(t *testing.T, l *lab.Lab, dir, policy, list string, files ...lab.File) *rig.Corporate {
	t.Helper()
	l.DNS.SetAddrs(rig.SquidName, rig.SquidAddr)
	files = append(files, lab.File{Path: rig.Bundle, Data: l.CA.PEM}, lab.File{Path: "/etc/agent-init/policy.yaml", Data: []byte(policy)})
	return &rig.Corporate{World: rig.ConfineIn(t, l, list, lab.BoxOptions{Files: files}), Dir: dir}
}

// TestProxySquid: what is allowed arrives by the proxy alone, which is asked for the address that the name was given.
// What is not allowed does not get there, and the agent does not reach the proxy.
func TestProxySquid(t *testing.T) {
	l := rig.NewLab(t)
	c := behind(t, l, rig.Squid(t, l, ""), rig.ByProxy+"selftest: {reach: ['ok.test:443']}\n", "ok.test required\nok2.test\n")
	if p := c.Works("http", "-ca", rig.Bundle, "https://ok.test/by-proxy"); !strings.Contains(fmt.Sprint(p.Detail["body"]), "sni=ok.test") {
		t.Errorf("not the name's own server: %s", p)
	}
	addrs := lab.Names()["ok.test"]
	askedFor := func(addrs []netip.Addr) bool {
		return slices.ContainsFunc(c.Asked(), func(s string) bool {
			target, ok := strings.CutPrefix(s, "CONNECT ")
			to, err := netip.ParseAddrPort(strings.TrimSuffix(target, " 200"))
			return ok && err == nil && to.Port() == 443 && slices.Contains(addrs, to.Addr())
		})
	}
	// Squid notes a connection when it has ended: those before it are noted once this one is.
	c.Works("http", "-ca", rig.Bundle, "https://ok2.test/")
	if !rig.Eventually(lab.Patience, func() bool { return askedFor(lab.Names()["ok2.test"]) }) || !askedFor(addrs) {
		t.Errorf("the proxy was asked %q", c.Asked())
	}
	c.OnlyByProxy()
	before := len(c.Asked())
	c.Blocked("http", "-ca", rig.Bundle, "https://evil.test/")
	c.Blocked("http", "-ca", rig.Bundle, "-addr", addrs[0].String()+":443", "https://evil.test/") // another name, at an address of its
	for _, to := range []string{rig.SquidAddr + ":3128", addrs[0].String() + ":8443"} {
		if p := c.Blocked("tcp", to); !rig.RefusedAtOnce(p.Errno) {
			t.Errorf("%s: %s", to, p)
		}
	}
	c.Blocked("resolve", rig.SquidName)
	if now := len(c.Asked()); now != before {
		t.Errorf("the proxy was asked for more: %q", c.Asked()[before:])
	}
	if r := c.Root("cat", "/run/agent-init/selftest.json"); !strings.Contains(r.Stdout, `"ok.test"`) {
		t.Errorf("the self-test does not reach ok.test: %s", r)
	}
	c.OnlyByProxy()
}

// TestProxyHTTP: squid as Debian has it takes no CONNECT to port 80. The refusal is in the log, and nothing goes
// straight. Once squid is told that port 80 is one for CONNECT, requests arrive, each judged as ever.
func TestProxyHTTP(t *testing.T) {
	t.Run("as it is", func(t *testing.T) {
		l := rig.NewLab(t)
		c := behind(t, l, rig.Squid(t, l, ""), rig.ByProxy, "ok.test\n")
		c.Blocked("http", "http://ok.test/")
		c.Audited("the refusal", func(e rig.Event) bool {
			return e.Kind == "connect" && e.Name == "ok.test" && e.Port == 80 && strings.Contains(e.Reason, "by the upstream proxy: the proxy refused (403)")
		})
		c.OnlyByProxy()
	})
	t.Run("told of port 80", func(t *testing.T) {
		l := rig.NewLab(t)
		c := behind(t, l, rig.Squid(t, l, "acl SSL_ports port 80\n"), rig.ByProxy, "ok.test\n")
		c.Works("http", "http://ok.test/")
		if p := c.Poke("http", "-addr", lab.Names()["ok.test"][0].String()+":80", "http://evil.test/"); rig.StatusOf(p) != "403" {
			t.Errorf("another host: %s", p)
		}
		if got := l.Web.Requests("evil.test"); len(got) > 0 {
			t.Errorf("another host was reached: %v", got)
		}
		c.OnlyByProxy()
	})
}

// TestProxyName: the proxy is asked for names, looks them up alone, and wants a credential, which nobody but the broker
// has. The agent gets an address that stands in for each name, and no DNS server hears of it.
func TestProxyName(t *testing.T) {
	l := rig.NewLab(t)
	rules := basicUsers(t, "corp:"+rig.ProxySecret)
	policy := "upstream_proxy:\n  to: http://proxy.corp.test:3128\n  resolve: proxy\n  credential: file:/run/secrets/proxy\n  straight: [near.test]\n"
	l.DNS.SetAddrs("near.test", "45.30.60.9")
	c := behind(t, l, rig.Squid(t, l, rules), policy, "ok.test required\nnear.test\nshared.test\n",
		lab.File{Path: "/run/secrets/proxy", Data: []byte("corp:" + rig.ProxySecret + "\n"), Mode: 0o400})
	p := c.Works("http", "-ca", rig.Bundle, "https://ok.test/")
	if !strings.Contains(fmt.Sprint(p.Detail["body"]), "sni=ok.test") {
		t.Errorf("not the name's own server: %s", p)
	}
	if got := c.Asked(); !slices.Contains(got, "CONNECT ok.test:443 200") {
		t.Errorf("the proxy was asked %q", got)
	}
	var stood netip.Addr
	for _, s := range strings.Fields(fmt.Sprint(c.Works("resolve", "ok.test").Detail["addrs"])) {
		stood, _ = netip.ParseAddr(strings.Trim(s, "[]"))
		if !netip.MustParsePrefix("198.18.0.0/15").Contains(stood) {
			t.Errorf("ok.test is %s for the agent", stood)
		}
	}
	c.OnlyByProxy()
	c.Works("http", "-ca", rig.Bundle, "https://near.test/") // past it, by a word
	c.Blocked("http", "-ca", rig.Bundle, "-addr", stood.String()+":443", "https://shared.test/")
	c.Blocked("http", "-ca", rig.Bundle, "-addr", stood.String()+":443", "https://evil.test/")
	c.Blocked("tcp", stood.String()+":8443")
	if got := fmt.Sprint(c.Asked()); strings.Contains(got, "shared.test") || strings.Contains(got, "evil.test") || strings.Contains(got, "near.test") {
		t.Errorf("the proxy was asked %s", got)
	}
	c.Sealed(lab.ToAddr("198.18.0.0/15"))
	for _, q := range l.Queries("ok.test", "shared.test") { // squid asks from the internet itself
		if q.Client.Addr() == c.Box.Addr4() || q.Client.Addr() == c.Box.Addr6() {
			t.Errorf("a DNS server was asked by the box: %v", q)
		}
	}
	secretless(c)
}

// secretless fails the test if the agent can read the proxy's credential, or agent-init or a process but the broker and
// the keeper has it.
func secretless(c *rig.Corporate) {
	c.Helper()
	r := c.Launch("sh", "-c", `K='canar[y]-of-the-proxy'; grep -ral -e "$K" /run /var/log /etc /tmp /dev/shm 2>/dev/null; env
agent-init status; agent-init status --json; agent-init log; agent-init explain ok.test; agent-init check --effective; true`).Wait(0)
	if out := r.Stdout + r.Stderr + c.Agent.Stdout() + c.Agent.Stderr(); strings.Contains(out, rig.ProxySecret[7:]) {
		c.Errorf("the credential is shown: %s", out)
	}
	for _, g := range rig.Guards(c.T, c.Agent) {
		rig.EachArea(c.T, g, func(area []byte) {
			if bytes.Contains(area, []byte(rig.ProxySecret)) {
				c.Error("the guard has the credential of the proxy")
			}
		})
	}
}

// TestProxyMitm: behind a proxy that breaks TLS, programs see its certificate. What trusts the corporation's authority
// works, the broker as well, and the names that the proxy sees are those that the gate has let through.
func TestProxyMitm(t *testing.T) {
	l := rig.NewLab(t)
	dir := t.TempDir()
	rig.InInternet(t, l, "mitmdump", "--listen-port", fmt.Sprint(rig.SquidPort), "--set", "confdir="+dir, "--set", "ssl_verify_upstream_trusted_ca="+l.CAFile(),
		"--set", "connection_strategy=lazy", "--set", "flow_detail=1")
	corporation, err := os.ReadFile(filepath.Join(dir, "mitmproxy-ca-cert.pem"))
	rig.Must(t, err)
	l.DNS.SetAddrs("api.corp.test", "45.30.50.9")
	policy := rig.ByProxy + "broker:\n  tickets:\n    to: https://api.corp.test/v1/\n    credential: file:/run/secrets/tickets\n" +
		"    inject: {header: Authorization, value: 'Bearer {}'}\n    allow: ['GET /items/**']\n    env: {TICKETS_URL: '{base}', TICKETS_KEY: '{token}'}\n"
	trusts := slices.Concat(l.CA.PEM, corporation)
	l.DNS.SetAddrs(rig.SquidName, rig.SquidAddr)
	w := rig.ConfineIn(t, l, "ok.test\n", lab.BoxOptions{Files: []lab.File{
		{Path: rig.Bundle, Data: trusts}, {Path: "/etc/internet.pem", Data: l.CA.PEM}, {Path: "/etc/agent-init/policy.yaml", Data: []byte(policy)},
		{Path: "/run/secrets/tickets", Data: []byte("canary-of-tickets\n"), Mode: 0o400},
	}})
	c := &rig.Corporate{World: w, Dir: dir}
	c.Works("http", "-ca", rig.Bundle, "https://ok.test/through")
	if p := c.Blocked("http", "-ca", "/etc/internet.pem", "https://ok.test/"); !strings.Contains(p.Err, "certificate") {
		t.Errorf("who does not trust the corporation: %s", p)
	}
	b := &rig.Brokered{World: w}
	base, token := b.Variable("TICKETS_URL"), b.Variable("TICKETS_KEY")
	if p := c.Poke("http", "-timeout", "30s", "-header", "authorization: Bearer "+token, base+"/items/1"); !p.OK {
		t.Errorf("the broker: %s", p)
	}
	got := l.Web.Requests("api.corp.test")
	if len(got) != 1 || got[0].Header.Get("Authorization") != "Bearer canary-of-tickets" {
		t.Errorf("api.corp.test was asked %+v", got)
	}
	if n := len(l.Web.Requests("ok.test")); n != 1 {
		t.Errorf("ok.test was asked %d times", n)
	}
	c.OnlyByProxy()
}

// TestProxyVariables: Docker puts the proxies of its config.json into containers. A start says that programs will ask a
// proxy that no entry allows, and nothing where they reach it, or it is the container's own.
func TestProxyVariables(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	for value, warned := range map[string]string{
		"http://proxy.corp.test:3128": "proxy.corp.test:3128", "10.9.9.9:8080": "10.9.9.9:8080",
		"http://ok.test:3128": "", "http://127.0.0.1:9": "", "socks5://localhost:9": "", "": "",
	} {
		w := rig.StartIn(t, l, "ok.test:3128\n", lab.BoxOptions{Env: []string{"https_proxy=" + value, "HTTPS_PROXY=" + value}}, "agent-init", "run", "--", "true")
		r := w.Agent.Wait(lab.Patience)
		want := "programs will ask the proxy " + warned + ", which no entry allows: HTTPS_PROXY, https_proxy"
		if said := strings.Contains(r.Stderr, want); r.Code != 0 || said != (warned != "") || warned == "" && strings.Contains(r.Stderr, "proxy") {
			t.Errorf("%q: %s", value, r)
		}
	}
}
