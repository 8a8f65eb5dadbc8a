package session

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/internal/wire/sessionop"
	"github.com/agent-init/agent-init/pkg/session/internal/frame"
	"github.com/agent-init/agent-init/pkg/session/protocol"
)

// A client that reads nothing holds up nobody, and gets the screen as it is
// when it goes on; if it never does, it is put out.
func TestSlowClient(t *testing.T) {
	r := newRig(t)
	p := r.window(0)
	conn := r.connect(peer{uid: 1000, pid: 8})
	q := protocol.Request{Verb: protocol.VerbAttach, Cols: 80, Rows: 24}
	if err := writeFrame(conn, frame.Hello, string(q.Encode())); err != nil {
		t.Fatal(err)
	}
	fast := r.attach(protocol.Request{Cols: 80, Rows: 24})
	fast.got(frame.Screen)
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
	v := r.attach(protocol.Request{Cols: 80, Rows: 24})
	v.got(frame.Screen)
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
	v.send(frame.Input, "x")
	p.typed("x")
	p.print(" of it")
	v.shows("the end of it")
}

func TestStuckClientIsPutOut(t *testing.T) {
	r := newRig(t)
	r.server.config.patience = 100 * time.Millisecond
	p := r.window(0)
	conn := r.connect(peer{uid: 1000, pid: 8})
	if err := writeFrame(conn, frame.Hello, string(protocol.Request{Verb: protocol.VerbAttach, Cols: 80, Rows: 24}.Encode())); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return len(r.list().Windows[0].Clients) == 1 }, func() string { return "not attached" })
	for range 40 {
		p.print(strings.Repeat(strings.Repeat("x", 78)+"\r\n", 500))
	}
	eventually(t, func() bool { return len(r.list().Windows[0].Clients) == 0 }, func() string { return "still attached" })
	if r.noted(sessionop.PutOut) != 1 {
		t.Errorf("events: %+v", r.events)
	}
}

// A program that does not read holds up who types to it, and nobody else.
func TestProgramThatDoesNotRead(t *testing.T) {
	r := newRig(t)
	master, tty := mustOpen(t)
	r.server.Take(wire.Message{Op: sessionop.Window, ID: 9, Text: "deaf"}, master)
	t.Cleanup(func() { r.exited(9, 0); tty.Close() })
	v := r.attach(protocol.Request{Cols: 80, Rows: 24, Window: "deaf"})
	v.got(frame.Screen)
	go func() {
		_ = v.conn.SetWriteDeadline(time.Now().Add(time.Minute))
		for range 1000 {
			if writeFrame(v.conn, frame.Input, strings.Repeat("x", 4<<10)) != nil {
				return
			}
		}
	}()
	fmt.Fprint(tty, "output goes on")
	v.shows("output goes on")
	other := r.attach(protocol.Request{Cols: 80, Rows: 24, Window: "deaf"})
	other.shows("output goes on")
	// Nor what others want besides, who type to it too.
	other.send(frame.Input, "y")
	other.send(frame.Switch, "x")
	eventually(t, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.killed) == 1
	}, func() string { return "the window is not ended" })
}

// What a client causes, and does not read, is bounded.
func TestQueueIsBounded(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[1])
	conn, err := openTerminal(os.NewFile(uintptr(fds[0]), "pair"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	q := newQueue(conn, func() {}, 0, make(chan struct{}, 1))
	piece := make([]byte, 1<<20)
	n := 0
	for ; n < 100 && q.put(frame.Screen, piece, false); n++ {
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
