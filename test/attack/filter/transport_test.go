package filter

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

var _ = rig.Also(TestSourceRouteOpensNothing, rig.OverXtables)

// TestSourceRouteOpensNothing: over IPv4 a socket may ask with an option (RFC 791) that
// whom it reaches sends the packet on: here an address that the policy allows is
// asked to send to one that it doesn't.
func TestSourceRouteOpensNothing(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist+"45.30.9.9:4433/udp\n", lab.BoxOptions{})
	open := w.Beside(lab.BoxOptions{Caps: rig.RawCaps()}) // which the kernel wants for it
	evil, _ := rig.Named("evil.test")
	hop := netip.MustParseAddr("45.30.9.9")
	routed := func(p *lab.Packet) bool {
		const ethernet, fixed = 14, 20
		if len(p.Raw) < ethernet+fixed || p.EtherType != unix.ETH_P_IP {
			return false
		}
		header := int(p.Raw[ethernet]&15) * 4
		return header > fixed && bytes.Contains(p.Raw[ethernet+fixed:ethernet+header], evil.AsSlice())
	}
	route := fmt.Sprintf("0:4:hex830704%x00", hop.AsSlice()) // a loose one
	for _, args := range [][]string{
		{"udp", "-noreply", "-opt", route, rig.Target(evil.String(), 4433)},
		{"tcp", "-timeout", "300ms", "-opt", route, rig.Target(evil.String(), 8443)},
	} {
		open.Poke(0, args...)
		if p := w.Blocked(args...); p.Errno != "EPERM" {
			t.Errorf("not refused by the kernel: %s", p)
		}
		w.Traced(open, routed, args)
		w.Traceless(routed, args)
		open.ForgetPackets()
	}
	w.Works("udp", "45.30.9.9:4433")
	w.Works("tcp", "-send", "x", "45.30.9.9:8443")
}

var _ = rig.Also(TestOrphanedDataStays, rig.OverXtables|rig.InUp)

// TestOrphanedDataStays: what a process has written and the other side not yet
// taken is sent by the kernel after the process has ended, from a socket without
// an owner. A revocation ends that too.
func TestOrphanedDataStays(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{})
	w.Lab.Claim("tcp", 8443)
	l, err := w.Lab.Internet.Listen("tcp4", "45.30.9.9:8443")
	rig.Must(t, err)
	defer l.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		if c, err := l.Accept(); err == nil {
			accepted <- c // and reads nothing of it
		}
	}()
	w.Script(`exec bash -c 'exec 3<>/dev/tcp/45.30.9.9/8443; head -c 20000000 /dev/zero >&3 & sleep 1; kill -9 $!'`)
	var c net.Conn
	select {
	case c = <-accepted:
		defer c.Close()
	case <-time.After(lab.Patience):
		t.Fatal("proves nothing: nobody connected")
	}
	if r := w.SetPolicy("ok.test\n*.cdn.test\n"); r.Code != 0 {
		t.Fatalf("reload: %s", r)
	}
	w.Box.ForgetPackets()
	// The far side makes room now: what waits would come.
	n, _ := io.Copy(io.Discard, &deadlined{c, time.Now().Add(3 * time.Second)})
	t.Logf("%d bytes were on their way before", n)
	w.Sealed(lab.ToAddr("45.30.9.9"))
}

// deadlined reads until a time.
type deadlined struct {
	net.Conn
	until time.Time
}

func (d *deadlined) Read(b []byte) (int, error) {
	if err := d.Conn.SetReadDeadline(d.until); err != nil {
		return 0, err
	}
	return d.Conn.Read(b)
}

var _ = rig.Also(TestReloadStormOpensNothing, rig.OverXtables|rig.InUp)

