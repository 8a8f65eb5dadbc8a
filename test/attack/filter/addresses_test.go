package filter

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// refusedRoot is refused for root and what an engine's exec gives it. Whether
// the operation says that it failed doesn't matter, only what left the box.
func refusedRoot(w *rig.World, open *lab.Box, trace lab.Filter, args ...string) {
	w.Helper()
	open.ForgetPackets()
	if p := open.Poke(0, args...); !p.OK {
		w.Errorf("proves nothing, does not work without confinement either: %v: %s", args, p)
	}
	w.Traced(open, trace, args)
	w.Box.Poke(0, args...)
	w.Traceless(trace, args)
}

var _ = rig.Also(TestDirectAddressRefused, rig.OverXtables)

func TestDirectAddressRefused(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{})
	open := w.Beside(lab.BoxOptions{})
	evil4, _ := rig.Named("evil.test")
	for _, port := range []uint16{22, 25, 80, 443, 853, 3306, 8443, 65535} {
		to := rig.Target(evil4.String(), port)
		if p := w.Refused(open, lab.ToPort(unix.IPPROTO_TCP, port), "tcp", to); !rig.RefusedAtOnce(p.Errno) {
			t.Errorf("%s: left hanging: %s", to, p)
		}
	}
	for _, addr := range []string{"1.1.1.1", "8.8.8.8", "10.1.2.3", "192.168.1.1", "100.64.0.1", "203.0.113.9"} {
		w.Refused(open, rig.Toward(addr), "tcp", rig.Target(addr, 443))
	}
	// The same port as the entry's, next to its address.
	w.Refused(open, rig.Toward("45.30.9.8"), "tcp", "45.30.9.8:8443")
	w.Refused(open, rig.Toward("45.30.9.10"), "tcp", "45.30.9.10:8443")
	w.Works("tcp", "-send", "x", "45.30.9.9:8443")
	for i, args := range [][]string{
		{"tcp", "-mptcp"},
		{"tcp", "-send", "x", "-opt", "6:30:1"},          // TCP_FASTOPEN_CONNECT: data in the SYN
		{"tcp", "-opt", "0:2:2"},                         // IP_TTL
		{"tcp", "-opt", "0:1:16"},                        // IP_TOS
		{"udp"},                                          //
		{"connect", "-send", "x", "inet", "stream", "0"}, // by hand
		{"connect", "-send", "x", "inet", "dgram", "0"},
	} {
		addr := fmt.Sprintf("45.30.67.%d", i+1)
		w.Refused(open, lab.ToAddr(addr), append(args, addr+":8443")...)
	}
	w.Refused(open, lab.ToAddr("45.30.68.1"), "http", "-addr", "45.30.68.1:443", "https://ok.test/")
	w.Refused(open, lab.ToAddr("45.30.68.2"), "http", "-addr", "45.30.68.2:80", "http://ok.test/")
	w.Sealed(rig.NotGuards, lab.Not(lab.ToAddr("45.30.9.9")))
}

var _ = rig.Also(TestSpellingsOfAddressesRefused, rig.OverXtables)

