package gateway

import (
	"bytes"
	"context"
	"crypto/sha256"
	"io"
	"time"

	"github.com/agent-init/agent-init/pkg/audit"
)

// serveTLS judges a connection by its ClientHello and relays it.
func (c *conn) serveTLS(ctx context.Context) error {
	c.client.SetReadDeadline(c.began.Add(c.s.limits.hello))
	raw, hello, err := readHello(c.from)
	if err != nil {
		return err
	}
	c.client.SetReadDeadline(time.Time{})
	c.s.conns.judged(c)
	r := c.decide(ctx, hello.name, use{hidden: hello.encrypted})
	if r.inspected() {
		return c.handOver(ctx, r, raw)
	}
	server, err := c.connect(ctx, r)
	if err != nil {
		if !r.allowed && r.why != refusedKeeper {
			c.denyTLS(r)
		}
		return err
	}
	c.relayTLS(server, hello, raw)
	return nil
}

// relayTLS passes on what follows a ClientHello, of which raw is still to be passed on.
func (c *conn) relayTLS(server *source, first hello, raw []byte) {
	up, down := c.toServer(), c.toClient()
	w := &retry{hello: first, said: make(chan struct{})}
	broken := write(up, raw) // at once: to start a goroutine first takes time
	c.relay(server, func() error {
		if broken != nil {
			return broken
		}
		if err := w.client(c.from, up); err != nil {
			return err
		}
		return c.from.forward(up, untilEnd)
	}, func() error {
		if err := w.server(server); err != nil {
			server.flush(down)
			return err
		}
		return server.forward(down, untilEnd)
	})
}

// accessDenied is a fatal alert of TLS (RFC 8446, section 6). It is what clients have the best words for: curl, Node.js,
// Python, Go and rustls say "access denied", and would say of a reset that the network is bad.
const accessDenied = "\x15\x03\x03\x00\x02\x02\x31"

// denyTLS tells the client that r refuses it. Whom it can't tell, the caller resets.
func (c *conn) denyTLS(r ruling) {
	c.findOut(c.s.config.Find) // while it is open
	if c.tell(c.toClient(), []byte(accessDenied)) {
		c.close(audit.Deny, r.Error())
	}
}

// retry guards the one way to change the name after the first ClientHello: a TLS 1.3 server may ask for another one
// (HelloRetryRequest), and many take the name of that. So until the server has answered, the client's records are
// looked at as they pass. Encrypted ones pass at once, early data too.
type retry struct {
	hello hello         // the first
	said  chan struct{} // closed when the server has answered
	ask   bool          // for another ClientHello; valid when said is closed
}

// client passes records on until no ClientHello can follow, or the second one has.
func (w *retry) client(src *source, dst io.Writer) error {
	for {
		if len(src.held()) < recordHeader {
			if err := src.fill(); err != nil {
				return err
			}
		}
		select {
		case <-w.said:
			if !w.ask {
				return nil
			}
		default:
		}
		n, err := fragment(src.held())
		switch {
		case err != nil:
			return err
		case n < 0:
			continue
		}
		if src.held()[0] != recordHandshake {
			if err := src.forward(dst, int64(recordHeader+n)); err != nil {
				return err
			}
			continue
		}
		// No client says more in clear before the server has spoken.
		if <-w.said; !w.ask {
			return nil
		}
		raw, second, err := readHello(src)
		switch {
		case err != nil:
			return err
		case second.name != w.hello.name, second.encrypted && !w.hello.encrypted: // which was not judged
			return refusedRetry
		}
		return write(dst, raw)
	}
}

// helloHead is how much of a ServerHello tells whether it is a retry: type, length, version, random.
const helloHead = 1 + 3 + 2 + sha256.Size

// server waits for the server's first message, which stays with src.
func (w *retry) server(src *source) error {
	defer close(w.said)
	for known := false; ; {
		if w.ask, known = isRetry(src.held()); known {
			return nil
		}
		if err := src.fill(); err == errFull {
			return refusedRecord
		} else if err != nil {
			return err
		}
	}
}

// isRetry looks for a HelloRetryRequest at the beginning of what a server sent, behind
// alerts that are only warnings. It is not known until enough has been read.
func isRetry(b []byte) (ask, known bool) {
	var message []byte
	for {
		if len(b) == 0 {
			return false, false
		}
		if b[0] != recordHandshake && b[0] != recordAlert {
			return false, true
		}
		if len(b) < recordHeader {
			return false, false
		}
		n := int(b[3])<<8 | int(b[4])
		body := b[recordHeader:min(len(b), recordHeader+n)]
		if b[0] == recordHandshake {
			message = append(message, body...)
		}
		if len(message) > 0 && message[0] != messageServerHello {
			return false, true
		}
		if len(message) >= helloHead {
			// RFC 8446, section 4.1.3: this random says that it is a retry.
			magic := sha256.Sum256([]byte("HelloRetryRequest"))
			return bytes.Equal(message[helloHead-sha256.Size:helloHead], magic[:]), true
		}
		if len(body) < n {
			return false, false
		}
		b = b[recordHeader+n:]
	}
}
