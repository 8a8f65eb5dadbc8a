package probe

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
)

// refusedHere is how the wall's own answer to a request over HTTP begins.
const refusedHere = "refused by agent-init"

// cut is the end of a connection that the wall took and does not pass on.
const cut = "cut before an answer"

// talk says what makes a server answer, on a connection that someone has accepted.
func (p plan) talk(ctx context.Context, conn net.Conn, a netip.AddrPort) outcome {
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	var answer []byte
	var err error
	if a.Port() == 80 {
		answer, err = p.request(conn)
		if _, body, ok := bytes.Cut(answer, []byte("\r\n\r\n")); ok &&
			bytes.HasPrefix(answer, []byte("HTTP/1.1 403 ")) && bytes.Contains(body, []byte(refusedHere)) {
			return blocked("refused with 403")
		}
	} else {
		answer, err = p.hello(ctx, conn)
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

func (p plan) request(conn net.Conn) ([]byte, error) {
	if _, err := fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", p.name()); err != nil {
		return nil, err
	}
	answer, err := io.ReadAll(io.LimitReader(conn, maxAnswer))
	if err == nil {
		err = io.EOF
	}
	return answer, err
}

// hello begins a TLS handshake and returns what came back.
func (p plan) hello(ctx context.Context, conn net.Conn) ([]byte, error) {
	c := &counted{Conn: conn}
	// Whose certificate comes doesn't matter: that one comes does.
	err := tls.Client(c, &tls.Config{ServerName: p.name(), InsecureSkipVerify: true}).HandshakeContext(ctx)
	return make([]byte, c.got.Load()), err
}

// counted counts what is read.
type counted struct {
	net.Conn
	got atomic.Int64
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.got.Add(int64(n))
	return n, err
}
