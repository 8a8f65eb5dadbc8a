package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"
)

// security are flags that what speaks TLS shares.
type security struct {
	sni, addr, ca, min, max string
	insecure                bool
}

func (s *security) register(fs *flag.FlagSet) {
	fs.StringVar(&s.sni, "sni", "", "server name in the ClientHello, and to verify")
	fs.StringVar(&s.addr, "addr", "", "connect to this address")
	fs.StringVar(&s.ca, "ca", "", "PEM file of trusted authorities instead of the system's")
	fs.StringVar(&s.min, "min", "", "least version of TLS: 1.2, 1.3")
	fs.StringVar(&s.max, "max", "", "greatest version of TLS")
	fs.BoolVar(&s.insecure, "insecure", false, "don't verify")
}

func (s *security) config() (*tls.Config, error) {
	versions := map[string]uint16{"": 0, "1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}
	conf := &tls.Config{ServerName: s.sni, InsecureSkipVerify: s.insecure, MinVersion: versions[s.min], MaxVersion: versions[s.max]}
	if s.ca != "" {
		pem, err := os.ReadFile(s.ca)
		if err != nil {
			return nil, err
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, usage("no certificate in %s", s.ca)
		}
	}
	return conf, nil
}

// dial connects to -addr, if it was given.
func (s *security) dial(ctx context.Context, network, to string) (net.Conn, error) {
	if s.addr != "" {
		to = s.addr
	}
	return new(net.Dialer).DialContext(ctx, network, to)
}

// stream reads the answer to a request to its end, however long that takes.
func stream(args []string) (detail, error) {
	var s security
	fs := flags("stream")
	s.register(fs)
	h1 := fs.Bool("h1", false, "no HTTP/2")
	a, err := parse(fs, args, 1)
	if err != nil {
		return nil, err
	}
	conf, err := s.config()
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: conf, ForceAttemptHTTP2: !*h1, DialContext: s.dial}}
	resp, err := client.Get(a[0])
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var size, lines int
	var gap time.Duration // between two reads, the longest
	last := time.Now()
	buf := make([]byte, 256<<10)
	for err == nil {
		var n int
		n, err = resp.Body.Read(buf)
		size += n
		lines += bytes.Count(buf[:n], []byte("\n"))
		gap = max(gap, time.Since(last))
		last = time.Now()
	}
	out := detail{"status": resp.StatusCode, "proto": resp.Proto, "bytes": size, "lines": lines, "gap_ms": gap.Milliseconds()}
	if err != io.EOF {
		return out, err
	}
	if resp.StatusCode >= 400 {
		return out, fmt.Errorf("status %s", resp.Status)
	}
	return out, nil
}

// secure opens TLS connections, -c at once and that -n times. All of them are
// open before each asks for something.
func secure(args []string) (detail, error) {
	var s security
	fs := flags("tls")
	s.register(fs)
	n := fs.Int("n", 1, "rounds, which share their sessions")
	c := fs.Int("c", 1, "connections at once")
	shake := fs.Int("shake", 0, "of those: handshakes at once; 0 is all")
	a, err := parse(fs, args, 1)
	if err != nil {
		return nil, err
	}
	conf, err := s.config()
	if err != nil {
		return nil, err
	}
	conf.ClientSessionCache = tls.NewLRUClientSessionCache(0)
	r := &round{addr: a[0], conf: conf, versions: map[string]int{}}
	if *shake > 0 {
		r.shaking = make(chan struct{}, *shake)
	}
	for range *n {
		r.run(*c)
	}
	return detail{"versions": r.versions, "resumed": r.resumed, "answered": r.answered}, r.err
}

// round is what came of connections.
type round struct {
	addr    string
	conf    *tls.Config
	shaking chan struct{} // nil: any number

	mu                sync.Mutex
	versions          map[string]int
	resumed, answered int
	err               error // the first
}

func (r *round) run(c int) {
	var open, done sync.WaitGroup
	open.Add(c)
	for range c {
		done.Go(func() {
			conn, err := r.open()
			open.Done()
			if err == nil {
				open.Wait()
				err = r.ask(conn)
				conn.Close()
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.err == nil {
				r.err = err
			}
		})
	}
	done.Wait()
}

func (r *round) open() (*tls.Conn, error) {
	if r.shaking != nil {
		r.shaking <- struct{}{}
		defer func() { <-r.shaking }()
	}
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: time.Minute}, "tcp", r.addr, r.conf)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	state := conn.ConnectionState()
	r.versions[tls.VersionName(state.Version)]++
	if state.DidResume {
		r.resumed++
	}
	return conn, nil
}

func (r *round) ask(conn *tls.Conn) error {
	conn.SetDeadline(time.Now().Add(time.Minute))
	fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", r.conf.ServerName)
	answer, err := io.ReadAll(conn)
	if err == nil && !bytes.HasPrefix(answer, []byte("HTTP/1.1 200 ")) {
		err = fmt.Errorf("answer: %.100q", answer)
	}
	if err == nil {
		r.mu.Lock()
		r.answered++
		r.mu.Unlock()
	}
	return err
}

// upgrade switches to another protocol, in which all that is sent comes back.
func upgrade(args []string) (detail, error) {
	var s security
	fs := flags("upgrade")
	s.register(fs)
	n := fs.Int("n", 1, "messages")
	var frames []byte
	fs.Func("frames", "in hex, to send in place of messages", func(text string) (err error) {
		frames, err = hex.DecodeString(text)
		return err
	})
	a, err := parse(fs, args, 1)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(a[0])
	if err != nil {
		return nil, usage("%v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	port := map[string]string{"http": "80", "https": "443"}[u.Scheme]
	conn, err := s.dial(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	if u.Scheme == "https" {
		conf, err := s.config()
		if err != nil {
			return nil, err
		}
		conf.ServerName = cmp.Or(s.sni, u.Hostname())
		conf.NextProtos = []string{"http/1.1"}
		conn = tls.Client(conn, conf)
	}
	more := ""
	if len(frames) > 0 {
		more = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
	}
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n%s\r\n", u.RequestURI(), u.Host, more)
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		return nil, err
	}
	out := detail{"status": resp.StatusCode}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return out, errors.New("protocol not switched")
	}
	if len(frames) > 0 {
		return out, closes(conn, in, frames)
	}
	for i := range *n {
		message := fmt.Sprintf("message %d\n", i)
		if _, err := io.WriteString(conn, message); err != nil {
			return out, err
		}
		back, err := in.ReadString('\n')
		if err != nil {
			return out, err
		}
		if back != message {
			return out, fmt.Errorf("came back: %q", back)
		}
		out["messages"] = i + 1
	}
	return out, nil
}

// closes sends the frames of a WebSocket, the last of which asks to close, and waits until the server closes as well.
func closes(conn net.Conn, in *bufio.Reader, frames []byte) error {
	if _, err := conn.Write(frames); err != nil {
		return err
	}
	const closing = 0x88 // a whole frame of opcode 8: RFC 6455, section 5.2
	first, err := in.ReadByte()
	if err == nil && first != closing {
		err = fmt.Errorf("no frame to close, but %#x", first)
	}
	return err
}
