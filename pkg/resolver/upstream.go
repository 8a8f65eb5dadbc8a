package resolver

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// Upstream is a DNS server that allowed names are asked of.
type Upstream struct {
	Addr    netip.AddrPort
	TLSName string // if set, asked by DNS over TLS, with a certificate for this name
}

// String returns the address, with the TLS name behind a number sign if there is one.
func (u Upstream) String() string {
	if u.TLSName == "" {
		return u.Addr.String()
	}
	return u.Addr.String() + "#" + u.TLSName
}

var (
	errForged    = errors.New("replies that don't belong to the question")
	errTruncated = errors.New("truncated reply")
	errTimeout   = errors.New("no answer in time")
)

// rcodeError is a reply that says no more than that the server failed.
type rcodeError int

func (e rcodeError) Error() string {
	if s, ok := dns.RcodeToString[int(e)]; ok {
		return "answered " + s
	}
	return fmt.Sprintf("answered with code %d", int(e))
}

func isRcode(err error) bool {
	_, ok := errors.AsType[rcodeError](err)
	return ok
}

// maxForged is how many datagrams that don't fit a question are read before the
// question is asked again over TCP: somebody is guessing.
const maxForged = 8

// upstreams asks several servers, the first that works.
type upstreams struct {
	servers []*server
	stream  bool // over TCP only
	believe func(Upstream) error
	budget  time.Duration // for one question in all
	first   time.Duration // for one server, in the first round; twice that in the next
	retry   time.Duration // a failed server is passed over for this long, doubled each time …
	retryTo time.Duration // … up to this
}

// server is an upstream and how it has been doing.
type server struct {
	Upstream
	tls   *tls.Config
	ports sourcePorts

	mu       sync.Mutex
	failures int
	down     time.Time // passed over until then
}

func newUpstreams(list []Upstream) *upstreams {
	u := &upstreams{
		budget:  4500 * time.Millisecond, // as long as a question has, see patience
		first:   time.Second,
		retry:   time.Second,
		retryTo: 30 * time.Second,
	}
	for _, up := range list {
		s := &server{Upstream: up}
		if up.TLSName != "" {
			s.tls = &tls.Config{
				ServerName:         up.TLSName,
				MinVersion:         tls.VersionTLS12,
				ClientSessionCache: tls.NewLRUClientSessionCache(1),
			}
		}
		u.servers = append(u.servers, s)
	}
	return u
}

// leaveFrom makes questions leave from the given ports.
func (u *upstreams) leaveFrom(p sourcePorts) {
	for _, s := range u.servers {
		s.ports = p
	}
}

// exchange asks for the records of type qtype that name has. The error says
// what was wrong with each server in turn.
func (u *upstreams) exchange(ctx context.Context, name string, qtype uint16) (*dns.Msg, error) {
	if len(u.servers) == 0 {
		return nil, errors.New("there is no DNS server to ask: name one in dns.upstream, or in resolv.conf")
	}
	ctx, cancel := context.WithTimeout(ctx, u.budget)
	defer cancel()
	errs := make([]error, len(u.servers))
	for wait := u.first; ; wait = 2 * u.first {
		silent := false
		for _, i := range u.order(time.Now()) {
			s := u.servers[i]
			m, err := s.ask(ctx, name, qtype, wait, u.stream)
			if u.believe != nil && (err == nil || isRcode(err)) {
				if doubt := u.believe(s.Upstream); doubt != nil {
					m, err = nil, doubt
				}
			}
			if err == nil {
				s.worked()
				return m, nil
			}
			if ctx.Err() == nil || errs[i] == nil {
				errs[i] = fmt.Errorf("%v: %w", s, err)
			}
			if isRcode(err) {
				// It works, and may be the only one to know other names.
				s.worked()
				continue
			}
			silent = silent || errors.Is(err, errTimeout)
			s.failed(time.Now(), u.retry, u.retryTo)
			if ctx.Err() != nil {
				return nil, errors.Join(errs...)
			}
		}
		if !silent {
			return nil, errors.Join(errs...)
		}
	}
}

// order returns the servers to try: those that work, as configured, then those
// that don't. A server whose time is over is tried by one question first.
func (u *upstreams) order(now time.Time) []int {
	up := make([]int, 0, len(u.servers))
	var down []int
	for i, s := range u.servers {
		if s.usable(now, u.first) {
			up = append(up, i)
		} else {
			down = append(down, i)
		}
	}
	return append(up, down...)
}

