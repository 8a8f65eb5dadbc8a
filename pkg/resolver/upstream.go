package resolver

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/miekg/dns"

	"github.com/agent-init/agent-init/pkg/policy"
)

var (
	errForged    = errors.New("replies that don't belong to the question")
	errTruncated = errors.New("truncated reply")
	errTimeout   = errors.New("no answer in time")
	errNone      = errors.New("there is no DNS server to ask: name one in dns.upstream, or in resolv.conf")
)

// rcodeError is a reply that says no more than that the server failed.
type rcodeError int

func (e rcodeError) Error() string {
	return "answered " + cmp.Or(dns.RcodeToString[int(e)], fmt.Sprintf("with code %d", int(e)))
}

// maxForged is how many datagrams that don't fit a question are read before the
// question is asked again over TCP: somebody is guessing.
const maxForged = 8

// upstreams asks several servers, the first that works.
type upstreams struct {
	servers []*server
	stream  bool // over TCP only
	believe func(policy.Upstream) error
	health  *Health
	first   time.Duration // for one server, in the first round; twice that in the next
}

// server is an upstream and how it has been doing.
type server struct {
	policy.Upstream
	tls   *tls.Config
	ports sourcePorts

	mu       sync.Mutex
	failures int
	down     time.Time // passed over until then
}

func (s *server) String() string { return strings.TrimSuffix(s.Addr.String()+"#"+s.TLSName, "#") }

func newUpstreams(list []policy.Upstream, ports sourcePorts) *upstreams {
	u := &upstreams{first: time.Second, health: new(Health)}
	for _, up := range list {
		s := &server{Upstream: up, ports: ports}
		if up.TLSName != "" {
			s.tls = &tls.Config{ServerName: up.TLSName, MinVersion: tls.VersionTLS12, ClientSessionCache: tls.NewLRUClientSessionCache(1)}
		}
		u.servers = append(u.servers, s)
	}
	return u
}

// exchange asks a question until ctx ends. The error says what was wrong with each server in turn.
func (u *upstreams) exchange(ctx context.Context, q question) (*dns.Msg, error) {
	if len(u.servers) == 0 {
		return nil, errNone
	}
	errs := make([]error, len(u.servers))
	for wait := u.first; ; wait = 2 * u.first {
		silent := false
		for _, i := range u.order(time.Now()) {
			s := u.servers[i]
			m, err := s.ask(ctx, q, wait, u.stream)
			_, answered := errors.AsType[rcodeError](err)
			if u.believe != nil && (err == nil || answered) {
				if doubt := u.believe(s.Upstream); doubt != nil {
					m, err, answered = nil, doubt, false
				}
			}
			if err == nil {
				u.worked(s)
				return m, nil
			}
			if ctx.Err() == nil || errs[i] == nil {
				errs[i] = fmt.Errorf("%v: %w", s, err)
			}
			if answered {
				// It works, and may be the only one to know other names.
				u.worked(s)
				continue
			}
			silent = silent || errors.Is(err, errTimeout)
			s.failed(time.Now())
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
func (u *upstreams) order(now time.Time) (order []int) {
	usable := 0
	for i, s := range u.servers {
		if s.usable(now, u.first) {
			order = slices.Insert(order, usable, i)
			usable++
		} else {
			order = append(order, i)
		}
	}
	return order
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

func (u *upstreams) worked(s *server) {
	s.worked()
	u.health.worked(s, time.Now())
}

func (s *server) worked() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures = 0
}

// A failed server is passed over for a while, doubled each time.
const (
	retryFirst = time.Second
	retryMost  = 30 * time.Second
)

func (s *server) failed(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = now.Add(min(retryMost, retryFirst<<min(s.failures, 8)))
	s.failures++
}

// ask asks one server once; a failure code is an error.
func (s *server) ask(ctx context.Context, q question, wait time.Duration, stream bool) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	m, err := s.once(ctx, newRequest(q, true), stream)
	if err == nil && (m.Rcode == dns.RcodeFormatError || m.Rcode == dns.RcodeNotImplemented) {
		m, err = s.once(ctx, newRequest(q, false), stream) // it may be older than EDNS
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
		m, err := s.exchange(ctx, req, false)
		if !errors.Is(err, errTruncated) && !errors.Is(err, errForged) {
			return m, err
		}
		req.Id = dns.Id()
	}
	m, err := s.exchange(ctx, req, true)
	if errors.Is(err, errTruncated) {
		return nil, errors.New("truncated reply over TCP")
	}
	return m, err
}

// newRequest builds a question that holds the name and nothing of the client's.
func newRequest(q question, edns bool) *dns.Msg {
	m := new(dns.Msg).SetQuestion(dns.Fqdn(q.name), q.qtype)
	if edns {
		m.SetEdns0(maxUDPReply, false)
	}
	return m
}

// exchange asks from a socket made for this question: its port is as hard to
// guess as the identifier, and the kernel drops what others send to it.
func (s *server) exchange(ctx context.Context, req *dns.Msg, stream bool) (*dns.Msg, error) {
	var (
		conn  net.Conn
		err   error
		tries = 1
	)
	if stream {
		conn, err = new(net.Dialer).DialContext(ctx, "tcp", s.Addr.String())
	} else {
		tries = maxForged
		conn, err = s.ports.dial(net.UDPAddrFromAddrPort(s.Addr))
	}
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
	framed := dns.Conn{Conn: conn, UDPSize: 4096}
	if err := framed.WriteMsg(req); err != nil {
		return nil, noAnswer(err)
	}
	for range tries {
		pkt, err := framed.ReadMsgHeader(nil)
		if err != nil && !errors.Is(err, dns.ErrShortRead) {
			return nil, noAnswer(err)
		}
		if m, err := parseReply(pkt, req); err == nil || errors.Is(err, errTruncated) {
			return m, err
		}
	}
	return nil, errForged
}

// noAnswer puts a timeout in the words of the person who reads it.
func noAnswer(err error) error {
	if late, ok := errors.AsType[net.Error](err); ok && late.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		return errTimeout
	}
	return err
}

const (
	firstPort = 10000   // below are those that programs commonly listen on
	minPorts  = 1 << 14 // from so many a choice is as hard to guess as it should be
)

// sourcePorts are the ports that questions leave from: those that the kernel gives to nobody by itself. Other programs
// ask the same servers, and are redirected to this one. On the same port, connection tracking would take what the one
// sends for part of the other's flow: ours would come back to ourselves, and theirs go where only ours may.
type sourcePorts struct {
	low, high uint16 // the kernel's own range, left out; zero: leave all to the kernel
}

// pick returns a random port, or 0 to leave it to the kernel.
func (p sourcePorts) pick() int {
	below, above := max(0, int(p.low)-firstPort), 65535-int(p.high)
	if p.high == 0 || p.low > p.high || below+above < minPorts {
		return 0
	}
	n := rand.IntN(below + above)
	if n < below {
		return firstPort + n
	}
	return int(p.high) + 1 + n - below
}

// dial returns a UDP socket that talks to addr only.
func (p sourcePorts) dial(addr *net.UDPAddr) (*net.UDPConn, error) {
	for range 8 {
		port := p.pick()
		if port == 0 {
			break
		}
		c, err := net.DialUDP("udp", &net.UDPAddr{Port: port}, addr)
		if !errors.Is(err, syscall.EADDRINUSE) && !errors.Is(err, syscall.EACCES) {
			return c, err
		}
	}
	return net.DialUDP("udp", nil, addr)
}
