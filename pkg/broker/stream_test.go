package broker

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agent-init/agent-init/pkg/broker/buffer"
)

// TestStreamPassesAsItComes holds that an event has arrived before the next one is sent, and each byte is passed, whatever
// the size of the parts.
func TestStreamPassesAsItComes(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			next := make(chan int)
			a := newAPI(t, http2, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream")
				for size := range next {
					io.WriteString(w, strings.Repeat("x", size-1)+"\n")
					w.(http.Flusher).Flush()
				}
			})
			r := start(t, a)
			first := true
			var resp *http.Response
			var lines *bufio.Reader
			for _, size := range []int{1, 2, 3, 100, buffer.Small - 9, buffer.Small - 8, buffer.Small - 7, buffer.Large - 9, buffer.Large - 8, buffer.Small, 5000, 16, buffer.Large, 3 * buffer.Large, 1} {
				if first {
					go func() { next <- size }()
					req, err := http.NewRequest("GET", "http://"+r.addr+"/r/get", nil)
					if err != nil {
						t.Fatal(err)
					}
					req.Header.Set("X-Api-Key", token)
					if resp, err = client.Do(req); err != nil {
						t.Fatal(err)
					}
					defer resp.Body.Close()
					lines, first = bufio.NewReaderSize(resp.Body, 4*buffer.Large), false
				} else {
					next <- size
				}
				line, err := lines.ReadString('\n')
				if err != nil || len(line) != size {
					t.Fatalf("of %d bytes %d came: %v", size, len(line), err)
				}
			}
			close(next)
			if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
				t.Errorf("it ends with %q, %v", rest, err)
			}
		})
	}
}

// TestHangUp holds that a client that goes has the API's work ended, before the answer and within, and is recorded.
func TestHangUp(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			began, ended := make(chan struct{}), make(chan struct{})
			a := newAPI(t, http2, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/base/get" {
					w.(http.Flusher).Flush()
				}
				began <- struct{}{}
				<-r.Context().Done()
				ended <- struct{}{}
				panic(http.ErrAbortHandler) // an answer could be read before the connection is closed
			})
			r := start(t, a)
			for path, half := range map[string]bool{"/r/get": false, "/r/many/x": false, "/r/many/y": true} {
				conn, err := net.Dial("tcp", r.addr)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nX-Api-Key: %s\r\n\r\n", path, r.addr, token)
				wait(t, began)
				if path == "/r/get" {
					if _, err := io.ReadFull(conn, make([]byte, len("HTTP/1.1 200 OK"))); err != nil {
						t.Fatal(err)
					}
				}
				if half {
					conn.(*net.TCPConn).CloseWrite()
				} else {
					conn.Close()
				}
				wait(t, ended)
				if e := r.event(); path == "/r/get" && e.Status != 200 || path != "/r/get" && (e.Status != 0 || !strings.HasPrefix(e.Refused, gone)) {
					t.Errorf("%s: recorded %+v", path, e)
				}
			}
		})
	}
}

func wait(t *testing.T, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatal("nothing happens")
	}
}

// TestEndOfService holds that the end closes all that is open, and Serve returns then.
func TestEndOfService(t *testing.T) {
	began := make(chan struct{})
	a := newAPI(t, true, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		began <- struct{}{}
		<-r.Context().Done()
	})
	p := New(dialing(a.Listener.Addr().String()))
	if err := p.Load(Loaded{Routes: start(t, a).flows.Policy().routes(), Credentials: map[string][]byte{"r": []byte(canary)}, Roots: a.ca.pool()}); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error)
	go func() { served <- p.Serve(ctx, l) }()
	var conns []net.Conn
	for _, request := range []string{"", "GET /", "GET /r/get HTTP/1.1\r\nHost: " + l.Addr().String() + "\r\nX-Api-Key: " + token + "\r\n\r\n"} {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		io.WriteString(conn, request)
		conns = append(conns, conn)
	}
	wait(t, began)
	cancel()
	select {
	case err := <-served:
		if err != nil {
			t.Errorf("Serve: %v", err)
		}
	case <-time.After(patience):
		t.Fatal("Serve does not end")
	}
	for _, conn := range conns {
		conn.SetReadDeadline(time.Now().Add(patience))
		if _, err := io.Copy(io.Discard, conn); err != nil && strings.Contains(err.Error(), "timeout") {
			t.Errorf("a connection stays: %v", err)
		}
	}
}

// TestManyStreams holds that streams beyond what one connection of HTTP/2 has go over others, of which few are made.
func TestManyStreams(t *testing.T) {
	const streams = 600 // net/http's server admits 250 to a connection
	over := make(chan struct{})
	a := newAPI(t, true, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-over
	})
	var mu sync.Mutex
	dials := 0
	r := start(t, a, func(s *setting) {
		dial := s.Dial
		s.Dial = func(ctx context.Context, host string, port uint16) (net.Conn, error) {
			mu.Lock()
			dials++
			mu.Unlock()
			return dial(ctx, host, port)
		}
	})
	var open, closed sync.WaitGroup
	for range streams {
		open.Add(1)
		closed.Go(func() {
			req, err := http.NewRequest("GET", "http://"+r.addr+"/r/get", nil)
			if err != nil {
				t.Error(err)
			}
			req.Header.Set("X-Api-Key", token)
			resp, err := client.Do(req)
			open.Done()
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 {
				t.Errorf("answered %d, %v", resp.StatusCode, err)
			}
		})
	}
	open.Wait()
	close(over)
	closed.Wait()
	if dials > streams/10 {
		t.Errorf("%d connections were made", dials)
	}
}
