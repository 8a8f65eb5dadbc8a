package gateway

import (
	"context"
	"time"
)

// serveTLS judges a connection by its ClientHello and relays it.
func (c *conn) serveTLS(ctx context.Context) error {
	c.client.SetReadDeadline(time.Now().Add(c.s.limits.hello))
	raw, hello, err := readHello(c.from)
	if err != nil {
		return err
	}
	c.client.SetReadDeadline(time.Time{})
	c.s.conns.judged(c)
	server, err := c.connect(ctx, c.decide(ctx, hello.name, false, hello.encrypted))
	if err != nil {
		return err
	}
	up, down := c.toServer(), c.toClient()
	w := newRetry(hello)
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
	return nil
}
