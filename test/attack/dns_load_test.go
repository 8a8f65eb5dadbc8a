package attack

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
)

var _ = also(TestFloodKeepsNobodyFromAnAnswer, inUp)

// TestFloodKeepsNobodyFromAnAnswer: a client that holds the resolver's connections, floods it
// and has it wait for silent servers does not keep others from an answer.
func TestFloodKeepsNobodyFromAnAnswer(t *testing.T) {
	w := confine(t, "ok.test\n*.silent.test\n", lab.BoxOptions{})
	w.lab.DNS.Set("*.silent.test", lab.Answer{Silent: true})
	w.works("resolve", "ok.test")
	server := at(lab.Upstream4, 53)
	attack := func(args ...string) *lab.Process {
		return w.box.ExecStart(lab.Cmd{Args: append([]string{"agent-init", "exec", "--", "poke"}, args...)})
	}
	begin := time.Now()
	attacks := []*lab.Process{
		attack("idle", "-n", "800", "-hold", "4s", server),
		attack("dns", "-n", "100", "-c", "100", "-timeout", "5s", server, "{n}.silent.test", "A"),
		attack("dns", "-n", "60000", "-c", "32", server, "{n}.evil.test", "A"),
		attack("dns", "-tcp", "-n", "5000", "-c", "8", server, "{n}.evil.test", "A"),
	}
	held := func() (n int) { // established, or closed by the resolver to make room
		for _, s := range sockets(t, w.box, "/proc/net/tcp") {
			if s.local.Addr() == w.box.Addr4() && (s.state == "01" || s.state == "08") {
				n++
			}
		}
		return n
	}
	if !eventually(10*time.Second, func() bool { return held() >= 800 }) {
		t.Errorf("only %d connections are held", held())
	}
	for _, transport := range []string{"-tcp=false", "-tcp"} {
		p := w.works("dns", transport, "-n", "100", "-c", "2", server, "ok.test", "A") // which is as many as a connection may ask
		t.Logf("%s under attack: p50 %v ms, p99 %v ms", transport, p.Detail["p50_ms"], p.Detail["p99_ms"])
		if p99, _ := p.Detail["p99_ms"].(float64); p99 > 1000 { // a stub resolver waits five times as long
			t.Errorf("%s: the slowest lookups took %v ms", transport, p99)
		}
	}
	w.works("http", "https://ok.test/")
	select {
	case <-attacks[2].Done():
		t.Errorf("the flood was over before the measurement, %v after its start", time.Since(begin).Round(time.Millisecond))
	default:
	}
	for _, p := range attacks {
		if r := p.Wait(time.Minute); r.Code != 0 {
			t.Errorf("the attack broke off: %s", r)
		}
	}
	w.unasked("evil.test")
	for _, kib := range resident(w) {
		if kib > 128<<10 {
			t.Errorf("a process of agent-init holds %d KiB", kib)
		}
	}
	if s, code := w.status(); code != 0 {
		t.Errorf("not healthy: %v", s["why"])
	}
}

var _ = also(TestEngineResolverUnreached, everywhere)

// TestEngineResolverUnreached: the engine's resolver asks others for whatever it
// is asked, on a port that only its own NAT rules know.
func TestEngineResolverUnreached(t *testing.T) {
	l := newLab(t)
	evilZone(l)
	w := confineIn(t, l, nameless, lab.BoxOptions{DockerDNS: true})
	open := w.open(lab.BoxOptions{DockerDNS: true})
	engine := netip.MustParseAddr("127.0.0.11")

	for path, transport := range map[string]string{"/proc/net/udp": "-tcp=false", "/proc/net/tcp": "-tcp"} {
		query := func(port uint16) []string {
			return []string{"dns", transport, "-timeout", "1s", at(engine, port), secret, "A"}
		}
		for _, port := range append(portsOf(t, open, path, engine), 53) {
			w.possible(open, query(port)...)
		}
		if q := l.Queries("evil.test"); len(q) == 0 || q[0].Server != engine {
			t.Fatalf("the engine's resolver was not what answered: %v", q)
		}
		l.DNS.Forget()
		for _, port := range append(portsOf(t, w.box, path, engine), 53) {
			w.blocked(query(port)...)
			if p := w.box.Poke(0, query(port)...); p.OK {
				t.Errorf("got through as root: port %d: %s", port, p)
			}
		}
		w.unasked()
	}
	w.blocked("resolve", secret)
	w.unasked()
}

