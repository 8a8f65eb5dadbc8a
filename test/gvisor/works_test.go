package gvisor

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
)

// list is what most tests are made against: names, one on a port that nobody looks
// into, and addresses.
const list = `
ok.test
ok2.test required
git.test:22
45.30.9.9:8443
45.30.10.0/24:443
`

const rst = 4 // the flag, in Packet.TCPFlags

func newLab(t *testing.T) *lab.Lab {
	t.Helper()
	need(t)
	l := lab.New(t, lab.Options{})
	l.DNS.Set("git.test", lab.Answer{Addrs: []netip.Addr{netip.MustParseAddr("45.30.22.1"), netip.MustParseAddr("2a0f:30:22::1")}})
	return l
}

func TestContainerWorks(t *testing.T) {
	s := confineIn(t, newLab(t), list, options{})
	ok4, ok6 := addr("ok.test")

	t.Run("status", func(t *testing.T) {
		s := s.of(t)
		st, code := s.status()
		if code != 0 {
			t.Errorf("not healthy: %v", st)
		}
		if b, r := field(st, "firewall.backend"), field(st, "firewall.reduced"); b != "xtables-legacy" || r != "gVisor" {
			t.Errorf("backend %v, reduced: %v", b, r)
		}
		if c, _ := field(st, "firewall.caveats").([]any); len(c) != 3 {
			t.Errorf("what is weaker: %v", c)
		}
		if r := s.as(0, "agent-init", "status"); !strings.Contains(r.stdout, "xtables-legacy (reduced: gVisor)") {
			t.Errorf("status says %s", r)
		}
		if r := s.as(0, "agent-init", "selftest"); r.code != 0 {
			t.Errorf("self-test: %s", r)
		}
	})
	t.Run("https", func(t *testing.T) {
		s := s.of(t)
		s.works("http", "https://ok.test/") // resolves, which leases both addresses
		for _, a := range []netip.Addr{ok4, ok6} {
			s.works("http", "-addr", netip.AddrPortFrom(a, 443).String(), "https://ok.test/hello")
		}
		var to []string
		for _, r := range s.lab.Web.Requests("ok.test") {
			if r.URI == "/hello" && r.TLS {
				to = append(to, r.Dst.Addr().String())
			}
		}
		if got, want := strings.Join(to, " "), ok4.String()+" "+ok6.String(); got != want {
			t.Errorf("requests came to %q, not %q", got, want)
		}
	})
	t.Run("http", func(t *testing.T) {
		s := s.of(t)
		s.works("http", "http://ok2.test/")
		if p := s.poke("http", "-host", "evil.test", "http://ok2.test/"); p.OK || !strings.Contains(fmt.Sprint(p.Detail), "403") {
			t.Errorf("a host that is not allowed: %s", p)
		}
	})
	t.Run("big", func(t *testing.T) {
		s := s.of(t)
		s.works("http", "-method", "POST", "-size", "3000000", "https://ok.test/upload")
	})
	t.Run("by address", func(t *testing.T) {
		s := s.of(t)
		s.works("resolve", "git.test")
		for _, to := range []string{"45.30.22.1:22", "[2a0f:30:22::1]:22", "45.30.9.9:8443"} {
			s.works("tcp", "-send", "hi", to)
		}
		s.works("http", "-addr", "45.30.10.7:443", "-sni", "whoever.test", "-insecure", "https://whoever.test/")
	})
	t.Run("dns", func(t *testing.T) {
		s := s.of(t)
		for _, server := range []string{"9.9.9.9:53", "[2620:fe::fe]:53", "127.0.0.1:53"} {
			for _, flag := range []string{"-norecurse=false", "-tcp"} {
				s.works("dns", flag, server, "ok.test", "A")
			}
		}
		for _, q := range s.lab.Queries() {
			if q.Network != "tcp" || q.Server != lab.Upstream4 && q.Server != lab.Upstream6 {
				t.Errorf("%s was asked of %s over %s", q.Name, q.Server, q.Network)
			}
		}
	})
	t.Run("loopback", func(t *testing.T) {
		s := s.of(t)
		own := s.box.Addr4().String()
		if err := s.background(1000, "poke", "listen", "-for", "10m", "0.0.0.0:7100"); err != nil {
			t.Fatal(err)
		}
		for _, to := range []string{"127.0.0.1:7100", own + ":7100"} {
			if !s.eventually(func() bool { return s.poke("tcp", "-send", "hi", to).OK }) {
				t.Errorf("%s can't be reached from inside", to)
			}
		}
	})
}

// background starts a command in the sandbox and leaves it running.
func (s *sandbox) background(uid uint32, args ...string) error {
	// Without pipes: the command would keep them open.
	return s.runsc(append([]string{"exec", "--detach", "--user", fmt.Sprintf("%d:%d", uid, uid), "box"}, args...)...).Run()
}

// setPolicy changes the allowlist and has it read again.
func (s *sandbox) setPolicy(list string) result {
	s.Helper()
	must(s.T, os.WriteFile(filepath.Join(s.dir, "files", policyDir, "allowlist.txt"), []byte(list), 0o644))
	return s.as(0, "agent-init", "reload")
}

