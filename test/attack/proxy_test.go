package attack

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
)

// The corporation's proxy, in the lab's internet. Its name has a private address, as such proxies have.
const (
	squidAddr = "10.77.0.8"
	squidPort = 3128
	squidName = "proxy.corp.test"
)

// squidDefaults are the rules of Debian's squid.conf, with its own network let in.
const squidDefaults = `acl localnet src 172.30.0.0/16
acl SSL_ports port 443
acl Safe_ports port 80 21 443 70 210 1025-65535 280 488 591 777
http_access deny !Safe_ports
http_access deny CONNECT !SSL_ports
http_access deny manager
`

// corporate is a world behind a proxy.
type corporate struct {
	*world
	dir string // of the proxy
}

// inInternet starts a real server in the lab's internet, and waits for it to listen on the proxy's port.
func inInternet(t *testing.T, l *lab.Lab, program string, args ...string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		if os.Getenv("AGENT_INIT_MUST_RUN") != "" {
			t.Fatalf("%s is not there: test/prepare.sh all", program)
		}
		t.Skipf("%s is not there", program)
	}
	l.Claim("tcp", squidPort)
	var out strings.Builder
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	must(t, l.Internet.Start(cmd))
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
		<-ended
	})
	listens := func() bool {
		conn, err := l.Internet.Dial(t.Context(), "tcp", netip.AddrPortFrom(netip.MustParseAddr(squidAddr), squidPort).String(), netip.AddrPort{})
		if err == nil {
			conn.Close()
		}
		return err == nil || len(ended) > 0
	}
	if !eventually(lab.Patience, listens) || len(ended) > 0 {
		t.Fatalf("%s does not listen: %s", program, out.String())
	}
}

// squid starts Debian's squid, with rules before the one that lets the lab's boxes in.
func squid(t *testing.T, l *lab.Lab, rules string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	must(t, os.Chmod(dir, 0o777))
	conf := fmt.Sprintf("http_port %d\n%s%shttp_access allow localnet\nhttp_access deny all\ncache deny all\npid_filename none\n"+
		"access_log stdio:%s/access.log\ncache_log %[4]s/cache.log\ncoredump_dir %[4]s\ndns_nameservers %[5]s\nshutdown_lifetime 0 seconds\n",
		squidPort, squidDefaults, rules, dir, lab.Upstream4)
	must(t, os.WriteFile(filepath.Join(dir, "squid.conf"), []byte(conf), 0o644))
	for up := dir; up != filepath.Clean(os.TempDir()); up = filepath.Dir(up) { // it is another user's
		if info, err := os.Stat(up); err == nil {
			_ = os.Chmod(up, info.Mode().Perm()|0o011)
		}
	}
	inInternet(t, l, "/usr/sbin/squid", "-N", "-f", filepath.Join(dir, "squid.conf"))
	return dir
}

// behind confines a box whose only way out is the proxy.
func behind(t *testing.T, l *lab.Lab, dir, policy, list string, files ...lab.File) *corporate {
	t.Helper()
	l.DNS.SetAddrs(squidName, squidAddr)
	files = append(files, lab.File{Path: bundle, Data: l.CA.PEM}, lab.File{Path: "/etc/agent-init/policy.yaml", Data: []byte(policy)})
	return &corporate{confineIn(t, l, list, lab.BoxOptions{Files: files}), dir}
}

// asked are the requests that the proxy's log has, METHOD TARGET STATUS.
func (c *corporate) asked() (all []string) {
	data, _ := os.ReadFile(filepath.Join(c.dir, "access.log"))
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) > 6 {
			_, status, _ := strings.Cut(f[3], "/")
			all = append(all, f[5]+" "+f[6]+" "+status)
		}
	}
	return all
}

// onlyByProxy fails the test if something went past the proxy.
func (c *corporate) onlyByProxy() {
	c.Helper()
	c.onlyByProxyBut(func(*lab.Packet) bool { return false })
}

func (c *corporate) onlyByProxyBut(straight func(*lab.Packet) bool) {
	c.Helper()
	c.sealed(func(p *lab.Packet) bool {
		return p.DstPort != 53 && (p.Dst.String() != squidAddr || p.DstPort != squidPort) && !straight(p)
	})
}

const byProxy = "upstream_proxy: http://proxy.corp.test:3128\n"

