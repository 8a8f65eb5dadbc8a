package attack

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
)

// settings is a policy.yaml for BoxOptions.Files.
func settings(text string) lab.File {
	return lab.File{Path: "/etc/agent-init/policy.yaml", Data: []byte(text)}
}

// asAgent starts a poke with the agent's credentials in the confined box, as
// its user in another.
func (w *world) asAgent(b *lab.Box, args ...string) *lab.Process {
	w.Helper()
	args = append([]string{"poke"}, args...)
	if b == w.box {
		return b.ExecStart(lab.Cmd{Args: append([]string{"agent-init", "exec", "--"}, args...)})
	}
	return b.ExecStart(lab.Cmd{Args: args, UID: lab.AgentUID})
}

// bound waits until a box has sockets on all of these ports, for
// /proc/net/TABLE: tcp, udp6, ….
func (w *world) bound(b *lab.Box, table string, ports ...uint16) {
	w.Helper()
	if !eventually(10*time.Second, func() bool {
		text := b.Exec(lab.Cmd{Args: []string{"cat", "/proc/net/" + table}}).Stdout
		for _, port := range ports {
			if !strings.Contains(text, fmt.Sprintf(":%04X ", port)) {
				return false
			}
		}
		return true
	}) {
		w.Fatalf("nothing is bound to %s %v", table, ports)
	}
}

// datagram is one that comes from the internet.
type datagram struct {
	from, to netip.AddrPort // from nowhere in particular if not valid
	text     string
}

// send sends datagrams in this order, all of them from one CPU so that they
// arrive in it.
func (w *world) send(all ...datagram) {
	w.Helper()
	must(w.T, w.lab.Internet.Do(func() error {
		var cpu unix.CPUSet
		if err := unix.SchedGetaffinity(0, &cpu); err != nil {
			return err
		}
		for i := range len(cpu) * 64 {
			if cpu.IsSet(i) && cpu.Count() > 1 {
				cpu.Clear(i)
			}
		}
		if err := unix.SchedSetaffinity(0, &cpu); err != nil {
			return err
		}
		for _, d := range all {
			dialer := net.Dialer{}
			if d.from.IsValid() {
				dialer.LocalAddr = net.UDPAddrFromAddrPort(d.from)
				dialer.Control = reusable
			}
			c, err := dialer.DialContext(w.Context(), "udp", d.to.String())
			if err != nil {
				return err
			}
			_, err = c.Write([]byte(d.text))
			if err = errors.Join(err, c.Close()); err != nil {
				return err
			}
		}
		return nil
	}))
}

// reusable lets a socket have an address on which the lab's servers are.
func reusable(_, _ string, c syscall.RawConn) error {
	var err error
	cerr := c.Control(func(fd uintptr) {
		err = errors.Join(unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
			unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1))
	})
	return errors.Join(err, cerr)
}

// reach connects to a box from an address of the internet, or from the gateway
// if that is not valid, and says whether an echo came back.
func (w *world) reach(from netip.Addr, to netip.AddrPort) bool {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), 700*time.Millisecond)
	defer cancel()
	local := netip.AddrPort{}
	if from.IsValid() {
		local = netip.AddrPortFrom(from, 0)
	}
	c, err := w.lab.Internet.Dial(ctx, "tcp", to.String(), local)
	if err != nil {
		return false
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	_, werr := c.Write([]byte("x"))
	_, rerr := c.Read(make([]byte, 1))
	return werr == nil && rerr == nil
}

func TestLabInboundPorts(t *testing.T) {
	w := confine(t, allowlist, lab.BoxOptions{Files: []lab.File{settings("inbound: [3000, 3003/udp]\n")}})
	open := w.beside(lab.BoxOptions{})
	evil4, evil6 := named("evil.test")
	for _, b := range []*lab.Box{w.box, open} {
		var ports []uint16
		for _, port := range []uint16{2999, 3000, 3001, 3003} {
			w.asAgent(b, "listen", "-for", "60s", fmt.Sprintf(":%d", port))
			ports = append(ports, port)
		}
		w.bound(b, "tcp6", ports...)
		var tries sync.WaitGroup // those that are refused get no answer, and wait for it together
		for _, tt := range []struct {
			from, to netip.Addr
		}{
			{netip.Addr{}, b.Addr4()}, {evil4, b.Addr4()}, {evil6, b.Addr6()}, {b.Neighbor4(), b.Addr4()}, {b.Neighbor6(), b.Addr6()},
			{netip.MustParseAddr("169.254.169.254"), b.Addr4()},
		} {
			for _, port := range ports {
				tries.Go(func() {
					if got, want := w.reach(tt.from, netip.AddrPortFrom(tt.to, port)), b == open || port == 3000; got != want {
						t.Errorf("open box: %t: from %s to port %d: connected: %t", b == open, tt.from, port, got)
					}
				})
			}
		}
		tries.Wait()
		if !w.reach(netip.Addr{}, netip.AddrPortFrom(b.Addr4(), 3000)) {
			t.Error("the inbound port is closed by now")
		}
	}
	// Neither is the port a way out.
	w.blocked("udp", "-from", "3003", target(evil4.String(), 3003))
	w.blocked("connect", "inet", "stream", "0", target(evil4.String(), 3000))
	w.sealed(notGuards, func(p *lab.Packet) bool { return p.Proto != unix.IPPROTO_TCP || p.SrcPort != 3000 })
}

