package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// clientPath is where the box has this program, to be the agent in it.
const clientPath = "/usr/local/bin/bench-client"

// runClient does one thing inside of a box and prints what it took.
func runClient(what string, n int) int {
	var t timing
	var out any = &t
	var err error
	switch what {
	case "spawn":
		out, err = spawn(n)
	case "setup":
		t, err = alternate(n, setUp)
	case "https", "http":
		t, err = alternate(n, func(addr string) error { return fetch(what, addr) })
	case "hold":
		err = hold(n)
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
		select {}
	}
	return 0
}

// alternate takes the medians of doing something past the gate and through it,
// in turns.
func alternate(n int, do func(addr string) error) (timing, error) {
	var direct, gated []time.Duration
	for range n {
		for _, side := range []struct {
			addr string
			into *[]time.Duration
		}{{directAddr, &direct}, {gatedAddr, &gated}} {
			begun := time.Now()
			if err := do(side.addr); err != nil {
				return timing{}, err
			}
			*side.into = append(*side.into, time.Since(begun))
		}
	}
	return timing{Direct: median(direct), Gated: median(gated)}, nil
}

// The certificate is the lab's; verifying it is not what is measured.
func clientTLS() *tls.Config {
	return &tls.Config{ServerName: gatedName, InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}
}

// setUp connects, shakes hands and gets one answer.
func setUp(addr string) error {
	c, err := tls.Dial("tcp", addr+":443", clientTLS())
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", gatedName); err != nil {
		return err
	}
	_, err = c.Read(make([]byte, 1))
	return err
}

func fetch(scheme, addr string) error {
	tr := &http.Transport{
		TLSClientConfig: clientTLS(), DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, a string) (net.Conn, error) {
			_, port, err := net.SplitHostPort(a)
			if err != nil {
				return nil, err
			}
			var d net.Dialer
			return d.DialContext(ctx, network, net.JoinHostPort(addr, port))
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
func hold(n int) error {
	var wg sync.WaitGroup
	var kept sync.Map // against the collector, which would close them
	errs := make(chan error, n)
	slots := make(chan struct{}, 32)
	for range n {
		wg.Add(1)
		slots <- struct{}{}
		go func() {
			defer wg.Done()
			c, err := tls.Dial("tcp", gatedAddr+":443", clientTLS())
			if err != nil {
				errs <- err
			} else {
				kept.Store(c, true)
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
