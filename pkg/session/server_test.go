package session

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/session/terminal"
)

// A client sees the screen as it is, at its own size, and goes on from there.
func TestAttachRestores(t *testing.T) {
	r := newRig(t)
	p := r.window(0)
	p.print("\x1b[2J\x1b[Hfirst line\r\n\x1b[31msecond\x1b[m\x1b]0;a title\x07\x1b[?2004h")
	eventually(t, func() bool { return r.list().Windows[0].Title == "a title" }, func() string { return "not read" })
	v := r.attach(Request{Cols: 60, Rows: 10})
	v.shows("first line\nsecond")
	eventually(t, func() bool { c, rows := p.size(); return c == 60 && rows == 10 }, func() string { return "the window has another size" })
	v.mu.Lock()
	if !v.term.Mode(2004) || v.term.Title() != "a title" {
		t.Error("bracketed paste or the title was not restored")
	}
	v.mu.Unlock()
	p.print("\r\nthird \x1b]8;;http://x/\x1b\\link\x1b]8;;\x1b\\\x1b_Gf=100;AA\x1b\\")
	v.shows("first line\nsecond\nthird link")
	if !strings.Contains(v.output(), "\x1b]8;;http://x/\x1b\\link\x1b]8;;\x1b\\\x1b_Gf=100;AA\x1b\\") {
		t.Error("the bytes did not pass as they are")
	}
	v.send(kindInput, "typed")
	p.typed("typed")
	v.send(kindDetach, "")
	v.got(kindDone)
	v.mu.Lock()
	if v.term.Mode(2004) {
		t.Error("bracketed paste is left on")
	}
	v.mu.Unlock()
	again := r.attach(Request{Cols: 60, Rows: 10})
	again.shows("first line\nsecond\nthird link")
	if r.noted(EventAttach) != 2 || r.noted(EventDetach) != 1 {
		t.Errorf("events: %+v", r.events)
	}
}

// Read-only is the server's doing.
func TestReadOnly(t *testing.T) {
	r := newRig(t)
	p := r.window(0)
	v := r.attach(Request{Cols: 80, Rows: 24, Read: true})
	v.got(kindScreen)
	p.print("\x1b[6n\x1b]52;c;QUJD\x07hello")
	v.shows("hello")
	p.typed("R") // by the model: this client's terminal may not answer
	v.send(kindInput, "rm -rf /\r")
	v.send(kindResize, string(encodeSize(30, 7)))
	v.send(kindSwitch, "c")
	w := r.attach(Request{Cols: 80, Rows: 24})
	w.shows("hello")
	w.send(kindInput, "ok")
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
	large := r.attach(Request{Cols: 40, Rows: 8})
	p.print("\x1b[2J\x1b[1;1Htop\x1b[8;36Hright")
	large.shows("top\n\n\n\n\n\n\n" + strings.Repeat(" ", 35) + "right")
	small := r.attach(Request{Cols: 20, Rows: 4})
	small.got(kindWindow)
	eventually(t, func() bool { c, rows := p.size(); return c == 20 && rows == 4 }, func() string { return "not the size of the last" })
	p.print("\x1b[2J\x1b[1;1Hsmall")
	small.shows("small")
	large.shows("small")
	large.send(kindInput, "\x1b[I") // a report is not typing
	large.send(kindInput, "\x1b[?62c")
	large.send(kindInput, "x")
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
	first := r.attach(Request{Cols: 80, Rows: 24})
	first.got(kindScreen)
	second := r.attach(Request{Cols: 80, Rows: 24})
	second.got(kindScreen)
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
	v := r.attach(Request{Cols: 80, Rows: 24})
	v.got(kindScreen)
	p.print("a\x1b]52;c;?\x07b\x1b]52;c;QUJD\x07c")
	v.shows("abc")
	if out := v.output(); strings.Contains(out, "52;c;?") || !strings.Contains(out, "\x1b]52;c;QUJD\x07") {
		t.Errorf("%q", out)
	}
}

