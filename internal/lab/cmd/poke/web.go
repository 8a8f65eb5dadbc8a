package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

func fetch(args []string) (detail, error) {
	fs := flags("http")
	sni := fs.String("sni", "", "server name in the ClientHello, and to verify")
	host := fs.String("host", "", "Host header")
	addr := fs.String("addr", "", "connect to this address")
	ca := fs.String("ca", "", "PEM file of trusted authorities instead of the system's")
	insecure := fs.Bool("insecure", false, "don't verify")
	method := fs.String("method", "GET", "")
	body := fs.String("body", "", "")
	size := fs.Int("size", 0, "send a body of so many bytes")
	h1 := fs.Bool("h1", false, "no HTTP/2")
	follow := fs.Bool("follow", false, "redirects")
	timeout := fs.Duration("timeout", 5*time.Second, "in all")
	by := fs.String("proxy", "", "by this proxy")
	head := http.Header{}
	fs.Func("header", "NAME: VALUE of the head", func(line string) error {
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			return fmt.Errorf("no NAME: VALUE")
		}
		head.Add(name, strings.TrimSpace(value))
		return nil
	})
	a, err := parse(fs, args, 1)
	if err != nil {
		return nil, err
	}
	conf := &tls.Config{ServerName: *sni, InsecureSkipVerify: *insecure}
	if *ca != "" {
		pem, err := os.ReadFile(*ca)
		if err != nil {
			return nil, err
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, usage("no certificate in %s", *ca)
		}
	}
	var remote string
	transport := &http.Transport{TLSClientConfig: conf, ForceAttemptHTTP2: !*h1, DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, to string) (net.Conn, error) {
			if *addr != "" {
				to = *addr
			}
			c, err := new(net.Dialer).DialContext(ctx, network, to)
			if err == nil {
				remote = c.RemoteAddr().String()
			}
			return c, err
		}}
	if *by != "" {
		*timeout = max(*timeout, proxyTime)
		proxy, err := proxyURL(*by)
		if err != nil {
			return nil, err
		}
		if strings.HasPrefix(a[0], "http:") && *addr == "" && proxy.Scheme == "http" {
			transport.Proxy = http.ProxyURL(proxy) // the whole URL in the request
		} else {
			transport.DialContext = func(_ context.Context, _, to string) (net.Conn, error) {
				return dialProxy(&net.Dialer{Timeout: *timeout}, proxy, cmp.Or(*addr, to))
			}
		}
	}
	send := *body
	if *size > 0 {
		send = strings.Repeat("x", *size)
	}
	req, err := http.NewRequest(*method, a[0], strings.NewReader(send))
	if err != nil {
		return nil, usage("%v", err)
	}
	req.Header = head
	if *host != "" {
		req.Host = *host
	}
	client := &http.Client{Transport: transport, Timeout: *timeout}
	if !*follow {
		client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	resp, err := client.Do(req)
	if err != nil {
		return detail{"remote": remote}, err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	out := detail{"remote": remote, "status": resp.StatusCode, "proto": resp.Proto, "body": string(got)}
	if err != nil {
		return out, err
	}
	if resp.StatusCode >= 400 {
		return out, fmt.Errorf("status %s", resp.Status)
	}
	return out, nil
}
