package firewall

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/mustrun"
	labnet "github.com/agent-init/agent-init/internal/netns"
	"github.com/agent-init/agent-init/pkg/firewall/drops"
)

// The addresses of the two ends of the only cable, and one behind the far end.
var (
	near4, far4, other4 = netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("198.51.100.7")
	near6, far6, other6 = netip.MustParseAddr("2001:db8::2"), netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8:7::7")
)

const (
	guardUID = 990
	guardGID = 48211
	agentUID = 1000
	group    = 7
)

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

const inside = "FIREWALL_TEST_INSIDE"

// inNamespace runs the test that calls it in a process of its own, in a fresh
// network namespace, and is true there; the caller returns if it is false.
func inNamespace(t *testing.T) bool {
	t.Helper()
	if os.Getenv(inside) == t.Name() {
		return true
	}
	t.Parallel() // most of the time is spent waiting
	again(t, t.Name())
	return false
}

// onBackend is the backend that open asks for.
const onBackend = "FIREWALL_TEST_BACKEND"

// onBackends is inNamespace once for each backend.
func onBackends(t *testing.T) bool {
	t.Helper()
	return onSome(t, "nftables", "xtables-legacy")
}

func onSome(t *testing.T, backends ...string) bool {
	t.Helper()
	if os.Getenv(inside) == t.Name() {
		return true
	}
	t.Parallel() // most of the time is spent waiting
	name := t.Name()
	for _, b := range backends {
		t.Run(b, func(t *testing.T) {
			t.Parallel()
			again(t, name, onBackend+"="+b)
		})
	}
	return false
}

func backendInUse() string { return os.Getenv(onBackend) }

// again runs the test of that name in a fresh network namespace.
func again(t *testing.T, name string, env ...string) {
	t.Helper()
	mustrun.Root(t)
	args := []string{"-test.run=^" + name + "$", "-test.timeout=900s", "-test.v=" + fmt.Sprint(testing.Verbose())}
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(append(os.Environ(), inside+"="+name), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // the parent whose death would signal is a thread
	defer runtime.UnlockOSThread()
	out, err := cmd.CombinedOutput()
	if errors.Is(err, unix.EPERM) {
		mustrun.Lacks(t, "can't make a network namespace: %v", err)
	}
	if err != nil {
		t.Fatalf("in a namespace of its own: %v\n%s", err, out)
	}
	if testing.Verbose() {
		t.Logf("%s", out)
	}
}

// lab is the namespace of the test, and a peer at the other end of a cable
// that plays everyone else.
type lab struct {
	t    testing.TB
	peer netns.NsHandle
	wire *wire
}

// newLab makes the peer and the cable, with routes to everywhere over it.
func newLab(t testing.TB) *lab {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	here, err := netns.Get()
	must(t, err)
	peer, err := netns.New()
	must(t, err)
	must(t, netns.Set(here))
	l := &lab{t: t, peer: peer}

	must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "far0", PeerNamespace: netlink.NsFd(peer)}))
	configure(t, "eth0", near4, near6, far4, far6)
	l.onPeer(func() {
		must(t, os.WriteFile("/proc/sys/net/ipv4/conf/all/rp_filter", []byte("0"), 0))
		configure(t, "far0", far4, far6)
		lo, err := netlink.LinkByName("lo")
		must(t, err)
		for _, a := range []netip.Addr{other4, other6} {
			must(t, netlink.AddrAdd(lo, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(a, a.BitLen())), Flags: unix.IFA_F_NODAD}))
		}
		l.wire = capture(t, "far0")
	})
	l.onPeer(func() { must(t, labnet.Settle("lo", time.Minute)) })
	// The cable is in use once both ends have carrier.
	eventually(t, "IPv6 over the cable", func() bool {
		c, err := net.DialTimeout("tcp", netip.AddrPortFrom(far6, 9).String(), 100*time.Millisecond)
		if err == nil {
			c.Close()
		}
		return err == nil || errors.Is(err, unix.ECONNREFUSED)
	})
	return l
}

// configure brings up lo and the link of that name with two addresses, and
// routes everything to gateways, if there are any.
func configure(t testing.TB, name string, a4, a6 netip.Addr, gateways ...netip.Addr) {
	t.Helper()
	must(t, os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/accept_dad", []byte("0"), 0))
	lo, err := netlink.LinkByName("lo")
	must(t, err)
	must(t, netlink.LinkSetUp(lo))
	link, err := netlink.LinkByName(name)
	must(t, err)
	must(t, netlink.AddrAdd(link, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(a4, 24))}))
	must(t, netlink.AddrAdd(link, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(a6, 64)), Flags: unix.IFA_F_NODAD}))
	must(t, netlink.LinkSetUp(link))
	for _, g := range gateways {
		must(t, netlink.RouteAdd(&netlink.Route{Gw: g.AsSlice()}))
	}
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// onPeer runs f in the peer's namespace. Sockets made in f stay there.
func (l *lab) onPeer(f func()) {
	l.t.Helper()
	must(l.t, labnet.OnThread(func() error {
		if err := netns.Set(l.peer); err != nil {
			return err
		}
		f()
		return nil
	}))
}

