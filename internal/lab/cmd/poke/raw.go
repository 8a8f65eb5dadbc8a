package main

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

var constants = map[string]int{
	"unix": unix.AF_UNIX, "inet": unix.AF_INET, "inet6": unix.AF_INET6, "netlink": unix.AF_NETLINK,
	"packet": unix.AF_PACKET, "vsock": unix.AF_VSOCK, "key": unix.AF_KEY, "alg": unix.AF_ALG, "xdp": unix.AF_XDP,
	"can": unix.AF_CAN, "bluetooth": unix.AF_BLUETOOTH, "tipc": unix.AF_TIPC, "kcm": unix.AF_KCM, "smc": unix.AF_SMC,
	"stream": unix.SOCK_STREAM, "dgram": unix.SOCK_DGRAM, "raw": unix.SOCK_RAW, "seqpacket": unix.SOCK_SEQPACKET, "dccptype": unix.SOCK_DCCP,
	"tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP, "icmp": unix.IPPROTO_ICMP, "icmpv6": unix.IPPROTO_ICMPV6,
	"sctp": unix.IPPROTO_SCTP, "dccp": unix.IPPROTO_DCCP, "udplite": unix.IPPROTO_UDPLITE, "mptcp": unix.IPPROTO_MPTCP,
	"gre": unix.IPPROTO_GRE, "ipip": unix.IPPROTO_IPIP, "igmp": unix.IPPROTO_IGMP, "esp": unix.IPPROTO_ESP, "ipraw": unix.IPPROTO_RAW,
}

func constant(s string) (int, error) {
	if n, ok := constants[strings.ToLower(s)]; ok {
		return n, nil
	}
	return number(s)
}

func openSocket(a []string) (fd, family int, err error) {
	var n [3]int
	for i := range n {
		if n[i], err = constant(a[i]); err != nil {
			return -1, 0, err
		}
	}
	fd, err = unix.Socket(n[0], n[1]|unix.SOCK_CLOEXEC, n[2])
	return fd, n[0], os.NewSyscallError("socket", err)
}

func socket(args []string) (detail, error) {
	a, err := parse(flags("socket"), args, 3)
	if err != nil {
		return nil, err
	}
	fd, _, err := openSocket(a)
	if err != nil {
		return nil, err
	}
	return nil, unix.Close(fd)
}

func connect(args []string) (detail, error) {
	var o options
	fs := flags("connect")
	o.register(fs, "")
	a, err := parse(fs, args, 4)
	if err != nil {
		return nil, err
	}
	fd, family, err := openSocket(a)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	tv := unix.NsecToTimeval(o.timeout.Nanoseconds())
	for _, opt := range []int{unix.SO_SNDTIMEO, unix.SO_RCVTIMEO} {
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, opt, &tv); err != nil {
			return nil, os.NewSyscallError("setsockopt", err)
		}
	}
	if err := o.apply(fd); err != nil {
		return nil, err
	}
	sa, err := sockaddr(family, a[3])
	if err != nil {
		return nil, err
	}
	if err := unix.Connect(fd, sa); err != nil {
		return nil, os.NewSyscallError("connect", err)
	}
	if o.send == "" {
		return nil, nil
	}
	if _, err := unix.Write(fd, []byte(o.send)); err != nil {
		return nil, os.NewSyscallError("write", err)
	}
	buf := make([]byte, 4096)
	n, err := unix.Read(fd, buf)
	return detail{"received": string(buf[:max(n, 0)])}, os.NewSyscallError("read", err)
}

