package lab

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/agent-init/agent-init/internal/netns"
)

// Query is one message that reached a DNS server of the lab.
type Query struct {
	Time    time.Time
	Client  netip.AddrPort
	Server  netip.Addr // the address that was asked; 127.0.0.11 for the embedded one
	Network string     // "udp" or "tcp"
	Name    string     // of the first question as it came, case kept, without the final dot
	Type    uint16
	Msg     *dns.Msg // nil if Raw can't be parsed
	Raw     []byte
}

// Options returns the EDNS options of the query.
func (q Query) Options() []dns.EDNS0 {
	if q.Msg == nil || q.Msg.IsEdns0() == nil {
		return nil
	}
	return q.Msg.IsEdns0().Option
}

// DNS is every DNS server of the internet. All share one set of names.
type DNS struct {
	udp  []*net.UDPConn
	tcp  []net.Listener
	wait sync.WaitGroup
	ns   *netns.NS

	mu      sync.Mutex
	names   map[string]*name
	latency time.Duration
	silent  bool // no log
	queries []Query
	marks   map[string]chan struct{}
	next    int
	open    map[net.Conn]struct{}
	closed  bool

	embedded []io.Closer // sockets within boxes
}

func startDNS(ns *netns.NS, latency time.Duration) (*DNS, error) {
	d := &DNS{ns: ns, names: make(map[string]*name), latency: latency,
		marks: make(map[string]chan struct{}), open: make(map[net.Conn]struct{})}
	for _, any := range []struct{ network, addr string }{{"4", "0.0.0.0:53"}, {"6", "[::]:53"}} {
		pc, err := ns.ListenPacket("udp"+any.network, any.addr)
		if err != nil {
			return nil, errors.Join(err, d.close())
		}
		u := pc.(*net.UDPConn)
		d.udp = append(d.udp, u)
		l, err := ns.Listen("tcp"+any.network, any.addr)
		if err != nil {
			return nil, errors.Join(err, d.close())
		}
		d.tcp = append(d.tcp, l)
		if err := wantDestination(u, any.network == "6"); err != nil {
			return nil, errors.Join(err, d.close())
		}
		d.wait.Go(func() { d.serveUDP(u, netip.Addr{}) })
		d.wait.Go(func() { d.serveTCP(l, netip.Addr{}) })
	}
	return d, nil
}

// ServeTLS has the servers answer over TLS as well (RFC 7858), on port 853 of every address, as a name that the lab's
// authority certifies.
func (l *Lab) ServeTLS(name string) {
	l.tb.Helper()
	l.Claim("tcp", 853)
	cert, err := l.CA.Certificate(name)
	if err != nil {
		l.tb.Fatalf("lab: %v", err)
	}
	for network, addr := range map[string]string{"tcp4": "0.0.0.0:853", "tcp6": "[::]:853"} {
		tcp, err := l.Internet.Listen(network, addr)
		if err != nil {
			l.tb.Fatalf("lab: %v", err)
		}
		l.DNS.tcp = append(l.DNS.tcp, tcp)
		secure := tls.NewListener(tcp, &tls.Config{Certificates: []tls.Certificate{*cert}})
		l.DNS.wait.Go(func() { l.DNS.serveTCP(secure, netip.Addr{}) })
	}
}

// SetLatency delays every answer from now on, besides what Answer says.
func (d *DNS) SetLatency(latency time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.latency = latency
}

// Queries returns the DNS queries that arrived since the start or DNS.Forget,
// oldest first, and whose name is one of names or below one, compared without
// case; no names means all. Every UDP query that had left its box before the
// call is in.
func (l *Lab) Queries(names ...string) []Query {
	l.tb.Helper()
	if err := l.barrier(); err != nil {
		l.tb.Fatalf("lab: queries: %v", err)
	}
	d := l.DNS
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(names) == 0 {
		return slices.Clone(d.queries)
	}
	var found []Query
	for _, q := range d.queries {
		for _, n := range names {
			if dns.IsSubDomain(dns.CanonicalName(n), dns.CanonicalName(q.Name)) {
				found = append(found, q)
				break
			}
		}
	}
	return found
}

// barrier makes sure that what the boxes had sent has been read by DNS.
func (l *Lab) barrier() error {
	l.mu.Lock()
	boxes := slices.Clone(l.boxes)
	l.mu.Unlock()
	for _, b := range boxes {
		if b.capture == nil {
			continue // still being made
		}
		if err := b.capture.barrier(); err != nil {
			return err
		}
	}
	return l.DNS.barrier()
}

