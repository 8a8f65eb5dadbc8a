package session

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/internal/wire/sessionop"
	"github.com/agent-init/agent-init/pkg/session/attach"
	"github.com/agent-init/agent-init/pkg/session/internal/frame"
	"github.com/agent-init/agent-init/pkg/session/protocol"
)

// A client sees the screen as it is, at its own size, and goes on from there.
func TestAttachRestores(t *testing.T) {
	r := newRig(t)
	p := r.window(0)
	p.print("\x1b[2J\x1b[Hfirst line\r\n\x1b[31msecond\x1b[m\x1b]0;a title\x07\x1b[?2004h")
	eventually(t, func() bool { return r.list().Windows[0].Title == "a title" }, func() string { return "not read" })
	v := r.attach(protocol.Request{Cols: 60, Rows: 10})
	v.shows("first line\nsecond")
	eventually(t, func() bool { c, rows := p.size(); return c == 60 && rows == 10 }, func() string { return "the window has another size" })
	v.mu.Lock()
	if !v.pastes() || v.term.Title() != "a title" {
		t.Error("bracketed paste or the title was not restored")
	}
	v.mu.Unlock()
	p.print("\r\nthird \x1b]8;;http://x/\x1b\\link\x1b]8;;\x1b\\\x1b_Gf=100;AA\x1b\\")
	v.shows("first line\nsecond\nthird link")
	if !strings.Contains(v.output(), "\x1b]8;;http://x/\x1b\\link\x1b]8;;\x1b\\\x1b_Gf=100;AA\x1b\\") {
		t.Error("the bytes did not pass as they are")
	}
	v.send(frame.Input, "typed")
	p.typed("typed")
	v.send(frame.Detach, "")
	v.got(frame.Done)
	v.mu.Lock()
	if v.pastes() {
		t.Error("bracketed paste is left on")
	}
	v.mu.Unlock()
	again := r.attach(protocol.Request{Cols: 60, Rows: 10})
	again.shows("first line\nsecond\nthird link")
	if r.noted(sessionop.Attached) != 2 || r.noted(sessionop.Detached) != 1 {
		t.Errorf("events: %+v", r.events)
	}
}

// Read-only is the server's doing.
func TestReadOnly(t *testing.T) {
	r := newRig(t)
	p := r.window(0)
	v := r.attach(protocol.Request{Cols: 80, Rows: 24, Read: true})
	v.got(frame.Screen)
	p.print("\x1b[6n\x1b]52;c;QUJD\x07hello")
	v.shows("hello")
	p.typed("R") // by the model: this client's terminal may not answer
	v.send(frame.Input, "rm -rf /\r")
	v.send(frame.Resize, string(frame.Size(30, 7)))
	v.send(frame.Switch, "c")
	w := r.attach(protocol.Request{Cols: 80, Rows: 24})
	w.shows("hello")
	w.send(frame.Input, "ok")
	p.typed("ok")
	if got := p.input(); got != "\x1b[1;1Rok" {
		t.Errorf("the program got %q", got)
	}
	if strings.Contains(v.output(), "52;c") {
		t.Error("a read-only client's clipboard was written")
	}
	if strings.Contains(v.output(), "\x1b[6n") {
		t.Error("a read-only client's terminal was asked")
	}
	if cols, rows := p.size(); cols != 80 || rows != 24 {
		t.Errorf("the size became %dx%d", cols, rows)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.opened) != 0 {
		t.Error("a read-only client opened a window")
	}
}

// The window has the size of the client that typed last; one of another size
// is shown what fits.
func TestTwoSizes(t *testing.T) {
	r := newRig(t)
	p := r.window(0)
	large := r.attach(protocol.Request{Cols: 40, Rows: 8})
	p.print("\x1b[2J\x1b[1;1Htop\x1b[8;36Hright")
	large.shows("top\n\n\n\n\n\n\n" + strings.Repeat(" ", 35) + "right")
	small := r.attach(protocol.Request{Cols: 20, Rows: 4})
	small.got(frame.Window)
	eventually(t, func() bool { c, rows := p.size(); return c == 20 && rows == 4 }, func() string { return "not the size of the last" })
	p.print("\x1b[2J\x1b[1;1Hsmall")
	small.shows("small")
	large.shows("small")
	large.send(frame.Input, "\x1b[I") // a report is not typing
	large.send(frame.Input, "\x1b[?62c")
	large.send(frame.Input, "x")
	p.typed("x")
	if got := p.input(); got != "x" {
		t.Errorf("reports of a terminal that does not lead came through: %q", got)
	}
	eventually(t, func() bool { c, rows := p.size(); return c == 40 && rows == 8 }, func() string { return "not the size of who typed" })
	p.print("\x1b[2J\x1b[8;36Hright\x1b[1;1Hlarge")
	small.shows("large") // the part with the cursor
}

