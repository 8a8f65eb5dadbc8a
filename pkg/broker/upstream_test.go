package broker

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// server speaks TLS with a certificate of its own, and then as talk says.
func server(t *testing.T, ca *authority, config *tls.Config, talk func(*tls.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				conn.SetDeadline(time.Now().Add(patience))
				if config == nil {
					io.WriteString(conn, "220 mail.test ESMTP\r\n")
					io.Copy(io.Discard, conn)
					return
				}
				if c := tls.Server(conn, config); c.Handshake() == nil {
					talk(c)
				}
			}()
		}
	}()
	return l.Addr().String()
}

// toServer has a rig ask at addr, whom ca vouches for.
func toServer(ca *authority, addr string) func(*setting) {
	return func(s *setting) { s.Dial, s.Roots = dialTo(addr), ca.pool() }
}

// TestWhoTheServerIs holds that a server that is not who it should be gets nothing: neither the credential nor a request.
func TestWhoTheServerIs(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	soon := time.Now().Add(time.Hour)
	for name, c := range map[string]struct {
		config *tls.Config
		told   string
	}{
		"another authority": {&tls.Config{Certificates: []tls.Certificate{other.sign(t, "api.test", soon)}}, "signed by nobody whom this image trusts"},
		"another name":      {&tls.Config{Certificates: []tls.Certificate{ca.sign(t, "evil.test", soon)}}, "is another name's"},
		"expired":           {&tls.Config{Certificates: []tls.Certificate{ca.sign(t, "api.test", time.Now().Add(-time.Minute))}}, "has expired"},
		"not yet":           {&tls.Config{Certificates: []tls.Certificate{ca.sign(t, "api.test", time.Now().Add(24*time.Hour))}}, "not valid yet"},
		"an old version": {&tls.Config{Certificates: []tls.Certificate{ca.sign(t, "api.test", soon)}, MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10},
			"refused the TLS handshake"},
		"no TLS": {nil, "speaks no TLS"},
	} {
		t.Run(name, func(t *testing.T) {
			got := make(chan string, 1)
			addr := server(t, ca, c.config, func(conn *tls.Conn) {
				b, _ := io.ReadAll(conn)
				got <- string(b)
			})
			r := start(t, newAPI(t, true, nil), toServer(ca, addr))
			answer := r.ask("POST", "/r/post", "the body")
			// What stays so is no answer over which clients try again.
			want, final := http.StatusForbidden, "false"
			if name == "an old version" { // which may be another server's of the name
				want, final = http.StatusBadGateway, ""
			}
			if answer.StatusCode != want || answer.Header.Get("X-Should-Retry") != final || !strings.Contains(answer.text, c.told) {
				t.Errorf("answered %d %s, want %q", answer.StatusCode, answer.text, c.told)
			}
			select {
			case b := <-got:
				if b != "" {
					t.Errorf("the server got %q", b)
				}
			default:
			}
		})
	}
}

// TestServerThatIsNotReached holds what is said of a server that cannot be asked.
func TestServerThatIsNotReached(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		status int
		told   string
	}{
		"no such name": {&net.DNSError{Err: "no such host", Name: "api.test", IsNotFound: true}, 502, "the name api.test could not be resolved: no such host"},
		"refused":      {&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, 502, "api.test refused the connection"},
		"too late":     {&net.OpError{Op: "dial", Err: context.DeadlineExceeded}, 504, "api.test did not answer in time"},
		"anything":     {errors.New("the sea is rough"), 502, "api.test could not be reached: the sea is rough"},
	} {
		r := start(t, newAPI(t, true, nil), func(s *setting) {
			s.Dial = func(context.Context, string, uint16) (net.Conn, error) { return nil, c.err }
		})
		got := r.ask("POST", "/r/post", "x")
		if got.StatusCode != c.status || !strings.Contains(got.text, c.told) || got.Header.Get("X-Should-Retry") != "" {
			t.Errorf("%s: answered %d %s", name, got.StatusCode, got.text)
		}
		if e := r.event(); e.Status != c.status || !strings.Contains(e.Refused, c.told) {
			t.Errorf("%s: recorded %+v", name, e)
		}
	}
}