func (s *server) usable(now time.Time, probe time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failures == 0 {
		return true
	}
	if now.Before(s.down) {
		return false
	}
	s.down = now.Add(probe) // the others wait for how this one fares
	return true
}

func (s *server) worked() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures, s.down = 0, time.Time{}
}

func (s *server) failed(now time.Time, retry, most time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pause := most
	if s.failures < 8 {
		pause = min(most, retry<<s.failures)
	}
	s.failures++
	s.down = now.Add(pause)
}

// ask asks one server once; a failure code is an error.
func (s *server) ask(ctx context.Context, name string, qtype uint16, wait time.Duration, stream bool) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	m, err := s.once(ctx, newRequest(name, qtype, true), stream)
	if err == nil && (m.Rcode == dns.RcodeFormatError || m.Rcode == dns.RcodeNotImplemented) {
		m, err = s.once(ctx, newRequest(name, qtype, false), stream) // it may be older than EDNS
	}
	if err != nil {
		return nil, err
	}
	if m.Rcode != dns.RcodeSuccess && m.Rcode != dns.RcodeNameError {
		return nil, rcodeError(m.Rcode)
	}
	return m, nil
}

func (s *server) once(ctx context.Context, req *dns.Msg, stream bool) (*dns.Msg, error) {
	if s.tls == nil && !stream {
		m, err := s.overUDP(ctx, req)
		if !errors.Is(err, errTruncated) && !errors.Is(err, errForged) {
			return m, err
		}
		req.Id = randomID()
	}
	return s.overTCP(ctx, req)
}

// newRequest builds a question that holds the name and nothing of the client's.
func newRequest(name string, qtype uint16, edns bool) *dns.Msg {
	m := new(dns.Msg)
	m.Id = randomID()
	m.RecursionDesired = true
	m.Question = []dns.Question{{Name: dns.Fqdn(name), Qtype: qtype, Qclass: dns.ClassINET}}
	if edns {
		m.SetEdns0(maxUDPReply, false)
	}
	return m
}

func randomID() uint16 {
	var b [2]byte
	rand.Read(b[:]) // never fails
	return binary.BigEndian.Uint16(b[:])
}

// overUDP asks from a socket made for this question: its port is as hard to
// guess as the identifier, and the kernel drops what others send to it.
func (s *server) overUDP(ctx context.Context, req *dns.Msg) (*dns.Msg, error) {
	out, err := req.Pack()
	if err != nil {
		return nil, err
	}
	conn, err := s.ports.dial(net.UDPAddrFromAddrPort(s.Addr))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	if _, err := conn.Write(out); err != nil {
		return nil, err
	}
	buf := make([]byte, 4096)
	for range maxForged {
		n, err := conn.Read(buf)
		if err != nil {
			return nil, noAnswer(err)
		}
		if m, err := parseReply(buf[:n], req); err == nil {
			return m, nil
		} else if errors.Is(err, errTruncated) {
			return nil, err
		}
	}
	return nil, errForged
}

// overTCP asks over TCP or TLS, on a connection for this question.
func (s *server) overTCP(ctx context.Context, req *dns.Msg) (*dns.Msg, error) {
	out, err := req.Pack()
	if err != nil {
		return nil, err
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", s.Addr.String())
	if err != nil {
		return nil, noAnswer(err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	if s.tls != nil {
		t := tls.Client(conn, s.tls)
		if err := t.HandshakeContext(ctx); err != nil {
			return nil, noAnswer(err)
		}
		conn = t
	}
	if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(out))), out...)); err != nil {
		return nil, noAnswer(err)
	}
	var head [2]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return nil, noAnswer(err)
	}
	buf := make([]byte, binary.BigEndian.Uint16(head[:]))
	if _, err := io.ReadFull(conn, buf); err != nil {
		return nil, noAnswer(err)
	}
	m, err := parseReply(buf, req)
	if errors.Is(err, errTruncated) {
		return nil, errors.New("truncated reply over TCP")
	}
	return m, err
}

// noAnswer puts a timeout in the words of the person who reads it.
func noAnswer(err error) error {
	var ne net.Error
	if errors.As(err, &ne) && ne.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		return errTimeout
	}
	return err
}
