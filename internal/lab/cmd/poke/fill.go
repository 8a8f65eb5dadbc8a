package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// fill posts a body without an end over each of n connections of HTTP/2, until nobody takes anything any more. One that
// ends before, as a busy machine's may by a time limit, is made again. ok if the end comes, and not every one had to be.
func fill(args []string) (detail, error) {
	var s speaker
	fs := flags("fill")
	s.options.register(fs, "")
	s.security.register(fs)
	n := fs.Int("n", 100, "connections")
	a, err := parse(fs, args, 1)
	if err != nil {
		return nil, err
	}
	config, err := s.config()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var all sync.WaitGroup
	var sent, over atomic.Int64
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	for range *n {
		t := &http.Transport{TLSClientConfig: config.Clone(), Protocols: protocols, DialContext: func(ctx context.Context, network, to string) (net.Conn, error) {
			return s.dial(ctx, network, to)
		}}
		all.Go(func() {
			for ctx.Err() == nil && over.Load() < int64(*n) {
				r, err := http.NewRequestWithContext(ctx, http.MethodPost, a[0], endless{&sent})
				if err != nil {
					panic(err) // by who wrote the test
				}
				resp, err := t.RoundTrip(r)
				if ctx.Err() == nil {
					over.Add(1)
				}
				if err == nil {
					resp.Body.Close()
				}
				t.CloseIdleConnections()
			}
		})
	}
	for last, since := int64(0), time.Now(); last == 0 || time.Since(since) < 2*time.Second; time.Sleep(50 * time.Millisecond) {
		if now := sent.Load(); now != last {
			last, since = now, time.Now()
		}
		if last == 0 && time.Since(since) > s.timeout {
			break
		}
	}
	cancel()
	all.Wait()
	out := detail{"sent": sent.Load(), "over": over.Load()}
	if over.Load() >= int64(*n) || sent.Load() == 0 {
		return out, fmt.Errorf("%d are over", over.Load())
	}
	return out, nil
}

// endless is a body that counts what is taken of it.
type endless struct{ sent *atomic.Int64 }

func (e endless) Read(b []byte) (int, error) {
	e.sent.Add(int64(len(b)))
	return len(b), nil
}
