package onward

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync"
	"time"
)

// MaxDials are connections that are made to one host at once. With HTTP/2 the first serves all who wait.
const MaxDials = 4

const (
	connectTime = 15 * time.Second // to connect, and again for the handshake

	maxIdle = 16 // connections of HTTP/1.1 to one host

	maxAnswerHead = 64 << 10

	// maxWide are the requests over HTTP/2 whose answers may come at full speed. A stream holds as much of an answer as its
	// window has, while the client doesn't read, and nothing takes a window back. At 50 ms to the server, a wide window
	// passes 20 MiB a second, and a narrow one 240 KiB.
	maxWide      = 12
	wideWindow   = 1 << 20
	narrowWindow = 12 << 10

	// A server that is gone without a word is noticed after both.
	pingAfter = 30 * time.Second
	pingTime  = 15 * time.Second
)

// DialError is what a dial function said. It knows no credential.
type DialError struct{ error }

func (e DialError) Unwrap() error { return e.error }

// Transport sends requests on. A connection of HTTP/1 that has carried a body carries no other request: a server that
// answers without reading the body takes it for its next request, which nobody has judged. No server says that it has
// read all. So it is told to close, too.
type Transport struct{ wide, narrow pair }

type pair struct{ bodiless, bodies *http.Transport }

type dialer = func(ctx context.Context, host string, port uint16) (net.Conn, error)

// wide has the requests of the whole process that have a wide window.
var wide = make(chan struct{}, maxWide)

// NewTransport connects by dial, and over TLS to those alone whose certificate leads to one of roots. It speaks HTTP/2
// where the server offers it.
func NewTransport(roots *x509.CertPool, dial dialer) *Transport {
	of := func(window int) pair {
		return pair{newTransport(roots, dial, window), newTransport(roots, dial, window)}
	}
	t := &Transport{of(wideWindow), of(narrowWindow)}
	t.Tune(func(*http.Transport) {})
	return t
}

// Tune changes how connections are used. It comes before the first request.
func (t *Transport) Tune(change func(*http.Transport)) {
	for _, p := range []pair{t.wide, t.narrow} {
		change(p.bodiless)
		change(p.bodies)
		p.bodies.MaxIdleConnsPerHost = -1 // of HTTP/1; HTTP/2 has a pool of its own
	}
}

// RoundTrip sends r, whose header it takes over.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case wide <- struct{}{}:
	default:
		return t.narrow.RoundTrip(r)
	}
	leave := sync.OnceFunc(func() { <-wide })
	resp, err := t.wide.RoundTrip(r)
	if err != nil || resp.ProtoMajor == 1 { // of which the kernel holds what the client doesn't read
		leave()
		return resp, err
	}
	resp.Body = &answer{resp.Body, leave}
	return resp, nil
}

// answer leaves its place to another one when it ends.
type answer struct {
	io.ReadCloser
	leave func()
}

func (a *answer) Close() error {
	defer a.leave()
	return a.ReadCloser.Close()
}

// RoundTrip is that of one kind of window.
func (p pair) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil || r.Body == http.NoBody {
		return p.bodiless.RoundTrip(r)
	}
	trace := &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
		// Over HTTP/2 this would close the connection of other requests.
		if c, ok := got.Conn.(interface{ ConnectionState() tls.ConnectionState }); !ok || c.ConnectionState().NegotiatedProtocol != "h2" {
			r.Header["Connection"] = []string{"close"}
		}
	}}
	return p.bodies.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
}

// CloseIdleConnections closes those that no request uses.
func (t *Transport) CloseIdleConnections() {
	for _, p := range []pair{t.wide, t.narrow} {
		p.bodiless.CloseIdleConnections()
		p.bodies.CloseIdleConnections()
	}
}

func newTransport(roots *x509.CertPool, dial dialer, window int) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true) // by ALPN
	t := &http.Transport{
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			host, text, err := net.SplitHostPort(addr)
			if err != nil {
				return nil, err
			}
			port, err := strconv.ParseUint(text, 10, 16)
			if err != nil {
				return nil, err
			}
			ctx, cancel := context.WithTimeout(ctx, connectTime)
			defer cancel()
			conn, err := dial(ctx, host, uint16(port))
			if err != nil {
				return nil, DialError{err}
			}
			return conn, nil
		},
		TLSClientConfig:        &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    connectTime,
		DisableCompression:     true, // the answer goes on as it is
		MaxResponseHeaderBytes: maxAnswerHead,
		MaxIdleConnsPerHost:    maxIdle,
		IdleConnTimeout:        90 * time.Second,
		WriteBufferSize:        4 << 10,
		ReadBufferSize:         4 << 10,
		Protocols:              protocols,
		HTTP2: &http.HTTP2Config{
			// Nothing of a head is kept for the next one: the credential is in no table of the connection's.
			MaxEncoderHeaderTableSize: 1,
			MaxReceiveBufferPerStream: window,
			SendPingTimeout:           pingAfter,
			PingTimeout:               pingTime,
		},
	}
	smallFrames(t)
	return t
}