func TestSpellingsOfAddressesRefused(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{})
	open := w.Beside(lab.BoxOptions{})
	// The C library's parser takes what inet_aton(3) does.
	connect := func(host string, port int) []string {
		return []string{"bash", "-c", fmt.Sprintf("exec 3<>/dev/tcp/%s/%d", host, port)}
	}
	spellings := func(a, b, c, d uint32) []string {
		return []string{
			fmt.Sprintf("%d", a<<24|b<<16|c<<8|d),
			fmt.Sprintf("0x%x", a<<24|b<<16|c<<8|d),
			fmt.Sprintf("0%o", a<<24|b<<16|c<<8|d),
			fmt.Sprintf("0x%X.0x%X.0x%X.0x%X", a, b, c, d),
			fmt.Sprintf("0%o.0%o.0%o.0%o", a, b, c, d),
			fmt.Sprintf("0000%o.%d.0x%x.%d", a, b, c, d),
			fmt.Sprintf("%d.%d", a, b<<16|c<<8|d),
			fmt.Sprintf("%d.%d.%d", a, b, c<<8|d),
			fmt.Sprintf("::ffff:%d.%d.%d.%d", a, b, c, d),
			fmt.Sprintf("::ffff:%x:%x", a<<8|b, c<<8|d),
		}
	}
	for _, s := range spellings(45, 30, 66, 6) {
		if r := open.Exec(lab.Cmd{Args: connect(s, 8443), UID: lab.AgentUID}); r.Code != 0 {
			t.Errorf("proves nothing: %s without confinement: %s", s, r)
		}
		if r := w.Root(append([]string{"agent-init", "exec", "--"}, connect(s, 8443)...)...); r.Code == 0 {
			t.Errorf("got through: %s: %s", s, r)
		}
		if s[0] != ':' {
			w.Blocked("resolve", s)
			w.Unasked(s)
		}
	}
	if n := len(open.Packets(lab.ToAddr("45.30.66.6"))); n == 0 {
		t.Error("proves nothing: the spellings mean another address")
	}
	// Addresses as names, which public services answer with the address.
	for _, name := range []string{"45.30.66.6.nip.io", "45-30-66-6.sslip.io", "6.66.30.45.in-addr.arpa"} {
		w.Blocked("resolve", name)
		w.Unasked(name)
	}
	w.Sealed(rig.NotGuards)
	// What is allowed is allowed however it is spelled.
	for _, s := range spellings(45, 30, 9, 9) {
		if r := w.Root(append([]string{"agent-init", "exec", "--"}, connect(s, 8443)...)...); r.Code != 0 {
			t.Errorf("does not work: %s: %s", s, r)
		}
	}
}

var _ = rig.Also(TestIPv6Refused, rig.Everywhere)

func TestIPv6Refused(t *testing.T) {
	// IPv4 only in the policy: IPv6 is as closed.
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{})
	open := w.Beside(lab.BoxOptions{})
	_, evil6 := rig.Named("evil.test")
	for _, addr := range []string{
		evil6.String(), "2606:4700::1111", "2001:db8:99::1", "fd00:66::6", "fe80::1%eth0",
		"64:ff9b::2d1e:4206", "2002:2d1e:4206::1",
	} {
		for _, args := range [][]string{
			{"tcp", rig.Target(addr, 443)}, {"tcp", "-send", "x", rig.Target(addr, 8443)}, {"udp", rig.Target(addr, 4433)}, {"ping", "-timeout", "500ms", addr},
		} {
			if p := w.Refused(open, rig.Toward(addr), args...); args[0] != "ping" && !rig.RefusedAtOnce(p.Errno) {
				t.Errorf("%s: left hanging: %s", addr, p)
			}
		}
	}
	for _, addr := range []string{"fec0::66", "::45.30.66.6"} { // the lab's sinks aren't there
		w.Refused(open, rig.Toward(addr), "tcp", rig.Target(addr, 443))
		w.Refused(open, rig.Toward(addr), "udp", "-noreply", rig.Target(addr, 443))
	}
	w.Sealed(rig.NotGuards)
	// A name's IPv6 addresses are open as far as its entry goes.
	_, ok6 := rig.Named("ok.test")
	w.Works("resolve", "ok.test")
	w.Works("tcp", rig.Target(ok6.String(), 443))
	w.Blocked("tcp", rig.Target(ok6.String(), 8443))
	w.Sealed(rig.NotGuards, lab.Not(lab.ToPort(unix.IPPROTO_TCP, 443)))
}

var _ = rig.Also(TestLateIPv6Refused, rig.OverXtables)

