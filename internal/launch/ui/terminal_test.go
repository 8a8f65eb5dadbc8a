package ui

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// client is a page's end of a WebSocket.
type client struct {
	t     *testing.T
	conn  net.Conn
	r     *bufio.Reader
	shown []byte // what came, behind what was awaited last: one frame may have both
}

func (r *rig) open(container string) *client {
	r.t.Helper()
	conn := r.dial()
	r.t.Cleanup(func() { conn.Close() })
	if err := r.handshake(container).Write(conn); err != nil {
		r.t.Fatal(err)
	}
	c := &client{t: r.t, conn: conn, r: bufio.NewReader(conn)}
	a, err := http.ReadResponse(c.r, nil)
	if err != nil || a.StatusCode != http.StatusSwitchingProtocols ||
		a.Header.Get("Sec-WebSocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" || // the example of RFC 6455, section 1.3
		a.Header.Get("Sec-WebSocket-Protocol") != protocolName || a.Header.Get("Sec-WebSocket-Extensions") != "" {
		r.t.Fatalf("%v %+v", err, a)
	}
	return c
}

// masked is a frame as a browser sends it.
func masked(head byte, data []byte) []byte {
	out := []byte{head}
	switch n := len(data); {
	case n < 126:
		out = append(out, 0x80|byte(n))
	case n < 1<<16:
		out = binary.BigEndian.AppendUint16(append(out, 0x80|126), uint16(n))
	default:
		out = binary.BigEndian.AppendUint64(append(out, 0x80|127), uint64(n))
	}
	mask := []byte{1, 2, 3, 4}
	out = append(out, mask...)
	for i, b := range data {
		out = append(out, b^mask[i%4])
	}
	return out
}

func (c *client) send(op opcode, data string) {
	c.t.Helper()
	if _, err := c.conn.Write(masked(0x80|byte(op), []byte(data))); err != nil {
		c.t.Fatal(err)
	}
}

// next is the server's next frame.
func (c *client) next() (op opcode, data []byte, err error) {
	var head [2]byte
	if _, err = io.ReadFull(c.r, head[:]); err != nil {
		return 0, nil, err
	}
	size := int(head[1])
	if size == 126 {
		var more [2]byte
		if _, err = io.ReadFull(c.r, more[:]); err != nil {
			return 0, nil, err
		}
		size = int(binary.BigEndian.Uint16(more[:]))
	}
	data = make([]byte, size)
	_, err = io.ReadFull(c.r, data)
	return opcode(head[0] & 0x0f), data, err
}

// until reads what the client in the container writes, to a text.
func (c *client) until(want string) {
	c.t.Helper()
	for {
		if _, behind, ok := bytes.Cut(c.shown, []byte(want)); ok {
			c.shown = behind
			return
		}
		op, data, err := c.next()
		if err != nil {
			c.t.Fatalf("%v behind %q, want %q", err, c.shown, want)
		}
		if op == opBinary {
			c.shown = append(c.shown, data...)
		}
	}
}

// over waits for the server to end the connection.
func (c *client) over() {
	c.t.Helper()
	if _, err := io.Copy(io.Discard, c.r); err != nil && !strings.Contains(err.Error(), "reset") {
		c.t.Fatalf("the connection is still there: %v", err)
	}
}

// empty waits until no terminal is open.
func (r *rig) empty() {
	r.t.Helper()
	for end := time.Now().Add(time.Minute); len(r.server.terminals) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("%d terminals are open", len(r.server.terminals))
		}
	}
}

// TestATerminal attaches as the page does: bytes go both ways untouched, the size is the page's, and the client in the
// container is asked to leave when the page is closed. It would stay there else.
func TestATerminal(t *testing.T) {
	r := ready(t)
	r.put("attach", `stty raw -echo; stty size; printf 'attached\r\n\033[31m\303\244\r\n'; head -c 10 >"$here/typed"; stty size; head -c 2 >>"$here/typed"; echo left >>"$here/calls"`)
	c := r.open(one)
	c.until("30 100")
	c.until("attached\r\n\x1b[31mä")
	c.send(opText, `{"Cols":132,"Rows":43}`)
	c.send(opText, `{"Cols":0,"Rows":0}`)
	c.send(opPing, "there?")
	c.send(opBinary, "\x1b[A\x03\x00keys\xff")
	c.until("43 132")
	c.conn.Close()
	r.empty()
	typed, err := os.ReadFile(filepath.Join(r.dir, "typed"))
	if err != nil || string(typed) != "\x1b[A\x03\x00keys\xff"+leaveKeys {
		t.Errorf("the client read %q, %v", typed, err)
	}
	if got, want := r.calls(), one+" -it attach --prefix ctrl-]\nleft\n"; got != want {
		t.Errorf("the engine was told %q, want %q", got, want)
	}
}

// TestTheSessionEnds: the page is told.
func TestTheSessionEnds(t *testing.T) {
	r := ready(t)
	r.put("attach", "echo bye")
	c := r.open(one)
	c.until("bye")
	for {
		op, data, err := c.next()
		if err != nil {
			t.Fatal(err)
		}
		if op == opClose {
			if binary.BigEndian.Uint16(data) != closeEnded || !strings.Contains(string(data[2:]), "let you go") {
				t.Errorf("closed by %q", data)
			}
			break
		}
	}
	c.conn.Close()
	r.empty()
}