// TestProxySquid: what is allowed arrives by the proxy alone, which is asked for the address that the name was given.
// What is not allowed does not get there, and the agent does not reach the proxy.
func TestProxySquid(t *testing.T) {
	l := newLab(t)
	c := behind(t, l, squid(t, l, ""), byProxy+"selftest: {reach: ['ok.test:443']}\n", "ok.test required\nok2.test\n")
	if p := c.works("http", "-ca", bundle, "https://ok.test/by-proxy"); !strings.Contains(fmt.Sprint(p.Detail["body"]), "sni=ok.test") {
		t.Errorf("not the name's own server: %s", p)
	}
	addrs := lab.Names()["ok.test"]
	askedFor := func(addrs []netip.Addr) bool {
		return slices.ContainsFunc(c.asked(), func(s string) bool {
			target, ok := strings.CutPrefix(s, "CONNECT ")
			to, err := netip.ParseAddrPort(strings.TrimSuffix(target, " 200"))
			return ok && err == nil && to.Port() == 443 && slices.Contains(addrs, to.Addr())
		})
	}
	// Squid notes a connection when it has ended: those before it are noted once this one is.
	c.works("http", "-ca", bundle, "https://ok2.test/")
	if !eventually(lab.Patience, func() bool { return askedFor(lab.Names()["ok2.test"]) }) || !askedFor(addrs) {
		t.Errorf("the proxy was asked %q", c.asked())
	}
	c.onlyByProxy()
	before := len(c.asked())
	c.blocked("http", "-ca", bundle, "https://evil.test/")
	c.blocked("http", "-ca", bundle, "-addr", addrs[0].String()+":443", "https://evil.test/") // another name, at an address of its
	for _, to := range []string{squidAddr + ":3128", addrs[0].String() + ":8443"} {
		if p := c.blocked("tcp", to); !refusedAtOnce(p.Errno) {
			t.Errorf("%s: %s", to, p)
		}
	}
	c.blocked("resolve", squidName)
	if now := len(c.asked()); now != before {
		t.Errorf("the proxy was asked for more: %q", c.asked()[before:])
	}
	if r := c.root("cat", "/run/agent-init/selftest.json"); !strings.Contains(r.Stdout, `"ok.test"`) {
		t.Errorf("the self-test does not reach ok.test: %s", r)
	}
	c.onlyByProxy()
}

// TestProxyHTTP: squid as Debian has it takes no CONNECT to port 80. The refusal is in the log, and nothing goes
// straight. Once squid is told that port 80 is one for CONNECT, requests arrive, each judged as ever.
func TestProxyHTTP(t *testing.T) {
	t.Run("as it is", func(t *testing.T) {
		l := newLab(t)
		c := behind(t, l, squid(t, l, ""), byProxy, "ok.test\n")
		c.blocked("http", "http://ok.test/")
		c.audited("the refusal", func(e event) bool {
			return e.Kind == "connect" && e.Name == "ok.test" && e.Port == 80 && strings.Contains(e.Reason, "by the upstream proxy: the proxy refused (403)")
		})
		c.onlyByProxy()
	})
	t.Run("told of port 80", func(t *testing.T) {
		l := newLab(t)
		c := behind(t, l, squid(t, l, "acl SSL_ports port 80\n"), byProxy, "ok.test\n")
		c.works("http", "http://ok.test/")
		if p := c.poke("http", "-addr", lab.Names()["ok.test"][0].String()+":80", "http://evil.test/"); statusOf(p) != "403" {
			t.Errorf("another host: %s", p)
		}
		if got := l.Web.Requests("evil.test"); len(got) > 0 {
			t.Errorf("another host was reached: %v", got)
		}
		c.onlyByProxy()
	})
}

// TestProxyName: the proxy is asked for names, looks them up alone, and wants a credential, which nobody but the broker
// has. The agent gets an address that stands in for each name, and no DNS server hears of it.
func TestProxyName(t *testing.T) {
	l := newLab(t)
	rules := basicUsers(t, "corp:"+proxySecret)
	policy := "upstream_proxy:\n  to: http://proxy.corp.test:3128\n  resolve: proxy\n  credential: file:/run/secrets/proxy\n  straight: [near.test]\n"
	l.DNS.SetAddrs("near.test", "45.30.60.9")
	c := behind(t, l, squid(t, l, rules), policy, "ok.test required\nnear.test\nshared.test\n",
		lab.File{Path: "/run/secrets/proxy", Data: []byte("corp:" + proxySecret + "\n"), Mode: 0o400})
	p := c.works("http", "-ca", bundle, "https://ok.test/")
	if !strings.Contains(fmt.Sprint(p.Detail["body"]), "sni=ok.test") {
		t.Errorf("not the name's own server: %s", p)
	}
	if got := c.asked(); !slices.Contains(got, "CONNECT ok.test:443 200") {
		t.Errorf("the proxy was asked %q", got)
	}
	var stood netip.Addr
	for _, s := range strings.Fields(fmt.Sprint(c.works("resolve", "ok.test").Detail["addrs"])) {
		stood, _ = netip.ParseAddr(strings.Trim(s, "[]"))
		if !netip.MustParsePrefix("198.18.0.0/15").Contains(stood) {
			t.Errorf("ok.test is %s for the agent", stood)
		}
	}
	c.onlyByProxy()
	c.works("http", "-ca", bundle, "https://near.test/") // past it, by a word
	c.blocked("http", "-ca", bundle, "-addr", stood.String()+":443", "https://shared.test/")
	c.blocked("http", "-ca", bundle, "-addr", stood.String()+":443", "https://evil.test/")
	c.blocked("tcp", stood.String()+":8443")
	if got := fmt.Sprint(c.asked()); strings.Contains(got, "shared.test") || strings.Contains(got, "evil.test") || strings.Contains(got, "near.test") {
		t.Errorf("the proxy was asked %s", got)
	}
	c.sealed(lab.ToAddr("198.18.0.0/15"))
	for _, q := range l.Queries("ok.test", "shared.test") { // squid asks from the internet itself
		if q.Client.Addr() == c.box.Addr4() || q.Client.Addr() == c.box.Addr6() {
			t.Errorf("a DNS server was asked by the box: %v", q)
		}
	}
	c.secretless()
}