// TestLateIPv6Refused: a container without IPv6 gets it later, as when it is
// connected to another network.
func TestLateIPv6Refused(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{NoIPv6: true})
	open := w.Beside(lab.BoxOptions{NoIPv6: true})
	for i, b := range []*lab.Box{w.Box, open} {
		rig.Must(t, w.Lab.Internet.Do(func() error { return addIPv6(fmt.Sprintf("veth%d", i), "fe80::1/64") }))
		rig.Must(t, b.Net.Do(func() error { return addIPv6("eth0", "fe80::2/64") }))
	}
	w.Refused(open, lab.ToAddr("fe80::1"), "tcp", "-timeout", "5s", "[fe80::1%eth0]:443") // loopback, which would say no, is still without IPv6
	w.Refused(open, lab.ToAddr("fe80::1"), "udp", "[fe80::1%eth0]:4433")
	w.Refused(open, lab.ToAddr("fe80::1"), "ping", "-timeout", "5s", "fe80::1%eth0")
	w.Sealed(rig.NotGuards)
}

// addIPv6 gives a link of the thread's network namespace an address.
func addIPv6(link, addr string) error {
	if err := os.WriteFile(filepath.Join("/proc/sys/net/ipv6/conf", link, "disable_ipv6"), []byte("0"), 0o644); err != nil {
		return err
	}
	l, err := netlink.LinkByName(link)
	if err != nil {
		return err
	}
	a, err := netlink.ParseAddr(addr)
	if err != nil {
		return err
	}
	a.Flags = unix.IFA_F_NODAD
	return netlink.AddrReplace(l, a)
}

var _ = rig.Also(TestMappedSocketRefused, rig.OverXtables)

func TestMappedSocketRefused(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{})
	open := w.Beside(lab.BoxOptions{})
	for _, typ := range []string{"stream", "dgram"} {
		for i, addr := range []string{"45.30.66.6", "1.1.1.1", "169.254.169.254", "10.1.2.3"} {
			to := rig.Target("::ffff:"+addr, uint16(8000+i))
			w.Refused(open, lab.ToAddr(addr), "connect", "-send", "x", "inet6", typ, "0", to)
		}
	}
	w.Sealed(rig.NotGuards)
	ok4, _ := rig.Named("ok.test")
	w.Works("resolve", "ok.test")
	w.Works("connect", "inet6", "stream", "0", rig.Target("::ffff:"+ok4.String(), 443))
	w.Blocked("connect", "inet6", "stream", "0", rig.Target("::ffff:"+ok4.String(), 22))
}

var _ = rig.Also(TestOtherPortsRefused, rig.OverXtables)

func TestOtherPortsRefused(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist+"ok2.test:2222\n", lab.BoxOptions{})
	open := w.Beside(lab.BoxOptions{})
	w.Lab.DNS.SetAddrs("a.cdn.test", "45.30.5.1", "2a0f:30:5::1")
	for _, name := range []string{"ok.test", "ok2.test", "a.cdn.test"} {
		w.Works("resolve", name)
	}
	named4, named6 := rig.Named("ok.test")
	other4, other6 := rig.Named("ok2.test")
	wide4, wide6 := netip.MustParseAddr("45.30.5.1"), netip.MustParseAddr("2a0f:30:5::1")
	plain := netip.MustParseAddr("45.30.9.9")
	allowed := map[netip.AddrPort]bool{netip.AddrPortFrom(plain, 8443): true}
	for _, a := range []netip.Addr{named4, named6, wide4, wide6} {
		allowed[netip.AddrPortFrom(a, 443)], allowed[netip.AddrPortFrom(a, 80)] = true, true
	}
	allowed[netip.AddrPortFrom(other4, 2222)], allowed[netip.AddrPortFrom(other6, 2222)] = true, true
	const ports = "1-52,54-130,443,444,465,587,853,1433,2222,3306,5432,6379,8080,8443,9418,27017"
	for _, a := range []netip.Addr{named4, named6, other4, other6, wide4, wide6, plain} {
		p := w.Poke("scan", a.String(), ports)
		got := map[string]bool{}
		list, _ := p.Detail["open"].([]any)
		for _, port := range list {
			ap := netip.AddrPortFrom(a, uint16(port.(float64)))
			if got[ap.String()] = true; !allowed[ap] {
				t.Errorf("open: %s", ap)
			}
		}
		for ap := range allowed {
			if ap.Addr() == a && !got[ap.String()] {
				t.Errorf("not open: %s: %s", ap, p)
			}
		}
		if p := w.Blocked("scan", "-udp", "-timeout", "200ms", a.String(), ports); p.Detail["n"] == nil {
			t.Errorf("no ports were tried: %s", p)
		}
	}
	w.Sealed(rig.NotGuards, func(p *lab.Packet) bool {
		return p.Proto != unix.IPPROTO_TCP || !allowed[netip.AddrPortFrom(p.Dst, p.DstPort)]
	})
	if p := open.Poke(lab.AgentUID, "scan", named4.String(), "25,8443"); fmt.Sprint(p.Detail["open"]) != "[25 8443]" {
		t.Errorf("proves nothing, the scan does not work: %s", p)
	}
}

