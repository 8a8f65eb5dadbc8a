package broker

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/pkg/route"
)

const pushType = "application/x-git-receive-pack-request"

// hubOf has the route github lead to a.
func hubOf(t testing.TB, a *api, g route.Git, tune func(*Proxy)) *rig {
	rt, _ := route.Builtin("github")
	rt.To, rt.Git = "https://api.test/", g
	return start(t, a, func(s *setting) {
		s.Routes, s.Credentials, s.tune = []route.Route{rt}, map[string][]byte{"github": []byte(canary)}, tune
	})
}

// commandTo is a push of one ref without its pack.
func commandTo(ref string) string {
	line := strings.Repeat("0", 40) + " " + strings.Repeat("1", 40) + " " + ref + "\x00 report-status side-band-64k"
	return fmt.Sprintf("%04x%s0000", len(line)+4, line)
}

// pattern is a body of so many bytes that nobody holds.
func pattern(n int64) io.Reader { return io.LimitReader(repeated{}, n) }

type repeated struct{}

func (repeated) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 'x'
	}
	return len(b), nil
}

// TestStreamsAreNotHeld holds that bodies of any length pass in both directions in little memory.
func TestStreamsAreNotHeld(t *testing.T) {
	const size = 64 << 20
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			var most, before uint64
			look := func() {
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				most = max(most, m.HeapAlloc)
			}
			look()
			before, most = most, 0
			came := int64(0)
			a := newStreaming(t, http2, func(w http.ResponseWriter, r *http.Request) {
				b := make([]byte, 64<<10)
				for part := 0; ; part++ {
					n, err := r.Body.Read(b)
					came += int64(n)
					if part%512 == 0 {
						look()
					}
					if err != nil {
						break
					}
				}
				io.Copy(w, pattern(size))
			})
			r := hubOf(t, a, route.Git{Write: true}, nil)
			began := time.Now()
			req, _ := http.NewRequest("POST", "http://"+r.addr+"/github/o/r/git-receive-pack", io.MultiReader(strings.NewReader(commandTo("refs/heads/x")), pattern(size)))
			req.Header.Set("Authorization", "Bearer "+token)
			req.Header.Set("Content-Type", pushType)
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			sent := time.Since(began)
			got, err := io.Copy(io.Discard, resp.Body)
			look()
			if err != nil || got != size || came != size+int64(len(commandTo("refs/heads/x"))) {
				t.Errorf("%d bytes came and %d came back: %v", came, got, err)
			}
			if most > before+(16<<20) {
				t.Errorf("%d MiB were held", most>>20)
			}
			t.Logf("up %.0f MB/s, down %.0f MB/s, at most %d MiB held", size/sent.Seconds()/1e6, size/(time.Since(began)-sent).Seconds()/1e6, most>>20)
			if e := r.event(); e.Sent != came || e.Received != size || e.TokensIn != 0 {
				t.Errorf("recorded %+v", e)
			}
		})
	}
}

// gzipped is a text in a content coding.
func gzipped(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	io.WriteString(w, text)
	w.Close()
	return b.String()
}

// chunked is a text in chunks of n bytes.
func chunked(text string, n int) string {
	var b strings.Builder
	for len(text) > 0 {
		part := text[:min(n, len(text))]
		fmt.Fprintf(&b, "%x\r\n%s\r\n", len(part), part)
		text = text[len(part):]
	}
	return b.String() + "0\r\n\r\n"
}