// TestAClientThatWillNotLeave is ended, with what it has started. It reads nothing of what is typed.
func TestAClientThatWillNotLeave(t *testing.T) {
	r := ready(t)
	r.put("attach", "trap '' HUP INT TERM; stty raw -echo; echo attached; sleep infinity")
	c := r.open(one)
	c.until("attached")
	for range 4 * maxTyped { // until the server hangs up
		if _, err := c.conn.Write(masked(0x80|byte(opBinary), bytes.Repeat([]byte("x"), 4096))); err != nil {
			break
		}
	}
	c.over()
	r.empty()
}

// TestAPageThatDrawsNothing is sent no more than it can hold, and the rest once it has drawn.
func TestAPageThatDrawsNothing(t *testing.T) {
	r := ready(t)
	r.put("attach", "exec yes")
	c := r.open(one)
	got := 0
	for got <= maxAhead {
		_, data, err := c.next()
		if err != nil {
			t.Fatalf("%v behind %d bytes", err, got)
		}
		got += len(data)
	}
	c.conn.SetReadDeadline(time.Now().Add(time.Second)) // more may come later on a slow machine, but never should
	if _, _, err := c.next(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("behind %d bytes, and none was drawn: %v", got, err)
	}
	c.conn.SetReadDeadline(time.Now().Add(time.Minute))
	c.send(opText, fmt.Sprintf(`{"Drawn":%d}`, got))
	if _, _, err := c.next(); err != nil {
		t.Errorf("nothing more came: %v", err)
	}
	c.send(opText, `{"Drawn":-5}`)
	c.send(opText, `{"Drawn":9007199254740991}`) // a page that lies gets no more ahead than others
	for total := 0; ; {
		c.conn.SetReadDeadline(time.Now().Add(time.Second))
		_, data, err := c.next()
		if err != nil {
			break
		}
		if total += len(data); total > 3*maxAhead {
			t.Fatalf("%d bytes came after a lie", total)
		}
	}
}

// TestFramesThatNoBrowserSends end the connection, and the client with it.
func TestFramesThatNoBrowserSends(t *testing.T) {
	r := ready(t)
	r.put("attach", "stty raw -echo; echo attached; head -c 2 >/dev/null")
	for name, raw := range map[string][]byte{
		"not masked":         {0x82, 1, 'x'},
		"an extension":       masked(0xc2, []byte("x")),
		"an opcode of none":  masked(0x83, []byte("x")),
		"a control of none":  masked(0x8b, nil),
		"a long ping":        masked(0x89, bytes.Repeat([]byte("x"), 126)),
		"half a ping":        masked(0x09, nil),
		"goes on with none":  masked(0x80, []byte("x")),
		"begins in between":  append(masked(0x02, []byte("x")), masked(0x82, []byte("x"))...),
		"too long":           masked(0x82, bytes.Repeat([]byte("x"), maxMessage+1)),
		"too long in parts":  append(masked(0x02, bytes.Repeat([]byte("x"), maxMessage)), masked(0x80, []byte("x"))...),
		"the longest length": {0x82, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4},
		"a length in excess": {0x82, 0xfe, 0, 1, 1, 2, 3, 4, 'x'},
		"no UTF-8":           masked(0x81, []byte("\xff")),
		"no JSON":            masked(0x81, []byte("{")),
		"a size of a word":   masked(0x81, []byte(`{"Cols":"x"}`)),
		"a close":            masked(0x88, []byte("\x03\xe8")),
	} {
		t.Run(name, func(t *testing.T) {
			c := r.open(one)
			c.until("attached")
			c.conn.Write(raw)
			c.over()
			r.empty()
		})
	}
}

// TestNoMoreTerminalsThanFit: each is a process.
func TestNoMoreTerminalsThanFit(t *testing.T) {
	r := ready(t)
	for range maxTerminals {
		r.server.terminals <- struct{}{}
	}
	if a := r.send(r.handshake(one)); a.status != http.StatusServiceUnavailable {
		t.Errorf("one more: %d", a.status)
	}
	for range maxTerminals {
		<-r.server.terminals
	}
	for name, change := range map[string]func(*http.Request){
		"another version":  func(q *http.Request) { q.Header.Set("Sec-WebSocket-Version", "8") },
		"a short key":      func(q *http.Request) { q.Header.Set("Sec-WebSocket-Key", "AAAA") },
		"another protocol": func(q *http.Request) { q.Header.Set("Sec-WebSocket-Protocol", "key."+r.pass.key) },
		"another upgrade": func(q *http.Request) {
			q.Header.Set("Upgrade", "h2c")
			q.Header.Set("Sec-WebSocket-Protocol", "agent-init, key."+r.pass.key)
		},
	} {
		q := r.handshake(one)
		change(q)
		if a := r.send(q); a.status != http.StatusBadRequest {
			t.Errorf("%s: %d", name, a.status)
		}
	}
	if a := r.send(r.handshake(strings.Repeat("3", 64))); a.status != http.StatusNotFound {
		t.Errorf("a container of none: %d", a.status)
	}
	if calls := r.calls(); calls != "" {
		t.Errorf("the engine was told: %s", calls)
	}
}
