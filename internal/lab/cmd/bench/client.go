package main

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// clientPath is where the box has this program, to be the agent in it.
const clientPath = "/usr/local/bin/bench-client"

// runClient does one thing inside of a box and prints what it took.
func runClient(what, through string, n int) int {
	direct, gated := to(directAddr), by(through)
	var out any
	var err error
	switch what {
	case "spawn":
		out, err = spawn(n)
	case "setup":
		out, err = inTurns(n, timeOf(direct, setUp), timeOf(gated, setUp))
	case "https", "http":
		get := func(d dialer) error { return fetch(what, d) }
		out, err = inTurns(n, timeOf(direct, get), timeOf(gated, get))
	case "one-https", "one-http":
		get := func(d dialer) error { return fetch(strings.TrimPrefix(what, "one-"), d) }
		out, err = timeOf(gated, get)()
	case "rate":
		out, err = inTurns(n, flood(direct, setUp), flood(gated, setUp))
	case "hold":
		err = hold(gated, n)
	case "look1", "look2", "looks1", "looks2", "bulk1", "bulk2", "hold-looked":
		out, err = runLooker(what, through, n)
	case "names", "keep", "one", "serve", "send", "processes":
		out, err = runScale(what, through, n)
	case "loads":
		out, err = runLoads()
	default:
		out, err = runAsker(what, through, n)
	}
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(out)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if what == "spawn" { // what it has started is looked at
		time.Sleep(time.Hour) // which ends with the box
	}
	return 0
}

// dialer opens a connection to a port of the server.
type dialer func(port string) (net.Conn, error)

func to(addr string) dialer {
	return func(port string) (net.Conn, error) { return net.Dial("tcp", net.JoinHostPort(addr, port)) }
}

// by is the way through what is measured: nothing for the gate, which needs no
// word of it; the address of a server that passes all on; or "connect:" and
// that of a proxy to be asked by CONNECT (RFC 9110 section 9.3.6).
func by(through string) dialer {
	proxy, ask := strings.CutPrefix(through, "connect:")
	switch {
	case through == "":
		return to(gatedAddr)
	case !ask:
		return func(string) (net.Conn, error) { return net.Dial("tcp", through) }
	}
	return func(port string) (net.Conn, error) {
		c, err := net.Dial("tcp", proxy)
		if err != nil {
			return nil, err
		}
		host := net.JoinHostPort(gatedName, port)
		_, err = fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %[1]s\r\n\r\n", host)
		if err == nil {
			var resp *http.Response
			if resp, err = http.ReadResponse(bufio.NewReader(c), &http.Request{Method: http.MethodConnect}); err == nil && resp.StatusCode != http.StatusOK {
				err = fmt.Errorf("the proxy says %s", resp.Status)
			}
		}
		if err != nil {
			c.Close()
			return nil, err
		}
		return c, nil
	}
}

// inTurns takes the medians of what is measured both ways, in turns.
func inTurns[T cmp.Ordered](n int, direct, gated func() (T, error)) (both[T], error) {
	var directs, gateds []T
	for range n {
		for _, side := range []struct {
			measure func() (T, error)
			into    *[]T
		}{{direct, &directs}, {gated, &gateds}} {
			v, err := side.measure()
			if err != nil {
				return both[T]{}, err
			}
			*side.into = append(*side.into, v)
		}
	}
	return both[T]{Direct: median(directs), Gated: median(gateds)}, nil
}

// timeOf measures how long it takes to do something by way of w.
func timeOf[W any](w W, do func(W) error) func() (time.Duration, error) {
	return func() (time.Duration, error) {
		begun := time.Now()
		err := do(w)
		return time.Since(begun), err
	}
}

// flood measures how often a second something can be done by way of w, by several clients, each one after another.
func flood[W any](w W, do func(W) error) func() (float64, error) {
	return func() (float64, error) {
		var done atomic.Int64
		errs := make(chan error, rateClients)
		begun := time.Now()
		for range rateClients {
			go func() {
				for time.Since(begun) < rateTime {
					if err := do(w); err != nil {
						errs <- err
						return
					}
					done.Add(1)
				}
				errs <- nil
			}()
		}
		var err error
		for range rateClients {
			err = errors.Join(err, <-errs)
		}
		return float64(done.Load()) / time.Since(begun).Seconds(), err
	}
}

// The certificate is the lab's; verifying it is not what is measured.
func clientTLS() *tls.Config {
	return &tls.Config{ServerName: gatedName, InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}
}

// setUp connects, shakes hands and gets one answer.
func setUp(d dialer) error {
	conn, err := d("443")
	if err != nil {
		return err
	}
	defer conn.Close()
	c := tls.Client(conn, clientTLS())
	if _, err := fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", gatedName); err != nil {
		return err
	}
	_, err = c.Read(make([]byte, 1))
	return err
}

func fetch(scheme string, d dialer) error {
	tr := &http.Transport{
		TLSClientConfig: clientTLS(), DisableKeepAlives: true,
		DialContext: func(_ context.Context, _, addr string) (net.Conn, error) {
			_, port, err := net.SplitHostPort(addr)
			if err != nil {
				return nil, err
			}
			return d(port)
		},
	}
	resp, err := (&http.Client{Transport: tr}).Get(scheme + "://" + gatedName + "/bulk")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, resp.Body, make([]byte, 256<<10))
	if err == nil && n != bulkBytes {
		err = fmt.Errorf("%d bytes came, not %d", n, bulkBytes)
	}
	return err
}

// hold opens n connections through the gate and keeps them until it is killed.
func hold(d dialer, n int) error {
	var wg sync.WaitGroup
	var kept sync.Map // against the collector, which would close them
	errs := make(chan error, n)
	slots := make(chan struct{}, 32)
	for range n {
		wg.Add(1)
		slots <- struct{}{}
		go func() {
			defer wg.Done()
			conn, err := d("443")
			if err == nil {
				kept.Store(conn, true)
				err = tls.Client(conn, clientTLS()).Handshake()
			}
			if err != nil {
				errs <- err
			}
			<-slots
		}()
	}
	wg.Wait()
	select {
	case err := <-errs:
		return err
	default:
	}
	fmt.Println("holding")
	time.Sleep(time.Hour) // or until the box ends
	kept.Clear()
	return nil
}