// TestUploads sends pushes as bytes: what arrives is what was judged, or nothing.
func TestUploads(t *testing.T) {
	allowed, other := commandTo("refs/heads/agent/x")+"PACK…", commandTo("refs/heads/main")+"PACK…"
	length := func(body string) string { return fmt.Sprintf("Content-Length: %d\r\n", len(body)) }
	const te = "Transfer-Encoding: chunked\r\n"
	for name, tt := range map[string]struct {
		head, body string
		status     string
		arrives    string // "": nothing
		says       string
	}{
		"by length":             {length(allowed), allowed, "200", allowed, ""},
		"in chunks":             {te, chunked(allowed, 3), "200", allowed, ""},
		"compressed":            {length(gzipped(allowed)) + "Content-Encoding: gzip\r\n", gzipped(allowed), "200", allowed, ""},
		"compressed, in chunks": {te + "Content-Encoding: gzip\r\n", chunked(gzipped(allowed), 7), "200", allowed, ""},
		"announced":             {length(allowed) + "Expect: 100-continue\r\n", allowed, "100 Continue\r\n\r\nHTTP/1.1 200", allowed, ""},
		"with more behind it":   {length(allowed), allowed + "POST /github/o/r/git-receive-pack HTTP/1.1\r\n", "200", allowed, ""},
		"a probe":               {length("0000"), "0000", "200", "0000", ""},
		"another ref":           {length(other), other, "200", "", "ng refs/heads/main refused by agent-init"},
		"another, in chunks":    {te, chunked(other, 1), "200", "", "ng refs/heads/main"},
		"another, compressed":   {length(gzipped(other)) + "Content-Encoding: gzip\r\n", gzipped(other), "200", "", "ng refs/heads/main"},
		"behind a probe":        {length("0000" + other), "0000" + other, "403", "", "ends after"},
		"another, announced":    {length(other) + "Expect: 100-continue\r\n", other, "100 Continue\r\n\r\nHTTP/1.1 200", "", "ng refs/heads/main"},
		"too short":             {length(allowed + "x"), allowed, "", "", ""},
		"commands cut off":      {length(allowed[:50]), allowed[:50], "403", "", "did not come whole"},
		"bad chunks":            {te, "zz\r\n" + allowed, "403", "", "did not come whole"},
		"no last chunk":         {te, strings.TrimSuffix(chunked(allowed, 9), "0\r\n\r\n"), "", "", ""},
		"no gzip":               {length(allowed) + "Content-Encoding: gzip\r\n", allowed, "403", "", ""},
		"gzip cut off":          {length(gzipped(allowed)[:40]) + "Content-Encoding: gzip\r\n", gzipped(allowed)[:40], "403", "", ""},
		"another coding":        {length(allowed) + "Content-Encoding: br\r\n", allowed, "403", "", "compressed"},
		"two codings":           {length(allowed) + "Content-Encoding: gzip\r\nContent-Encoding: gzip\r\n", allowed, "403", "", "compressed"},
		"two lengths":           {length(allowed) + length(other), allowed, "400", "", ""},
		"something expected":    {length(allowed) + "Expect: more\r\n", allowed, "417", "", ""},
		"no push":               {length("PACK"), "PACK", "403", "", "commands of git's"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAPI(t, false, nil)
			r := hubOf(t, a, route.Git{Write: true, Branches: []string{"agent/*"}}, nil)
			got := r.sends("POST /github/o/r/git-receive-pack HTTP/1.1\r\nHost: "+r.addr+"\r\nAuthorization: Bearer "+token+
				"\r\nContent-Type: "+pushType+"\r\n"+tt.head+"\r\n", tt.body, tt.status == "")
			if tt.status == "" != (got == "") || !strings.HasPrefix(got, "HTTP/1.1 "[:min(len(got), 9)]+tt.status) || !strings.Contains(got, tt.says) {
				t.Errorf("answered %q", got)
			}
			arrived := a.requests()
			if tt.arrives == "" {
				if len(arrived) > 0 {
					t.Errorf("%d arrived", len(arrived))
				}
				return
			}
			if len(arrived) != 1 {
				t.Fatalf("%d arrived", len(arrived))
			}
			if b, _ := io.ReadAll(arrived[0].Body); string(b) != tt.arrives || arrived[0].ContentLength != int64(len(b)) || arrived[0].Header.Get("Content-Encoding") != "" {
				t.Errorf("%q arrived, with %v", b, arrived[0].Header)
			}
		})
	}
}