// TestReloadStormOpensNothing: while policies come and go as fast as they can be read,
// nothing gets out that none of them allows, and with the last one nothing that
// it doesn't.
func TestReloadStormOpensNothing(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{})
	storm := w.Box.ExecStart(lab.Cmd{Args: []string{"agent-init", "exec", "--", "sh", "-c", `
		while :; do
			poke tcp -timeout 100ms 45.31.6.1:443; poke udp -noreply 45.31.6.1:443; poke tcp -timeout 100ms 45.30.9.8:8443
			poke dns -timeout 200ms 8.8.8.8:53 x.evil.test A; poke http -timeout 500ms http://ok2.test/
		done >/dev/null 2>&1`}})
	for i := range 40 {
		list := rig.Allowlist
		if i%2 == 0 {
			list += "ok2.test\n45.30.9.9:1-65535\n"
			if i%4 == 0 {
				list = "ok2.test\n45.30.9.9:9443\n"
			}
		}
		w.SetPolicy(list)
	}
	if r := w.SetPolicy("ok.test\n"); r.Code != 0 {
		t.Fatalf("the last reload: %s", r)
	}
	w.Sealed(lab.Any(lab.ToAddr("45.31.6.1"), lab.ToAddr("45.30.9.8"), lab.ToAddr("8.8.8.8")))
	w.Unasked("evil.test")
	w.Box.ForgetPackets()
	ok2v4, ok2v6 := rig.Named("ok2.test")
	w.Blocked("http", "-timeout", "1s", "http://ok2.test/")
	w.Blocked("tcp", "45.30.9.9:8443")
	w.Sealed(lab.Any(lab.ToAddr(ok2v4.String()), lab.ToAddr(ok2v6.String()), lab.ToAddr("45.30.9.9")))
	rig.Must(t, storm.Signal(unix.SIGKILL))
	if s, code := w.Status(); code != 0 {
		t.Errorf("not healthy after it: %v", s["why"])
	}
}

var _ = rig.Also(TestHTTP2WithoutTLSRefused, rig.OverXtables)

// TestHTTP2WithoutTLSRefused: HTTP/2 begins on port 80 without being asked for
// (RFC 9113, 3.3): no head in it can be judged.
func TestHTTP2WithoutTLSRefused(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{})
	w.Works("resolve", "ok.test")
	ok4, _ := rig.Named("ok.test")
	w.Lab.ForgetConns()
	for _, head := range []string{`PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00evil.test`,
		`PRI * HTTP/2.0\r\nHost: ok.test\r\n\r\nSM\r\n\r\nevil.test`} {
		w.Poke("tcp", "-esc", head, ok4.String()+":80")
	}
	for _, c := range w.Lab.Conns() {
		if bytes.Contains(c.Received, []byte("evil.test")) || bytes.Contains(c.Received, []byte("PRI")) {
			t.Errorf("it arrived: %q", c.Received)
		}
	}
}

var _ = rig.Also(TestPrimedUpstreamLeadsNowhere, rig.OverXtables|rig.InUp)

// TestPrimedUpstreamLeadsNowhere: flows of the agent's from every port to the guard's
// DNS server, so that the guard's questions belong to them. They may be lost for
// a while; nothing of the agent's may leave for it, nor what it is told be false.
func TestPrimedUpstreamLeadsNowhere(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{})
	to := rig.At(lab.Upstream4, 53)
	if p := w.Poke("prime", to); p.Detail["sent"] == float64(0) {
		t.Fatalf("proves nothing: %s", p)
	}
	for i := range 10 {
		p := w.Poke("resolve", fmt.Sprintf("n%d.cdn.test", i))
		if addrs := fmt.Sprint(p.Detail["addrs"]); p.OK && !strings.Contains(addrs, "45.30.") {
			t.Errorf("a name has %s", addrs)
		}
	}
	for _, p := range w.Box.Packets(lab.ToPort(unix.IPPROTO_UDP, 53)) {
		if bytes.Contains(p.Payload, []byte("from the agent")) {
			t.Fatalf("a datagram of the agent's left the box: %s", p)
		}
	}
	if !rig.Eventually(60*time.Second, func() bool { return w.Poke("resolve", "ok.test").OK }) {
		t.Error("names are not resolved any more")
	}
}
