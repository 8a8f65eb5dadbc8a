package probe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/vishvananda/netlink"

	"github.com/agent-init/agent-init/internal/netns"
	"github.com/agent-init/agent-init/pkg/selftest"
)

// childEnv names the network namespace that a child of the tests must be in.
const childEnv = "SELFTEST_CHILD_NETNS"

// TestMain doubles as the self-test's child process: a plan in, a report out.
func TestMain(m *testing.M) {
	if ns := os.Getenv(childEnv); ns != "" {
		os.Exit(child(ns))
	}
	os.Exit(m.Run())
}

func child(ns string) int {
	// A probe must never leave the machine that the tests run on.
	if here, err := os.Readlink("/proc/self/ns/net"); err != nil || here != ns {
		fmt.Fprintln(os.Stderr, "in the wrong network namespace:", here, err)
		return 1
	}
	var p selftest.Plan
	if err := json.NewDecoder(os.Stdin).Decode(&p); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if _, err := os.Stdout.Write(Run(context.Background(), p).Pack()); err != nil {
		return 1
	}
	return 0
}

const (
	deniedName   = "denied.test"
	deniedAddr   = "203.0.113.1" // what it resolves to where the guard is broken
	requiredName = "llm.test"
	requiredAddr = "203.0.113.2"
)

// newWorld makes a namespace in which every address of p is at the local host,
// so that a closed port refuses at once and a listener is an open way out.
func newWorld(t *testing.T, p selftest.Plan) {
	t.Helper()
	netns.Enter(t)
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		t.Fatal(err)
	}
	have := make(map[netip.Addr]bool)
	add := func(a netip.Addr) {
		if have[a] || a.IsLoopback() {
			return
		}
		have[a] = true
		ip := &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
		if err := netlink.AddrAdd(lo, &netlink.Addr{IPNet: ip}); err != nil {
			t.Fatalf("%s: %v", a, err)
		}
	}
	for _, list := range [][]netip.AddrPort{p.DNS, p.TCP, p.UDP, p.Metadata} {
		for _, a := range list {
			add(a.Addr())
		}
	}
	for _, a := range p.Ping {
		add(a)
	}
	add(netip.MustParseAddr(deniedAddr))
	add(netip.MustParseAddr(requiredAddr))
	if err := netns.Settle("lo", time.Minute); err != nil {
		t.Fatal(err)
	}
}

// testPlan is the standard plan with a stand-in for the guard's DNS, see serveGuard.
func testPlan() selftest.Plan {
	p := selftest.DefaultPlan(deniedName)
	p.System = []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:53")}
	// Long enough for a busy machine: what is open must be seen to be open.
	p.BlockTimeout, p.ReachTimeout = 3*time.Second, 5*time.Second
	return p
}

// runChild runs the self-test in the calling goroutine's namespace, as uid.
func runChild(t *testing.T, p selftest.Plan, uid uint32, env ...string) selftest.Report {
	t.Helper()
	ns, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	plan, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	// The binary's own directory may be closed to uid; this link is not.
	cmd := exec.Command("/proc/self/exe")
	cmd.Dir = "/"
	cmd.Env = append(env, childEnv+"="+ns, "GORACE=atexit_sleep_ms=0")
	cmd.Stdin = bytes.NewReader(plan)
	var out, msg bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &msg
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); err != nil {
		t.Fatalf("child: %v\n%s", err, msg.String())
	}
	r, err := selftest.ReadPacked(&out)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// nobody is as whom nothing else runs here, and no other run of these tests: a process
// of another network would be seen.
var nobody = uint32(1<<20 + os.Getpid())

// failed lists the checks that failed as "name target".
func failed(r selftest.Report) []string {
	var out []string
	for _, c := range r.Checks {
		if !c.OK && c.Name != "vsock-socket" { // which only a seccomp filter can refuse: TestVsockSocket
			out = append(out, c.Name+" "+c.Target)
		}
	}
	return out
}

func wantFailed(t *testing.T, r selftest.Report, want ...string) {
	t.Helper()
	got := failed(r)
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		var b strings.Builder
		r.WriteTable(&b, false)
		t.Errorf("failed: %q, want %q\n%s", got, want, b.String())
	}
	if len(want) > 0 && r.OK {
		t.Error("the report is OK")
	}
}

// listenTCP opens a way out: it accepts, and hands each connection to serve.
func listenTCP(t *testing.T, addr netip.AddrPort, serve func(net.Conn)) (stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				if serve != nil {
					serve(conn)
				}
			}()
		}
	}()
	t.Cleanup(func() { l.Close() })
	return func() { l.Close() }
}

// listenUDP calls reply for each datagram and sends what it returns, if anything.
func listenUDP(t *testing.T, addr netip.AddrPort, reply func([]byte) []byte) (stop func()) {
	t.Helper()
	conn, err := net.ListenPacket("udp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		buf := make([]byte, 4096)
		for {
			n, from, err := conn.ReadFrom(buf)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				continue
			}
			if out := reply(buf[:n]); out != nil {
				conn.WriteTo(out, from)
			}
		}
	}()
	t.Cleanup(func() { conn.Close() })
	return func() { conn.Close() }
}

// serveDNS answers on addr over network ("udp", "tcp") until stop.
func serveDNS(t *testing.T, network string, addr netip.AddrPort, answer func(q, r *dns.Msg)) (stop func()) {
	t.Helper()
	s := &dns.Server{Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		r := new(dns.Msg).SetReply(q)
		answer(q, r)
		w.WriteMsg(r)
	})}
	// The sockets have to be made here, by this thread: see newNetns.
	var err error
	if network == "udp" {
		s.PacketConn, err = net.ListenPacket("udp", addr.String())
	} else {
		s.Listener, err = net.Listen("tcp", addr.String())
	}
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan struct{})
	s.NotifyStartedFunc = func() { close(started) }
	go s.ActivateAndServe()
	<-started
	var stopped bool
	stop = func() {
		if !stopped {
			stopped = true
			s.Shutdown()
		}
	}
	t.Cleanup(stop)
	return stop
}

// asGuard answers as the guard does: one name, and a refusal for all others.
func asGuard(q, r *dns.Msg) {
	if q.Question[0].Name == dns.Fqdn(requiredName) {
		if q.Question[0].Qtype == dns.TypeA {
			r.Answer = append(r.Answer, a(requiredName, requiredAddr))
		}
		return
	}
	r.Rcode = dns.RcodeNameError
	if q.IsEdns0() != nil {
		r.SetEdns0(1232, false)
		opt := r.IsEdns0()
		opt.Option = append(opt.Option, &dns.EDNS0_EDE{InfoCode: dns.ExtendedErrorCodeBlocked})
	}
}

// asInternet resolves everything, as an open resolver does.
func asInternet(q, r *dns.Msg) {
	name := q.Question[0].Name
	if q.Question[0].Qtype == dns.TypeA {
		r.Answer = append(r.Answer, a(name, deniedAddr))
		return
	}
	r.Answer = append(r.Answer, &dns.AAAA{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeAAAA, Class: dns.ClassINET, Ttl: 60}, AAAA: net.ParseIP("2001:db8::1")})
}

func a(name, addr string) dns.RR {
	return &dns.A{Hdr: dns.RR_Header{Name: dns.Fqdn(name), Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: net.ParseIP(addr)}
}

// serveGuard stands in for the guard at the system's DNS server.
func serveGuard(t *testing.T, p selftest.Plan) {
	t.Helper()
	serveDNS(t, "udp", p.System[0], asGuard)
	serveDNS(t, "tcp", p.System[0], asGuard)
}
