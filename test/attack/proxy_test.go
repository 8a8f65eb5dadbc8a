package attack

import (
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
	for up := dir; up != "/"; up = filepath.Dir(up) { // it is another user's
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

// straight fails the test if something went past the proxy, to what it resolves for.
func (c *corporate) onlyByProxy() {
	c.Helper()
	c.sealed(func(p *lab.Packet) bool { return p.DstPort != 53 && (p.Dst.String() != squidAddr || p.DstPort != squidPort) })
}

const byProxy = "upstream_proxy: http://proxy.corp.test:3128\n"

// TestLabProxySquid: what is allowed arrives by the proxy alone, which is asked for the address that the name was given.
// What is not allowed does not get there, and the agent does not reach the proxy.
func TestLabProxySquid(t *testing.T) {
	l := newLab(t)
	c := behind(t, l, squid(t, l, ""), byProxy+"selftest: {reach: ['ok.test:443']}\n", "ok.test required\nok2.test\n")
	if p := c.works("http", "-ca", bundle, "https://ok.test/by-proxy"); !strings.Contains(fmt.Sprint(p.Detail["body"]), "sni=ok.test") {
		t.Errorf("not the name's own server: %s", p)
	}
	addrs := lab.Names()["ok.test"]
	if got := c.asked(); !slices.ContainsFunc(got, func(s string) bool {
		target, ok := strings.CutPrefix(s, "CONNECT ")
		to, err := netip.ParseAddrPort(strings.TrimSuffix(target, " 200"))
		return ok && err == nil && to.Port() == 443 && slices.Contains(addrs, to.Addr())
	}) {
		t.Errorf("the proxy was asked %q", got)
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