// One terminal answers what the program asks; if there is none, the model does.
func TestOneAnswer(t *testing.T) {
	r := newRig(t)
	p := r.window(0)
	p.print("\x1b[6n")
	p.typed("\x1b[1;1R")
	first := r.attach(protocol.Request{Cols: 80, Rows: 24})
	first.got(frame.Screen)
	second := r.attach(protocol.Request{Cols: 80, Rows: 24})
	second.got(frame.Screen)
	p.print("\x1b[csentinel")
	second.shows("sentinel")
	first.shows("sentinel")
	if strings.Contains(first.output(), "\x1b[csentinel") || !strings.Contains(second.output(), "\x1b[csentinel") {
		t.Errorf("who leads got %q, the other %q", second.output(), first.output())
	}
	if got := p.input(); got != "\x1b[1;1R" {
		t.Errorf("the model answered while a terminal could: %q", got)
	}
}

func TestClipboardIsNeverRead(t *testing.T) {
	r := newRig(t)
	p := r.window(0)
	v := r.attach(protocol.Request{Cols: 80, Rows: 24})
	v.got(frame.Screen)
	p.print("a\x1b]52;c;?\x07b\x1b]52;c;QUJD\x07c")
	v.shows("abc")
	if out := v.output(); strings.Contains(out, "52;c;?") || !strings.Contains(out, "\x1b]52;c;QUJD\x07") {
		t.Errorf("%q", out)
	}
}

// Hostile clients end alone.
func TestHostileClients(t *testing.T) {
	r := newRig(t)
	p := r.window(0)
	v := r.attach(protocol.Request{Cols: 80, Rows: 24})
	v.got(frame.Screen)
	hello := protocol.Request{Verb: protocol.VerbAttach, Cols: 80, Rows: 24}.Encode()
	for name, b := range map[string][]byte{
		"nonsense":        []byte("GET / HTTP/1.1\r\n\r\n"),
		"a huge frame":    []byte("I\x80\x00\x00\x00"),
		"no hello":        frame.Append(nil, frame.Switch, []byte("Q")),
		"a bad hello":     frame.Append(nil, frame.Hello, []byte(`{"version":1,"verb":"attach","cols":999999}`)),
		"a bad size":      append(frame.Append(nil, frame.Hello, hello), frame.Append(nil, frame.Resize, []byte{0xff, 0xff, 0xff, 0xff})...),
		"a server's word": append(frame.Append(nil, frame.Hello, hello), frame.Append(nil, frame.Ended, frame.Number(1))...),
		"a bad window":    append(frame.Append(nil, frame.Hello, hello), frame.Append(nil, frame.Switch, []byte("\xff"))...),
	} {
		c := r.connect(peer{uid: 1000, pid: 9})
		if _, err := c.Write(b); err != nil && name != "nonsense" {
			t.Errorf("%s: %v", name, err)
		}
		if name == "no hello" {
			continue // without a window, it means nothing
		}
		v := &viewer{T: t, conn: c, term: newModel(80, 24)}
		go v.read()
		eventually(t, v.isClosed, func() string { return name + ": still connected" })
	}

	// One that changes windows and asks for screens for ever, and reads nothing.
	r.window(0)
	flood := r.connect(peer{uid: 1000, pid: 10})
	many := frame.Append(nil, frame.Hello, hello)
	for range 2000 {
		many = frame.Append(frame.Append(many, frame.Switch, []byte("n")), frame.Resize, frame.Size(80, 24))
	}
	_ = flood.SetWriteDeadline(time.Now().Add(time.Minute))
	for range 50 {
		if _, err := flood.Write(many[len(frame.Append(nil, frame.Hello, hello)):]); err != nil {
			break
		}
	}
	v.send(frame.Input, "still here")
	p.typed("still here")
	p.print("and here")
	v.shows("and here")
}

