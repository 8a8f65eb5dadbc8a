package lab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/netns"
)

const (
	sinkPort    = 9 // "discard"; where the ports without a server are redirected to
	maxReceived = 64 << 10
	sinkTable   = "lab"
)

// Conn is a TCP connection that reached a server of the lab.
type Conn struct {
	Time     time.Time
	Src, Dst netip.AddrPort
	Received []byte // what the client sent, cut at 64 KiB
	Total    int64  // bytes that the client sent
	Closed   bool
}

// sinks is the record of all TCP connections, and the servers of those ports
// that have no other.
type sinks struct {
	listeners []net.Listener
	udp       []*net.UDPConn
	wait      sync.WaitGroup
	claimed   *nftables.Set
	ns        *netns.NS

	mu     sync.Mutex
	conns  []*loggedConn
	closed bool
}

func startSinks(ns *netns.NS) (*sinks, error) {
	s := &sinks{ns: ns}
	for _, fam := range []struct{ n, addr string }{{"4", "0.0.0.0"}, {"6", "[::]"}} {
		addr := fmt.Sprintf("%s:%d", fam.addr, sinkPort)
		l, err := ns.Listen("tcp"+fam.n, addr)
		if err != nil {
			return nil, errors.Join(err, s.close())
		}
		s.listeners = append(s.listeners, l)
		pc, err := ns.ListenPacket("udp"+fam.n, addr)
		if err != nil {
			return nil, errors.Join(err, s.close())
		}
		u := pc.(*net.UDPConn)
		s.udp = append(s.udp, u)
		if err := wantDestination(u, fam.n == "6"); err != nil {
			return nil, errors.Join(err, s.close())
		}
		s.wait.Go(func() { s.serve(&loggedListener{Listener: l, sinks: s, redirected: true}) })
		s.wait.Go(func() { echoUDP(u) })
	}
	if err := ns.Do(s.redirect); err != nil {
		return nil, errors.Join(fmt.Errorf("redirect to sinks: %w", err), s.close())
	}
	return s, nil
}

// redirect sends TCP and UDP from the boxes to the sink, except to ports that
// the set has.
func (s *sinks) redirect() error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: sinkTable})
	s.claimed = &nftables.Set{Table: table, Name: "claimed", KeyType: nftables.MustConcatSetType(nftables.TypeInetProto, nftables.TypeInetService), Concatenation: true}
	var elems []nftables.SetElement
	for _, p := range []struct {
		proto byte
		port  uint16
	}{{unix.IPPROTO_TCP, 53}, {unix.IPPROTO_TCP, 80}, {unix.IPPROTO_TCP, 443}, {unix.IPPROTO_UDP, 53}} {
		elems = append(elems, claimElement(p.proto, p.port))
	}
	if err := c.AddSet(s.claimed, elems); err != nil {
		return err
	}
	chain := c.AddChain(&nftables.Chain{Table: table, Name: "prerouting", Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityNATDest})
	for _, proto := range []byte{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{proto}},
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
			&expr.Payload{DestRegister: 9, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
			&expr.Lookup{SourceRegister: 1, SetName: s.claimed.Name, SetID: s.claimed.ID, Invert: true},
			&expr.Immediate{Register: 1, Data: binaryutil.BigEndian.PutUint16(sinkPort)},
			&expr.Redir{RegisterProtoMin: 1},
		}})
	}
	return c.Flush()
}

func claimElement(proto byte, port uint16) nftables.SetElement {
	key := make([]byte, 8) // each part of a concatenation fills four bytes
	key[0] = proto
	binary.BigEndian.PutUint16(key[4:], port)
	return nftables.SetElement{Key: key}
}

// Claim takes a port of all addresses from the sink, so that a listener which
// a test opens in Internet gets what comes to it. proto is "tcp" or "udp".
func (l *Lab) Claim(proto string, port uint16) {
	l.tb.Helper()
	number := byte(unix.IPPROTO_TCP)
	if proto == "udp" {
		number = unix.IPPROTO_UDP
	}
	err := l.Internet.Do(func() error {
		c, err := nftables.New()
		if err != nil {
			return err
		}
		if err := c.SetAddElements(l.sinks.claimed, []nftables.SetElement{claimElement(number, port)}); err != nil {
			return err
		}
		return c.Flush()
	})
	if err != nil {
		l.tb.Fatalf("lab: claim %s port %d: %v", proto, port, err)
	}
}

