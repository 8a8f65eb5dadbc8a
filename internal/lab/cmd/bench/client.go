package main

import (
	"bufio"
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
	w := ways{direct: to(directAddr), gated: by(through)}
	var t timing
	var out any = &t
	var err error
	switch what {
	case "spawn":
		out, err = spawn(n)
	case "setup":
		t, err = w.alternate(n, setUp)
	case "https", "http":
		t, err = w.alternate(n, func(d dialer) error { return fetch(what, d) })
	case "rate":
		out, err = w.rates(n)
	case "hold":
		err = hold(w.gated, n)
	case "loads":
		out, err = runLoads()
	default:
		err = fmt.Errorf("no client %q", what)
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

// ways are those to the server that are compared.
type ways struct{ direct, gated dialer }

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

// alternate takes the medians of doing something both ways, in turns.
func (w ways) alternate(n int, do func(dialer) error) (timing, error) {
	var direct, gated []time.Duration
	for range n {
		for _, side := range []struct {
			way  dialer
			into *[]time.Duration
		}{{w.direct, &direct}, {w.gated, &gated}} {
			begun := time.Now()
			if err := do(side.way); err != nil {
				return timing{}, err
			}
			*side.into = append(*side.into, time.Since(begun))
		}
	}
	return timing{Direct: median(direct), Gated: median(gated)}, nil
}

// rates takes the medians of how many connections a second there are, in turns.
func (w ways) rates(n int) (r rates, err error) {
	var direct, gated []float64
	for range n {
		for _, side := range []struct {
			way  dialer
			into *[]float64
		}{{w.direct, &direct}, {w.gated, &gated}} {
			perSecond, err := flood(side.way)
			if err != nil {
				return r, err
			}
			*side.into = append(*side.into, perSecond)
		}
	}
	return rates{Direct: median(direct), Gated: median(gated)}, nil
}

// rates are connections a second.
type rates struct{ Direct, Gated float64 }

// flood opens connections, one after another from each of several clients, and
// returns how many a second there were.
func flood(d dialer) (float64, error) {
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
