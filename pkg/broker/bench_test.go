package broker

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
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
	body := `{"model":"claude-x","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"` + strings.Repeat("hello ", 2000) + `"}]}`
	fmt.Fprintf(conn, "POST /anthropic/v1/messages?beta=true HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: application/json\r\nUser-Agent: claude-cli/2.1.330 (external, sdk-cli)\r\nAnthropic-Beta: %s\r\n"+
		"Anthropic-Version: 2023-06-01\r\nX-Stainless-Lang: js\r\nX-Stainless-Runtime: node\r\nX-App: cli\r\n"+
		"Accept: application/json\r\nContent-Length: %d\r\n\r\n%s",
		addr, token, strings.Repeat("some-beta-2026-11-23,", 12), len(body), body)
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

// directly is a client that asks the API itself, over HTTP/2.
func directly(b *testing.B, api string) (*http.Client, string) {
	addr, roots := rootsOf(api)
	t := &http.Transport{
		TLSClientConfig:    &tls.Config{RootCAs: roots, ServerName: "api.test"},
		DisableCompression: true, Protocols: both(),
	}
	b.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: t}, "https://" + addr
}

// BenchmarkFirstByte is the time until an answer begins, directly and through the broker, in turns.
func BenchmarkFirstByte(b *testing.B) {
	_, api := spawn(b, "api")
	_, addr := spawn(b, "proxy", "BROKER_TEST_API="+api)
	direct, base := directly(b, api)
	once := func(c *http.Client, url string) time.Duration {
		req, err := http.NewRequest("POST", url, strings.NewReader(strings.Repeat("x", 20000)))
		if err != nil {
			b.Fatal(err)
		}
		req.Header.Set("X-Api-Key", token)
		began := time.Now()
		resp, err := c.Do(req)
		took := time.Since(began)
		if err != nil || resp.StatusCode != 200 {
			b.Fatal(resp, err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		return took
	}
	var ways [2][]time.Duration
	for b.Loop() {
		ways[0] = append(ways[0], once(direct, base+"/small"))
		ways[1] = append(ways[1], once(client, "http://"+addr+"/r/small"))
	}
	median := func(d []time.Duration) float64 {
		slices.Sort(d)
		return float64(d[len(d)/2].Microseconds())
	}
	b.ReportMetric(median(ways[0]), "µs-direct")
	b.ReportMetric(median(ways[1]), "µs-broker")
	b.ReportMetric(median(ways[1])-median(ways[0]), "µs-added")
}

// BenchmarkBulk moves 256 MiB directly and through the broker, in turns. What the broker's processor does for it doesn't
// depend on who else uses the machine.
func BenchmarkBulk(b *testing.B) {
	_, api := spawn(b, "api")
	pid, addr := spawn(b, "proxy", "BROKER_TEST_API="+api)
	direct, base := directly(b, api)
	const size = 256 << 20
	buffer := make([]byte, 64<<10)
	once := func(c *http.Client, url string) float64 {
		req, err := http.NewRequest("GET", fmt.Sprintf("%s?n=%d", url, size), nil)
		if err != nil {
			b.Fatal(err)
		}
		req.Header.Set("X-Api-Key", token)
		began := time.Now()
		resp, err := c.Do(req)
		if err != nil {
			b.Fatal(err)
		}
		defer resp.Body.Close()
		n := 0
		for err == nil {
			var more int
			more, err = resp.Body.Read(buffer)
			n += more
		}
		if err != io.EOF || n != size {
			b.Fatal(n, err)
		}
		return size / (1 << 20) / time.Since(began).Seconds()
	}
	var ways [2][]float64
	for b.Loop() {
		ways[0] = append(ways[0], once(direct, base+"/bulk"))
		ways[1] = append(ways[1], once(client, "http://"+addr+"/r/bulk"))
	}
	b.ReportMetric(float64(size)*float64(len(ways[1]))/(1<<20)/processorTime(b, pid).Seconds(), "MiB/cpu-s-broker")
	for i, name := range []string{"MiB/s-direct", "MiB/s-broker"} {
		slices.Sort(ways[i])
		b.ReportMetric(ways[i][len(ways[i])/2], name)
	}
}
