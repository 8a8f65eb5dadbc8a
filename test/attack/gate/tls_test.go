package gate

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

var _ = rig.Also(TestSharedAddressNeedsAllowedName, rig.OverXtables)

// TestSharedAddressNeedsAllowedName: another site on an address that is allowed.
func TestSharedAddressNeedsAllowedName(t *testing.T) {
	g := gate(t)
	ok4, ok6 := rig.Named("ok.test")
	two4, two6 := rig.Named("ok2.test")
	for _, c := range []struct {
		sni    string
		to     netip.Addr
		reason string
	}{
		{"shared.test", ok4, unlisted}, {"shared.test", ok6, unlisted},
		{"ok2.test", ok4, "not leased to this name"}, {"ok.test", two6, "not leased to this name"},
		{"ok.test.evil.test", two4, unlisted}, {"evil.test", ok4, unlisted},
	} {
		t.Run(c.sni+" at "+c.to.String(), func(t *testing.T) {
			g := g.of(t)
			for _, flag := range []string{"-h1", "-h1=false"} {
				p := g.Refused(g.open, rig.Toward(c.to.String()), "http", flag, "-insecure", "-sni", c.sni, "-addr", rig.At(c.to, 443), "https://"+c.sni+"/")
				reset(t, p)
			}
			g.logged("connect", "deny", c.to, c.sni, c.reason)

			if p := g.refused403(c.to, "http://"+c.sni+"/"); !strings.Contains(fmt.Sprint(p.Detail["body"]), c.sni) {
				t.Errorf("the answer does not name the host: %s", p)
			}
			g.logged("http", "deny", c.to, c.sni, c.reason)
		})
	}
	if h := g.Lab.Web.Hellos(); slices.ContainsFunc(h, func(h lab.Hello) bool { return h.Src.Addr() == g.Box.Addr4() || h.Src.Addr() == g.Box.Addr6() }) {
		t.Errorf("hellos arrived: %+v", h)
	}
	p := g.Poke("http", "-addr", rig.At(ok4, 80), "http://shared.test/")
	if body := fmt.Sprint(p.Detail["body"]); !strings.Contains(body, "host: shared.test\n") || !strings.Contains(body, "why: ") || !strings.Contains(body, "allowlist line: shared.test\n") {
		t.Errorf("the answer does not explain: %s", p)
	}
	for _, a := range []netip.Addr{ok4, ok6} {
		g.Works("http", "-addr", rig.At(a, 443), "https://ok.test/")
		g.Works("http", "-addr", rig.At(a, 80), "http://ok.test/")
		g.logged("connect", "allow", a, "ok.test", "")
	}
}

// refused403 is that a URL can be fetched from an address in the open box, and
// in the confined one is answered by the gate.
func (g *gated) refused403(a netip.Addr, url string) lab.Poke {
	g.Helper()
	p := g.Refused(g.open, rig.Toward(a.String()), "http", "-addr", rig.At(a, 80), url)
	if p.Detail["status"] != 403.0 {
		g.Errorf("want status 403: %s", p)
	}
	return p
}

// TestFrontingIsAKnownLimit: what is inside TLS can't be seen. A request for
// another host inside an allowed name's connection arrives: a known limit.
func TestFrontingIsAKnownLimit(t *testing.T) {
	g := gate(t)
	for _, flag := range []string{"-h1", "-h1=false"} { // E51: with HTTP/2 the host is :authority
		g.Works("http", flag, "-sni", "ok.test", "-host", "evil.test", "https://ok.test/")
	}
	got := g.Lab.Web.Requests("evil.test")
	if len(got) != 2 || got[0].SNI != "ok.test" || got[1].SNI != "ok.test" || got[1].Proto != "HTTP/2.0" {
		t.Errorf("arrived: %+v", got)
	}
	// E43: the other way round the log would say one thing and the server do another.
	ok4, _ := rig.Named("ok.test")
	reset(t, g.Blocked("http", "-insecure", "-sni", "evil.test", "-host", "ok.test", "-addr", rig.At(ok4, 443), "https://ok.test/"))
	if slices.ContainsFunc(g.Lab.Web.Hellos(), func(h lab.Hello) bool { return h.SNI == "evil.test" }) {
		t.Error("arrived under the denied name")
	}
}