// proxySecret is what the proxy takes. Nobody but the broker may have it.
const proxySecret = "canary-of-the-proxy-0123456789"

// secretless fails the test if the agent can read the proxy's credential, or agent-init or a process but the broker and
// the keeper has it.
func (c *corporate) secretless() {
	c.Helper()
	r := c.launch("sh", "-c", `K='canar[y]-of-the-proxy'; grep -ral -e "$K" /run /var/log /etc /tmp /dev/shm 2>/dev/null; env
agent-init status; agent-init status --json; agent-init log; agent-init explain ok.test; agent-init check --effective; true`).Wait(0)
	if out := r.Stdout + r.Stderr + c.agent.Stdout() + c.agent.Stderr(); strings.Contains(out, proxySecret[7:]) {
		c.Errorf("the credential is shown: %s", out)
	}
	for _, g := range guards(c.T, c.agent) {
		eachArea(c.T, g, func(area []byte) {
			if bytes.Contains(area, []byte(proxySecret)) {
				c.Error("the guard has the credential of the proxy")
			}
		})
	}
}

// TestProxyMitm: behind a proxy that breaks TLS, programs see its certificate. What trusts the corporation's authority
// works, the broker as well, and the names that the proxy sees are those that the gate has let through.
func TestProxyMitm(t *testing.T) {
	l := newLab(t)
	dir := t.TempDir()
	inInternet(t, l, "mitmdump", "--listen-port", fmt.Sprint(squidPort), "--set", "confdir="+dir, "--set", "ssl_verify_upstream_trusted_ca="+l.CAFile(),
		"--set", "connection_strategy=lazy", "--set", "flow_detail=1")
	corporation, err := os.ReadFile(filepath.Join(dir, "mitmproxy-ca-cert.pem"))
	must(t, err)
	l.DNS.SetAddrs("api.corp.test", "45.30.50.9")
	policy := byProxy + "broker:\n  tickets:\n    to: https://api.corp.test/v1/\n    credential: file:/run/secrets/tickets\n" +
		"    inject: {header: Authorization, value: 'Bearer {}'}\n    allow: ['GET /items/**']\n    env: {TICKETS_URL: '{base}', TICKETS_KEY: '{token}'}\n"
	trusts := slices.Concat(l.CA.PEM, corporation)
	l.DNS.SetAddrs(squidName, squidAddr)
	w := confineIn(t, l, "ok.test\n", lab.BoxOptions{Files: []lab.File{
		{Path: bundle, Data: trusts}, {Path: "/etc/internet.pem", Data: l.CA.PEM}, {Path: "/etc/agent-init/policy.yaml", Data: []byte(policy)},
		{Path: "/run/secrets/tickets", Data: []byte("canary-of-tickets\n"), Mode: 0o400},
	}})
	c := &corporate{w, dir}
	c.works("http", "-ca", bundle, "https://ok.test/through")
	if p := c.blocked("http", "-ca", "/etc/internet.pem", "https://ok.test/"); !strings.Contains(p.Err, "certificate") {
		t.Errorf("who does not trust the corporation: %s", p)
	}
	b := &brokered{world: w}
	base, token := b.variable("TICKETS_URL"), b.variable("TICKETS_KEY")
	if p := c.poke("http", "-timeout", "30s", "-header", "authorization: Bearer "+token, base+"/items/1"); !p.OK {
		t.Errorf("the broker: %s", p)
	}
	got := l.Web.Requests("api.corp.test")
	if len(got) != 1 || got[0].Header.Get("Authorization") != "Bearer canary-of-tickets" {
		t.Errorf("api.corp.test was asked %+v", got)
	}
	if n := len(l.Web.Requests("ok.test")); n != 1 {
		t.Errorf("ok.test was asked %d times", n)
	}
	c.onlyByProxy()
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
		w := startIn(t, l, "ok.test:3128\n", lab.BoxOptions{Env: []string{"https_proxy=" + value, "HTTPS_PROXY=" + value}}, "agent-init", "run", "--", "true")
		r := w.agent.Wait(lab.Patience)
		want := "programs will ask the proxy " + warned + ", which no entry allows: HTTPS_PROXY, https_proxy"
		if said := strings.Contains(r.Stderr, want); r.Code != 0 || said != (warned != "") || warned == "" && strings.Contains(r.Stderr, "proxy") {
			t.Errorf("%q: %s", value, r)
		}
	}
}