// SetLog turns the log of queries off for a benchmark, whose load it would
// keep in memory, or on again.
func (d *DNS) SetLog(on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.silent = !on
}

// Forget empties the log of queries.
func (d *DNS) Forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queries = nil
}

// barrier sends each UDP socket a datagram and waits until it was read.
func (d *DNS) barrier() error {
	for _, u := range d.udp {
		ch := make(chan struct{})
		d.mu.Lock()
		d.next++
		token := fmt.Sprintf("lab %d", d.next)
		d.marks[token] = ch
		d.mu.Unlock()
		to := "127.0.0.1:53"
		if u.LocalAddr().(*net.UDPAddr).IP.To4() == nil {
			to = "[::1]:53"
		}
		err := d.ns.Do(func() error {
			c, err := net.Dial("udp", to)
			if err != nil {
				return err
			}
			defer c.Close()
			_, err = c.Write([]byte(token))
			return err
		})
		if err != nil {
			return fmt.Errorf("dns barrier: %w", err)
		}
		select {
		case <-ch:
		case <-time.After(Patience):
			return errors.New("dns barrier: server doesn't read")
		}
	}
	return nil
}

// serveUDP reads and logs in one goroutine, so that the log has the order of
// arrival, and answers in others. local is the server's address if the socket
// can't tell.
func (d *DNS) serveUDP(u *net.UDPConn, local netip.Addr) {
	buf, oob := make([]byte, 65536), make([]byte, 256)
	for {
		n, on, _, from, err := u.ReadMsgUDPAddrPort(buf, oob)
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			continue // an ICMP error about an earlier answer
		}
		raw := bytes.Clone(buf[:n])
		if n < 12 {
			d.mu.Lock()
			if ch, ok := d.marks[string(raw)]; ok {
				close(ch)
				delete(d.marks, string(raw))
				d.mu.Unlock()
				continue
			}
			d.mu.Unlock()
		}
		server, control := local, []byte(nil)
		if !server.IsValid() {
			server, control = destination(oob[:on])
		}
		q := d.log(raw, netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), server, "udp")
		go func() {
			if reply := d.answer(q); reply != nil {
				_, _, _ = u.WriteMsgUDPAddrPort(reply, control, from)
			}
		}()
	}
}

func (d *DNS) serveTCP(l net.Listener, local netip.Addr) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		d.mu.Lock()
		if d.closed {
			c.Close()
		}
		d.open[c] = struct{}{}
		d.mu.Unlock()
		d.wait.Go(func() {
			defer func() {
				c.Close()
				d.mu.Lock()
				delete(d.open, c)
				d.mu.Unlock()
			}()
			d.serveStream(c, local)
		})
	}
}

func (d *DNS) serveStream(c net.Conn, server netip.Addr) {
	conn := &dns.Conn{Conn: c}
	if !server.IsValid() {
		server = addrPort(c.LocalAddr()).Addr()
	}
	for {
		buf := make([]byte, 65536)
		n, err := conn.Read(buf)
		if err != nil {
			return
		}
		q := d.log(buf[:n], addrPort(c.RemoteAddr()), server, "tcp")
		if reply := d.answer(q); reply != nil {
			if _, err := conn.Write(reply); err != nil {
				return
			}
		}
	}
}

func (d *DNS) log(raw []byte, client netip.AddrPort, server netip.Addr, network string) Query {
	q := Query{Time: time.Now(), Client: client, Server: server, Network: network, Raw: raw}
	if m := new(dns.Msg); m.Unpack(raw) == nil {
		q.Msg = m
		if len(m.Question) > 0 {
			q.Name, q.Type = strings.TrimSuffix(m.Question[0].Name, "."), m.Question[0].Qtype
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.silent {
		d.queries = append(d.queries, q)
	}
	return q
}

func (d *DNS) close() error {
	var errs []error
	for _, u := range d.udp {
		errs = append(errs, u.Close())
	}
	for _, l := range d.tcp {
		errs = append(errs, l.Close())
	}
	errs = append(errs, d.EndEngine())
	d.mu.Lock()
	d.closed = true
	for c := range d.open {
		c.Close()
	}
	d.mu.Unlock()
	d.wait.Wait()
	return errors.Join(errs...)
}
