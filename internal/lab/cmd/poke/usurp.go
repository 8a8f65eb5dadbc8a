package main

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// usurp waits until nobody has the ports of a DNS server of this network
// namespace any more, takes them, and answers every question with an address. At
// port 0 it looks up which ports the address has.
func usurp(args []string) (detail, error) {
	fs := flags("usurp")
	period := fs.Duration("for", time.Minute, "how long")
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
	deadline := time.Now().Add(*period)
	asked := make(chan struct{}, 1024)
	for _, network := range []string{"udp", "tcp"} {
		ports := []uint16{at.Port()}
		if at.Port() == 0 {
			if ports, err = portsOf(network, at.Addr()); err != nil {
				return nil, err
			}
		}
		for _, port := range ports {
			go impostor{netip.AddrPortFrom(at.Addr(), port), with, deadline, asked}.serve(network)
		}
	}
	fmt.Fprintln(os.Stderr, "watching")
	out, n := detail{}, 0
	end := time.After(time.Until(deadline))
	for {
		select {
		case <-asked:
			n++
		case <-end:
			out["asked"] = n
			return out, nil
		}
	}
}

// portsOf are the ports that the address has, as proc_net(5) tells.
func portsOf(network string, a netip.Addr) ([]uint16, error) {
	f, err := os.Open("/proc/net/" + network)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []uint16
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 {
			continue
		}
		addr, port, _ := strings.Cut(fields[1], ":")
		raw, err := hex.DecodeString(addr)
		if err != nil || len(raw) != 4 || len(port) != 4 {
			continue
		}
		if netip.AddrFrom4([4]byte(binary.NativeEndian.AppendUint32(nil, binary.BigEndian.Uint32(raw)))) != a {
			continue
		}
		p, err := hex.DecodeString(port)
		if err == nil && !slices.Contains(out, binary.BigEndian.Uint16(p)) {
			out = append(out, binary.BigEndian.Uint16(p))
		}
	}
	return out, nil
}

// impostor is who wants one port.
type impostor struct {
	at       netip.AddrPort
	with     netip.Addr
	deadline time.Time
	asked    chan<- struct{}
}

func (i impostor) serve(network string) {
	for time.Now().Before(i.deadline) {
		if network == "udp" {
			if c, err := net.ListenUDP(network, net.UDPAddrFromAddrPort(i.at)); err == nil {
				i.datagrams(c)
			}
		} else if l, err := net.ListenTCP(network, net.TCPAddrFromAddrPort(i.at)); err == nil {
			fmt.Fprintln(os.Stderr, "seated", network)
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				i.stream(c)
			}
		}
		time.Sleep(time.Millisecond)
	}
}

func (i impostor) datagrams(c *net.UDPConn) {
	fmt.Fprintln(os.Stderr, "seated udp")
	buf := make([]byte, 4096)
	for {
		n, from, err := c.ReadFromUDPAddrPort(buf)
		if err != nil {
			continue // what comes back of the answers
		}
		if reply := i.answer(buf[:n]); reply != nil {
			_, _ = c.WriteToUDPAddrPort(reply, from)
		}
	}
}

// stream answers, and closes at once: the kernel sends what is left of it, for
// nobody's socket.
func (i impostor) stream(c net.Conn) {
	defer c.Close()
	var head [2]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return
	}
	buf := make([]byte, binary.BigEndian.Uint16(head[:]))
	if _, err := io.ReadFull(c, buf); err != nil {
		return
	}
	if reply := i.answer(buf); reply != nil {
		_, _ = c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...))
	}
}

func (i impostor) answer(question []byte) []byte {
	m := new(dns.Msg)
	if m.Unpack(question) != nil || len(m.Question) != 1 {
		return nil
	}
	i.asked <- struct{}{}
	m.SetReply(m)
	if m.Question[0].Qtype == dns.TypeA {
		m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: m.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 300}, A: i.with.AsSlice()}}
	}
	raw, err := m.Pack()
	if err != nil {
		return nil
	}
	return raw
}