// serve makes the peer accept TCP and echo UDP on a port, on every address.
func (l *lab) serve(port uint16) {
	l.t.Helper()
	l.onPeer(func() {
		for _, a := range []netip.Addr{far4, far6, other4, other6} {
			echo(l.t, netip.AddrPortFrom(a, port), "")
		}
	})
}

// echo answers TCP and UDP at ap with what it gets, after a name.
func echo(t testing.TB, ap netip.AddrPort, name string) {
	t.Helper()
	lis, err := net.Listen("tcp", ap.String())
	must(t, err)
	pc, err := net.ListenPacket("udp", ap.String())
	must(t, err)
	t.Cleanup(func() { lis.Close(); pc.Close() })
	go func() {
		for {
			c, err := lis.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				buf := make([]byte, 2048)
				for {
					n, err := c.Read(buf)
					if err != nil {
						return
					}
					c.Write(append([]byte(name), buf[:n]...))
				}
			}()
		}
	}()
	go func() {
		buf := make([]byte, 2048)
		for {
			n, from, err := pc.ReadFrom(buf)
			if err != nil {
				return
			}
			pc.WriteTo(append([]byte(name), buf[:n]...), from)
		}
	}()
}

// wire sees every IP packet that arrives at an interface.
type wire struct {
	fd int
	mu sync.Mutex
	ps []packet
}

type packet struct {
	proto    uint8
	src, dst netip.AddrPort
	data     []byte
}

func capture(t testing.TB, name string) *wire {
	t.Helper()
	all := uint16(unix.ETH_P_ALL)<<8 | uint16(unix.ETH_P_ALL)>>8
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, int(all))
	must(t, err)
	ifi, err := net.InterfaceByName(name)
	must(t, err)
	must(t, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: ifi.Index}))
	must(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20))
	w := &wire{fd: fd}
	go func() {
		buf := make([]byte, 4096)
		for {
			n, from, err := unix.Recvfrom(fd, buf, 0)
			if err != nil {
				return
			}
			if ll, ok := from.(*unix.SockaddrLinklayer); ok && ll.Pkttype == unix.PACKET_OUTGOING {
				continue
			}
			p, ok := drops.ParsePacket(buf[:n])
			if !ok {
				continue
			}
			w.mu.Lock()
			w.ps = append(w.ps, packet{p.Proto, p.Src, p.Dst, bytes.Clone(buf[:n])})
			w.mu.Unlock()
		}
	}()
	return w
}

// arrived returns the packets so far that carry mark, or if that is empty,
// all but neighbour discovery.
func (w *wire) arrived(mark string) []packet {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []packet
	for _, p := range w.ps {
		discovery := p.proto == unix.IPPROTO_ICMPV6 && len(p.data) > 40 && p.data[40] >= 133 && p.data[40] <= 136
		if mark == "" && !discovery || mark != "" && bytes.Contains(p.data, []byte(mark)) {
			out = append(out, p)
		}
	}
	return out
}