func TestServerNameMustBeOneAndAllowed(t *testing.T) {
	g := gate(t)
	literal := "45.30.60.1"
	for _, c := range []struct {
		what      string
		extension []extension
		name      string // in the log
		reason    string
	}{
		{"none", nil, "", "no server name"},
		{"IPv4 literal", []extension{names(literal)}, literal, "address"},
		{"IPv6 literal", []extension{names("2a0f:30::10")}, "2a0f:30::10", ""},
		{"two names", []extension{names("many.test", "shared.test")}, "", "more than one"},
		{"two names, the other order", []extension{names("shared.test", "many.test")}, "", "more than one"},
		{"two extensions", []extension{names("many.test"), names("shared.test")}, "", "more than one"},
		{"empty name", []extension{names("")}, "", "malformed server name"},
		{"empty list", []extension{names()}, "", "malformed server name"},
		{"empty extension", []extension{{0, nil}}, "", "malformed server name"},
		{"256 bytes", []extension{names(strings.Repeat("a.", 123) + "many.test.")}, "", "malformed server name"},
		{"256 bytes of a label", []extension{names(strings.Repeat("a", 256))}, strings.Repeat("a", 256), ""},
		{"final dot", []extension{names("many.test.")}, "", "malformed server name"},
		{"NUL", []extension{names("many.test\x00.evil.test")}, "", "host name"},
		{"space", []extension{names(" many.test")}, " many.test", "host name"},
	} {
		t.Run(c.what, func(t *testing.T) {
			g := g.of(t)
			send := hello(t, "many.test", serverName(c.extension...))
			a := g.next()
			reset(t, g.Refused(g.open, rig.Toward(a.String()), g.bytes(rig.At(a, 443), send)...))
			g.Audited(c.reason, func(e rig.Event) bool {
				return e.Kind == "connect" && e.Verdict == "deny" && e.IP == a.String() && strings.Contains(e.Reason, c.reason)
			})
		})
	}
	g.heard(hello(t, "many.test", serverName(names("MANY.test"))))
}

func TestSplitHelloIsReadWhole(t *testing.T) {
	g := gate(t)
	split := func(h []byte, sizes ...int) (out []byte) { // into records
		message := h[5:]
		for _, n := range sizes {
			out = append(out, record16(message[:n])...)
			message = message[n:]
		}
		return append(out, record16(message)...)
	}
	single := slices.Repeat([]int{1}, 300)
	for _, c := range []struct {
		what  string
		make  func(name string) []byte
		flags []string
	}{
		{"whole", func(n string) []byte { return hello(t, n, nil) }, nil},
		{"a byte at a time", func(n string) []byte { return hello(t, n, nil) }, []string{"-piece", "1", "-pause", "1us", "-timeout", "10s"}},
		{"three records", func(n string) []byte { return split(hello(t, n, nil), 3, 100) }, nil},
		{"three records in pieces", func(n string) []byte { return split(hello(t, n, nil), 3, 100) }, []string{"-piece", "7", "-pause", "1us"}},
		{"a byte for each record", func(n string) []byte { return split(hello(t, n, nil), single...) }, nil},
		{"long", func(n string) []byte {
			return hello(t, n, func(l []extension) []extension { return append(l, extension{21, make([]byte, 12000)}) })
		}, []string{"-piece", "1400"}},
		{"name last", func(n string) []byte {
			return hello(t, n, func(l []extension) []extension { return append(serverName()(l), names(n)) })
		}, []string{"-piece", "300"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			g := g.of(t)
			g.unheard(c.make("shared.test"), "shared.test", unlisted, c.flags...)
			g.heard(c.make("many.test"), c.flags...)
		})
	}
	g.heard(hello(t, "many.test", nil), "-mptcp")

	// A hello may have 16 MiB; the gate reads 64 KiB of records, however many.
	padded := func(n int) []byte {
		return hello(t, "many.test", func(l []extension) []extension { return append(l, extension{21, make([]byte, n)}) })
	}
	records := func(h []byte, size int) (out []byte) {
		for part := range slices.Chunk(h[5:], size) {
			out = append(out, record16(part)...)
		}
		return out
	}
	for _, c := range []struct {
		what string
		send []byte
	}{
		{"64 KiB of hello", records(padded(65000), 1<<14)},
		{"64 KiB by the headers of its records", records(padded(12000), 1)},
	} {
		t.Run(c.what, func(t *testing.T) {
			if len(c.send) <= 64<<10 {
				t.Fatalf("only %d bytes", len(c.send))
			}
			g := g.of(t)
			a := g.next()
			g.Tap(a, 443, "", rig.Echoed)
			reset(t, g.Refused(g.open, rig.Toward(a.String()), g.bytes(rig.At(a, 443), c.send)...))
			g.logged("connect", "deny", a, "", "client hello is too long")
		})
	}
	g.heard(records(padded(48000), 1<<14))
}