func ping(args []string) (detail, error) {
	fs := flags("ping")
	raw := fs.Bool("raw", false, "raw socket")
	size := fs.Int("size", 56, "payload")
	kind := fs.Int("type", -1, "ICMP type, if not an echo request; no answer is waited for")
	timeout := fs.Duration("timeout", 2*time.Second, "")
	a, err := parse(fs, args, 1)
	if err != nil {
		return nil, err
	}
	ip, err := netip.ParseAddr(a[0])
	if err != nil {
		return nil, usage("%v", err)
	}
	network, listen, typ, proto := "udp4", "0.0.0.0", icmp.Type(ipv4.ICMPTypeEcho), unix.IPPROTO_ICMP
	if ip.Is6() {
		network, listen, typ, proto = "udp6", "::", ipv6.ICMPTypeEchoRequest, unix.IPPROTO_ICMPV6
	}
	var to net.Addr = &net.UDPAddr{IP: ip.AsSlice(), Zone: ip.Zone()}
	if *raw {
		network = map[bool]string{true: "ip4:icmp", false: "ip6:ipv6-icmp"}[ip.Is4()]
		to = &net.IPAddr{IP: ip.AsSlice(), Zone: ip.Zone()}
	}
	c, err := icmp.ListenPacket(network, listen)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if *kind >= 0 {
		if typ = icmp.Type(ipv4.ICMPType(*kind)); ip.Is6() {
			typ = ipv6.ICMPType(*kind)
			// As neighbour discovery demands, RFC 4861.
			if err := errors.Join(c.IPv6PacketConn().SetHopLimit(255), c.IPv6PacketConn().SetMulticastHopLimit(255)); err != nil {
				return nil, err
			}
		}
	}
	msg := icmp.Message{Type: typ, Body: &icmp.Echo{ID: os.Getpid() & 0xffff, Seq: 1, Data: make([]byte, *size)}}
	b, err := msg.Marshal(nil)
	if err != nil {
		return nil, err
	}
	if err := c.SetDeadline(time.Now().Add(*timeout)); err != nil {
		return nil, err
	}
	if _, err := c.WriteTo(b, to); err != nil || *kind >= 0 {
		return nil, err
	}
	buf := make([]byte, 65536)
	for {
		n, from, err := c.ReadFrom(buf)
		if err != nil {
			return nil, err
		}
		m, err := icmp.ParseMessage(proto, buf[:n])
		if err != nil {
			continue
		}
		if m.Type == ipv4.ICMPTypeEchoReply || m.Type == ipv6.ICMPTypeEchoReply {
			return detail{"from": from.String()}, nil
		}
	}
}

func rawIP(args []string) (detail, error) {
	fs := flags("rawip")
	send := fs.String("send", "poke from the inside", "")
	inHex := fs.String("hex", "", "the same in hex")
	a, err := parse(fs, args, 2)
	if err != nil {
		return nil, err
	}
	payload := []byte(*send)
	if *inHex != "" {
		if payload, err = hex.DecodeString(*inHex); err != nil {
			return nil, usage("%v", err)
		}
	}
	ip, err := netip.ParseAddr(a[1])
	if err != nil {
		return nil, usage("%v", err)
	}
	family := unix.AF_INET
	if ip.Is6() {
		family = unix.AF_INET6
	}
	protos := []int{constants[a[0]]}
	if protos[0] == 0 {
		if protos, err = numbers(a[0], 255); err != nil {
			return nil, err
		}
	}
	sent, failed := []int{}, error(nil)
	for _, proto := range protos {
		if err := sendRaw(family, proto, netip.AddrPortFrom(ip, 0), payload); err != nil {
			failed = err
			continue
		}
		sent = append(sent, proto)
	}
	if len(sent) > 0 {
		failed = nil
	}
	return detail{"sent": sent}, failed
}

// sendRaw sends every packet, whatever becomes of the others.
func sendRaw(family, proto int, to netip.AddrPort, packets ...[]byte) error {
	return sendRawWith(options{}, family, proto, to, packets...)
}

// sendRawWith is sendRaw from a socket with options.
func sendRawWith(o options, family, proto int, to netip.AddrPort, packets ...[]byte) error {
	fd, err := unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, proto)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	sa, err := sockaddr(family, netip.AddrPortFrom(to.Addr(), 0).String())
	if err != nil {
		return err
	}
	if err := o.apply(fd); err != nil {
		return err
	}
	var failed error
	for _, p := range packets {
		if err := unix.Sendto(fd, p, 0, sa); err != nil {
			failed = os.NewSyscallError("sendto", err)
		}
	}
	return failed
}

func fragUDP(args []string) (detail, error) {
	fs := flags("fragudp")
	size := fs.Int("size", 4000, "")
	a, err := parse(fs, args, 1)
	if err != nil {
		return nil, err
	}
	// IP_MTU_DISCOVER off: fragment instead of refusing.
	return udp([]string{"-noreply", "-size", fmt.Sprint(*size), "-opt",
		fmt.Sprintf("%d:%d:%d", unix.SOL_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DONT), a[0]})
}

