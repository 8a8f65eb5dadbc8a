package probe

import (
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/netns"
	"github.com/agent-init/agent-init/pkg/selftest"
)

// Without any route everything is blocked, and said to be for that reason.
func TestKernelNoRoute(t *testing.T) {
	netns.Enter(t)
	r := runChild(t, selftest.DefaultPlan(deniedName), nobody)
	wantFailed(t, r)
	for _, c := range r.Checks {
		switch c.Name {
		case "dns-system", "dns-direct", "tcp", "udp", "metadata":
			if c.Detail != "no route" {
				t.Errorf("%s %s: %s", c.Name, c.Target, c.Detail)
			}
		}
	}
}

// Where every port is closed and DNS refuses, all is well.
func TestKernelRefused(t *testing.T) {
	p := testPlan()
	// Nothing is silent here, so no time is waited out, however busy the machine is.
	p.BlockTimeout = time.Minute
	newWorld(t, p)
	serveGuard(t, p)
	r := runChild(t, p, nobody)
	wantFailed(t, r)
	for _, c := range r.Checks {
		want := map[string]string{"dns-system": "NXDOMAIN (blocked)", "dns-direct": "refused", "denied-name": "does not resolve",
			"tcp": "refused", "udp": "refused", "metadata": "refused", "ping": "not permitted", "raw-socket": "not permitted",
			"packet-socket": "not permitted", "net-admin": "not permitted", "become-root": "not permitted", "other-network": "none is seen"}[c.Name]
		if want != "" && c.Detail != want {
			t.Errorf("%s %s: %q, want %q", c.Name, c.Target, c.Detail, want)
		}
	}
}

// Each way out, open one at a time, is found, and nothing else is blamed.
func TestKernelEachWayOut(t *testing.T) {
	p := testPlan()
	newWorld(t, p)
	serveGuard(t, p)
	for _, addr := range p.TCP {
		stop := listenTCP(t, addr, nil)
		wantFailed(t, runChild(t, p, nobody), "tcp "+addr.String())
		stop()
	}
	for _, addr := range p.Metadata {
		stop := listenTCP(t, addr, nil)
		wantFailed(t, runChild(t, p, nobody), "metadata "+addr.String())
		stop()
	}
	for _, addr := range p.UDP {
		stop := listenUDP(t, addr, asQUIC)
		wantFailed(t, runChild(t, p, nobody), "udp "+addr.String())
		stop()
	}
	for _, addr := range p.DNS {
		for _, network := range []string{"udp", "tcp"} {
			stop := serveDNS(t, network, addr, asInternet)
			r := runChild(t, p, nobody)
			wantFailed(t, r, "dns-direct "+addr.String()+"/"+network)
			if f := strings.Join(r.Failures(), "\n"); !strings.Contains(f, "answered for "+deniedName+" over "+strings.ToUpper(network)) {
				t.Errorf("failures: %s", f)
			}
			stop()
		}
	}
	wantFailed(t, runChild(t, p, nobody)) // all closed again
}

// asQUIC answers as RFC 9000, section 6, has it: to long headers of unknown
// versions in datagrams of at least 1200 bytes, with the connection IDs swapped.
func asQUIC(p []byte) []byte {
	if len(p) < 1200 || p[0]&0x80 == 0 || binary.BigEndian.Uint32(p[1:])&0x0f0f0f0f != 0x0a0a0a0a {
		return nil
	}
	dcid := p[6 : 6+p[5]]
	rest := p[6+len(dcid):]
	scid := rest[1 : 1+rest[0]]
	out := []byte{0x80, 0, 0, 0, 0, byte(len(scid))}
	out = append(append(out, scid...), byte(len(dcid)))
	return append(append(out, dcid...), 0, 0, 0, 1)
}

func TestKernelPing(t *testing.T) {
	p := testPlan()
	newWorld(t, p)
	serveGuard(t, p)
	if err := os.WriteFile("/proc/sys/net/ipv4/ping_group_range", []byte("0 2147483647"), 0); err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, a := range p.Ping {
		want = append(want, "ping "+a.String())
	}
	wantFailed(t, runChild(t, p, nobody), want...)
}

