package control

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// serve runs a server until the test ends.
func serve(t *testing.T, s *Server) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "control.sock")
	l, err := Listen(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("serving ended with %v", err)
		}
	})
	return path
}

func me(uid uint32) bool { return int(uid) == os.Geteuid() }

func TestCall(t *testing.T) {
	path := serve(t, &Server{May: me, Handle: func(_ context.Context, p Peer, r Request) Reply {
		if int(p.UID) != os.Geteuid() || p.PID != os.Getpid() {
			t.Errorf("the peer is %+v", p)
		}
		return Reply{OK: true, Data: []byte(`"` + r.Verb + " " + r.Target + `"`)}
	}})
	reply, err := Call(t.Context(), path, Request{Verb: "allow", Target: "a.example"})
	if err != nil || !reply.OK || string(reply.Data) != `"allow a.example"` {
		t.Errorf("got %+v, %v", reply, err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the socket is %v, %v", st, err)
	}
	if _, err := Call(t.Context(), path, Request{Verb: "allow", Target: "a\nb"}); err == nil {
		t.Error("a request that is out of bounds is sent")
	}
	if _, err := Call(t.Context(), path+"x", Request{Verb: "allow"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a socket: %v", err)
	}
}

// TestCallSaysWhereOnce: an error of a connection is one line, and has its path once.
func TestCallSaysWhereOnce(t *testing.T) {
	for name, serve := range map[string]func(net.Conn){
		"not read":  func(c net.Conn) { _, _ = c.Read(make([]byte, 1)) }, // closed with data in it: a reset
		"shut":      func(c net.Conn) { _ = c.(*net.UnixConn).CloseRead() },
		"half said": func(c net.Conn) { _, _ = c.Write([]byte(`{"ok":tr`)) },
		"no JSON":   func(c net.Conn) { _, _ = c.Write([]byte("ok\n")) },
	} {
		path := filepath.Join(t.TempDir(), "s")
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			if c, err := l.Accept(); err == nil {
				serve(c)
				c.Close()
			}
		}()
		_, err = Call(t.Context(), path, Request{Verb: "grants"})
		if err == nil || strings.Count(err.Error(), path) != 1 || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
		l.Close()
	}
}

// TestReplyTooLong: what the client would not read to its end is not sent.
func TestReplyTooLong(t *testing.T) {
	for _, data := range []string{`"` + strings.Repeat("x", maxReply) + `"`, "no JSON"} {
		path := serve(t, &Server{May: me, Handle: func(context.Context, Peer, Request) Reply {
			return Reply{OK: true, Data: []byte(data)}
		}})
		reply, err := Call(t.Context(), path, Request{Verb: "grants"})
		if err != nil || reply.OK || reply.Code != 1 || reply.Error == "" || reply.Remedy == "" {
			t.Errorf("%.10q: got %.200v, %v", data, reply, err)
		}
	}
}

// TestStrangerIsRefused: nothing that a peer sends is looked at before it is
// known who it is.
func TestStrangerIsRefused(t *testing.T) {
	var asked atomic.Int32
	path := serve(t, &Server{
		May:    func(uint32) bool { return false },
		Handle: func(context.Context, Peer, Request) Reply { asked.Add(1); return Reply{OK: true} },
	})
	reply, err := Call(t.Context(), path, Request{Verb: "allow", Target: "a.example"})
	if err != nil || reply.OK || reply.Code != 77 || reply.Error == "" || reply.Remedy == "" {
		t.Errorf("got %+v, %v", reply, err)
	}
	// Also one that says nothing is answered at once.
	if got := talk(t, path, ""); !strings.Contains(got, "may not") {
		t.Errorf("got %q", got)
	}
	if asked.Load() != 0 {
		t.Error("a stranger was served")
	}
}

func TestMalformedRequests(t *testing.T) {
	var asked atomic.Int32
	path := serve(t, &Server{May: me, Handle: func(context.Context, Peer, Request) Reply {
		asked.Add(1)
		return Reply{OK: true}
	}})
	for name, sent := range map[string]string{
		"no JSON":         "GET / HTTP/1.1\r\n",
		"longest":         strings.Repeat("x", maxRequest) + "\n",
		"without end":     strings.Repeat("x", 10*maxRequest),
		"spaces, too":     strings.Repeat(" ", maxRequest) + `{"version":1,"verb":"a"}` + "\n",
		"cut off, closed": `{"version":1,"verb":"allow"`,
	} {
		if got := talk(t, path, sent); !strings.Contains(got, `"ok":false`) {
			t.Errorf("%s: got %q", name, got)
		}
	}
	if asked.Load() != 0 {
		t.Error("one of them was served")
	}
	// A request may end with the connection instead of a newline.
	if got := talk(t, path, `{"version":1,"verb":"allow"}`); !strings.Contains(got, `"ok":true`) {
		t.Errorf("got %q", got)
	}
}

// talk sends text, and no more after it, and returns what comes back.
func talk(t *testing.T, path, text string) string {
	t.Helper()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, text)
	_ = conn.CloseWrite()
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	got, err := io.ReadAll(conn)
	if err != nil && !strings.Contains(err.Error(), "reset") {
		t.Fatalf("after %.40q: %v", text, err)
	}
	return string(got)
}

// TestSilentPeers: who connects and says nothing, or not all, gives way to who asks. Who has asked does not.
func TestSilentPeers(t *testing.T) {
	begun, end := make(chan struct{}, 1), make(chan struct{})
	path := serve(t, &Server{
		May: me, Peers: 2, Patience: time.Hour,
		Handle: func(_ context.Context, _ Peer, r Request) Reply {
			if r.Verb == "wait" {
				begun <- struct{}{}
				<-end
			}
			return Reply{OK: true}
		},
	})
	over := sync.OnceFunc(func() { close(end) })
	t.Cleanup(over)
	ask := func(verb string) error {
		reply, err := Call(t.Context(), path, Request{Verb: verb})
		if err == nil && !reply.OK {
			err = errors.New(reply.Error)
		}
		return err
	}
	waited := make(chan error, 1)
	go func() { waited <- ask("wait") }()
	<-begun
	for i := range 8 {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte(`{"version":1,"verb"`)[:10*(i%2)]); err != nil {
			t.Log(err) // the next one has its place by now
		}
	}
	if err := ask("allow"); err != nil {
		t.Fatalf("silent peers shut others out: %v", err)
	}
	go func() { waited <- ask("wait") }()
	<-begun
	if err := ask("allow"); err == nil {
		t.Error("there is no end to those who have asked")
	}
	over()
	for range 2 {
		if err := <-waited; err != nil {
			t.Errorf("who had asked lost its place: %v", err)
		}
	}
}

// TestEndWithSilentPeer: who says nothing does not hold up the end, and who has
// asked gets an answer.
func TestEndWithSilentPeer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "control.sock")
	l, err := Listen(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s := &Server{May: me, Patience: time.Hour, Handle: func(ctx context.Context, _ Peer, _ Request) Reply {
		cancel()
		<-ctx.Done()
		return Reply{OK: true}
	}}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	silent, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	if reply, err := Call(t.Context(), path, Request{Verb: "allow"}); err != nil || !reply.OK {
		t.Errorf("asked at the end: %+v, %v", reply, err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("a silent peer holds up the end")
	}
}

func TestListenReplacesAnOldSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "control.sock")
	for range 2 {
		l, err := Listen(path, 0o666)
		if err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		l.Close()
	}
}