func fragSYN(args []string) (detail, error) {
	fs := flags("fragsyn")
	noDefrag := fs.Bool("nodefrag", false, "have the kernel's packet filter see the fragments as they are (IP_NODEFRAG)")
	a, err := parse(fs, args, 1)
	if err != nil {
		return nil, err
	}
	to, err := netip.ParseAddrPort(a[0])
	if err != nil || !to.Addr().Is4() {
		return nil, usage("fragsyn needs an IPv4 ADDR:PORT")
	}
	from, err := sourceFor(to)
	if err != nil {
		return nil, err
	}
	tcp := make([]byte, 20)
	binary.BigEndian.PutUint16(tcp, 40000)
	binary.BigEndian.PutUint16(tcp[2:], to.Port())
	binary.BigEndian.PutUint32(tcp[4:], 1)
	tcp[12], tcp[13] = 5<<4, 2
	binary.BigEndian.PutUint16(tcp[14:], 64240)
	binary.BigEndian.PutUint16(tcp[16:], tcpChecksum(from, to.Addr(), tcp))
	var packets [][]byte
	for offset := 0; offset < len(tcp); offset += 8 {
		part := tcp[offset:min(offset+8, len(tcp))]
		ip := make([]byte, 20, 20+len(part)) // the kernel fills in checksum and length
		ip[0], ip[8], ip[9] = 0x45, 64, unix.IPPROTO_TCP
		binary.BigEndian.PutUint16(ip[4:], 0x4141)
		frag := uint16(offset / 8)
		if offset+8 < len(tcp) {
			frag |= 0x2000
		}
		binary.BigEndian.PutUint16(ip[6:], frag)
		src, dst := from.As4(), to.Addr().As4()
		copy(ip[12:], src[:])
		copy(ip[16:], dst[:])
		packets = append(packets, append(ip, part...))
	}
	var opts options
	if *noDefrag {
		opts.opts = []sockopt{{level: unix.SOL_IP, name: unix.IP_NODEFRAG, value: 1}}
	}
	return detail{"fragments": len(packets)}, sendRawWith(opts, unix.AF_INET, unix.IPPROTO_RAW, to, packets...)
}

// sourceFor asks the routing table which address we would send from.
func sourceFor(to netip.AddrPort) (netip.Addr, error) {
	c, err := net.Dial("udp", to.String())
	if err != nil {
		return netip.Addr{}, err
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), nil
}

func tcpChecksum(src, dst netip.Addr, segment []byte) uint16 {
	pseudo := append(src.AsSlice(), dst.AsSlice()...)
	pseudo = append(pseudo, 0, unix.IPPROTO_TCP, 0, byte(len(segment)))
	var sum uint32
	for b := append(pseudo, segment...); len(b) > 1; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

func packet(args []string) (detail, error) {
	a, err := parse(flags("packet"), args, 2)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	ifi, err := net.InterfaceByName(a[0])
	if err != nil {
		return nil, err
	}
	for _, arg := range a[1:] {
		frame, err := hex.DecodeString(arg)
		if err != nil {
			return nil, usage("%v", err)
		}
		if err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: ifi.Index}); err != nil {
			return nil, os.NewSyscallError("sendto", err)
		}
	}
	return nil, nil
}

// guess sends a DNS message with each identifier that there is, every one as a
// flow of its own: to another of the 2^16 addresses that follow.
func guess(args []string) (detail, error) {
	a, err := parse(flags("guess"), args, 1)
	if err != nil {
		return nil, err
	}
	to, err := netip.ParseAddrPort(a[0])
	if err != nil || !to.Addr().Is4() {
		return nil, usage("guess needs an IPv4 address and port")
	}
	c, err := net.ListenUDP("udp4", nil)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	message := append(make([]byte, 12), "what the agent has to say"...)
	addr := to.Addr().As4()
	sent := 0
	for id := range 1 << 16 {
		binary.BigEndian.PutUint16(message, uint16(id))
		binary.BigEndian.PutUint16(addr[2:], uint16(id))
		if _, err := c.WriteToUDPAddrPort(message, netip.AddrPortFrom(netip.AddrFrom4(addr), to.Port())); err == nil {
			sent++
		}
	}
	return detail{"sent": sent}, nil
}
