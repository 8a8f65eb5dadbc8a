package main

import (
	"net"
	"net/netip"
	"time"

	"github.com/miekg/dns"
)

// forge plays the DNS server at an address of loopback: it sends a datagram to
// every port there first, so that connection tracking takes questions which leave
// from one of them for replies, and answers those that come with an address.
func forge(args []string) (detail, error) {
	fs := flags("forge")
	period := fs.Duration("for", 5*time.Second, "how long")
	a, err := parse(fs, args, 2)
	if err != nil {
		return nil, err
	}
	at, err := netip.ParseAddrPort(a[0])
	if err != nil {
		return nil, usage("%v", err)
	}
	with, err := netip.ParseAddr(a[1])
	if err != nil {
		return nil, usage("%v", err)
	}
	c, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(at))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	deadline := time.Now().Add(*period)
	if err := c.SetReadDeadline(deadline); err != nil {
		return nil, err
	}
	primed := 0
	for port := 1024; port < 1<<16; port++ {
		to := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(port))
		if _, err := c.WriteToUDPAddrPort([]byte("poke"), to); err == nil {
			primed++
		}
	}
	out := detail{"primed": primed, "asked": 0}
	buf := make([]byte, 4096)
	for asked := 1; ; {
		n, from, err := c.ReadFromUDPAddrPort(buf)
		if time.Now().After(deadline) {
			return out, nil
		}
		m := new(dns.Msg)
		if err != nil || m.Unpack(buf[:n]) != nil || len(m.Question) != 1 {
			continue // what comes back from ports where nobody is
		}
		out["asked"] = asked
		asked++
		m.SetReply(m)
		if m.Question[0].Qtype == dns.TypeA {
			m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: m.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 300}, A: with.AsSlice()}}
		}
		if raw, err := m.Pack(); err == nil {
			_, _ = c.WriteToUDPAddrPort(raw, from)
		}
	}
}

// prime sends a datagram to an address from every port there is.
func prime(args []string) (detail, error) {
	a, err := parse(flags("prime"), args, 1)
	if err != nil {
		return nil, err
	}
	to, err := net.ResolveUDPAddr("udp", a[0])
	if err != nil {
		return nil, usage("%v", err)
	}
	sent := 0
	for port := 1; port < 1<<16; port++ {
		c, err := net.DialUDP("udp", &net.UDPAddr{Port: port}, to)
		if err != nil {
			continue
		}
		if _, err := c.Write([]byte("from the agent")); err == nil {
			sent++
		}
		c.Close()
	}
	return detail{"sent": sent}, nil
}