func TestLabE31SourcePort(t *testing.T) {
	w := confine(t, allowlist, lab.BoxOptions{Files: []lab.File{settings("inbound: [6001/udp]\n")}})
	open := w.beside(lab.BoxOptions{})
	evil4, evil6 := named("evil.test")
	ok4, _ := named("ok.test")
	w.works("resolve", "ok.test")
	for _, b := range []*lab.Box{w.box, open} {
		// It has asked evil4:53 first, as for a hole in a NAT.
		p := w.asAgent(b, "recv", "-to", target(evil4.String(), 53), "-for", "20s", ":6000", ":6001")
		w.bound(b, "udp6", 6000, 6001)
		var all []datagram
		for _, from := range []netip.AddrPort{
			netip.AddrPortFrom(evil4, 53), netip.AddrPortFrom(evil6, 53), netip.AddrPortFrom(lab.Upstream4, 53), netip.AddrPortFrom(lab.Upstream6, 53),
			netip.AddrPortFrom(evil4, 443), netip.AddrPortFrom(evil4, 123), netip.AddrPortFrom(evil4, 67), netip.AddrPortFrom(ok4, 443),
			netip.AddrPortFrom(b.Gateway4(), 53), netip.AddrPortFrom(b.Neighbor4(), 5353),
		} {
			to := b.Addr4()
			if from.Addr().Is6() {
				to = b.Addr6()
			}
			all = append(all, datagram{from, netip.AddrPortFrom(to, 6000), "order"})
		}
		w.send(append(all, datagram{to: netip.AddrPortFrom(b.Addr4(), 6001), text: "end"})...)
		r, err := lab.ParsePoke(p.Wait(0).Stdout)
		must(t, err)
		got, _ := r.Detail["datagrams"].([]any)
		var orders []any // what else came is the guard's answer: port 53 is redirected
		for _, d := range got {
			if strings.HasSuffix(d.(string), "order") {
				orders = append(orders, d)
			}
		}
		if r.Detail["ended"] != true || (b == open) != (len(orders) >= 10) || (b == w.box) != (len(orders) == 0) {
			t.Errorf("open box: %t: got %v: %s", b == open, orders, r)
		}
	}
	w.sealed(notGuards)
}

