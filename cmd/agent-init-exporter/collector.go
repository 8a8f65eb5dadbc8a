package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/agent-init/agent-init/internal/wire"
)

// collector is where the exporter goes. Its name is looked up by the keeper, which leases the addresses to the exporter
// alone: there is no DNS for it.
type collector struct {
	ask  func(context.Context, wire.Message) (wire.Message, error)
	host string
	port uint16

	mu    sync.Mutex
	addrs []netip.Addr
	until time.Time
}

const (
	askTime  = 5 * time.Second
	dialTime = 3 * time.Second // of one address
)

// dial connects to the first address that answers.
func (c *collector) dial(ctx context.Context) (net.Conn, error) {
	addrs, err := c.lookup(ctx)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, a := range addrs {
		d := net.Dialer{Timeout: dialTime}
		conn, err := d.DialContext(ctx, "tcp", netip.AddrPortFrom(a, c.port).String())
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
	}
	c.mu.Lock()
	c.until = time.Time{} // it may be elsewhere by now
	c.mu.Unlock()
	return nil, errors.Join(errs...)
}

func (c *collector) lookup(ctx context.Context) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(c.host); err == nil { // the rules have it by itself
		return []netip.Addr{a}, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	asked := time.Now()
	if asked.Before(c.until) {
		return c.addrs, nil
	}
	m, err := c.ask(ctx, wire.Message{Op: wire.OpLookup, Name: c.host})
	switch {
	case err != nil:
		return nil, fmt.Errorf("ask for the addresses of %s: %w", c.host, err)
	case m.Err:
		return nil, &net.DNSError{Err: m.Text, Name: c.host}
	case len(m.Addrs) == 0:
		return nil, &net.DNSError{Err: "no address of a class that it may have", Name: c.host, IsNotFound: true}
	}
	c.addrs, c.until = m.Addrs, asked.Add(m.TTL)
	return c.addrs, nil
}