// Conns returns the TCP connections that were accepted by HTTP, TLS and sink
// servers since the start or ForgetConns, oldest first. To prove that none
// arrived, look at Packets instead: a connection may still wait for its accept.
func (l *Lab) Conns() []Conn {
	l.sinks.mu.Lock()
	defer l.sinks.mu.Unlock()
	var conns []Conn
	for _, c := range l.sinks.conns {
		c.mu.Lock()
		snap := c.log
		snap.Received = slices.Clone(snap.Received)
		c.mu.Unlock()
		conns = append(conns, snap)
	}
	return conns
}

// ForgetConns empties the record of connections.
func (l *Lab) ForgetConns() {
	l.sinks.mu.Lock()
	defer l.sinks.mu.Unlock()
	l.sinks.conns = slices.DeleteFunc(l.sinks.conns, func(c *loggedConn) bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.log.Closed
	})
}

func (s *sinks) serve(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		s.wait.Go(func() {
			defer c.Close()
			buf := make([]byte, 32<<10)
			for {
				n, err := c.Read(buf)
				if n > 0 {
					if _, werr := c.Write(buf[:n]); werr != nil {
						return
					}
				}
				if err != nil {
					return
				}
			}
		})
	}
}

func echoUDP(u *net.UDPConn) {
	buf, oob := make([]byte, 65536), make([]byte, 256)
	for {
		n, on, _, from, err := u.ReadMsgUDPAddrPort(buf, oob)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			_, control := destination(oob[:on])
			_, _, _ = u.WriteMsgUDPAddrPort(buf[:n], control, from)
		}
	}
}

func (s *sinks) close() error {
	var errs []error
	for _, l := range s.listeners {
		errs = append(errs, l.Close())
	}
	for _, u := range s.udp {
		errs = append(errs, u.Close())
	}
	s.mu.Lock()
	s.closed = true
	conns := slices.Clone(s.conns)
	s.mu.Unlock()
	for _, c := range conns {
		c.Conn.Close()
	}
	s.wait.Wait()
	return errors.Join(errs...)
}

// loggedListener records what it accepts.
type loggedListener struct {
	net.Listener
	sinks      *sinks
	redirected bool
}

func (l *loggedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	lc := &loggedConn{Conn: c, log: Conn{Time: time.Now(), Src: addrPort(c.RemoteAddr()), Dst: addrPort(c.LocalAddr())}}
	if l.redirected {
		if dst, err := originalDst(c.(*net.TCPConn)); err == nil {
			lc.log.Dst = dst
		}
	}
	l.sinks.mu.Lock()
	defer l.sinks.mu.Unlock()
	if l.sinks.closed {
		c.Close()
	}
	l.sinks.conns = append(l.sinks.conns, lc)
	return lc, nil
}

type loggedConn struct {
	net.Conn
	mu  sync.Mutex
	log Conn
}

func (c *loggedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.log.Total += int64(n)
	if room := maxReceived - len(c.log.Received); room > 0 {
		c.log.Received = append(c.log.Received, p[:min(n, room)]...)
	}
	return n, err
}

func (c *loggedConn) Close() error {
	c.mu.Lock()
	c.log.Closed = true
	c.mu.Unlock()
	return c.Conn.Close()
}

// originalDst asks conntrack where a redirected connection was going.
func originalDst(c *net.TCPConn) (netip.AddrPort, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return netip.AddrPort{}, err
	}
	level, v4 := unix.SOL_IPV6, addrPort(c.LocalAddr()).Addr().Is4()
	if v4 {
		level = unix.SOL_IP
	}
	var sa unix.RawSockaddrAny
	size := uint32(unix.SizeofSockaddrAny)
	var errno syscall.Errno
	if err := raw.Control(func(fd uintptr) { errno = getsockopt(int(fd), level, unix.SO_ORIGINAL_DST, &sa, &size) }); err != nil {
		return netip.AddrPort{}, err
	}
	if errno != 0 {
		return netip.AddrPort{}, fmt.Errorf("read original destination: %w", errno)
	}
	return rawAddrPort(&sa, v4), nil
}
