package broker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// endless is a body without an end.
type endless struct{ read *atomic.Int64 }

func (e endless) Read(b []byte) (int, error) {
	e.read.Add(int64(len(b)))
	return len(b), nil
}

// TestMemory holds how much a broker takes, however many connections and requests an agent makes whose bytes nobody
// takes: neither the server what the agent sends, nor the agent what the server does.
func TestMemory(t *testing.T) {
	for _, c := range []struct {
		name                 string
		connections, streams int // of each
		method, path         string
		most                 int // MiB
	}{
		// Each connection has the least window that there is in HTTP/2, and two buffers of 16 KiB in net/http and crypto/tls.
		{"sent to a server that does not read, by many connections", 400, 1, "POST", "/unread", 96},
		{"sent to a server that does not read, by many streams", 10, 100, "POST", "/unread", 64},
		{"open, without an answer", 10, 100, "GET", "/unread", 64},
		{"answered, and not read", 10, 100, "GET", "/bulk?n=100000000", 80},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, api := spawn(t, "api")
			pid, line := spawn(t, "inspector", "BROKER_TEST_API="+api)
			addr, roots := rootsOf(line)
			before := privateDirty(t, pid)
			var moved, answered atomic.Int64
			var all sync.WaitGroup
			ctx, cancel := context.WithCancel(t.Context())
			for range c.connections {
				tr := &http.Transport{
					DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
						return new(net.Dialer).DialContext(ctx, network, addr)
					},
					TLSClientConfig: &tls.Config{RootCAs: roots}, Protocols: both(), DisableCompression: true,
					HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: 1 << 10},
				}
				t.Cleanup(tr.CloseIdleConnections)
				ask := func() {
					var body io.Reader
					if c.method == "POST" {
						body = endless{&moved}
					}
					trace := &httptrace.ClientTrace{WroteHeaders: func() { moved.Add(1) }}
					r, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), c.method, "https://api.test"+c.path, body)
					if err != nil {
						t.Error(err)
						return
					}
					resp, err := tr.RoundTrip(r)
					if err == nil {
						answered.Add(1)
						<-ctx.Done()
						resp.Body.Close()
					}
				}
				for range c.streams {
					all.Go(ask)
				}
			}
			// Until nothing moves any more.
			most := 0
			for last, same := int64(-1), 0; same < 20; time.Sleep(100 * time.Millisecond) {
				now := moved.Load() + answered.Load()
				if same++; now != last {
					last, same = now, 0
				}
				most = max(most, privateDirty(t, pid))
			}
			now := privateDirty(t, pid)
			cancel()
			all.Wait()
			t.Logf("%d KiB before, %d at most, %d in the end; %d answered", before, most, now, answered.Load())
			if most > c.most<<10 {
				t.Errorf("the broker takes %d MiB", most>>10)
			}
		})
	}
}

// TestMemoryOfHeads holds that heads that do not come to an end take room as they come, by what net/http makes of them,
// and stop nobody else.
func TestMemoryOfHeads(t *testing.T) {
	_, api := spawn(t, "api")
	for role, path := range map[string]string{"proxy": "/r/small", "inspector": "/small"} {
		t.Run(role, func(t *testing.T) {
			pid, line := spawn(t, role, "BROKER_TEST_API="+api)
			addr, dial, tr := line, func() (net.Conn, error) { return net.Dial("tcp", line) }, &http.Transport{}
			base := "http://" + line
			if role == "inspector" {
				var roots *x509.CertPool
				addr, roots = rootsOf(line)
				config := &tls.Config{RootCAs: roots, ServerName: "api.test"}
				dial = func() (net.Conn, error) { return tls.Dial("tcp", addr, config) }
				tr.DialTLSContext = func(context.Context, string, string) (net.Conn, error) { return dial() }
				base = "https://api.test"
			}
			defer tr.CloseIdleConnections()
			var head strings.Builder
			fmt.Fprintf(&head, "POST %s HTTP/1.1\r\n", path)
			const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
			for i := 0; head.Len() < maxHead; i++ {
				fmt.Fprintf(&head, "%c%c%c:\n", letters[i%36], letters[i/36%36], letters[i/36/36])
			}
			most := 0
			for range 300 {
				c, err := dial()
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				go io.WriteString(c, head.String())
				most = max(most, privateDirty(t, pid))
			}
			asked := make(chan error, 1)
			go func() {
				r, err := http.NewRequest("POST", base+path, strings.NewReader("{}"))
				if err == nil {
					r.Header.Set("X-Api-Key", token)
					var resp *http.Response
					if resp, err = tr.RoundTrip(r); err == nil && resp.StatusCode != 200 {
						err = errors.New(resp.Status)
					}
				}
				asked <- err
			}()
			for done := false; !done; {
				select {
				case err := <-asked:
					if done = true; err != nil {
						t.Errorf("a whole head among many: %v", err)
					}
				case <-time.After(10 * time.Millisecond):
					most = max(most, privateDirty(t, pid))
				}
			}
			if t.Logf("%d KiB at most", most); most > 128<<10 {
				t.Errorf("the broker takes %d MiB", most>>10)
			}
		})
	}
}
