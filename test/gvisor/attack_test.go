package gvisor

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab"
)

// TestContainerAttacks tries to get out, as the agent and as other shells in the
// container would. The verdict is what arrived on the far side.
func TestContainerAttacks(t *testing.T) {
	s := confineIn(t, newLab(t), list, options{})
	ok4, ok6 := addr("ok.test")
	evil4, evil6 := addr("evil.test")
	for _, name := range []string{"ok.test", "ok2.test", "git.test"} {
		s.works("resolve", name)
	}
	// tcp4 and tcp6 say a port of an address; the others are what nobody leased.
	at := func(a netip.Addr, port uint16) string { return netip.AddrPortFrom(a, port).String() }
	never := []netip.Addr{evil4, evil6}

	t.Run("names", func(t *testing.T) {
		s := s.of(t)
		for _, server := range []string{"8.8.8.8:53", "[2001:4860:4860::8888]:53", at(evil4, 53), "127.0.0.1:53", "172.30.0.1:53"} {
			for _, flags := range [][]string{nil, {"-tcp"}} {
				p := s.blocked(append(append([]string{"dns"}, flags...), server, "evil.test", "A")...)
				if !strings.Contains(fmt.Sprint(p.Detail), "NXDOMAIN") {
					t.Errorf("%s %v: %s", server, flags, p)
				}
			}
		}
		if q := s.lab.Queries("evil.test"); len(q) > 0 {
			t.Errorf("evil.test was asked for: %v", q[0])
		}
		if !s.eventually(func() bool { return s.logged(`"event":"dns"`, `"verdict":"deny"`, "evil.test") }) {
			t.Error("not in the audit log")
		}
	})
	t.Run("tls", func(t *testing.T) {
		s := s.of(t)
		for _, a := range never {
			s.blocked("tls", "-sni", "ok.test", "-insecure", at(a, 443)) // E09: an allowed name at another address
			s.blocked("tls", "-sni", "evil.test", "-insecure", at(a, 443))
			s.blocked("tcp", "-send", "not tls", at(a, 443))
			s.blocked("http", "-addr", at(a, 80), "http://ok.test/")
		}
		for _, a := range []netip.Addr{ok4, ok6} {
			s.blocked("tls", "-sni", "shared.test", "-insecure", at(a, 443)) // another name at an allowed address
			s.blocked("tls", "-sni", a.String(), "-insecure", at(a, 443))
			s.blocked("tcp", "-send", "not tls", at(a, 443))
			s.blocked("http", "-addr", at(a, 80), "http://shared.test/")
		}
		for _, r := range s.lab.Web.Requests("shared.test", "evil.test") {
			t.Errorf("a request came to %s", r.Dst)
		}
		if !s.eventually(func() bool { return s.logged(`"event":"connect"`, `"verdict":"deny"`, evil4.String()) }) {
			t.Error("not in the audit log")
		}
	})
	t.Run("ports", func(t *testing.T) {
		s := s.of(t)
		for _, a := range append([]netip.Addr{ok4, ok6}, never...) {
			for _, port := range []uint16{25, 853, 8080, 65000} {
				if p := s.blocked("tcp", "-send", "hi", at(a, port)); p.Errno != "ECONNREFUSED" {
					t.Errorf("not refused at once: %s", p)
				}
			}
			for _, port := range []uint16{22, 8443} { // redirected, and leased to nobody there
				s.blocked("tcp", "-send", "hi", at(a, port))
			}
			for _, port := range []uint16{53535, 443, 123} {
				s.blocked("udp", at(a, port))
			}
		}
		s.blocked("http", "-addr", "45.30.11.7:443", "-sni", "whoever.test", "-insecure", "https://whoever.test/") // beside the block
		for _, c := range s.lab.Conns() {
			if c.Dst.Addr() == evil4 || c.Dst.Addr() == evil6 {
				t.Errorf("a connection came to %s", c.Dst)
			}
		}
	})
	t.Run("metadata", func(t *testing.T) {
		s := s.of(t)
		for _, to := range []string{"169.254.169.254:80", "[fd00:ec2::254]:80", "168.63.129.16:80", "100.100.100.200:80"} {
			if p := s.blocked("tcp", "-send", "GET / HTTP/1.0\r\n\r\n", to); p.Errno != "ECONNREFUSED" {
				t.Errorf("not refused at once: %s", p)
			}
		}
	})
	t.Run("sockets", func(t *testing.T) {
		s := s.of(t)
		for _, args := range [][]string{
			{"ping", evil4.String()}, {"ping", evil6.String()}, {"ping", "fe80::1%eth0"}, {"ping", s.box.Neighbor6().String()},
			{"ping", "-raw", evil4.String()}, {"rawip", "253", evil4.String()}, {"socket", "packet", "raw", "0"},
			{"packet", "eth0", "ffffffffffff0200000000018888"}, {"socket", "vsock", "stream", "0"}, {"socket", "netlink", "raw", "12"},
			{"tcp", "-opt", "1:36:1", "-send", "hi", at(evil4, 4444)}, // SO_MARK
			{"tcp", "-opt", "0:19:1", "-send", "hi", at(evil4, 4444)}, // IP_TRANSPARENT
			{"udp", "-opt", "1:25:hex6574683000", at(evil4, 4444)},    // SO_BINDTODEVICE eth0
			{"udp", "-opt", "0:15:1", at(evil4, 4444)},                // IP_FREEBIND
			{"udp", "-source", "127.0.0.1:4444", at(evil4, 4444)},
			{"udp", "-source", "[::1]:4444", at(evil6, 4444)},
			{"udp", "-from", "53", at(evil4, 4444)},
			{"udp", "-size", "4000", at(evil4, 4444)},
			{"udp", "224.0.0.251:5353"}, {"udp", "255.255.255.255:4444"}, {"udp", "[ff02::fb%eth0]:5353"},
			{"connect", "inet6", "stream", "0", "[::ffff:" + evil4.String() + "]:4444"},
		} {
			s.blocked(args...)
		}
		// What is redirected by its port alone gets no farther through a device.
		for _, to := range []string{"127.0.0.1:443", "127.0.0.1:53"} {
			s.poke("tcp", "-opt", "1:25:hex6574683000", "-timeout", "1s", "-send", "hi", to)
			s.poke("udp", "-opt", "1:25:hex6574683000", "-timeout", "1s", "-noreply", to)
		}
	})
	t.Run("identity", func(t *testing.T) {
		s := s.of(t)
		st, _ := s.status()
		guard := fmt.Sprint(uint32(field(st, "guard.uid").(float64)))
		for _, args := range [][]string{
			{"setuid", guard}, {"setgid", guard}, {"setuid", "0"}, {"as", guard, "tcp", "-send", "hi", at(evil4, 443)},
			{"unshare", "user", "self"}, {"unshare", "user,net", "self"}, {"unshare", "net", "self"},
			{"kill", "1", "9"}, {"ptrace", "1"}, {"read", "/proc/1/environ"}, {"write", "-data", "x", policyDir + "/allowlist.txt"},
		} {
			s.blocked(args...)
		}
		for _, cmd := range []string{"iptables-legacy -F", "ip6tables-legacy -P OUTPUT ACCEPT", "iptables-legacy -t nat -F", "iptables-legacy -t raw -F"} {
			if r := s.as(0, "agent-init", "exec", "--", "sh", "-c", cmd); r.code == 0 {
				t.Errorf("%s: %s", cmd, r)
			}
		}
		if r := s.as(0, "agent-init", "status"); r.code != 0 {
			t.Errorf("not healthy: %s", r)
		}
	})
	t.Run("gate", func(t *testing.T) {
		s := s.of(t)
		for _, port := range s.listening() { // the guard's own: no original destination
			s.blocked("tcp", "-send", "GET / HTTP/1.1\r\nHost: ok.test\r\n\r\n", at(netip.MustParseAddr("127.0.0.1"), port))
		}
	})
	// Other shells in the container are no better off.
	t.Run("other uids", func(t *testing.T) {
		s := s.of(t)
		st, _ := s.status()
		guard := uint32(field(st, "guard.uid").(float64)) // whose group nobody else is in
		for _, uid := range []uint32{0, 1000, 2000, guard} {
			for _, args := range [][]string{
				{"tcp", "-send", "hi", at(evil4, 4444)}, {"tls", "-sni", "ok.test", "-insecure", at(evil4, 443)}, {"udp", at(evil4, 4444)}, {"udp", at(evil6, 4444)},
				{"ping", evil4.String()}, {"ping", evil6.String()}, {"dns", "8.8.8.8:53", "evil.test", "A"},
			} {
				if p := s.pokeAs(uid, args...); p.OK {
					t.Errorf("uid %d got through: %v: %s", uid, args, p)
				}
			}
		}
		for _, args := range [][]string{{"ping", "-raw", evil4.String()}, {"rawip", "253", evil4.String()}, {"packet", "eth0", "ffffffffffff0200000000018888"}} {
			s.pokeAs(0, args...) // with NET_RAW: may be opened, and must not be sent
		}
	})
	t.Run("from outside", func(t *testing.T) {
		s := s.of(t)
		must(t, s.background(1000, "poke", "listen", "-for", "10m", "0.0.0.0:7200"))
		must(t, s.background(1000, "sh", "-c", "poke recv -for 10m 0.0.0.0:7201 >/tmp/received 2>&1"))
		if !s.eventually(func() bool { return s.poke("tcp", "-send", "hi", "127.0.0.1:7200").OK }) {
			t.Fatal("nothing listens")
		}
		if s.reached(7200) {
			t.Error("a port that is not inbound was reached")
		}
		// As if from a DNS server: the only source port that the rules know.
		for _, from := range []string{lab.Upstream4.String() + ":53", "8.8.8.8:53"} {
			c, err := s.lab.Internet.Dial(t.Context(), "udp", at(s.box.Addr4(), 7201), netip.MustParseAddrPort(from))
			must(t, err)
			for range 3 {
				_, _ = c.Write([]byte("orders"))
			}
			c.Close()
		}
		if !s.eventually(func() bool {
			for _, word := range []string{"local", "end"} {
				s.poke("udp", "-send", word, "-noreply", "127.0.0.1:7201")
			}
			return s.as(0, "test", "-s", "/tmp/received").code == 0
		}) {
			t.Fatal("the receiver does not end")
		}
		if r := s.as(0, "cat", "/tmp/received"); !strings.Contains(r.stdout, "local") || strings.Contains(r.stdout, "orders") {
			t.Errorf("received: %s", r)
		}
	})

	for _, a := range append(never, netip.MustParseAddr("8.8.8.8"), netip.MustParseAddr("2001:4860:4860::8888"), netip.MustParseAddr("45.30.11.7"),
		netip.MustParseAddr("169.254.169.254"), netip.MustParseAddr("224.0.0.251"), netip.MustParseAddr("255.255.255.255"), netip.MustParseAddr("127.0.0.1")) {
		s.sealed(lab.ToAddr(a.String()))
	}
	for _, p := range s.box.Packets() {
		if p.EtherType == 0x8888 {
			t.Errorf("a frame of a packet socket left the box: %s", p)
		}
	}
	s.sealed(lab.Proto(17))
	s.sealed(lab.Not(lab.Any(lab.Proto(6), lab.Proto(58))))
	s.sealed(lab.Proto(6), lab.Not(lab.Any(lab.ToPort(6, 443), lab.ToPort(6, 80), lab.ToPort(6, 22), lab.ToPort(6, 53), lab.ToPort(6, 8443))))
	// The box still lives.
	s.works("http", "https://ok.test/")
}