var _ = rig.Also(TestQUICRefused, rig.OverXtables)

func TestQUICRefused(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist+"ok2.test:443/udp\n", lab.BoxOptions{})
	open := w.Beside(lab.BoxOptions{})
	w.Works("resolve", "ok.test")
	w.Works("resolve", "ok2.test")
	ok4, ok6 := rig.Named("ok.test")
	for _, a := range []netip.Addr{ok4, ok6} {
		w.Works("tcp", rig.Target(a.String(), 443))
		for _, size := range []string{"1", "1200"} { // that of a QUIC Initial, RFC 9000
			p := w.Refused(open, func(p *lab.Packet) bool { return p.Proto == unix.IPPROTO_UDP && p.Dst == a },
				"udp", "-size", size, rig.Target(a.String(), 443))
			// A browser falls back to TCP as soon as it is told.
			if !rig.RefusedAtOnce(p.Errno) {
				t.Errorf("%s: left hanging: %s", a, p)
			}
		}
	}
	udp4, udp6 := rig.Named("ok2.test")
	for _, a := range []netip.Addr{udp4, udp6} {
		w.Works("udp", rig.Target(a.String(), 443))
		w.Refused(open, func(p *lab.Packet) bool { return p.Proto == unix.IPPROTO_TCP && p.Dst == a }, "tcp", rig.Target(a.String(), 443))
	}
}

var _ = rig.Also(TestSSHRefused, rig.OverXtables)

func TestSSHRefused(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist+"ok2.test:22\n", lab.BoxOptions{})
	open := w.Beside(lab.BoxOptions{})
	w.Works("resolve", "ok.test")
	w.Works("resolve", "ok2.test")
	ok4, ok6 := rig.Named("ok.test")
	evil4, evil6 := rig.Named("evil.test")
	for _, a := range []netip.Addr{ok4, ok6, evil4, evil6} {
		w.Refused(open, rig.Toward(a.String()), "tcp", "-send", "SSH-2.0-x\r\n", rig.Target(a.String(), 22))
	}
	for _, a := range []netip.Addr{open.Gateway4(), open.Gateway6(), open.Neighbor4()} {
		if p := open.Poke(lab.AgentUID, "tcp", rig.Target(a.String(), 22)); !p.OK {
			t.Errorf("proves nothing: %s: %s", a, p)
		}
	}
	for _, a := range []netip.Addr{w.Box.Gateway4(), w.Box.Gateway6(), w.Box.Neighbor4()} {
		w.Blocked("tcp", rig.Target(a.String(), 22))
	}
	w.Sealed(rig.NotGuards)
	yes4, yes6 := rig.Named("ok2.test")
	for _, a := range []netip.Addr{yes4, yes6} {
		w.Works("tcp", "-send", "SSH-2.0-x\r\n", rig.Target(a.String(), 22))
		w.Blocked("tcp", rig.Target(a.String(), 443))
	}
}