// The system's DNS is the guard's: that it answers for a denied name must
// not pass, whatever the answer is.
func TestKernelLeakyDNS(t *testing.T) {
	tests := map[string]struct {
		answer func(q, r *dns.Msg)
		open   string // an address to listen on
		want   []string
	}{
		"address":   {asInternet, "", []string{"dns-system 127.0.0.1:53/udp", "dns-system 127.0.0.1:53/tcp"}},
		"reachable": {asInternet, deniedAddr + ":443", []string{"dns-system 127.0.0.1:53/udp", "dns-system 127.0.0.1:53/tcp", "denied-name denied.test:443"}},
		"empty":     {func(q, r *dns.Msg) {}, "", []string{"dns-system 127.0.0.1:53/udp", "dns-system 127.0.0.1:53/tcp"}},
		"alias": {func(q, r *dns.Msg) {
			r.Answer = append(r.Answer, &dns.CNAME{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeCNAME, Class: dns.ClassINET}, Target: "x."})
			r.Rcode = dns.RcodeNameError
		}, "", []string{"dns-system 127.0.0.1:53/udp", "dns-system 127.0.0.1:53/tcp"}},
		"servfail": {func(q, r *dns.Msg) { r.Rcode = dns.RcodeServerFailure }, "", nil},
		"refused":  {func(q, r *dns.Msg) { r.Rcode = dns.RcodeRefused }, "", nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := testPlan()
			newWorld(t, p)
			serveDNS(t, "udp", p.System[0], tt.answer)
			serveDNS(t, "tcp", p.System[0], tt.answer)
			if tt.open != "" {
				listenTCP(t, netip.MustParseAddrPort(tt.open), nil)
			}
			wantFailed(t, runChild(t, p, nobody), tt.want...)
		})
	}
}

// What the policy adds is tried, by address and by name.
func TestKernelBlockTargets(t *testing.T) {
	p := testPlan()
	p.Block = []selftest.Target{{Name: deniedAddr, Port: 22}, {Name: requiredName, Port: 8080}, {Name: "nowhere.test", Port: 80}}
	newWorld(t, p)
	serveGuard(t, p)
	wantFailed(t, runChild(t, p, nobody))
	listenTCP(t, netip.MustParseAddrPort(deniedAddr+":22"), nil)
	listenTCP(t, netip.MustParseAddrPort(requiredAddr+":8080"), nil)
	r := runChild(t, p, nobody)
	wantFailed(t, r, "block 203.0.113.1:22", "block llm.test:8080")
	want := "203.0.113.1:22 answered over TCP at 203.0.113.1, which should be blocked"
	if f := strings.Join(r.Failures(), "\n"); !strings.Contains(f, want) {
		t.Errorf("failures: %q", f)
	}
}

// Silence is blocked, but is not told as a refusal.
func TestKernelNoAnswer(t *testing.T) {
	p := testPlan()
	newWorld(t, p)
	serveGuard(t, p)
	silent := func([]byte) []byte { return nil }
	listenUDP(t, p.UDP[0], silent)
	listenUDP(t, p.DNS[0], silent)
	fullBacklog(t, p.TCP[0])
	r := runChild(t, p, nobody)
	wantFailed(t, r)
	quiet := []string{"udp " + p.UDP[0].String(), "dns-direct " + p.DNS[0].String() + "/udp", "tcp " + p.TCP[0].String()}
	refused := 0 // of the others; a machine under load may be late with some, which is silence as well
	for _, c := range r.Checks {
		switch what := c.Name + " " + c.Target; {
		case !slices.Contains(quiet, what):
			if c.Detail == "refused" {
				refused++
			}
		case c.Detail != noAnswer:
			t.Errorf("%s: %q", what, c.Detail)
		default:
			quiet = slices.DeleteFunc(quiet, func(q string) bool { return q == what })
		}
	}
	if len(quiet) > 0 || refused == 0 {
		t.Errorf("not tried: %q; refused: %d; of %+v", quiet, refused, r.Checks)
	}
}

// fullBacklog listens at addr and fills the queue, so that the kernel drops
// further connections without a word.
func fullBacklog(t *testing.T, addr netip.AddrPort) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: addr.Addr().As4(), Port: int(addr.Port())}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", addr.String()) // one is what a backlog of 0 holds
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
}

// A root process passes none of the privilege checks.
func TestKernelPrivileged(t *testing.T) {
	p := testPlan()
	newWorld(t, p)
	serveGuard(t, p)
	wantFailed(t, runChild(t, p, 0), "raw-socket a raw IPv4 socket", "raw-socket a raw ICMP socket", "raw-socket a raw IPv6 socket",
		"packet-socket a packet socket", "packet-socket a raw packet socket", "net-admin a packet mark", "become-root a change to uid 0", "other-network a process of another network")
}

// The check says what the kernel says, whatever that is here.
func TestVsockSocket(t *testing.T) {
	fd, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	want := selftest.Blocked
	if err == nil {
		unix.Close(fd)
		want = selftest.Reachable
	}
	for _, pp := range privileges {
		if pp.name == "vsock-socket" {
			if o := pp.run(t.Context()); o.got != want {
				t.Errorf("%+v, want %s (%v)", o, want, err)
			}
			return
		}
	}
	t.Error("no such probe")
}