func TestEncryptedHelloJudgedByOuterName(t *testing.T) {
	g := gate(t)
	inner := append([]byte{0, 0, 1, 0, 1, 7}, append(vector16(make([]byte, 32)), vector16(bytes.Repeat([]byte{0x5a}, 180))...)...)
	with := func(name string) []byte {
		return hello(t, name, func(l []extension) []extension { return append(l, extension{extensionECH, inner}) })
	}
	g.unheard(with("shared.test"), "shared.test", unlisted)
	g.unheard(hello(t, "many.test", func(l []extension) []extension {
		return append(serverName()(l), extension{extensionECH, inner})
	}), "", "no server name")
	g.heard(with("many.test")) // can't be told from GREASE
}

// TestOtherProtocolsRefused: an allowed address and port is no free pipe.
func TestOtherProtocolsRefused(t *testing.T) {
	g := gate(t)
	type pending struct {
		what       string
		addr       netip.Addr
		open, here *lab.Process
		reason     string
	}
	// Those who keep the gate waiting, side by side.
	var slow []pending
	for _, c := range []struct {
		what string
		send []byte
	}{{"server speaks first", nil}, {"slow hello", hello(t, "many.test", nil)}, {"half a hello", hello(t, "many.test", nil)[:100]}} {
		a := g.next()
		greeting := "220 ready\r\n"
		if c.send != nil {
			greeting = ""
		}
		g.Tap(a, 443, greeting, rig.Echoed)
		args := g.bytes(rig.At(a, 443), c.send, "-all", "-timeout", "9s")
		if c.what == "slow hello" {
			args = g.bytes(rig.At(a, 443), c.send, "-piece", "300", "-pause", "2s", "-all", "-timeout", "12s")
		}
		slow = append(slow, pending{c.what, a, g.AsAgent(g.open, args...), g.AsAgent(g.Box, args...), "in time"})
	}
	sslv2 := append([]byte{0x80, 0x2e, 1, 0, 2, 0, 0x15, 0, 0, 0, 0x10}, make([]byte, 37)...)
	for _, c := range []struct {
		what   string
		send   []byte
		reason string
	}{
		{"ssh", []byte("SSH-2.0-OpenSSH_9.9\r\n"), "not tls"},
		{"http", []byte("GET / HTTP/1.1\r\nHost: many.test\r\n\r\n"), "not tls"},
		{"sslv2", sslv2, "sslv2"},
		{"alert", []byte{21, 3, 1, 0, 2, 1, 0}, "client hello"},
		{"application data", append([]byte{23, 3, 3, 0, 16}, make([]byte, 16)...), "client hello"},
		{"server hello", record16(append([]byte{2, 0, 0, 4}, 3, 3, 0, 0)), "client hello"},
		{"zeros", make([]byte, 64), "not tls"},
		{"socks", []byte{5, 1, 0}, "not tls"},
		{"hello and data", append(hello(t, "shared.test", nil), []byte("data behind")...), unlisted},
	} {
		t.Run(c.what, func(t *testing.T) {
			g := g.of(t)
			a := g.next()
			got := g.Tap(a, 443, "", rig.Echoed)
			reset(t, g.Refused(g.open, rig.Toward(a.String()), g.bytes(rig.At(a, 443), c.send)...))
			if n := len(got.String()); n != len(c.send) {
				t.Errorf("%d bytes came from the open box, want %d", n, len(c.send))
			}
			g.Audited(c.reason, func(e rig.Event) bool {
				return e.Kind == "connect" && e.Verdict == "deny" && e.IP == a.String() && strings.Contains(e.Reason, c.reason)
			})
		})
	}
	t.Run("tls on 80", func(t *testing.T) {
		g := g.of(t)
		a := g.next()
		g.Tap(a, 80, "", rig.Echoed)
		g.unanswered(a, g.bytes(rig.At(a, 80), hello(t, "many.test", nil)))
		g.logged("http", "deny", a, "", "not http")
	})
	t.Run("slow", func(t *testing.T) {
		for _, s := range slow {
			if p := rig.Verdict(t, s.open); p.Detail["received"] == "" {
				t.Errorf("%s: proves nothing, no answer without confinement: %s", s.what, p)
			}
			p := rig.Verdict(t, s.here)
			if p.OK {
				t.Errorf("%s: got through: %s", s.what, p)
			}
			reset(t, p)
			g.Traceless(rig.Toward(s.addr.String()), []string{s.what})
			g.logged("connect", "deny", s.addr, "", s.reason)
		}
	})
}

