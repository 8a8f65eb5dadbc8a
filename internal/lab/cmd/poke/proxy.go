package main

import (
	"bufio"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
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

// dialProxy connects to a proxy, and by it to an address or a name with a port: by CONNECT, or by SOCKS5.
func dialProxy(d *net.Dialer, proxy *url.URL, to string) (net.Conn, error) {
	c, err := d.Dial("tcp", proxy.Host)
	if err != nil {
		return nil, err
	}
	if err = c.SetDeadline(time.Now().Add(max(d.Timeout, proxyTime))); err == nil {
		if strings.HasPrefix(proxy.Scheme, "socks5") {
			err = askSOCKS(c, proxy, to)
		} else {
			err = askCONNECT(c, proxy, to)
		}
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

// askSOCKS speaks SOCKS5 (RFC 1928), with a name as a name.
func askSOCKS(c net.Conn, proxy *url.URL, to string) error {
	host, port, err := net.SplitHostPort(to)
	if err != nil {
		return usage("%v", err)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || len(host) > 255 {
		return usage("%q is nothing to connect to", to)
	}
	exchange := func(send []byte, answer int) ([]byte, error) {
		got := make([]byte, answer)
		_, err := c.Write(send)
		if err == nil {
			_, err = io.ReadFull(c, got)
		}
		return got, err
	}
	method := byte(0)
	if proxy.User != nil {
		method = 2
	}
	got, err := exchange([]byte{5, 1, method}, 2)
	if err != nil || got[1] != method {
		return errors.Join(errors.New("the proxy refuses the way to authenticate"), err)
	}
	if method == 2 {
		name := proxy.User.Username()
		password, _ := proxy.User.Password()
		hello := append(append([]byte{1, byte(len(name))}, name...), byte(len(password)))
		if got, err = exchange(append(hello, password...), 2); err != nil || got[1] != 0 {
			return errors.Join(errors.New("the proxy refuses the password"), err)
		}
	}
	ask := []byte{5, 1, 0, 3, byte(len(host))}
	if ip := net.ParseIP(host); ip != nil {
		ask, host = []byte{5, 1, 0, 4}, string(ip.To16())
		if v4 := ip.To4(); v4 != nil {
			ask[3], host = 1, string(v4)
		}
	}
	ask = append(append(ask, host...), byte(number>>8), byte(number))
	if got, err = exchange(ask, 4); err != nil || got[1] != 0 {
		return errors.Join(fmt.Errorf("the proxy refuses %s: %d", to, got[1]), err)
	}
	rest := map[byte]int{1: net.IPv4len + 2, 4: net.IPv6len + 2}[got[3]]
	if rest == 0 {
		return errors.New("the proxy's answer is none of SOCKS5")
	}
	_, err = exchange(nil, rest)
	return err
}
