package inspect

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestHintsUnread: hints that the client does not read hold a request no longer than anything else.
func TestHintsUnread(t *testing.T) {
	for _, up := range []bool{false, true} {
		done := make(chan struct{})
		r := start(t, func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("Link", strings.Repeat("x", 60<<10))
			for range maxHints {
				w.WriteHeader(http.StatusEarlyHints)
			}
			select {
			case <-q.Context().Done():
			case <-done:
			}
		}, func(s *setting) { s.idle, s.http1 = time.Second, !up })
		t.Cleanup(func() { close(done) })
		d := net.Dialer{}
		plain, err := d.Dial("tcp", r.front.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		plain.(*net.TCPConn).SetReadBuffer(4 << 10)
		c := tls.Client(plain, &tls.Config{RootCAs: trusted, ServerName: name})
		defer c.Close()
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", name)
		if e := r.event(); e.Refused == "" {
			t.Errorf("%+v", e)
		}
	}
}
