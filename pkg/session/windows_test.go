package session

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/wire/sessionop"
	"github.com/agent-init/agent-init/pkg/session/attach"
	"github.com/agent-init/agent-init/pkg/session/internal/frame"
	"github.com/agent-init/agent-init/pkg/session/protocol"
	"github.com/agent-init/agent-init/pkg/session/terminal"
)

// The end of a window comes after all that its program printed.
func TestWindowEnds(t *testing.T) {
	r := newRig(t)
	p, other := r.window(0), r.window(0)
	small := r.attach(protocol.Request{Cols: 30, Rows: 10})
	small.got(frame.Screen)
	r.server.mu.Lock()
	for c := range r.server.clients { // as if it had just been drawn
		c.queue.mu.Lock()
		c.queue.drawn = time.Now().Add(time.Hour)
		c.queue.mu.Unlock()
	}
	r.server.mu.Unlock()
	v, local := r.attach(protocol.Request{Cols: 80, Rows: 24}), r.attach(protocol.Request{Cols: 80, Rows: 24, Window: "w1"})
	v.got(frame.Screen)
	p.print(strings.Repeat("y", 50000) + "\x1b[2J\x1b[1;1Hlast words")
	r.exited(p.id, 7)
	p.tty.Close()
	if got := frame.NumberOf([]byte(v.got(frame.Ended))); got != 7 {
		t.Errorf("exit code %d", got)
	}
	if !strings.Contains(v.output(), "last words") {
		t.Error("the last output was lost")
	}
	small.got(frame.Ended)
	if !strings.Contains(small.output(), "last words") {
		t.Error("the last output was lost for a client of another size")
	}
	other.print("alive")
	local.shows("alive")
	if n := len(r.list().Windows); n != 1 {
		t.Errorf("%d windows are listed", n)
	}

	// Something else holds the other one's terminal open.
	r.exited(other.id, 3)
	if got := frame.NumberOf([]byte(local.got(frame.Ended))); got != 3 {
		t.Errorf("exit code %d", got)
	}
}

func TestWindows(t *testing.T) {
	r := newRig(t)
	r.onOpen = func(request uint64, q protocol.Request) { r.window(request).print("new window") }
	first := r.window(0)
	first.print("window 0")
	v := r.attach(protocol.Request{Cols: 80, Rows: 24})
	v.shows("window 0")
	v.send(frame.Switch, "c")
	v.shows("new window")
	v.send(frame.Switch, "n")
	v.shows("window 0")
	v.send(frame.Switch, "p")
	v.shows("new window")
	v.send(frame.Switch, "0")
	v.shows("window 0")
	v.send(frame.Switch, "9") // there is none: nothing happens
	v.send(frame.Input, "k")
	first.typed("k")

	text, err := r.call(protocol.Request{Verb: protocol.VerbNew, Name: "tests", Argv: []string{"make", "test"}})
	if err != nil || !strings.Contains(text, `"id":2`) {
		t.Errorf("new: %s, %v", text, err)
	}
	if _, err := r.call(protocol.Request{Verb: protocol.VerbKill, Window: "w1"}); err != nil || len(r.killed) != 1 || r.killed[0] != 1 {
		t.Errorf("kill: %v, %v", r.killed, err)
	}
	if _, err := r.call(protocol.Request{Verb: protocol.VerbKill, Window: "nothing"}); !errors.Is(err, attach.ErrRefused) {
		t.Errorf("kill of nothing: %v", err)
	}
	if text, err := r.call(protocol.Request{Verb: protocol.VerbHistory}); err != nil || !strings.Contains(text, "window 0") {
		t.Errorf("history: %q, %v", text, err)
	}
	r.refuse = errNoWindow
	if _, err := r.call(protocol.Request{Verb: protocol.VerbNew}); !errors.Is(err, attach.ErrRefused) || !strings.Contains(err.Error(), "no window today") {
		t.Errorf("refused: %v", err)
	}
	r.refuse, r.onOpen = nil, nil // the keeper is slow
	opened := func(n int) {
		eventually(t, func() bool { r.mu.Lock(); defer r.mu.Unlock(); return len(r.opened) >= 3+n }, func() string { return "not asked" })
	}
	for range maxOpening - keptOpening {
		r.connectNew(1000)
	}
	opened(maxOpening - keptOpening)
	if _, err := r.call(protocol.Request{Verb: protocol.VerbNew}); !errors.Is(err, attach.ErrRefused) || !strings.Contains(err.Error(), "are being opened") {
		t.Errorf("too many at once: %v", err)
	}
	r.connectNew(0)
	opened(maxOpening)
}

