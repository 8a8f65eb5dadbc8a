package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/miekg/dns"
)

func resolve(args []string) (detail, error) {
	fs := flags("resolve")
	timeout := fs.Duration("timeout", 5*time.Second, "in all")
	a, err := parse(fs, args, 1)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), *timeout)
	defer cancel()
	ips, err := lookup(ctx, a[0])
	var addrs []string
	for _, ip := range ips {
		addrs = append(addrs, ip.Unmap().String())
	}
	return detail{"addrs": addrs}, err
}

// lookup resolves a name. Where it is patient, it asks again when a server has failed, or when the kernel had no
// port free for the flow: an attack before this one may have taken them all, which a flow of UDP holds for 30 s.
// Where nobody answers at the server's port, nobody will.
func lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	for {
		ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
		de := new(net.DNSError)
		if err == nil || !patient() || !errors.As(err, &de) || de.IsNotFound || strings.HasSuffix(de.Err, syscall.ECONNREFUSED.Error()) {
			return ips, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// ask is one kind of DNS query.
type ask struct {
	server  string
	tcp     bool
	timeout time.Duration
	hold    time.Duration
	raw     []byte
	make    func(i int) *dns.Msg
}

func query(args []string) (detail, error) {
	q := ask{}
	fs := flags("dns")
	fs.BoolVar(&q.tcp, "tcp", false, "over TCP")
	fs.DurationVar(&q.timeout, "timeout", 3*time.Second, "for each")
	fs.DurationVar(&q.hold, "hold", 0, "keep the socket so long")
	edns := fs.String("edns", "", "CODE:HEX, an EDNS option")
	opcode := fs.Int("opcode", dns.OpcodeQuery, "")
	class := fs.Uint("class", dns.ClassINET, "")
	noRecurse := fs.Bool("norecurse", false, "clear RD")
	raw := fs.String("raw", "", "message in hex")
	n := fs.Int("n", 1, "queries")
	c := fs.Int("c", 1, "at once")
	a, err := parse(fs, args, 1)
	if err != nil {
		return nil, err
	}
	q.server = a[0]
	if *raw != "" {
		if q.raw, err = hex.DecodeString(*raw); err != nil {
			return nil, usage("-raw: %v", err)
		}
		reply, err := q.exchange(0)
		return replyDetail(reply), err
	}
	if len(a) < 3 {
		return nil, usage("dns needs a server, a name and a type")
	}
	qtype, err := queryType(a[2])
	if err != nil {
		return nil, err
	}
	var option *dns.EDNS0_LOCAL
	if *edns != "" {
		code, data, _ := strings.Cut(*edns, ":")
		n, err := number(code)
		if err != nil {
			return nil, err
		}
		b, err := hex.DecodeString(data)
		if err != nil {
			return nil, usage("-edns: %v", err)
		}
		option = &dns.EDNS0_LOCAL{Code: uint16(n), Data: b}
	}
	q.make = func(i int) *dns.Msg {
		m := new(dns.Msg)
		m.Id, m.RecursionDesired, m.Opcode = dns.Id(), !*noRecurse, *opcode
		name := dns.Fqdn(strings.ReplaceAll(a[1], "{n}", strconv.Itoa(i)))
		m.Question = []dns.Question{{Name: name, Qtype: qtype, Qclass: uint16(*class)}}
		m.SetEdns0(1232, false)
		if option != nil {
			m.IsEdns0().Option = append(m.IsEdns0().Option, option)
		}
		return m
	}
	if *n > 1 {
		return q.load(*n, *c)
	}
	reply, err := q.exchange(0)
	if err == nil && (reply.Rcode != dns.RcodeSuccess || len(reply.Answer) == 0) {
		err = fmt.Errorf("no answer: %s", dns.RcodeToString[reply.Rcode])
	}
	return replyDetail(reply), err
}

func queryType(s string) (uint16, error) {
	if t, ok := dns.StringToType[strings.ToUpper(s)]; ok {
		return t, nil
	}
	n, err := number(strings.TrimPrefix(strings.ToUpper(s), "TYPE"))
	return uint16(n), err
}

func (q *ask) exchange(i int) (*dns.Msg, error) {
	network := "udp"
	if q.tcp {
		network = "tcp"
	}
	c, err := net.DialTimeout(network, q.server, q.timeout)
	if err != nil {
		return nil, err
	}
	defer func() {
		time.Sleep(q.hold)
		c.Close()
	}()
	return q.on(&dns.Conn{Conn: c, UDPSize: 65535}, i)
}

// on asks over an open connection.
func (q *ask) on(c *dns.Conn, i int) (*dns.Msg, error) {
	if err := c.SetDeadline(time.Now().Add(q.timeout)); err != nil {
		return nil, err
	}
	raw := q.raw
	if raw == nil {
		var err error
		if raw, err = q.make(i).Pack(); err != nil {
			return nil, usage("%v", err)
		}
	}
	if _, err := c.Write(raw); err != nil {
		return nil, err
	}
	for {
		m, err := c.ReadMsg()
		if err != nil {
			return nil, err
		}
		if len(raw) < 2 || m.Id == uint16(raw[0])<<8|uint16(raw[1]) {
			return m, nil
		}
	}
}

// load keeps one connection per worker, as a stub resolver under load does.
func (q *ask) load(n, c int) (detail, error) {
	network := "udp"
	if q.tcp {
		network = "tcp"
	}
	conns := make([]*dns.Conn, c)
	var t tally
	begin := time.Now()
	many(n, c, func(w, i int) {
		start := time.Now()
		if conns[w] == nil {
			nc, err := net.DialTimeout(network, q.server, q.timeout)
			if err != nil {
				t.add(cause(err), true, time.Since(start))
				return
			}
			conns[w] = &dns.Conn{Conn: nc, UDPSize: 65535}
		}
		m, err := q.on(conns[w], i)
		if err != nil {
			conns[w].Close()
			conns[w] = nil
			t.add(cause(err), true, time.Since(start))
			return
		}
		outcome := dns.RcodeToString[m.Rcode]
		if m.Rcode == dns.RcodeSuccess && len(m.Answer) == 0 {
			outcome = "NODATA"
		}
		t.add(outcome, outcome != "NOERROR", time.Since(start))
	})
	out := t.detail(time.Since(begin))
	if t.failed > 0 {
		return out, fmt.Errorf("%d of %d without an answer", t.failed, n)
	}
	return out, nil
}

// cause leaves out addresses, so that like errors count as one.
func cause(err error) string {
	if op := new(net.OpError); errors.As(err, &op) {
		return op.Err.Error()
	}
	return err.Error()
}

func replyDetail(m *dns.Msg) detail {
	if m == nil {
		return nil
	}
	answers, addrs, ttls := []string{}, []string{}, []uint32{}
	for _, rr := range m.Answer {
		answers = append(answers, strings.ReplaceAll(rr.String(), "\t", " "))
		ttls = append(ttls, rr.Header().Ttl)
		switch rr := rr.(type) {
		case *dns.A:
			addrs = append(addrs, rr.A.String())
		case *dns.AAAA:
			addrs = append(addrs, rr.AAAA.String())
		}
	}
	d := detail{"rcode": dns.RcodeToString[m.Rcode], "answers": answers, "addrs": addrs, "ttls": ttls,
		"truncated": m.Truncated, "authority": len(m.Ns), "additional": len(m.Extra)}
	if opt := m.IsEdns0(); opt != nil {
		for _, o := range opt.Option {
			if e, ok := o.(*dns.EDNS0_EDE); ok {
				d["ede"], d["ede_text"] = e.InfoCode, e.ExtraText
			}
		}
	}
	return d
}
