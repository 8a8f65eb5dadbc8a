package dns

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

var _ = rig.Also(TestFloodKeepsNobodyFromAnAnswer, rig.InUp)

// TestFloodKeepsNobodyFromAnAnswer: a client that holds the resolver's connections, floods it
// and has it wait for silent servers does not keep others from an answer.
func TestFloodKeepsNobodyFromAnAnswer(t *testing.T) {
	w := rig.Confine(t, "ok.test\n*.silent.test\n", lab.BoxOptions{})
	w.Lab.DNS.Set("*.silent.test", lab.Answer{Silent: true})
	w.Works("resolve", "ok.test")
	server := rig.At(lab.Upstream4, 53)
	attack := func(args ...string) *lab.Process {
		return w.Box.ExecStart(lab.Cmd{Args: append([]string{"agent-init", "exec", "--", "poke"}, args...)})
	}
	begin := time.Now()
	attacks := []*lab.Process{
		attack("idle", "-n", "800", "-hold", "4s", server),
		attack("dns", "-n", "100", "-c", "100", "-timeout", "5s", server, "{n}.silent.test", "A"),
		attack("dns", "-n", "60000", "-c", "32", server, "{n}.evil.test", "A"),
		attack("dns", "-tcp", "-n", "5000", "-c", "8", server, "{n}.evil.test", "A"),
	}
	held := func() (n int) { // established, or closed by the resolver to make room
		for _, s := range rig.Sockets(t, w.Box, "/proc/net/tcp") {
			if s.Local.Addr() == w.Box.Addr4() && (s.State == "01" || s.State == "08") {
				n++
			}
		}
		return n
	}
	if !rig.Eventually(10*time.Second, func() bool { return held() >= 800 }) {
		t.Errorf("only %d connections are held", held())
	}
	for _, transport := range []string{"-tcp=false", "-tcp"} {
		p := w.Works("dns", transport, "-n", "100", "-c", "2", server, "ok.test", "A") // which is as many as a connection may ask
		t.Logf("%s under attack: p50 %v ms, p99 %v ms", transport, p.Detail["p50_ms"], p.Detail["p99_ms"])
		if p99, _ := p.Detail["p99_ms"].(float64); p99 > 1000 { // a stub resolver waits five times as long
			t.Errorf("%s: the slowest lookups took %v ms", transport, p99)
		}
	}
	w.Works("http", "https://ok.test/")
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
	w.Unasked("evil.test")
	for _, kib := range resident(w) {
		if kib > 128<<10 {
			t.Errorf("a process of agent-init holds %d KiB", kib)
		}
	}
	if s, code := w.Status(); code != 0 {
		t.Errorf("not healthy: %v", s["why"])
	}
}

var _ = rig.Also(TestEngineResolverUnreached, rig.Everywhere)

// TestEngineResolverUnreached: the engine's resolver asks others for whatever it
// is asked, on a port that only its own NAT rules know.
func TestEngineResolverUnreached(t *testing.T) {
	l := rig.NewLab(t)
	rig.EvilZone(l)
	w := rig.ConfineIn(t, l, rig.Nameless, lab.BoxOptions{DockerDNS: true})
	open := w.Open(lab.BoxOptions{DockerDNS: true})
	engine := netip.MustParseAddr("127.0.0.11")

	for path, transport := range map[string]string{"/proc/net/udp": "-tcp=false", "/proc/net/tcp": "-tcp"} {
		query := func(port uint16) []string {
			return []string{"dns", transport, "-timeout", "1s", rig.At(engine, port), secret, "A"}
		}
		for _, port := range append(portsOf(t, open, path, engine), 53) {
			w.Possible(open, query(port)...)
		}
		if q := l.Queries("evil.test"); len(q) == 0 || q[0].Server != engine {
			t.Fatalf("the engine's resolver was not what answered: %v", q)
		}
		l.DNS.Forget()
		for _, port := range append(portsOf(t, w.Box, path, engine), 53) {
			w.Blocked(query(port)...)
			if p := w.Box.Poke(0, query(port)...); p.OK {
				t.Errorf("got through as root: port %d: %s", port, p)
			}
		}
		w.Unasked()
	}
	w.Blocked("resolve", secret)
	w.Unasked()
}

// portsOf returns the ports that a table of sockets has at addr.
func portsOf(t *testing.T, box *lab.Box, path string, addr netip.Addr) []uint16 {
	t.Helper()
	var ports []uint16
	for _, s := range rig.Sockets(t, box, path) {
		if s.Local.Addr() == addr {
			ports = append(ports, s.Local.Port())
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
	w := rig.Confine(t, "ok.test\n", lab.BoxOptions{})
	rig.EvilZone(w.Lab)
	files := []string{"/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/gai.conf", "/etc/host.conf", "/etc/ld.so.preload"}
	for _, path := range files {
		w.Blocked("write", "-data", "# mine\n", "-append", path)
	}
	evil4, _ := rig.Named("evil.test")
	for path, text := range map[string]string{
		"/etc/resolv.conf":   "nameserver 8.8.8.8\nnameserver " + evil4.String() + "\n",
		"/etc/hosts":         "127.0.0.1 localhost\n" + evil4.String() + " innocent.test\n",
		"/etc/nsswitch.conf": "hosts: dns files\n",
	} {
		rig.Must(t, w.Box.WriteFile(path, []byte(text), 0o644))
	}
	if r := w.Root("cat", "/etc/hosts"); !strings.Contains(r.Stdout, "innocent.test") {
		t.Fatalf("the files were not changed: %s", r)
	}
	if p := w.Works("resolve", "innocent.test"); !slices.Contains(rig.Values(p, "addrs"), evil4.String()) {
		t.Errorf("the changed files are not in use: %s", p)
	}
	w.Blocked("http", "http://innocent.test/")
	for _, port := range []int{80, 443} {
		w.Blocked("tcp", fmt.Sprintf("innocent.test:%d", port))
	}
	w.Blocked("resolve", secret)
	w.Unasked("evil.test")
	w.Sealed(lab.ToAddr(rig.Google4.String()))
	w.Sealed(lab.ToAddr(evil4.String()))
	ok4, _ := rig.Named("ok.test")
	w.Works("dns", rig.At(rig.Google4, 53), "ok.test", "A")
	w.Works("tcp", rig.At(ok4, 443))

	// A mount that is the agent's to write: an allowed name at an address of the agent's.
	if r := w.Root("chmod", "0666", "/etc/hosts"); r.Code != 0 {
		t.Fatal(r)
	}
	w.Works("write", "-append", "-data", evil4.String()+" ok.test\n", "/etc/hosts")
	if r := w.Root("agent-init", "reload"); r.Code != 0 {
		t.Errorf("reload: %s", r)
	}
	w.Blocked("tcp", rig.At(evil4, 443))
	w.Blocked("http", "-insecure", "-addr", rig.At(evil4, 443), "https://ok.test/")
	if p := w.Works("dns", rig.At(rig.Google4, 53), "ok.test", "A"); !slices.Equal(rig.Values(p, "addrs"), []string{ok4.String()}) {
		t.Errorf("the agent's file is believed: %s", p)
	}
	w.Sealed(lab.ToAddr(evil4.String()))
}