// TestWindowsOfRoot: the agent can't open so many windows that none is left for root.
func TestWindowsOfRoot(t *testing.T) {
	r := newRig(t)
	r.mu.Lock()
	r.onOpen = func(request uint64, _ protocol.Request) { r.window(request) }
	r.mu.Unlock()
	for i := range maxWindows {
		if _, err := r.call(protocol.Request{Verb: protocol.VerbNew}); (err == nil) != (i < maxWindows-keptWindows) {
			t.Fatalf("the agent's window %d: %v", i, err)
		}
	}
	r.connectNew(0)
	eventually(t, func() bool { return len(r.list().Windows) == maxWindows-keptWindows+1 }, func() string { return "root has no window" })
}

func (r *rig) connectNew(uid uint32) {
	if err := writeFrame(r.connect(peer{uid: uid}), frame.Hello, string(protocol.Request{Verb: protocol.VerbNew}.Encode())); err != nil {
		r.Error(err)
	}
}

// Who has gone while a window was opened for it is not shown that window: its size
// would be the window's for good, and its terminal would be asked.
func TestNewWindowOfClientThatLeft(t *testing.T) {
	r := newRig(t)
	r.window(0)
	v := r.attach(protocol.Request{Cols: 80, Rows: 24})
	v.got(frame.Screen)
	opened := make(chan struct{})
	r.mu.Lock()
	r.onOpen = func(request uint64, _ protocol.Request) {
		defer close(opened)
		v.conn.Close()
		eventually(t, func() bool { return r.noted(sessionop.Detached) == 1 }, func() string { return "it did not leave" })
		r.window(request)
	}
	r.mu.Unlock()
	v.send(frame.Switch, "c")
	<-opened
	windows := r.list().Windows
	if len(windows) != 2 {
		t.Fatalf("%+v", windows)
	}
	for _, w := range windows {
		if len(w.Clients) != 0 {
			t.Errorf("who has gone looks at window %d: %+v", w.ID, w.Clients)
		}
	}
}

// A window that has shown nothing yet takes the place of one that has.
func TestSwitchToEmptyWindow(t *testing.T) {
	r := newRig(t)
	first := r.window(0)
	v := &viewer{T: t, conn: r.connect(peer{local: true}), term: terminal.New(terminal.Options{Cols: 80, Rows: 24})}
	v.send(frame.Hello, string(protocol.Request{Verb: protocol.VerbAttach, Cols: 80, Rows: 24}.Encode()))
	go v.read()
	v.got(frame.Window)
	first.print("in the first")
	v.shows("in the first")
	second := r.window(0)
	v.send(frame.Switch, "n")
	v.shows("")
	second.print("in the second")
	v.shows("in the second")
}

// A terminal that is a window may not show the session: it would show itself.
func TestNested(t *testing.T) {
	r := newRig(t)
	p := r.window(0)
	tty := protocol.TTYOf(int(p.tty.Fd()))
	if tty == (protocol.TTY{}) {
		t.Fatal("the program's terminal can't be told")
	}
	v := r.attach(protocol.Request{Cols: 80, Rows: 24, TTY: tty})
	if why := v.got(frame.Error); !strings.Contains(why, "itself") {
		t.Error(why)
	}
	w := r.attach(protocol.Request{Cols: 80, Rows: 24, TTY: tty, Nested: true})
	w.got(frame.Screen)
}
