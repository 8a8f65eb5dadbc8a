package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// runLooker is a client of a name that is looked into: what ends in 2 offers HTTP/2.
func runLooker(what, through string, n int) (any, error) {
	direct, gated := to(directAddr), by(through)
	kind, http2 := strings.CutSuffix(what, "2")
	switch strings.TrimSuffix(kind, "1") {
	case "look":
		return inTurns(n, timeOf(asking(direct, http2), get), timeOf(asking(gated, http2), get))
	case "looks":
		return inTurns(n, flood(crowd(direct, http2), oneOf), flood(crowd(gated, http2), oneOf))
	case "bulk":
		return inTurns(n, timeOf(asking(direct, http2), getBulk), timeOf(asking(gated, http2), getBulk))
	}
	return nil, holdLooked(gated, n)
}

// asking keeps one connection to ask over.
func asking(d dialer, http2 bool) *http.Client {
	tr := &http.Transport{
		TLSClientConfig: clientTLS(), ForceAttemptHTTP2: http2, MaxConnsPerHost: 1,
		DialContext: func(context.Context, string, string) (net.Conn, error) { return d("443") },
	}
	if !http2 {
		tr.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	}
	return &http.Client{Transport: tr}
}

// crowd are as many as ask at once, each over a connection of its own.
func crowd(d dialer, http2 bool) chan *http.Client {
	all := make(chan *http.Client, rateClients)
	for range rateClients {
		all <- asking(d, http2)
	}
	return all
}

func oneOf(all chan *http.Client) error {
	c := <-all
	defer func() { all <- c }()
	return get(c)
}

func get(c *http.Client) error { return getFrom(c, "/", len("ok\n")) }

func getBulk(c *http.Client) error { return getFrom(c, "/bulk", bulkBytes) }

func getFrom(c *http.Client, path string, want int) error {
	resp, err := c.Get("https://" + gatedName + path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, resp.Body, make([]byte, 256<<10))
	if err == nil && (resp.StatusCode != http.StatusOK || n != int64(want)) {
		err = fmt.Errorf("%s, and %d bytes, not %d", resp.Status, n, want)
	}
	return err
}

// holdLooked asks once over each of n connections, and keeps them until it is killed.
func holdLooked(d dialer, n int) error {
	var wg sync.WaitGroup
	clients, errs := make([]*http.Client, n), make(chan error, n)
	slots := make(chan struct{}, 16)
	for i := range clients {
		slots <- struct{}{}
		wg.Go(func() {
			clients[i] = asking(d, true)
			if err := get(clients[i]); err != nil {
				errs <- err
			}
			<-slots
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		return err
	default:
	}
	fmt.Println("holding")
	time.Sleep(time.Hour) // or until the box ends
	return get(clients[0])
}