// TestAnswerThatIsNone holds what becomes of answers that a server should not give.
func TestAnswerThatIsNone(t *testing.T) {
	ca := newAuthority(t)
	config := &tls.Config{Certificates: []tls.Certificate{ca.sign(t, "api.test", time.Now().Add(time.Hour))}}
	for name, c := range map[string]struct {
		answer string
		status int // to the client
		ends   bool
	}{
		"no HTTP":               {"hello " + canary + "\r\n\r\n", 502, true},
		"nothing":               {"", 502, true},
		"a redirect":            {"HTTP/1.1 302 Found\r\nLocation: https://evil.test/\r\nContent-Length: 0\r\n\r\n", 403, true},
		"a permanent redirect":  {"HTTP/1.1 308 Permanent Redirect\r\nLocation: /base/get?key=" + canary + "\r\nContent-Length: 0\r\n\r\n", 403, true},
		"not modified":          {"HTTP/1.1 304 Not Modified\r\n\r\n", 403, true},
		"another protocol":      {"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", 403, true},
		"an odd status":         {"HTTP/1.1 999 Ok\r\nContent-Length: 0\r\n\r\n", 403, true},
		"a bad header":          {"HTTP/1.1 200 OK\r\n" + canary + "\r\nContent-Length: 0\r\n\r\n", 502, true},
		"a large head":          {"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 100<<10) + "\r\nContent-Length: 0\r\n\r\n", 502, true},
		"two lengths":           {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 502, true},
		"hints before it":       {"HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, true},
		"less than it said":     {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", 200, false},
		"a chunk that is cut":   {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n5\r\nab", 200, false},
		"a chunk that is wrong": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\nzz\r\n", 200, false},
		"until its end":         {"HTTP/1.0 200 OK\r\n\r\nok", 200, true},
		"more than it said":     {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", 200, true},
		"trailers":              {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Key\r\n\r\n2\r\nok\r\n0\r\nX-Key: " + canary + "\r\n\r\n", 200, true},
	} {
		t.Run(name, func(t *testing.T) {
			addr := server(t, ca, config, func(conn *tls.Conn) {
				q, err := http.ReadRequest(bufio.NewReader(conn))
				if err != nil {
					return
				}
				io.Copy(io.Discard, q.Body)
				io.WriteString(conn, c.answer)
			})
			r := start(t, newAPI(t, true, nil), toServer(ca, addr))
			got := r.raw("POST /r/post HTTP/1.1\r\nHost: " + r.addr + "\r\nX-Api-Key: " + token + "\r\nContent-Length: 1\r\n\r\nx")
			if strings.Contains(got, canary) {
				t.Errorf("the credential in %q", got)
			}
			resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(got)), nil)
			if err != nil {
				t.Fatalf("%q: %v", got, err)
			}
			body, err := io.ReadAll(resp.Body)
			if resp.StatusCode != c.status || (err == nil) != c.ends || resp.Header.Get("Location") != "" {
				t.Errorf("answered %q: its end %v", got, err)
			}
			if c.status == 200 && string(body[:2]) != "ok" || strings.Contains(string(body), "evil") || len(resp.Trailer) > 0 {
				t.Errorf("the body is %q, trailers %v", body, resp.Trailer)
			}
			r.event()
			if log := r.logged(); strings.Contains(log, canary) {
				t.Errorf("the credential in the log: %s", log)
			}
		})
	}
}

// TestSilence holds that a server that says nothing for long is given up, before its answer and within.
func TestSilence(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			over := make(chan struct{})
			a := newAPI(t, http2, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/base/post" {
					io.WriteString(w, "ok")
					w.(http.Flusher).Flush()
				}
				<-over
			})
			defer close(over)
			r := start(t, a, func(s *setting) { s.tune = func(p *Proxy) { p.idle = 300 * time.Millisecond } })
			if got := r.ask("GET", "/r/get", ""); got.StatusCode != http.StatusGatewayTimeout || !strings.Contains(got.text, "silent for too long") {
				t.Errorf("answered %d %s", got.StatusCode, got.text)
			}
			got := r.raw("POST /r/post HTTP/1.1\r\nHost: " + r.addr + "\r\nX-Api-Key: " + token + "\r\nContent-Length: 1\r\n\r\nx")
			if !strings.HasSuffix(got, "2\r\nok\r\n") {
				t.Errorf("answered %q", got)
			}
		})
	}
}