// portsOf returns the ports that a table of sockets has at addr.
func portsOf(t *testing.T, box *lab.Box, path string, addr netip.Addr) []uint16 {
	t.Helper()
	var ports []uint16
	for _, s := range sockets(t, box, path) {
		if s.local.Addr() == addr {
			ports = append(ports, s.local.Port())
		}
	}
	if len(ports) == 0 {
		t.Fatalf("%s has no socket at %s", path, addr)
	}
	return ports
}

// TestResolverFilesAreRoots: nobody but root writes them, and nothing hangs on what they
// say once agent-init runs. Of /etc/hosts that holds where others may write it; what
// root alone writes there is taken over as the policy is (TestWatchSaysTheSame), but
// not where containers share it (TestSharedHostsFileUnread).
func TestResolverFilesAreRoots(t *testing.T) {
	w := confine(t, "ok.test\n", lab.BoxOptions{})
	evilZone(w.lab)
	files := []string{"/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/gai.conf", "/etc/host.conf", "/etc/ld.so.preload"}
	for _, path := range files {
		w.blocked("write", "-data", "# mine\n", "-append", path)
	}
	evil4, _ := named("evil.test")
	for path, text := range map[string]string{
		"/etc/resolv.conf":   "nameserver 8.8.8.8\nnameserver " + evil4.String() + "\n",
		"/etc/hosts":         "127.0.0.1 localhost\n" + evil4.String() + " innocent.test\n",
		"/etc/nsswitch.conf": "hosts: dns files\n",
	} {
		must(t, w.box.WriteFile(path, []byte(text), 0o644))
	}
	if r := w.root("cat", "/etc/hosts"); !strings.Contains(r.Stdout, "innocent.test") {
		t.Fatalf("the files were not changed: %s", r)
	}
	if p := w.works("resolve", "innocent.test"); !slices.Contains(values(p, "addrs"), evil4.String()) {
		t.Errorf("the changed files are not in use: %s", p)
	}
	w.blocked("http", "http://innocent.test/")
	for _, port := range []int{80, 443} {
		w.blocked("tcp", fmt.Sprintf("innocent.test:%d", port))
	}
	w.blocked("resolve", secret)
	w.unasked("evil.test")
	w.sealed(lab.ToAddr(google4.String()))
	w.sealed(lab.ToAddr(evil4.String()))
	ok4, _ := named("ok.test")
	w.works("dns", at(google4, 53), "ok.test", "A")
	w.works("tcp", at(ok4, 443))

	// A mount that is the agent's to write: an allowed name at an address of the agent's.
	if r := w.root("chmod", "0666", "/etc/hosts"); r.Code != 0 {
		t.Fatal(r)
	}
	w.works("write", "-append", "-data", evil4.String()+" ok.test\n", "/etc/hosts")
	if r := w.root("agent-init", "reload"); r.Code != 0 {
		t.Errorf("reload: %s", r)
	}
	w.blocked("tcp", at(evil4, 443))
	w.blocked("http", "-insecure", "-addr", at(evil4, 443), "https://ok.test/")
	if p := w.works("dns", at(google4, 53), "ok.test", "A"); !slices.Equal(values(p, "addrs"), []string{ok4.String()}) {
		t.Errorf("the agent's file is believed: %s", p)
	}
	w.sealed(lab.ToAddr(evil4.String()))
}