// A client that reads nothing holds up nobody, and gets the screen as it is
// when it goes on; if it never does, it is put out.
func TestSlowClient(t *testing.T) {
	r := newRig(t)
	p := r.window(0)
	conn := r.connect(Peer{UID: 1000, PID: 8})
	q := Request{Version: protocolVersion, Verb: VerbAttach, Cols: 80, Rows: 24}
	if err := writeFrame(conn, kindHello, encodeJSON(q)); err != nil {
		t.Fatal(err)
	}
	fast := r.attach(Request{Cols: 80, Rows: 24})
	fast.got(kindScreen)
	line := strings.Repeat("x", 78) + "\r\n"
	for range 40 { // 3 MB: more than any buffer on the way
		p.print(strings.Repeat(line, 1000))
	}
	p.print("\x1b[2J\x1b[1;1Hthe end")
	fast.shows("the end")

	// It wakes up.
	slow := &viewer{T: t, conn: conn, term: fast.term}
	slow.term = newModel(80, 24)
	go slow.read()
	slow.shows("the end")
	if n := len(slow.output()); n > 2<<20 {
		t.Errorf("the slow client was sent %d bytes", n)
	}
	p.print(" of it")
	slow.shows("the end of it")
}

// A flood that nobody can read does not hold up the program that prints it, for
// the sake of a client that would take all of it.
func TestFlood(t *testing.T) {
	r := newRig(t)
	p := r.window(0)
	v := r.attach(Request{Cols: 80, Rows: 24})
	v.got(kindScreen)
	line := strings.Repeat("x", 78) + "\r\n"
	begun := time.Now()
	for range 300 {
		p.print(strings.Repeat(line, 1000))
	}
	most := floodBurst + int(time.Since(begun).Seconds()+1)*floodRate
	p.print("\x1b[2J\x1b[1;1Hthe end")
	v.shows("the end")
	if n := len(v.output()); n > most+most/2 { // the screens come on top
		t.Errorf("the client was sent %d bytes of 24 MB", n)
	}
	v.send(kindInput, "x")
	p.typed("x")
	p.print(" of it")
	v.shows("the end of it")
}

func TestStuckClientIsPutOut(t *testing.T) {
	r := newRig(t)
	r.server.config.patience = 100 * time.Millisecond
	p := r.window(0)
	conn := r.connect(Peer{UID: 1000, PID: 8})
	if err := writeFrame(conn, kindHello, encodeJSON(Request{Version: protocolVersion, Verb: VerbAttach, Cols: 80, Rows: 24})); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return len(r.list().Windows[0].Clients) == 1 }, func() string { return "not attached" })
	for range 40 {
		p.print(strings.Repeat(strings.Repeat("x", 78)+"\r\n", 500))
	}
	eventually(t, func() bool { return len(r.list().Windows[0].Clients) == 0 }, func() string { return "still attached" })
	if r.noted(EventPutOut) != 1 {
		t.Errorf("events: %+v", r.events)
	}
}

// The end of a window comes after all that its program printed.
func TestWindowEnds(t *testing.T) {
	r := newRig(t)
	p, other := r.window(0), r.window(0)
	small := r.attach(Request{Cols: 30, Rows: 10})
	small.got(kindScreen)
	r.server.mu.Lock()
	for c := range r.server.clients { // as if it had just been drawn
		c.queue.mu.Lock()
		c.queue.drawn = time.Now().Add(time.Hour)
		c.queue.mu.Unlock()
	}
	r.server.mu.Unlock()
	v, local := r.attach(Request{Cols: 80, Rows: 24}), r.attach(Request{Cols: 80, Rows: 24, Window: "w1"})
	v.got(kindScreen)
	p.print(strings.Repeat("y", 50000) + "\x1b[2J\x1b[1;1Hlast words")
	r.server.Exited(p.id, 7)
	p.tty.Close()
	if got := decodeCode([]byte(v.got(kindEnded))); got != 7 {
		t.Errorf("exit code %d", got)
	}
	if !strings.Contains(v.output(), "last words") {
		t.Error("the last output was lost")
	}
	small.got(kindEnded)
	if !strings.Contains(small.output(), "last words") {
		t.Error("the last output was lost for a client of another size")
	}
	other.print("alive")
	local.shows("alive")
	if n := len(r.list().Windows); n != 1 {
		t.Errorf("%d windows are listed", n)
	}

	// Something else holds the other one's terminal open.
	r.server.Exited(other.id, 3)
	if got := decodeCode([]byte(local.got(kindEnded))); got != 3 {
		t.Errorf("exit code %d", got)
	}
}