// TestReset holds that a stream that the server resets ends in an error, not as if it were whole.
func TestReset(t *testing.T) {
	a := newAPI(t, true, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "ok")
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	r := start(t, a)
	got := r.raw("GET /r/get HTTP/1.1\r\nHost: " + r.addr + "\r\nX-Api-Key: " + token + "\r\n\r\n")
	if !strings.HasPrefix(got, "HTTP/1.1 200 ") || strings.HasSuffix(got, "0\r\n\r\n") {
		t.Errorf("answered %q", got)
	}
}

// TestServerGoesAway holds that a request that a server says it never looked at is sent once more.
func TestServerGoesAway(t *testing.T) {
	ca := newAuthority(t)
	config := &tls.Config{Certificates: []tls.Certificate{ca.sign(t, "api.test", time.Now().Add(time.Hour))}, NextProtos: []string{"h2"}}
	came := make(chan struct{}, 10)
	addr := server(t, ca, config, func(conn *tls.Conn) {
		io.ReadFull(conn, make([]byte, len(http2.ClientPreface)))
		f := http2.NewFramer(conn, conn)
		f.WriteSettings()
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				return
			}
			if d, ok := frame.(*http2.DataFrame); ok && d.StreamEnded() {
				if came <- struct{}{}; len(came) == 1 {
					f.WriteGoAway(0, http2.ErrCodeNo, nil)
					continue
				}
				// :status 200 of HPACK's static table (RFC 7541, appendix A)
				f.WriteHeaders(http2.HeadersFrameParam{StreamID: d.StreamID, BlockFragment: []byte{0x88}, EndHeaders: true})
				f.WriteData(d.StreamID, true, []byte("ok"))
			}
		}
	})
	r := start(t, newAPI(t, true, nil), toServer(ca, addr))
	if got := r.ask("POST", "/r/post", "the body"); got.StatusCode != 200 || got.text != "ok" {
		t.Errorf("answered %d %s", got.StatusCode, got.text)
	}
	if len(came) != 2 {
		t.Errorf("%d requests came", len(came))
	}
}

// TestServerThatVanishes holds that a connection over which nothing comes any more is noticed without waiting for as long
// as an answer may be silent, and that the next request goes over another one.
func TestServerThatVanishes(t *testing.T) {
	began := make(chan struct{}, 2)
	over := make(chan struct{})
	a := newAPI(t, true, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		if r.URL.Path == "/base/many/long" {
			began <- struct{}{}
			<-over
		}
	})
	defer close(over)
	frozen := make(chan struct{})
	dials := 0
	r := start(t, a, func(s *setting) {
		dial := s.Dial
		s.Dial = func(ctx context.Context, host string, port uint16) (net.Conn, error) {
			conn, err := dial(ctx, host, port)
			if dials++; dials == 1 && err == nil {
				conn = &freezes{Conn: conn, frozen: frozen, closed: make(chan struct{})}
			}
			return conn, err
		}
	})
	up := r.flows.Policy()["r"].up
	up.transport.Tune(func(t *http.Transport) {
		t.HTTP2.SendPingTimeout, t.HTTP2.PingTimeout = 100*time.Millisecond, 100*time.Millisecond
	})
	answer := make(chan string)
	go func() {
		answer <- r.raw("GET /r/many/long HTTP/1.1\r\nHost: " + r.addr + "\r\nX-Api-Key: " + token + "\r\n\r\n")
	}()
	wait(t, began)
	close(frozen)
	select {
	case got := <-answer:
		if strings.HasSuffix(got, "0\r\n\r\n") {
			t.Errorf("answered %q", got)
		}
	case <-time.After(patience):
		t.Fatal("nobody notices")
	}
	if got := r.ask("GET", "/r/get", ""); got.StatusCode != 200 {
		t.Errorf("answered %d %s", got.StatusCode, got.text)
	}
}

// freezes is a connection over which nothing comes and goes from some time on.
type freezes struct {
	net.Conn
	frozen chan struct{}
	once   sync.Once
	closed chan struct{}
}

func (f *freezes) Read(b []byte) (int, error) {
	n, err := f.Conn.Read(b)
	select {
	case <-f.frozen:
		<-f.closed
		return 0, net.ErrClosed
	default:
		return n, err
	}
}

func (f *freezes) Write(b []byte) (int, error) {
	select {
	case <-f.frozen:
		return len(b), nil
	default:
		return f.Conn.Write(b)
	}
}

func (f *freezes) Close() error {
	f.once.Do(func() { close(f.closed) })
	return f.Conn.Close()
}
