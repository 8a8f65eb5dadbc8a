package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"golang.org/x/net/proxy"
)

// proxyURL is the proxy of a flag's value: a URL, or env:NAME for that of a variable.
func proxyURL(spec string) (*url.URL, error) {
	if name, is := strings.CutPrefix(spec, "env:"); is {
		if spec = os.Getenv(name); spec == "" {
			return nil, fmt.Errorf("no proxy: %s is not set", name)
		}
	}
	u, err := url.Parse(spec)
	if err != nil {
		return nil, usage("-proxy: %v", err)
	}
	return u, nil
}

// proxyTime is how long a proxy may take until there is a tunnel: an attack that would leak must not fail by a busy one.
const proxyTime = 20 * time.Second

// dialProxy connects to a proxy, and by it to an address or a name with a port: by CONNECT, or by SOCKS5 with a name as a
// name.
func dialProxy(d *net.Dialer, at *url.URL, to string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), max(d.Timeout, proxyTime))
	defer cancel()
	if strings.HasPrefix(at.Scheme, "socks5") {
		dialer, err := proxy.FromURL(at, d)
		if err != nil {
			return nil, usage("-proxy: %v", err)
		}
		return dialer.(proxy.ContextDialer).DialContext(ctx, "tcp", to)
	}
	c, err := d.DialContext(ctx, "tcp", at.Host)
	if err != nil {
		return nil, err
	}
	deadline, _ := ctx.Deadline()
	if err = c.SetDeadline(deadline); err == nil {
		err = askCONNECT(c, at, to)
	}
	err = errors.Join(err, c.SetDeadline(time.Time{}))
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// authorization is the line of a head with the proxy's password, if its URL has one.
func authorization(proxy *url.URL) string {
	if proxy.User == nil {
		return ""
	}
	password, _ := proxy.User.Password()
	return "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(proxy.User.Username()+":"+password)) + "\r\n"
}

// toProxy is what is to be sent, with the proxy's password in each head of it.
func toProxy(proxy *url.URL, send string) string {
	return strings.ReplaceAll(send, " HTTP/1.1\r\n", " HTTP/1.1\r\n"+authorization(proxy))
}

func askCONNECT(c net.Conn, proxy *url.URL, to string) error {
	if _, err := fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n%s\r\n", to, to, authorization(proxy)); err != nil {
		return err
	}
	// A byte at a time: what follows the head is not the proxy's.
	resp, err := http.ReadResponse(bufio.NewReaderSize(oneByte{c}, 16), nil)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the proxy refuses %s: %s", to, resp.Status)
	}
	return nil
}

type oneByte struct{ net.Conn }

func (r oneByte) Read(p []byte) (int, error) { return r.Conn.Read(p[:min(len(p), 1)]) }