func TestWindows(t *testing.T) {
	r := newRig(t)
	r.onOpen = func(request uint32, q Request) { r.window(request).print("new window") }
	first := r.window(0)
	first.print("window 0")
	v := r.attach(Request{Cols: 80, Rows: 24})
	v.shows("window 0")
	v.send(kindSwitch, "c")
	v.shows("new window")
	v.send(kindSwitch, "n")
	v.shows("window 0")
	v.send(kindSwitch, "p")
	v.shows("new window")
	v.send(kindSwitch, "0")
	v.shows("window 0")
	v.send(kindSwitch, "9") // there is none: nothing happens
	v.send(kindInput, "k")
	first.typed("k")

	text, err := r.call(Request{Verb: VerbNew, Name: "tests", Argv: []string{"make", "test"}})
	if err != nil || !strings.Contains(text, `"id":2`) {
		t.Errorf("new: %s, %v", text, err)
	}
	if _, err := r.call(Request{Verb: VerbKill, Window: "w1"}); err != nil || len(r.killed) != 1 || r.killed[0] != 1 {
		t.Errorf("kill: %v, %v", r.killed, err)
	}
	if _, err := r.call(Request{Verb: VerbKill, Window: "nothing"}); !errors.Is(err, ErrRefused) {
		t.Errorf("kill of nothing: %v", err)
	}
	if text, err := r.call(Request{Verb: VerbHistory}); err != nil || !strings.Contains(text, "window 0") {
		t.Errorf("history: %q, %v", text, err)
	}
	r.refuse = errNoWindow
	if _, err := r.call(Request{Verb: VerbNew}); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "no window today") {
		t.Errorf("refused: %v", err)
	}
	r.refuse, r.onOpen = nil, nil // the keeper is slow
	for range maxOpening {
		r.connectNew()
	}
	eventually(t, func() bool { r.mu.Lock(); defer r.mu.Unlock(); return len(r.opened) >= 3+maxOpening }, func() string { return "not asked" })
	if _, err := r.call(Request{Verb: VerbNew}); !errors.Is(err, ErrRefused) {
		t.Errorf("too many at once: %v", err)
	}
}

func (r *rig) connectNew() {
	if err := writeFrame(r.connect(Peer{UID: 1000}), kindHello, encodeJSON(Request{Version: protocolVersion, Verb: VerbNew})); err != nil {
		r.Error(err)
	}
}

// A terminal that is a window may not show the session: it would show itself.
// A window that has shown nothing yet takes the place of one that has.
func TestSwitchToEmptyWindow(t *testing.T) {
	r := newRig(t)
	first := r.window(0)
	v := &viewer{T: t, conn: r.connect(Peer{Local: true}), term: terminal.New(terminal.Options{Cols: 80, Rows: 24})}
	v.send(kindHello, string(encodeJSON(Request{Version: protocolVersion, Verb: VerbAttach, Cols: 80, Rows: 24})))
	go v.read()
	v.got(kindWindow)
	first.print("in the first")
	v.shows("in the first")
	second := r.window(0)
	v.send(kindSwitch, "n")
	v.shows("")
	second.print("in the second")
	v.shows("in the second")
}

func TestNested(t *testing.T) {
	r := newRig(t)
	p := r.window(0)
	tty := TTYOf(int(p.tty.Fd()))
	if tty == (TTY{}) {
		t.Fatal("the program's terminal can't be told")
	}
	v := r.attach(Request{Cols: 80, Rows: 24, TTY: tty})
	if why := v.got(kindError); !strings.Contains(why, "itself") {
		t.Error(why)
	}
	w := r.attach(Request{Cols: 80, Rows: 24, TTY: tty, Nested: true})
	w.got(kindScreen)
}

