package inspect

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"strings"
	"time"
)

const handshakeTime = 15 * time.Second

// newTLS is what clients are shown. There is one configuration for all, so that its tickets hold for the next connection.
func (s *Server) newTLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		// This hop is inside of the container: a key that outlives quantum computers would only take time.
		CurvePreferences: []tls.CurveID{tls.X25519, tls.CurveP256, tls.CurveP384, tls.X25519MLKEM768},
		GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
			c, ok := h.Conn.(*conn)
			if !ok || !c.is(h.ServerName) {
				return nil, nil // crypto/tls says unrecognized_name
			}
			return s.config.Leaf(c.name)
		},
	}
}

// is says whether a hello asks for the name that the connection was handed over for.
func (c *conn) is(serverName string) bool { return strings.ToLower(serverName) == c.name }

// Inspect takes a connection over. It waits for nothing.
func (s *Server) Inspect(h Handed) {
	c := s.newConn(h)
	if c == nil {
		h.Conn.SetLinger(0)
		h.Conn.Close()
		s.config.Record(Event{Name: h.Name, Port: h.To.Port(), Refused: "busy: too many connections to inspected names at once"})
		return
	}
	go s.open(c)
}

// open ends TLS, and hands the connection to the server of HTTP.
func (s *Server) open(c *conn) {
	i := s.flows.Policy().find(c.place)
	if i == nil { // the guard may have an older policy, or be somebody else's by now
		c.record(refusal("name", "it is not a name that the broker inspects on this port"))
		c.Close()
		return
	}
	var onward net.Conn = c
	if !i.Plain {
		t, n := s.shake(c)
		if n != nil {
			c.record(n)
			c.Close()
			return
		}
		onward = t
	}
	c.waits()
	select {
	case s.arrived <- onward:
	case <-s.ctx.Done():
		c.Close()
	}
}

// shake makes the handshake.
func (s *Server) shake(c *conn) (*tls.Conn, *no) {
	ctx, cancel := context.WithTimeout(s.ctx, handshakeTime)
	defer cancel()
	t := tls.Server(c, s.tls)
	if err := t.HandshakeContext(ctx); err != nil {
		return nil, c.unshaken(err)
	}
	state := t.ConnectionState()
	if !c.is(state.ServerName) { // a ticket leads past GetCertificate
		return nil, refusal("name", "the TLS handshake asks for another name than the connection")
	}
	c.speaks, c.shaken = state.NegotiatedProtocol, c.written.Load()
	return t, nil
}

// unshaken is why there was no handshake. No text of the client's is in it.
func (c *conn) unshaken(err error) *no {
	var remote *net.OpError
	var record tls.RecordHeaderError
	var alert error
	if errors.As(err, &remote) && remote.Op == "remote error" {
		alert = remote.Err
	} else if c.alert != 0 {
		alert = tls.AlertError(c.alert)
	}
	switch {
	case alert != nil:
		// https://www.rfc-editor.org/rfc/rfc8446#section-6.2: bad_certificate, certificate_unknown, unknown_ca
		return refusal("client", "the client does not accept the certificate of agent-init's authority ("+
			alert.Error()+"): it has roots of its own, or pins a certificate (docs/certificates.md)")
	case errors.As(err, &record):
		return refusal("protocol", "what the client sent is no TLS; it goes nowhere")
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return refusal("slow", "the TLS handshake did not end in time")
	case strings.Contains(err.Error(), "unsupported application protocols"): // crypto/tls has no type for it
		return refusal("protocol", "the client offers neither HTTP/1.1 nor HTTP/2 (ALPN)")
	}
	return refusal("client", "the client broke the TLS handshake off, or offered nothing that the broker speaks; "+
		"it may have roots of its own, or pin a certificate (docs/certificates.md)")
}