// Only root and the agent may connect, and neither can keep the other out.
func TestPeers(t *testing.T) {
	r := newRig(t)
	r.window(0)
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	served := make(chan error, 1)
	go func() { served <- r.server.Serve(ctx, l) }()
	r.server.config.AgentUID = uint32(os.Getuid())
	me := uint32(os.Getuid())
	list := func(mine, others int) error {
		r.server.mu.Lock()
		clear(r.server.clients)
		for i := range mine + others {
			who := peer{uid: me}
			if i >= mine { // root's, or of one who is not root
				who.uid = 1 - min(me, 1)
			}
			r.server.clients[&client{peer: who}] = struct{}{}
		}
		r.server.mu.Unlock()
		c, err := attach.Dial(path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		err = attach.Call(c, protocol.Request{Verb: protocol.VerbList}, &strings.Builder{})
		eventually(t, func() bool {
			r.server.mu.Lock()
			defer r.server.mu.Unlock()
			return len(r.server.clients) == mine+others
		}, func() string { return "a connection is still counted" })
		return err
	}
	if err := list(maxConnections-1, 0); err != nil {
		t.Error("too few: ", err)
	}
	if err := list(maxConnections, 0); !errors.Is(err, attach.ErrRefused) || !strings.Contains(err.Error(), "too many") {
		t.Errorf("one too many: %v", err)
	}
	if err := list(0, maxConnections); err != nil {
		t.Error("one uid's connections count for the other: ", err)
	}
	clear(r.server.clients)
	stop()
	if err := <-served; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestShutdown(t *testing.T) {
	r := newRig(t)
	p := r.window(0)
	v := r.attach(protocol.Request{Cols: 80, Rows: 24})
	v.got(frame.Screen)
	p.print("goodbye")
	r.exited(p.id, 5)
	p.tty.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r.server.Shutdown(ctx)
	if ctx.Err() != nil {
		t.Error("it took for ever")
	}
	if got := frame.NumberOf([]byte(v.got(frame.Ended))); got != 5 || !strings.Contains(v.output(), "goodbye") {
		t.Errorf("exit code %d, output %q", got, v.output())
	}
	server, client := r.pair()
	r.server.config.AgentUID = uint32(os.Getuid())
	go r.server.admit(server)
	if err := attach.Call(client, protocol.Request{Verb: protocol.VerbList}, &strings.Builder{}); err == nil || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("after its end it says %v to clients", err)
	}
}

// A program may close its terminal and open it again: its window goes on as
// long as it lives.
func TestTerminalClosedAndOpenedAgain(t *testing.T) {
	r := newRig(t)
	master, tty := mustOpen(t)
	r.server.Take(wire.Message{Op: sessionop.Window, ID: 1, Text: "daemon"}, master)
	t.Cleanup(func() { r.exited(1, 0) })
	v := r.attach(protocol.Request{Cols: 80, Rows: 24})
	fmt.Fprint(tty, "before")
	v.shows("before")
	tty.Close()
	time.Sleep(3 * reopen) // so that the window sees it closed
	tty, err := os.OpenFile(tty.Name(), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	fmt.Fprint(tty, " and after")
	v.shows("before and after")
}

// TestLastOutput has the time for the last of a window's output pass before any of it is read, as on a busy machine, while
// something else holds the terminal open.
func TestLastOutput(t *testing.T) {
	r := newRig(t)
	master, tty := mustOpen(t)
	defer tty.Close()
	w, err := newWindow(r.server, wire.Message{ID: 1}, master)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Repeat("a line\r\n", 500) + "the last of it"
	if _, err := tty.WriteString(want); err != nil {
		t.Fatal(err)
	}
	w.exited = true
	if err := w.master.SetReadDeadline(time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	w.run()
	if got := w.term.Text(); !slices.Contains(got, "the last of it") {
		t.Errorf("the window shows %q", got)
	}
}