// Hostile clients end alone.
func TestHostileClients(t *testing.T) {
	r := newRig(t)
	p := r.window(0)
	v := r.attach(Request{Cols: 80, Rows: 24})
	v.got(kindScreen)
	hello := encodeJSON(Request{Version: protocolVersion, Verb: VerbAttach, Cols: 80, Rows: 24})
	for name, b := range map[string][]byte{
		"nonsense":        []byte("GET / HTTP/1.1\r\n\r\n"),
		"a huge frame":    appendHeader(nil, kindInput, 1<<31),
		"no hello":        appendFrame(nil, kindSwitch, []byte("Q")),
		"a bad hello":     appendFrame(nil, kindHello, []byte(`{"version":1,"verb":"attach","cols":999999}`)),
		"a bad size":      append(appendFrame(nil, kindHello, hello), appendFrame(nil, kindResize, []byte{0xff, 0xff, 0xff, 0xff})...),
		"a server's word": append(appendFrame(nil, kindHello, hello), appendFrame(nil, kindEnded, encodeCode(1))...),
		"a bad window":    append(appendFrame(nil, kindHello, hello), appendFrame(nil, kindSwitch, []byte("\xff"))...),
	} {
		c := r.connect(Peer{UID: 1000, PID: 9})
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
	flood := r.connect(Peer{UID: 1000, PID: 10})
	many := appendFrame(nil, kindHello, hello)
	for range 2000 {
		many = appendFrame(appendFrame(many, kindSwitch, []byte("n")), kindRedraw, nil)
	}
	_ = flood.SetWriteDeadline(time.Now().Add(20 * time.Second))
	for range 50 {
		if _, err := flood.Write(many[headerSize+len(hello):]); err != nil {
			break
		}
	}
	v.send(kindInput, "still here")
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
	for range maxConnections {
		if !r.server.count(os.Getuid() == 0, 1) {
			t.Fatal("too few")
		}
	}
	c, err := Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := Call(c, Request{Verb: VerbList}, &strings.Builder{}); !errors.Is(err, ErrRefused) {
		t.Errorf("one too many: %v", err)
	}
	if !r.server.count(os.Getuid() != 0, 1) {
		t.Error("one uid's connections count for the other")
	}
	stop()
	if err := <-served; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestShutdown(t *testing.T) {
	r := newRig(t)
	p := r.window(0)
	v := r.attach(Request{Cols: 80, Rows: 24})
	v.got(kindScreen)
	p.print("goodbye")
	r.server.Exited(p.id, 5)
	p.tty.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	r.server.Shutdown(ctx)
	if ctx.Err() != nil {
		t.Error("it took for ever")
	}
	if got := decodeCode([]byte(v.got(kindEnded))); got != 5 || !strings.Contains(v.output(), "goodbye") {
		t.Errorf("exit code %d, output %q", got, v.output())
	}
	if r.server.count(true, 1) {
		t.Error("it takes clients after its end")
	}
}

// A program that does not read holds up who types to it, and nobody else.
func TestProgramThatDoesNotRead(t *testing.T) {
	r := newRig(t)
	master, tty := mustOpen(t)
	if err := r.server.Add(WindowSpec{ID: 9, Name: "deaf", Master: master}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.server.Exited(9, 0); tty.Close() })
	v := r.attach(Request{Cols: 80, Rows: 24, Window: "deaf"})
	v.got(kindScreen)
	go func() {
		_ = v.conn.SetWriteDeadline(time.Now().Add(10 * time.Second))
		for range 1000 {
			if writeFrame(v.conn, kindInput, []byte(strings.Repeat("x", maxInput))) != nil {
				return
			}
		}
	}()
	fmt.Fprint(tty, "output goes on")
	v.shows("output goes on")
	other := r.attach(Request{Cols: 80, Rows: 24, Window: "deaf"})
	other.shows("output goes on")
}

// A program may close its terminal and open it again: its window goes on as
// long as it lives.
func TestTerminalClosedAndOpenedAgain(t *testing.T) {
	r := newRig(t)
	master, tty := mustOpen(t)
	if err := r.server.Add(WindowSpec{ID: 1, Name: "daemon", Master: master}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.server.Exited(1, 0) })
	v := r.attach(Request{Cols: 80, Rows: 24})
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

// What a client causes, and does not read, is bounded.
func TestQueueIsBounded(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[1])
	f := os.NewFile(uintptr(fds[0]), "pair")
	conn, err := net.FileConn(f)
	f.Close()
	if err != nil {
		t.Fatal(err)
	}
	q, err := newQueue(conn.(*net.UnixConn), func() {}, 0)
	if err != nil {
		t.Fatal(err)
	}
	piece := make([]byte, 1<<20)
	n := 0
	for ; n < 100 && q.put(kindScreen, piece, false); n++ {
	}
	if n == 100 {
		t.Error("it took 100 MiB")
	}
	select {
	case <-q.done:
	default:
		t.Error("the client is still there")
	}
}