// TestContainerTamper: what root does to the rules is noticed and mended, the uids
// and groups too, which iptables can't show.
func TestContainerTamper(t *testing.T) {
	s := confineIn(t, newLab(t), list, options{})
	repairs := func() float64 {
		st, _ := s.status()
		n, _ := field(st, "firewall.repairs").(float64)
		return n
	}
	const passer = `n=$(iptables-legacy -S agent-init-output | grep -n 'agent-init-guard$' | cut -d: -f1) && iptables-legacy -R agent-init-output $((n-1)) `
	for i, cmd := range []string{
		"iptables-legacy -P OUTPUT ACCEPT && iptables-legacy -F OUTPUT",
		"ip6tables-legacy -t nat -F agent-init-to-guard",
		"iptables-legacy -t raw -F PREROUTING",
		// The rule that lets the guard out, for the agent: it looks the same.
		passer + `-m owner --uid-owner 1000 -m owner --gid-owner 1000 -j agent-init-guard`,
		// And for the guard's uid in any group of that number.
		passer + `-m owner --uid-owner 64901 -m owner --gid-owner 64901 -j agent-init-guard`,
	} {
		if r := s.as(0, "sh", "-c", cmd); r.code != 0 {
			t.Fatalf("%s: %s", cmd, r)
		}
		if !s.eventually(func() bool { return repairs() > float64(i) }) {
			t.Fatalf("not noticed: %s", cmd)
		}
		if !s.eventually(func() bool { _, code := s.status(); return code == 0 }) {
			t.Fatalf("not mended: %s", cmd)
		}
	}
	s.box.ForgetPackets()
	s.blocked("tcp", "-send", "hi", "45.30.66.6:4444")
	s.blocked("tls", "-sni", "ok.test", "-insecure", "45.30.66.6:443")
	s.works("http", "https://ok.test/")
	s.sealed(lab.ToAddr("45.30.66.6"))
}