// TestContainerInbound: a port that may be connected to, and what it may not be
// used for.
func TestContainerInbound(t *testing.T) {
	s := confineIn(t, newLab(t), list, options{files: image{policyDir + "/policy.yaml": "inbound: [3000, 3002]\n"}})
	for _, port := range []string{"3000", "3001"} {
		must(t, s.background(1000, "poke", "listen", "-for", "10m", "0.0.0.0:"+port))
	}
	if !s.eventually(func() bool { return s.reached(3000) }) {
		t.Error("an inbound port can't be reached")
	}
	if !s.eventually(func() bool { return s.poke("tcp", "-send", "hi", "127.0.0.1:3001").OK }) {
		t.Fatal("nothing listens on 3001")
	}
	if s.reached(3001) {
		t.Error("a port that is not inbound was reached")
	}
	// From an inbound port nothing can be opened.
	s.box.ForgetPackets()
	for _, to := range []string{"45.30.66.6:4444", "[2a0f:30:66::6]:4444"} {
		s.blocked("tcp", "-from", "3002", "-send", "hi", to)
	}
	s.sealed(lab.ToAddr("45.30.66.6"))
	s.sealed(lab.ToAddr("2a0f:30:66::6"))
}

// reached says whether a port of the box answers somebody outside. Where nothing
// answers, that takes a while.
func (s *sandbox) reached(port uint16) bool {
	const limit = 3 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	c, err := s.lab.Internet.Dial(ctx, "tcp", netip.AddrPortFrom(s.box.Addr4(), port).String(), netip.AddrPort{})
	if err != nil {
		return false
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(limit))
	if _, err := c.Write([]byte("hi")); err != nil {
		return false
	}
	n, _ := c.Read(make([]byte, 2))
	return n > 0
}

// TestContainerReload: what the policy no longer allows ends, and what can't be
// held is refused.
func TestContainerReload(t *testing.T) {
	s := confineIn(t, newLab(t), list, options{})
	s.works("resolve", "git.test")
	s.works("resolve", "ok.test")
	type held struct {
		to   string
		done chan lab.Poke
	}
	var gone []held
	hold := func(to string) held {
		h := held{to, make(chan lab.Poke, 1)}
		go func() {
			r := s.as(0, "agent-init", "exec", "--", "poke", "tcp", "-hold", "10m", to)
			p, _ := lab.ParsePoke(r.stdout)
			h.done <- p
		}()
		return h
	}
	gone = append(gone, hold("45.30.22.1:22"), hold("45.30.9.9:8443"))
	conns := func(to string) bool {
		for _, c := range s.lab.Conns() {
			if c.Dst.String() == to && !c.Closed {
				return true
			}
		}
		return false
	}
	for _, h := range gone {
		if !s.eventually(func() bool { return conns(h.to) }) {
			t.Fatalf("no connection to %s", h.to)
		}
	}
	// Nothing that can't be held: the old policy stays.
	if r := s.setPolicy(list + "ntp.test:123/udp\n"); r.code != 78 || !strings.Contains(r.stderr, "ntp.test:123/udp") {
		t.Errorf("a policy with udp: %s", r)
	}
	s.works("http", "https://ok.test/")
	if r := s.setPolicy("ok2.test\n"); r.code != 0 {
		t.Fatalf("reload: %s", r)
	}
	for _, h := range gone {
		select {
		case p := <-h.done:
			if p.OK {
				t.Errorf("the connection to %s ended in peace: %s", h.to, p)
			}
		case <-time.After(patience):
			t.Errorf("the connection to %s lives on", h.to)
		}
	}
	s.box.ForgetPackets()
	ok4, _ := addr("ok.test")
	s.blocked("resolve", "ok.test")
	s.blocked("http", "-addr", netip.AddrPortFrom(ok4, 443).String(), "https://ok.test/")
	s.blocked("tcp", "-send", "hi", "45.30.22.1:22")
	s.blocked("tcp", "-send", "hi", "45.30.9.9:8443")
	for _, a := range []string{ok4.String(), "45.30.22.1", "45.30.9.9"} {
		s.sealed(lab.ToAddr(a), func(p *lab.Packet) bool { return p.TCPFlags&rst == 0 })
	}
	s.works("http", "https://ok2.test/")
}

// TestContainerGuardRestart: without a guard nothing passes, and the next one
// serves.
func TestContainerGuardRestart(t *testing.T) {
	s := confineIn(t, newLab(t), list, options{})
	st, _ := s.status()
	uid := uint32(field(st, "guard.uid").(float64))
	r := s.as(uid, "sh", "-c", `for p in /proc/[0-9]*; do [ "$(tr '\0' ' ' <$p/cmdline)" != "/proc/self/exe guard " ] || kill -9 ${p#/proc/}; done`)
	if r.code != 0 {
		t.Fatalf("kill the guard: %s", r)
	}
	if !s.eventually(func() bool {
		st, code := s.status()
		n, _ := field(st, "guard.restarts").(float64)
		return code == 0 && n >= 1
	}) {
		t.Fatal("no guard serves again")
	}
	s.works("http", "https://ok.test/")
	s.works("tcp", "-send", "hi", "45.30.9.9:8443")
	s.blocked("resolve", "evil.test")
}

// TestContainerUp confines a sandbox that runs already.
func TestContainerUp(t *testing.T) {
	s := bootIn(t, newLab(t), list, options{}, "sleep", "infinity")
	if !s.eventually(func() bool { return s.as(0, "true").code == 0 }) {
		t.Fatal("the sandbox does not run")
	}
	if !s.pokeAs(1000, "tcp", "-send", "hi", "45.30.66.6:4444").OK {
		t.Fatal("the open sandbox reaches nothing: this test shows nothing")
	}
	r := s.as(0, "agent-init", "up", "--user", "agent")
	if r.code != 0 {
		t.Fatalf("up: %s", r)
	}
	s.box.ForgetPackets()
	if p := s.pokeAs(1000, "tcp", "-send", "hi", "45.30.66.6:4444"); p.OK {
		t.Errorf("got through: %s", p)
	}
	if p := s.pokeAs(1000, "http", "https://ok.test/"); !p.OK {
		t.Errorf("does not work: %s", p)
	}
	s.sealed(lab.ToAddr("45.30.66.6"))
}