func TestLabE33Revoke(t *testing.T) {
	const first = "ok.test:8443\nok.test:8444\nok.test:8445\nshared.test:8445\nok.test:4433/udp\nok2.test:8443\n45.30.9.9:8443\n45.30.9.10:8443\n"
	w := confine(t, first, lab.BoxOptions{})
	for _, name := range []string{"ok.test", "ok2.test", "shared.test"} {
		w.works("resolve", name)
	}
	ok4, ok6 := named("ok.test")
	other4, _ := named("ok2.test")
	pushed := w.push(8444)
	stream := func(addr netip.Addr, port uint16) *lab.Process {
		to := netip.AddrPortFrom(addr, port)
		p := w.asAgent(w.box, "tcp", "-hold", "1m", "-oneway", to.String())
		if !eventually(10*time.Second, func() bool { return w.received(to) > 0 }) {
			t.Fatalf("no stream to %s", to)
		}
		return p
	}
	// Not a packet has left since the reload returned, see below; here, the
	// program learns of it as soon as it sends.
	dies := func(what string, p *lab.Process) {
		t.Helper()
		select {
		case <-p.Done():
			r, err := lab.ParsePoke(p.Stdout())
			must(t, err)
			if r.OK || r.Errno != "ECONNRESET" && r.Errno != "EHOSTUNREACH" && r.Errno != "EPIPE" {
				t.Errorf("%s: not ended by the revocation: %s", what, r)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%s: outlives its revocation", what)
		}
	}
	lives := func(what string, p *lab.Process, addr string) {
		t.Helper()
		before := w.received(netip.MustParseAddrPort(addr))
		if !eventually(10*time.Second, func() bool { return w.received(netip.MustParseAddrPort(addr)) > before+2 }) {
			t.Errorf("%s: died with others: %s%s", what, p.Stdout(), p.Stderr())
		}
	}
	revoked4, revoked6 := stream(ok4, 8443), stream(ok6, 8443)
	shared, named2 := stream(ok4, 8445), stream(other4, 8443)
	plain, plain2 := stream(netip.MustParseAddr("45.30.9.9"), 8443), stream(netip.MustParseAddr("45.30.9.10"), 8443)
	w.box.ExecStart(lab.Cmd{Args: []string{"agent-init", "exec", "--", "bash", "-c",
		fmt.Sprintf("exec 3<>/dev/tcp/%s/8444; exec cat <&3 >/dev/null", ok4)}})
	if !eventually(10*time.Second, func() bool { return pushed.Load() > 10 }) {
		t.Fatal("nothing is pushed")
	}
	w.works("udp", "-from", "5000", target(ok4.String(), 4433))

	if r := w.setPolicy("shared.test:8445\nok2.test:8443\n45.30.9.10:8443\n"); r.Code != 0 {
		t.Fatalf("reload: %s", r)
	}
	w.box.ForgetPackets()
	dies("the removed name", revoked4)
	dies("the removed name over IPv6", revoked6)
	dies("the removed address", plain)
	w.blocked("udp", "-from", "5000", target(ok4.String(), 4433))
	w.blocked("tcp", target(ok4.String(), 8443))
	w.blocked("tcp", "45.30.9.9:8443")
	// What the far side goes on sending isn't even acknowledged.
	since := pushed.Load()
	if !eventually(10*time.Second, func() bool { return pushed.Load() > since+10 }) {
		t.Error("the far side could not go on: the stream was closed from inside")
	}
	gone := lab.Any(lab.ToAddr("45.30.9.9"), func(p *lab.Packet) bool { return p.Dst == ok4 && p.DstPort != 8445 }, lab.ToAddr(ok6.String()))
	w.sealed(gone)
	lives("another name of the same address", shared, target(ok4.String(), 8445))
	lives("another name", named2, target(other4.String(), 8443))
	lives("another address", plain2, "45.30.9.10:8443")

	// A deny entry revokes as well, and the other family of the streams too.
	if r := w.setPolicy("shared.test:8445\nok2.test:8443\n!ok2.test\n!shared.test\n45.30.9.10:8443\n"); r.Code != 0 {
		t.Fatalf("reload: %s", r)
	}
	w.box.ForgetPackets()
	dies("the denied name", named2)
	dies("the denied name of a shared address", shared)
	lives("another address", plain2, "45.30.9.10:8443")
	w.sealed(gone, lab.ToAddr(other4.String()))
	w.sealed(lab.ToAddr(ok4.String()))
}

// push has the internet send without end to whoever connects to a port, and
// counts.
func (w *world) push(port uint16) *atomic.Int64 {
	w.Helper()
	w.lab.Claim("tcp", port)
	l, err := w.lab.Internet.Listen("tcp4", fmt.Sprintf("0.0.0.0:%d", port))
	must(w.T, err)
	w.Cleanup(func() { l.Close() })
	count := new(atomic.Int64)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		w.Cleanup(func() { c.Close() })
		for {
			if _, err := c.Write([]byte("order")); err != nil {
				return
			}
			count.Add(1)
			time.Sleep(10 * time.Millisecond) // the pace of the traffic
		}
	}()
	return count
}

// received is how much came to an address of the internet over TCP.
func (w *world) received(at netip.AddrPort) (bytes int64) {
	for _, c := range w.lab.Conns() {
		if c.Dst == at {
			bytes += c.Total
		}
	}
	return bytes
}