// settle waits until what was sent before has been captured: a packet passes
// the cable while it is being sent, so it is only the queue of the capture
// that must run empty.
func (l *lab) settle() {
	l.t.Helper()
	deadline := time.Now().Add(90 * time.Second)
	for quiet := 0; quiet < 5; {
		n, err := unix.IoctlGetInt(l.wire.fd, unix.SIOCINQ)
		must(l.t, err)
		if n == 0 {
			quiet++
		} else {
			quiet = 0
		}
		if time.Now().After(deadline) {
			l.t.Fatal("the wire never falls silent")
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// reach tries to exchange a message with an echo, and returns why it could
// not.
func reach(network string, ap netip.AddrPort, uid int) error {
	msg := mark(uid)
	got, err := ask(network, ap, uid, msg)
	if err == nil && got != msg {
		err = fmt.Errorf("got %q back, not %q", got, msg)
	}
	return err
}

// mark is what messages of a uid carry, to be found on the wire.
func mark(uid int) string { return fmt.Sprintf("hello from %d", uid) }

// ask sends a message as a uid and returns the answer.
func ask(network string, ap netip.AddrPort, uid int, msg string) (string, error) {
	return askFor(answerTime, network, ap, uid, msg)
}

// askFor is ask that waits for so long.
func askFor(wait time.Duration, network string, ap netip.AddrPort, uid int, msg string) (got string, err error) {
	err = labnet.OnThread(func() error {
		if err := become(uid); err != nil {
			return err
		}
		c, err := net.DialTimeout(network, ap.String(), wait)
		if err != nil {
			return err
		}
		defer c.Close()
		got, err = pingFor(wait, c, msg)
		return err
	})
	return got, err
}

// answerTime is how long an answer is waited for. What is refused is known in a
// fraction of it, on however slow a machine.
const answerTime = 10 * time.Second

func ping(c net.Conn, msg string) (string, error) { return pingFor(answerTime, c, msg) }

func pingFor(wait time.Duration, c net.Conn, msg string) (string, error) {
	c.SetDeadline(time.Now().Add(wait))
	if _, err := c.Write([]byte(msg)); err != nil {
		return "", err
	}
	buf := make([]byte, 100)
	n, err := c.Read(buf)
	return string(buf[:n]), err
}

// open returns a Firewall that is closed with the test.
func open(t testing.TB, opts Options) *Firewall {
	t.Helper()
	if opts.Backend == "" {
		opts.Backend = backendInUse()
	}
	if opts.Run == nil {
		opts.Run = runPlain
	}
	f, err := Open(context.Background(), opts)
	must(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// apply applies the plan for c.
func apply(t testing.TB, f *Firewall, c Config, ls ...Lease) {
	t.Helper()
	if c.GuardUID == 0 {
		c.GuardUID = guardUID
	}
	if c.GuardGID == 0 && !c.AnyGroup {
		c.GuardGID = guardGID
	}
	if c.AgentUID == 0 {
		c.AgentUID = agentUID
	}
	c.GuardZone = f.Zones
	p, err := NewPlan(c)
	must(t, err)
	must(t, f.Apply(context.Background(), p, ls))
}

func leaseOf(a netip.Addr, proto uint8, port uint16, ttl time.Duration) Lease {
	return Lease{Element: Element{Addr: a, Proto: proto, Port: port}, TTL: ttl}
}

// leasedTo are leases as h has them.
func leasedTo(h Holder, ls ...Lease) (out []Lease) {
	for _, l := range ls {
		l.For = h
		out = append(out, l)
	}
	return out
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func anyLease(Lease) bool { return true }

// eventually waits until ok, for a generous while.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(90 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: never", what)
		}
	}
}

// raw sends an IP payload of any protocol.
func raw(t testing.TB, proto int, dst netip.Addr, payload []byte) error {
	t.Helper()
	family := unix.AF_INET
	var sa unix.Sockaddr
	if dst.Is6() {
		family, sa = unix.AF_INET6, &unix.SockaddrInet6{Addr: dst.As16()}
	} else {
		sa = &unix.SockaddrInet4{Addr: dst.As4()}
	}
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, proto)
	must(t, err)
	defer unix.Close(fd)
	if family == unix.AF_INET6 && proto == unix.IPPROTO_ICMPV6 {
		must(t, unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, 255))
	}
	return unix.Sendto(fd, payload, 0, sa)
}

// nftScript has nft(8) run a script, as someone else with NET_ADMIN would.
func nftScript(t testing.TB, script string) error {
	t.Helper()
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(script)
	out, err := cmd.CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		mustrun.Lacks(t, "needs nft(8)")
	}
	if err != nil {
		err = fmt.Errorf("nft: %w: %s", err, out)
	}
	return err
}

// forget lets nowhere begin anew.
func (l *lab) forget() {
	l.t.Helper()
	l.settle()
	l.wire.mu.Lock()
	defer l.wire.mu.Unlock()
	l.wire.ps = nil
}

// nowhere fails the test if anything of that mark has reached the peer.
func (l *lab) nowhere(mark string) {
	l.t.Helper()
	l.settle()
	for _, p := range l.wire.arrived(mark) {
		l.t.Errorf("arrived at the peer: protocol %d from %v to %v: %q", p.proto, p.src, p.dst, p.data)
	}
}

// refused fails the test unless ap refuses at once.
func refused(t testing.TB, network string, ap netip.AddrPort, uid int) {
	t.Helper()
	start := time.Now()
	got, err := ask(network, ap, uid, mark(uid))
	if err == nil {
		t.Errorf("%s %v as uid %d: reached, got %q", network, ap, uid, got)
	}
	if d := time.Since(start); d > answerTime/2 {
		t.Errorf("%s %v as uid %d: refused only after %v (%v)", network, ap, uid, d, err)
	}
}

// reached fails the test unless ap answers.
func reached(t testing.TB, network string, ap netip.AddrPort, uid int) {
	t.Helper()
	if err := reach(network, ap, uid); err != nil {
		t.Errorf("%s %v as uid %d: %v", network, ap, uid, err)
	}
}

func at(a netip.Addr, port uint16) netip.AddrPort { return netip.AddrPortFrom(a, port) }
