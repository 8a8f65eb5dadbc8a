package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// tally counts outcomes of many tries at once.
type tally struct {
	mu     sync.Mutex
	count  map[string]int
	failed int
	took   []time.Duration
}

func (t *tally) add(outcome string, failed bool, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count == nil {
		t.count = make(map[string]int)
	}
	if failed {
		t.failed++
	}
	if _, known := t.count[outcome]; !known && len(t.count) >= 50 {
		outcome = "other"
	}
	t.count[outcome]++
	t.took = append(t.took, took)
}

func (t *tally) detail(total time.Duration) detail {
	slices.Sort(t.took)
	at := func(p float64) float64 {
		if len(t.took) == 0 {
			return 0
		}
		return float64(t.took[int(p*float64(len(t.took)-1))].Microseconds()) / 1000
	}
	return detail{"outcomes": t.count, "failed": t.failed, "n": len(t.took), "p50_ms": at(0.5), "p99_ms": at(0.99),
		"max_ms": at(1), "per_second": float64(len(t.took)) / total.Seconds()}
}

// many runs try n times, c at once; each worker has its number.
func many(n, c int, try func(worker, i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for w := range c {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				try(w, i)
			}
		})
	}
	wg.Wait()
}

func loop(args []string) (detail, error) {
	fs := flags("loop")
	n := fs.Int("n", 100, "connections")
	c := fs.Int("c", 1, "at once")
	name := fs.String("name", "", "resolve this each time; {n} is replaced by the number")
	timeout := fs.Duration("timeout", 3*time.Second, "for each")
	spread := fs.Int("spread", 1, "how many addresses from ADDR on to connect to in turn")
	a, err := parse(fs, args, 1)
	if err != nil {
		return nil, err
	}
	to, err := following(a[0], *spread)
	if err != nil {
		return nil, err
	}
	var t tally
	begin := time.Now()
	many(*n, *c, func(_, i int) {
		start := time.Now()
		err := once(strings.ReplaceAll(*name, "{n}", strconv.Itoa(i)), to[i%len(to)], *timeout)
		outcome := "ok"
		if err != nil {
			outcome = err.Error()
		}
		t.add(outcome, err != nil, time.Since(start))
	})
	out := t.detail(time.Since(begin))
	if t.failed > 0 {
		return out, fmt.Errorf("%d of %d failed", t.failed, *n)
	}
	return out, nil
}

// following are addr, and the addresses after it if n is more than one.
func following(addr string, n int) ([]string, error) {
	to := []string{addr}
	for len(to) < n {
		last, err := netip.ParseAddrPort(to[len(to)-1])
		if err != nil {
			return nil, usage("%v", err)
		}
		to = append(to, netip.AddrPortFrom(last.Addr().Next(), last.Port()).String())
	}
	return to, nil
}

// once resolves name, if given, and connects to the first address, but once.
func once(name, addr string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if name != "" {
		ips, err := lookup(ctx, name)
		if err != nil {
			return fmt.Errorf("resolve: %w", err)
		}
		addr = net.JoinHostPort(ips[0].Unmap().String(), addr[1:])
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		// Without the local address, which differs each time.
		if op := new(net.OpError); errors.As(err, &op) {
			return fmt.Errorf("connect: %w", op.Err)
		}
		return err
	}
	return conn.Close()
}

func flood(args []string) (detail, error) {
	fs := flags("flood")
	n := fs.Int("n", 1000, "datagrams")
	size := fs.Int("size", 16, "bytes of each")
	spread := fs.Int("spread", 1, "how many addresses from ADDR on to send to in turn")
	a, err := parse(fs, args, 1)
	if err != nil {
		return nil, err
	}
	target, err := netip.ParseAddrPort(a[0])
	if err != nil {
		return nil, usage("%v", err)
	}
	to := []netip.AddrPort{target}
	for len(to) < *spread {
		to = append(to, netip.AddrPortFrom(to[len(to)-1].Addr().Next(), target.Port()))
	}
	c, err := net.ListenUDP("udp", nil)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	buf := make([]byte, *size)
	var t tally
	begin := time.Now()
	for i := range *n {
		start := time.Now()
		_, err := c.WriteToUDPAddrPort(buf, to[i%len(to)])
		outcome := "ok"
		if op := new(net.OpError); errors.As(err, &op) {
			outcome = op.Err.Error()
		}
		t.add(outcome, err != nil, time.Since(start))
	}
	out := t.detail(time.Since(begin))
	if t.failed > 0 {
		return out, fmt.Errorf("%d of %d failed", t.failed, *n)
	}
	return out, nil
}

func idle(args []string) (detail, error) {
	fs := flags("idle")
	n := fs.Int("n", 100, "connections")
	hold := fs.Duration("hold", time.Second, "how long to hold them")
	a, err := parse(fs, args, 1)
	if err != nil {
		return nil, err
	}
	var t tally
	begin := time.Now()
	var conns []net.Conn
	for range *n {
		start := time.Now()
		c, err := net.DialTimeout("tcp", a[0], 20*time.Second)
		outcome := "ok"
		if err != nil {
			outcome = "failed"
			if op := new(net.OpError); errors.As(err, &op) {
				outcome = op.Err.Error()
			}
		} else {
			conns = append(conns, c)
		}
		t.add(outcome, err != nil, time.Since(start))
	}
	out := t.detail(time.Since(begin))
	time.Sleep(*hold)
	for _, c := range conns {
		c.Close()
	}
	if t.failed > 0 {
		return out, fmt.Errorf("%d of %d failed", t.failed, *n)
	}
	return out, nil
}
