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
		out, err = spawn(n, strings.Fields(through))
	case "setup":
		out, err = inTurns(n, timeOf(direct, setUp), timeOf(gated, setUp))
	case "https":
		out, err = inTurns(n, timeOf(direct, fetch), timeOf(gated, fetch))
	case "rate":
		out, err = inTurns(n, flood(direct), flood(gated))
	case "look":
		out, err = inTurns(n, timeOf(asking(direct), get), timeOf(asking(gated), get))
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

// flood measures how many connections a second can be set up by way of d, by several clients, each one after another.
func flood(d dialer) func() (float64, error) {
	return func() (float64, error) {
		var done atomic.Int64
		errs := make(chan error, rateClients)
		begun := time.Now()
		for range rateClients {
			go func() {
				for time.Since(begun) < rateTime {
					if err := setUp(d); err != nil {
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

// asking keeps one connection to ask over.
func asking(d dialer) *http.Client {
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig: clientTLS(), ForceAttemptHTTP2: true, MaxConnsPerHost: 1,
		DialContext: func(context.Context, string, string) (net.Conn, error) { return d("443") },
	}}
}

func get(c *http.Client) error { return getFrom(c, "/", len("ok\n")) }

// fetch has the server send a lot, over a connection of HTTP/1.1.
func fetch(d dialer) error {
	c := &http.Client{Transport: &http.Transport{
		TLSClientConfig: clientTLS(), DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) { return d("443") },
	}}
	return getFrom(c, "/bulk", bulkBytes)
}

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
