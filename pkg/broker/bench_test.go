package broker

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"
)

// openStream asks for a stream, and waits for its first event.
func openStream(t testing.TB, addr string) net.Conn {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	conn.SetDeadline(time.Now().Add(patience))
	body := strings.Repeat("x", 2000)
	fmt.Fprintf(conn, "POST /r/stream HTTP/1.1\r\nHost: %s\r\nX-Api-Key: %s\r\nContent-Type: application/json\r\n"+
		"User-Agent: claude-cli/2.1.330 (external, sdk-cli)\r\nX-Fine: %s\r\nAccept: application/json\r\nContent-Length: %d\r\n\r\n%s",
		addr, token, strings.Repeat("y", 300), len(body), body)
	r := bufio.NewReaderSize(conn, 1024)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(line, "data:") {
			return conn
		}
	}
}

// BenchmarkStreams is the memory that a process of its own needs for 1,000 streams at once.
func BenchmarkStreams(b *testing.B) {
	_, api := spawn(b, "api")
	for b.Loop() {
		pid, addr := spawn(b, "proxy", "BROKER_TEST_API="+api)
		b.ReportMetric(float64(privateDirty(b, pid))/1024, "MiB-idle")
		began := time.Now()
		var conns []net.Conn
		for range 1000 {
			conns = append(conns, openStream(b, addr))
		}
		b.ReportMetric(float64(privateDirty(b, pid))/1024, "MiB-1000-streams")
		b.ReportMetric(time.Since(began).Seconds(), "s-opening")
		for _, c := range conns {
			c.Close()
		}
	}
}