// unanswered is refused for what the gate may answer by itself.
func (g *gated) unanswered(a netip.Addr, args []string) lab.Poke {
	g.Helper()
	g.open.ForgetPackets()
	g.Possible(g.open, args...)
	g.Traced(g.open, rig.Toward(a.String()), args)
	p := g.Poke(args...)
	if got, _ := p.Detail["received"].(string); p.OK && !strings.HasPrefix(got, "HTTP/1.1 403 ") {
		g.Errorf("answered: %v: %s", args, p)
	}
	g.Traceless(rig.Toward(a.String()), args)
	return p
}

var _ = rig.Also(TestGateDirect, rig.Everywhere)

// TestGateDirect: the gate's own ports lead nowhere.
func TestGateDirect(t *testing.T) {
	g := gate(t)
	ports := rig.Listening(g.World)
	if len(ports) < 4 {
		t.Fatalf("listening: %v", ports)
	}
	for _, port := range ports {
		for _, host := range []string{"127.0.0.1", "::1", "127.0.0.2"} {
			to := net.JoinHostPort(host, fmt.Sprint(port))
			g.Blocked(g.bytes(to, hello(t, "many.test", nil), "-timeout", "1s")...)
			p := g.Poke("http", "-timeout", "1s", "-addr", to, "http://many.test/")
			if p.OK {
				t.Errorf("got through: %s", p)
			}
		}
	}
	g.Sealed(rig.NotGuards)
	for _, host := range []string{"127.0.0.1", "::1"} {
		g.Audited("the gate itself at "+host, func(e rig.Event) bool {
			return e.Kind == "connect" && e.Verdict == "deny" && e.IP == host && strings.Contains(e.Reason, "connected to the gate itself")
		})
	}
	if r := g.Restarts(); r != 0 {
		t.Errorf("the guard was restarted %d times", r)
	}
	g.Works("http", "https://ok.test/")
}

// TestDoHRefused: resolvers inside of HTTPS, which an address filter can't tell
// from the site whose address they share.
func TestDoHRefused(t *testing.T) {
	g := gate(t)
	ok4, ok6 := rig.Named("ok.test")
	g.Lab.DNS.SetAddrs("dns.doh.test", ok4.String(), ok6.String())
	query := []string{"-method", "POST", "-body", "a query", "-insecure"}
	for _, host := range []string{"dns.doh.test", "cloudflare-dns.com", "dns.google"} {
		for _, a := range []netip.Addr{ok4, ok6} {
			args := append(append([]string{"http"}, query...), "-addr", rig.At(a, 443), "https://"+host+"/dns-query")
			reset(t, g.Refused(g.open, rig.Toward(a.String()), args...))
		}
	}
	for _, a := range []string{"1.1.1.1", "8.8.8.8"} {
		args := append(append([]string{"http"}, query...), "https://"+a+"/dns-query")
		g.Refused(g.open, rig.Toward(a), args...)
		args = append(append([]string{"http"}, query...), "-sni", "ok.test", "-addr", a+":443", "https://ok.test/dns-query")
		g.Refused(g.open, rig.Toward(a), args...)
		g.Refused(g.open, rig.Toward(a), "tcp", a+":853")
	}
	g.Refused(g.open, lab.ToPort(unix.IPPROTO_TCP, 853), "tcp", rig.At(ok4, 853))
	g.Lab.DNS.Forget()
	// The answer that has browsers leave their own resolver off.
	g.Blocked("resolve", "use-application-dns.net")
	g.Unasked("use-application-dns.net")
	if !rig.Eventually(time.Second, func() bool { return g.Poke("http", "https://ok.test/dns-query").OK }) {
		t.Error("ok.test does not work")
	}
}