// TestLabE34Related: a helper of connection tracking reads FTP and expects the
// data connections that it speaks of. Expected isn't allowed.
func TestLabE34Related(t *testing.T) {
	w := confine(t, "ok.test:21\n", lab.BoxOptions{})
	open := w.beside(lab.BoxOptions{})
	w.works("resolve", "ok.test")
	ok4, _ := named("ok.test")
	w.lab.Claim("tcp", 21)
	l, err := w.lab.Internet.Listen("tcp4", "0.0.0.0:21")
	must(t, err)
	defer l.Close()
	active := make(chan error, 2)
	go w.serveFTP(l, active)
	for _, b := range []*lab.Box{w.box, open} {
		must(t, b.Net.Do(ftpHelper))
		const passive = `exec 3<>/dev/tcp/$0/21; read hello <&3; printf 'PASV\r\n' >&3; read reply <&3; exec 4<>/dev/tcp/$0/5555 && echo through`
		cmd := []string{"bash", "-c", passive, ok4.String()}
		run := func(cmd []string) string {
			t.Helper()
			c := lab.Cmd{Args: cmd, UID: lab.AgentUID}
			if b == w.box {
				c = lab.Cmd{Args: append([]string{"agent-init", "exec", "--"}, cmd...)}
			}
			r := b.Exec(c)
			if r.TimedOut {
				t.Errorf("open box: %t: hangs: %s", b == open, r)
			}
			return r.Stdout
		}
		if got := run(cmd); (got == "through\n") != (b == open) {
			t.Errorf("open box: %t: passive: %q", b == open, got)
		}
		w.asAgent(b, "listen", "-for", "60s", ":5001")
		w.bound(b, "tcp6", 5001)
		port := fmt.Sprintf("PORT %s,19,137", strings.ReplaceAll(b.Addr4().String(), ".", ","))
		got := run([]string{"bash", "-c", `exec 3<>/dev/tcp/$0/21; read hello <&3; printf 'NOOP\r\n' >&3; read ok <&3; printf '%s\r\n' "$1" >&3; read reply <&3`, ok4.String(), port})
		select {
		case err := <-active:
			if (err == nil) != (b == open) {
				t.Errorf("open box: %t: active: %v", b == open, err)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("proves nothing: open box: %t: the server did not come: %s", b == open, got)
		}
		// The helper must have done its work, else this shows nothing.
		out, in, err := w.related(b)
		must(t, err)
		if out == 0 || in == 0 {
			t.Errorf("proves nothing: open box: %t: %d related packets out, %d in", b == open, out, in)
		}
	}
	w.sealed(lab.ToPort(unix.IPPROTO_TCP, 5555))
	w.sealed(func(p *lab.Packet) bool { return p.SrcPort == 5001 })
}

// serveFTP says what a server would say, and makes an active data connection.
func (w *world) serveFTP(l net.Listener, active chan<- error) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			server := c.LocalAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
			client := c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
			fmt.Fprint(c, "220 ready\r\n")
			lines := bufio.NewScanner(c)
			for lines.Scan() {
				switch {
				case lines.Text() == "PASV":
					fmt.Fprintf(c, "227 Entering Passive Mode (%s,21,179).\r\n", strings.ReplaceAll(server.String(), ".", ","))
				case strings.HasPrefix(lines.Text(), "PORT "):
					ctx, cancel := context.WithTimeout(context.Background(), time.Second)
					data, err := w.lab.Internet.Dial(ctx, "tcp", netip.AddrPortFrom(client, 5001).String(), netip.AddrPortFrom(server, 20))
					cancel()
					if err == nil {
						data.Close()
					}
					active <- err
					fmt.Fprint(c, "200 done\r\n")
				default:
					fmt.Fprint(c, "200 fine\r\n")
				}
			}
		}()
	}
}

const helperTable = "ftp"

// ftpHelper has the thread's network namespace watch port 21, and counts what
// is related to its flows.
func ftpHelper() error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: helperTable})
	c.AddObj(&nftables.NamedObj{Table: table, Name: "ftp", Type: nftables.ObjTypeCtHelper,
		Obj: &expr.CtHelper{Name: "ftp", L3Proto: unix.NFPROTO_IPV4, L4Proto: unix.IPPROTO_TCP}})
	for name, hook := range map[string]*nftables.ChainHook{"output": nftables.ChainHookOutput, "input": nftables.ChainHookInput} {
		chain := c.AddChain(&nftables.Chain{Table: table, Name: name, Type: nftables.ChainTypeFilter, Hooknum: hook,
			Priority: nftables.ChainPriorityRef(-150)}) // after conntrack, before the filters
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{0, 21}},
			&expr.Objref{Type: int(nftables.ObjTypeCtHelper), Name: "ftp"},
		}})
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
			&expr.Ct{Register: 1, Key: expr.CtKeySTATE},
			&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(expr.CtStateBitRELATED), Xor: make([]byte, 4)},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
			&expr.Counter{},
		}})
	}
	return c.Flush()
}

