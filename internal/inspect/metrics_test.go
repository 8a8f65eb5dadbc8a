package inspect

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestMetricsServer: one path is served, to so many at once. Who comes then is turned away, and served again once another
// has gone.
func TestMetricsServer(t *testing.T) {
	var fault error
	s := metricsServer(func() ([]byte, error) { return []byte("a_total 3\n"), fault })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	ask := func(conn net.Conn, line string) (code int, body string, err error) {
		if _, err = fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: x\r\n\r\n", line); err != nil {
			return 0, "", err
		}
		r, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			return 0, "", err
		}
		data, err := io.ReadAll(r.Body)
		return r.StatusCode, string(data), err
	}
	first := dial()
	for line, want := range map[string]int{"GET /metrics": 200, "POST /metrics": 405, "GET /": 404, "GET /metrics/": 404, "GET /debug/pprof/": 404} {
		if code, body, err := ask(first, line); err != nil || code != want || want == 200 && body != "a_total 3\n" {
			t.Errorf("%s: %d %q, %v", line, code, body, err)
		}
	}
	fault = errors.New("the keeper has not reported")
	if code, body, err := ask(first, "GET /metrics"); code != 503 || !strings.Contains(body, "has not reported") || err != nil {
		t.Errorf("%d %q, %v", code, body, err)
	}
	fault = nil
	var all []net.Conn
	for range scrapersAtOnce - 1 {
		conn := dial()
		if code, _, err := ask(conn, "GET /metrics"); code != 200 {
			t.Fatal(code, err)
		}
		all = append(all, conn)
	}
	if code, _, err := ask(dial(), "GET /metrics"); err == nil {
		t.Errorf("one more than %d is answered: %d", scrapersAtOnce, code)
	}
	all[0].Close()
	for end := time.Now().Add(time.Minute); ; { // the server has to hear of it
		if code, _, err := ask(dial(), "GET /metrics"); code == 200 {
			break
		} else if time.Now().After(end) {
			t.Fatalf("nobody is served after one has gone: %v", err)
		}
	}
}