// sends is raw, of a client that hangs up with half of the connection, or with none.
func (r *rig) sends(head, body string, half bool) string {
	r.t.Helper()
	conn, err := net.Dial("tcp", r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	io.WriteString(conn, head+body)
	if half {
		conn.(*net.TCPConn).CloseWrite()
	}
	b, _ := io.ReadAll(conn)
	return string(b)
}

// TestUploadOfFetch holds that what a fetch asks with has an end.
func TestUploadOfFetch(t *testing.T) {
	a := newAPI(t, true, nil)
	r := hubOf(t, a, route.Git{}, nil)
	req, _ := http.NewRequest("POST", "http://"+r.addr+"/github/o/r/git-upload-pack", pattern(route.MaxBody+1))
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/x-git-upload-pack-request")
	if got := r.do(req); got.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("answered %d %s", got.StatusCode, got.text)
	}
}

// TestUploadEnds holds what becomes of a push if one of both sides ends it.
func TestUploadEnds(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			began, ended := make(chan struct{}, 1), make(chan error, 1)
			early := make(chan bool, 1)
			a := newStreaming(t, http2, func(w http.ResponseWriter, r *http.Request) {
				began <- struct{}{}
				if <-early {
					w.Header().Set("Connection", "close") // else net/http reads on before it answers
					w.WriteHeader(http.StatusRequestEntityTooLarge)
					io.WriteString(w, "the quota is used up")
					return
				}
				_, err := io.Copy(io.Discard, r.Body)
				ended <- err
			})
			r := hubOf(t, a, route.Git{Write: true}, nil)
			head := "POST /github/o/r/git-receive-pack HTTP/1.1\r\nHost: " + r.addr + "\r\nAuthorization: Bearer " + token +
				"\r\nContent-Type: " + pushType + "\r\nTransfer-Encoding: chunked\r\n\r\n"
			open := strings.TrimSuffix(chunked(commandTo("refs/heads/x")+strings.Repeat("x", 2*maxKept), 1000), "0\r\n\r\n")
			connect := func() net.Conn {
				conn, err := net.Dial("tcp", r.addr)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { conn.Close() })
				conn.SetDeadline(time.Now().Add(patience))
				io.WriteString(conn, head+open)
				wait(t, began)
				return conn
			}
			early <- false
			connect().Close()
			select {
			case err := <-ended:
				if err == nil {
					t.Error("half a push arrived as a whole one")
				}
			case <-time.After(patience):
				t.Fatal("the push goes on without its client")
			}
			if e := r.event(); e.Status != 0 || !strings.HasPrefix(e.Refused, gone) {
				t.Errorf("recorded %+v", e)
			}
			early <- true
			resp, err := http.ReadResponse(bufio.NewReader(connect()), nil)
			if err != nil {
				t.Fatal(err)
			}
			if text, err := io.ReadAll(resp.Body); resp.StatusCode != http.StatusRequestEntityTooLarge || string(text) != "the quota is used up" || err != nil {
				t.Errorf("an early answer is %d %q, %v", resp.StatusCode, text, err)
			}
			r.event()
			early <- false
			conn := connect()
			a.CloseClientConnections()
			go func() { // net/http sees it when it has more to send
				for {
					if _, err := io.WriteString(conn, "1\r\nx\r\n"); err != nil {
						return
					}
				}
			}()
			if b, _ := io.ReadAll(conn); !bytes.HasPrefix(b, []byte("HTTP/1.1 502")) {
				t.Errorf("of a server that is gone it is said: %q", b)
			}
		})
	}
}

// TestSlowUpload holds that commands have to come, and that a client may pause behind them.
func TestSlowUpload(t *testing.T) {
	a := newAPI(t, true, nil)
	r := hubOf(t, a, route.Git{Write: true}, func(p *Proxy) { p.bodies.wait = 50 * time.Millisecond })
	head := "POST /github/o/r/git-receive-pack HTTP/1.1\r\nHost: " + r.addr + "\r\nAuthorization: Bearer " + token +
		"\r\nContent-Type: " + pushType + "\r\nContent-Length: 1000\r\n\r\n"
	if got := r.sends(head, "00", false); !strings.HasPrefix(got, "HTTP/1.1 408") {
		t.Errorf("answered %q", got)
	}
	if n := len(a.requests()); n > 0 {
		t.Errorf("%d arrived", n)
	}
}
