package rig

import (
	"bufio"
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
)

// streams serves answers that don't end by themselves, and counts their lines.
type streams struct {
	mu    sync.Mutex
	Lines map[string]int // by scheme and host
	live  map[string]int
}

func NewStreams() *streams { return &streams{Lines: map[string]int{}, live: map[string]int{}} }

func (s *streams) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/stream" {
		return
	}
	key := map[bool]string{false: "http", true: "https"}[r.TLS != nil] + "://" + r.Host
	s.add(s.live, key, 1)
	defer s.add(s.live, key, -1)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := fmt.Fprintln(w, "data"); err != nil || http.NewResponseController(w).Flush() != nil {
			return
		}
		s.add(s.Lines, key, 1)
		select {
		case <-r.Context().Done():
			return
		case <-tick.C:
		}
	}
}

func (s *streams) add(m map[string]int, key string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m[key] += n
}

func (s *streams) Get(m map[string]int, key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return m[key]
}

// Follow starts a stream for each URL as the agent and waits until all run.
func (w *World) Follow(s *streams, urls ...string) map[string]*lab.Process {
	w.Helper()
	running := map[string]*lab.Process{}
	for _, u := range urls {
		running[u] = w.AsAgent(w.Box, "stream", u+"/stream")
	}
	for _, u := range urls {
		if !Eventually(10*time.Second, func() bool { return s.Get(s.Lines, u) > 5 }) {
			w.Fatalf("%s does not stream: %s%s", u, running[u].Stdout(), running[u].Stderr())
		}
	}
	return running
}

// Cut fails the test unless a stream ends within a second, by a reset, on both
// sides. A machine that does not come to it is given ten.
func (w *World) Cut(s *streams, url string, p *lab.Process, since time.Time) {
	w.Helper()
	select {
	case <-p.Done():
	case <-time.After(time.Until(since.Add(10 * time.Second))):
		w.Errorf("%s: lives on ten seconds later", url)
	}
	v := Verdict(w.T, p)
	if v.OK || !strings.Contains(v.Err, "reset") && !strings.Contains(v.Err, "EOF") {
		w.Errorf("%s: not cut: %s", url, v)
	}
	if !Eventually(5*time.Second, func() bool { return s.Get(s.live, url) == 0 }) {
		w.Errorf("%s: the server has not noticed", url)
	}
}

// Lives fails the test unless more lines of a stream arrive.
func (w *World) Lives(s *streams, url string, p *lab.Process) {
	w.Helper()
	before := s.Get(s.Lines, url)
	if !Eventually(5*time.Second, func() bool { return s.Get(s.Lines, url) > before+20 }) {
		w.Errorf("%s: no longer streams: %s%s", url, p.Stdout(), p.Stderr())
	}
	select {
	case <-p.Done():
		w.Errorf("%s: ended: %s", url, p.Stdout())
	default:
	}
}

// Redirected is how many connections over IPv4 the gate has, accepted or not.
func (w *World) Redirected() (n int) {
	w.Helper()
	for _, s := range Sockets(w.T, w.Box, "/proc/net/tcp") {
		if s.State == "01" && s.Local.Addr().IsLoopback() {
			n++
		}
	}
	return n
}

// Tap is a server of one address and port that keeps what comes.
type Tap struct {
	mu  sync.Mutex
	got bytes.Buffer
}

func (w *World) Tap(a netip.Addr, port uint16, greeting string, answer func(got string) string) *Tap {
	w.Helper()
	network := "tcp4"
	if a.Is6() {
		network = "tcp6"
	}
	l, err := w.Lab.Internet.Listen(network, At(a, port))
	Must(w.T, err)
	s := &Tap{}
	var conns sync.WaitGroup
	ended, end := context.WithCancel(context.Background())
	w.Cleanup(func() { l.Close(); end(); conns.Wait() })
	conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer context.AfterFunc(ended, func() { c.Close() })()
				s.serve(c, greeting, answer)
			})
		}
	})
	return s
}

func (s *Tap) serve(c net.Conn, greeting string, answer func(string) string) {
	defer c.Close()
	_, err := io.WriteString(c, greeting)
	buf := make([]byte, 64<<10)
	for err == nil {
		c.SetDeadline(time.Now().Add(lab.Patience))
		var n int
		n, err = c.Read(buf)
		s.mu.Lock()
		s.got.Write(buf[:n])
		s.mu.Unlock()
		if n > 0 && err == nil {
			_, err = io.WriteString(c, answer(string(buf[:n])))
		}
	}
}

// String is all that came so far.
func (s *Tap) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got.String()
}

func (s *Tap) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got.Reset()
}

func Echoed(got string) string { return got }

// Verdict is that of a poke which was started.
func Verdict(t *testing.T, p *lab.Process) lab.Poke {
	t.Helper()
	r := p.Wait(0)
	v, err := lab.ParsePoke(r.Stdout)
	if err != nil {
		t.Fatal(errors.Join(err, errors.New(r.String())))
	}
	return v
}

// WebSocketHello says hello in one text frame (RFC 6455).
func WebSocketHello(w http.ResponseWriter, r *http.Request) {
	c, rw, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer c.Close()
	sum := sha1.Sum([]byte(r.Header.Get("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: %s\r\n\r\n\x81\x05hello",
		base64.StdEncoding.EncodeToString(sum[:]))
	_, _ = bufio.NewReader(rw).ReadByte() // the client's close
	_, _ = c.Write([]byte{0x88, 0})
}

// Bundle is where a box has the lab's authority.
const Bundle = "/etc/ssl/certs/ca-certificates.crt"

// Program is that a script in the box can use a program of this machine. One
// that the machine doesn't have is left out, and the log says so.
func (w *World) Program(path string) bool {
	w.Helper()
	if _, err := os.Stat(path); err != nil {
		w.Logf("left out: this machine has no %s", path)
		return false
	}
	return true
}

// Noise is a stream in which no two blocks are alike: AES in counter mode under
// a key of zeros, which openssl makes as well.
func Noise(t *testing.T) io.Reader {
	t.Helper()
	c, err := aes.NewCipher(make([]byte, 16))
	Must(t, err)
	return cipher.StreamReader{S: cipher.NewCTR(c, make([]byte, 16)), R: zeros{}}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// WebSocketClient says what the first message was: by the WebSocket that browsers have, where this Node.js has one, and
// else as programs for it do it.
const WebSocketClient = `flag=$(node --help | grep -o -- --experimental-websocket | head -n 1)
	NODE_EXTRA_CA_CERTS=` + Bundle + ` node $flag -e '
	const url = process.argv[1]
	const fail = e => { console.error(e.message || e); process.exit(1) }
	if (globalThis.WebSocket) {
		const s = new WebSocket(url)
		s.onmessage = m => { console.log(m.data); s.close() }
		s.onerror = fail
	} else {
		const headers = { Connection: "Upgrade", Upgrade: "websocket", "Sec-WebSocket-Version": 13, "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==" }
		const from = require(url.startsWith("wss") ? "https" : "http")
		from.get(url.replace(/^ws/, "http"), { headers }, () => fail("no upgrade")).on("error", fail).on("upgrade", (_, socket, head) => {
			const said = b => { // one frame: two bytes, and the text
				head = Buffer.concat([head, b])
				if (head.length > 1 && head.length >= 2 + head[1]) { console.log(head.subarray(2, 2 + head[1]).toString()); process.exit(0) }
			}
			socket.on("data", said)
			said(Buffer.alloc(0))
		})
	}' "$1"`