// related is how many TCP packets of expected flows ftpHelper counted.
func (w *world) related(b *lab.Box) (out, in uint64, err error) {
	err = b.Net.Do(func() error {
		c, err := nftables.New()
		if err != nil {
			return err
		}
		table := &nftables.Table{Family: nftables.TableFamilyIPv4, Name: helperTable}
		for name, n := range map[string]*uint64{"output": &out, "input": &in} {
			rules, err := c.GetRules(table, &nftables.Chain{Table: table, Name: name})
			if err != nil {
				return err
			}
			if len(rules) != 2 {
				return errors.New("the counting rules are gone")
			}
			for _, e := range rules[1].Exprs {
				if counter, ok := e.(*expr.Counter); ok {
					*n = counter.Packets
				}
			}
		}
		return nil
	})
	return out, in, err
}

func TestLabE41Relay(t *testing.T) {
	w := confine(t, allowlist, lab.BoxOptions{})
	open := w.beside(lab.BoxOptions{})
	evil4, _ := named("evil.test")
	w.works("resolve", "ok.test")
	ok4, _ := named("ok.test")
	for _, b := range []*lab.Box{w.box, open} {
		w.asAgent(b, "relay", "-for", "60s", "127.0.0.1:8080", target(evil4.String(), 8443))
		w.asAgent(b, "relay", "-for", "60s", "[::1]:8081", target(evil4.String(), 443))
		w.bound(b, "tcp", 8080)
		w.bound(b, "tcp6", 8081)
		poke := w.poke
		if b == open {
			poke = func(args ...string) lab.Poke { return b.Poke(lab.AgentUID, args...) }
		}
		for _, args := range [][]string{
			{"tcp", "-send", "x", "127.0.0.1:8080"}, {"tcp", "-send", "x", target(b.Addr4().String(), 8080)}, // the second isn't listening
			{"http", "-addr", "[::1]:8081", "https://evil.test/"},
		} {
			p := poke(args...)
			if want := b == open && !strings.Contains(strings.Join(args, " "), b.Addr4().String()); p.OK != want {
				t.Errorf("open box: %t: %v: %s", b == open, args, p)
			}
		}
	}
	// A relay may pass on what is allowed, and root's are no better than the agent's.
	w.asAgent(w.box, "relay", "-for", "60s", "127.0.0.1:8082", target(ok4.String(), 443))
	w.box.ExecStart(lab.Cmd{Args: []string{"poke", "relay", "-for", "60s", "127.0.0.1:8083", target(evil4.String(), 8443)}})
	w.bound(w.box, "tcp", 8082, 8083)
	w.works("http", "-addr", "127.0.0.1:8082", "https://ok.test/")
	w.blocked("tcp", "-send", "x", "127.0.0.1:8083")
	w.sealed(lab.ToAddr(evil4.String()))

	// What agent-init itself has on loopback serves nobody as a proxy.
	for _, port := range w.ownPorts() {
		if port >= 8080 && port <= 8083 {
			continue
		}
		for _, request := range []string{
			"CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n", "GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n",
			"\x05\x01", "\x04\x01\x01\xbb\x2d\x1e\x42\x06x",
		} {
			if strings.ContainsRune(request, 0) {
				continue
			}
			w.poke("tcp", "-timeout", "200ms", "-send", request, fmt.Sprintf("127.0.0.1:%d", port))
		}
		w.blocked("dns", fmt.Sprintf("127.0.0.1:%d", port), "evil.test", "A")
		w.blocked("dns", "-tcp", fmt.Sprintf("127.0.0.1:%d", port), "evil.test", "A")
	}
	w.unasked("evil.test")
	w.sealed(notGuards, lab.Not(lab.ToAddr(ok4.String())))
}

// ownPorts are the TCP ports on 127.0.0.1 where something listens in the box.
func (w *world) ownPorts() (ports []uint16) {
	w.Helper()
	for line := range strings.Lines(w.root("cat", "/proc/net/tcp").Stdout) {
		f := strings.Fields(line) // see proc_net_tcp.rst: state 0A is LISTEN
		if len(f) > 3 && f[3] == "0A" && strings.HasPrefix(f[1], "0100007F:") {
			var port uint16
			if _, err := fmt.Sscanf(f[1], "0100007F:%X", &port); err != nil {
				w.Fatal(err)
			}
			ports = append(ports, port)
		}
	}
	if len(ports) == 0 {
		w.Error("nothing listens on loopback, not even the resolver")
	}
	return ports
}
