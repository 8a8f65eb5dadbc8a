package probe

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/selftest"
)

func (p plan) connectAddr(a netip.AddrPort) attempt {
	return func(ctx context.Context) outcome {
		if slices.Contains(p.Relayed, a.Port()) {
			return askAt(ctx, a, p.name())
		}
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", a.String())
		if err != nil {
			return refusal(err)
		}
		conn.Close()
		return answered("over TCP")
	}
}

// askAt asks for a name at an address where the wall itself may accept a connection.
func askAt(ctx context.Context, a netip.AddrPort, name string) outcome {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", a.String())
	switch {
	case errors.Is(err, unix.ECONNRESET):
		return blocked(cut)
	case err != nil:
		return refusal(err)
	}
	defer conn.Close()
	return talk(ctx, conn, a.Port(), name)
}

// connectName resolves a name as programs do and tries every address of it.
func (p plan) connectName(r *net.Resolver, t selftest.Target) attempt {
	return func(ctx context.Context) outcome {
		addrs, err := r.LookupNetIP(ctx, "ip", t.Name)
		var de *net.DNSError
		switch {
		case err == nil:
		case !errors.As(err, &de):
			return unknown(err)
		case de.IsNotFound:
			return blocked("does not resolve")
		case de.IsTimeout:
			return blocked("no DNS answer (timeout)")
		default: // SERVFAIL, REFUSED, or no server could be reached: whichever, no address
			return blocked("no DNS answer")
		}
		return worstOf(addrs, t.Port, func(a netip.AddrPort) outcome { return p.connectAddr(a)(ctx) })
	}
}

// worstOf tries each address, all at once: none may take the time of another, which would then count as blocked without
// having been tried.
func worstOf(addrs []netip.Addr, port uint16, try func(netip.AddrPort) outcome) outcome {
	found := make([]outcome, len(addrs))
	var wg sync.WaitGroup
	for i, a := range addrs {
		wg.Go(func() { found[i] = try(netip.AddrPortFrom(a.Unmap(), port)) })
	}
	wg.Wait()
	worst := unknown(errors.New("no address"))
	for i, o := range found {
		o.detail = fmt.Sprintf("%s at %s", o.detail, addrs[i].Unmap())
		if o.got == selftest.Reachable {
			return o
		}
		if i == 0 || o.got == selftest.Unknown {
			worst = o
		}
	}
	return worst
}

// sendQUIC sends a packet of a version that no QUIC server has, which each answers (RFC 9000, section 6.1).
func sendQUIC(a netip.AddrPort) attempt {
	return func(ctx context.Context) outcome {
		conn, err := new(net.Dialer).DialContext(ctx, "udp", a.String())
		if err != nil {
			return refusal(err)
		}
		defer conn.Close()
		// A long header of a reserved version (RFC 9000, section 15), padded: servers ignore shorter ones.
		packet := make([]byte, 1200)
		copy(packet, "\xc0\x1a\x2a\x3a\x4a\x08agent-in\x08selftest")
		return exchange(ctx, conn, packet, "over UDP", func([]byte) bool { return true })
	}
}

// ping sends an echo request by the socket that needs no privilege within the sysctl ping_group_range (icmp(7)).
func ping(a netip.Addr) attempt {
	return func(ctx context.Context) outcome {
		conn, err := dialPing(a)
		if err != nil {
			return refusal(err)
		}
		defer conn.Close()
		request, reply := byte(8), byte(0)
		if a.Is6() {
			request, reply = 128, 129
		}
		// The kernel fills in the checksum and the identifier.
		packet := []byte{request, 0, 0, 0, 0, 0, 0, 1, 'a', 'g', 'e', 'n', 't', '-', 'i', 'n'}
		return exchange(ctx, conn, packet, "a ping", func(p []byte) bool { return len(p) > 0 && p[0] == reply })
	}
}

// dialPing connects the socket, so that errors that come back are its own.
func dialPing(a netip.Addr) (*os.File, error) {
	domain, proto, to := unix.AF_INET6, unix.IPPROTO_ICMPV6, unix.Sockaddr(&unix.SockaddrInet6{Addr: a.As16()})
	if a.Is4() {
		domain, proto, to = unix.AF_INET, unix.IPPROTO_ICMP, &unix.SockaddrInet4{Addr: a.As4()}
	}
	fd, err := unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, proto)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	if err := unix.Connect(fd, to); err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("connect", err)
	}
	return os.NewFile(uintptr(fd), "ping"), nil
}

// datagrams is what a UDP connection and a ping socket have in common.
type datagrams interface {
	io.ReadWriter
	SetDeadline(time.Time) error
}

// exchange sends packet and waits for a reply, an error or the end of ctx.
func exchange(ctx context.Context, conn datagrams, packet []byte, how string, isReply func([]byte) bool) outcome {
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	if _, err := conn.Write(packet); err != nil {
		return refusal(err)
	}
	buf := make([]byte, 2048)
	for {
		n, err := conn.Read(buf)
		if err != nil {
			return refusal(err)
		}
		if isReply(buf[:n]) {
			return answered("%s", how)
		}
	}
}

const refusedHere = "refused by agent-init" // how the wall's own answer to a request over HTTP begins

// deniedHere is the wall's own answer to a ClientHello, and all of it: the alert access_denied (RFC 8446, section 6). A
// server that denies access does so when it has seen a certificate, which is not before it has said something else.
const deniedHere = "\x15\x03\x03\x00\x02\x02\x31"

const cut = "cut before an answer" // the end of a connection that the wall took and does not pass on

// talk says what makes a server answer, on a connection that someone has accepted.
func talk(ctx context.Context, conn net.Conn, port uint16, name string) outcome {
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	var answer []byte
	var err error
	if port == 80 {
		answer, err = request(conn, name)
		if _, body, ok := bytes.Cut(answer, []byte("\r\n\r\n")); ok &&
			bytes.HasPrefix(answer, []byte("HTTP/1.1 403 ")) && bytes.Contains(body, []byte(refusedHere)) {
			return blocked("refused with 403")
		}
	} else {
		if answer, err = hello(ctx, conn, name); string(answer) == deniedHere {
			return blocked("refused with an alert of TLS")
		}
	}
	switch {
	case len(answer) > 0:
		return answered("over TCP, with %d bytes", len(answer))
	case ctx.Err() != nil:
		return blocked(noAnswer)
	case closed(err):
		return blocked(cut)
	}
	return unknown(err)
}

// name is one that the policy allows, which is what gets furthest; else any.
func (p plan) name() string {
	for _, t := range p.Required {
		if _, err := netip.ParseAddr(t.Name); err != nil {
			return t.Name
		}
	}
	if len(p.Denied) > 0 {
		return p.Denied[0]
	}
	return "localhost"
}

const maxAnswer = 64 << 10

func request(conn net.Conn, name string) ([]byte, error) {
	if _, err := fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", name); err != nil {
		return nil, err
	}
	answer, err := io.ReadAll(io.LimitReader(conn, maxAnswer))
	if err == nil {
		err = io.EOF
	}
	return answer, err
}

// hello begins a TLS handshake and returns what came back.
func hello(ctx context.Context, conn net.Conn, name string) ([]byte, error) {
	c := &heard{Conn: conn}
	// Whose certificate comes doesn't matter: that one comes does.
	err := tls.Client(c, &tls.Config{ServerName: name, InsecureSkipVerify: true}).HandshakeContext(ctx)
	return c.got, err
}

// heard remembers what has come.
type heard struct {
	net.Conn
	got []byte
}

func (c *heard) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.got = append(c.got, b[:n]...)
	return n, err
}
