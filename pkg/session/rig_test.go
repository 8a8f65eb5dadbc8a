package session

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/internal/wire/sessionop"
	"github.com/agent-init/agent-init/pkg/session/attach"
	"github.com/agent-init/agent-init/pkg/session/internal/frame"
	"github.com/agent-init/agent-init/pkg/session/protocol"
	"github.com/agent-init/agent-init/pkg/session/terminal"
)

// rig is a server with windows whose programs are the tests themselves.
type rig struct {
	*testing.T
	server *Server

	mu     sync.Mutex
	events []sessionop.Event
	opened []protocol.Request
	killed []uint32
	full   int
	nextID uint32
	refuse error
	onOpen func(request uint64, r protocol.Request)
}

func newRig(t *testing.T) *rig {
	r := &rig{T: t}
	r.server = NewServer(Config{Name: "test", AgentUID: 1000, Clipboard: true, RecordLimit: 1 << 30, Log: slog.New(slog.DiscardHandler), Tell: r.told, scrollback: 500, patience: time.Minute})
	return r
}

// told is what the keeper would do.
func (r *rig) told(m wire.Message) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch m.Op {
	case sessionop.Open:
		name, argv, err := sessionop.SplitCommand(m.Text)
		if err != nil {
			return err
		}
		q := protocol.Request{Name: name, Argv: argv, Cols: int(m.Cols), Rows: int(m.Rows)}
		r.opened = append(r.opened, q)
		if r.refuse == nil && r.onOpen != nil {
			go r.onOpen(m.Arg, q)
		}
		return r.refuse
	case sessionop.Kill:
		r.killed = append(r.killed, m.ID)
	case sessionop.Noted:
		r.events = append(r.events, sessionop.Event(m.Flag))
	case sessionop.Full:
		r.full++
	}
	return nil
}

// exited says that a window's program has ended.
func (r *rig) exited(id uint32, code int) {
	r.server.Take(wire.Message{Op: sessionop.Exited, ID: id, Value: int64(code)}, nil)
}

// program is the far side of a window.
type program struct {
	*testing.T
	id  uint32
	tty *os.File
	mu  sync.Mutex
	got strings.Builder
}

// window adds a window and returns its program, on a terminal in raw mode.
func (r *rig) window(request uint64) *program {
	r.Helper()
	master, tty := mustOpen(r.T)
	r.mu.Lock()
	p := &program{T: r.T, id: r.nextID, tty: tty}
	r.nextID++
	r.mu.Unlock()
	m := wire.Message{Op: sessionop.Window, ID: p.id, Arg: request, Text: "w" + string(rune('0'+p.id)), PID: 42, Value: time.Now().UnixNano()}
	r.server.Take(m, master)
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := tty.Read(b)
			if err != nil {
				return
			}
			p.mu.Lock()
			p.got.Write(b[:n])
			p.mu.Unlock()
		}
	}()
	r.Cleanup(func() { r.exited(p.id, 0); tty.Close() })
	return p
}

func (p *program) print(s string) {
	p.Helper()
	if _, err := p.tty.WriteString(s); err != nil {
		p.Fatal(err)
	}
}

// typed waits until the program has read want, at the end of all input.
func (p *program) typed(want string) {
	p.Helper()
	eventually(p.T, func() bool { return strings.HasSuffix(p.input(), want) }, func() string { return "the program got " + p.input() + ", want " + want })
}

func (p *program) input() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.got.String()
}

func (p *program) size() (cols, rows int) {
	s, err := unix.IoctlGetWinsize(int(p.tty.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		p.Fatal(err)
	}
	return int(s.Col), int(s.Row)
}

// got is a frame that came.
type got struct {
	k       frame.Kind
	payload string
}

// viewer is a client with a terminal: what it is sent is shown on a model.
type viewer struct {
	*testing.T
	conn *net.UnixConn

	mu     sync.Mutex
	term   *terminal.Terminal
	raw    []byte
	frames []got
	closed bool
	err    error
}

// connect makes a connection of a peer that may.
func (r *rig) connect(who peer) *net.UnixConn {
	r.Helper()
	server, client := r.pair()
	go r.server.serveConn(server, who)
	return client
}

// pair makes the two ends of a connection.
func (r *rig) pair() (server, client *net.UnixConn) {
	r.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		r.Fatal(err)
	}
	ends := make([]*net.UnixConn, 2)
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			r.Fatal(err)
		}
		ends[i] = c.(*net.UnixConn)
	}
	r.Cleanup(func() { ends[1].Close() })
	return ends[0], ends[1]
}

func (r *rig) attach(q protocol.Request) *viewer {
	r.Helper()
	q.Verb = protocol.VerbAttach
	v := &viewer{T: r.T, conn: r.connect(peer{uid: 1000, pid: 7}), term: terminal.New(terminal.Options{Cols: q.Cols, Rows: q.Rows})}
	v.send(frame.Hello, string(q.Encode()))
	go v.read()
	return v
}

func (v *viewer) read() {
	frames := &frame.Reader{R: v.conn, FromServer: true}
	for {
		k, payload, err := frames.Next()
		v.mu.Lock()
		if err != nil {
			v.closed, v.err = true, err
			v.mu.Unlock()
			return
		}
		if k == frame.Screen || k == frame.Output {
			_, _ = v.term.Write(payload)
			v.raw = append(v.raw, payload...)
		}
		v.frames = append(v.frames, got{k, string(payload)})
		v.mu.Unlock()
	}
}

func (v *viewer) send(k frame.Kind, payload string) {
	v.Helper()
	if err := writeFrame(v.conn, k, payload); err != nil {
		v.Error(err)
	}
}

func writeFrame(to io.Writer, k frame.Kind, payload string) error {
	_, err := to.Write(frame.Append(nil, k, []byte(payload)))
	return err
}

// screen is the text that is shown, without empty lines at the end.
func (v *viewer) screen() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return screenText(v.term)
}

// pastes says whether the terminal is left in the mode of bracketed paste. The lock is held.
func (v *viewer) pastes() bool {
	return bytes.LastIndex(v.raw, []byte("\x1b[?2004h")) > bytes.LastIndex(v.raw, []byte("\x1b[?2004l"))
}

func screenText(t *terminal.Terminal) string {
	return strings.TrimRight(strings.Join(t.Text(), "\n"), "\n")
}

// shows waits for the screen.
func (v *viewer) shows(want string) {
	v.Helper()
	eventually(v.T, func() bool { return v.screen() == want }, func() string { return "the screen is\n" + v.screen() + "\nwant\n" + want })
}

// got waits for a frame of a kind and returns its payload.
func (v *viewer) got(k frame.Kind) string {
	v.Helper()
	var payload string
	eventually(v.T, func() bool {
		v.mu.Lock()
		defer v.mu.Unlock()
		for _, f := range v.frames {
			if f.k == k {
				payload = f.payload
				return true
			}
		}
		return false
	}, func() string { return "no frame of kind " + string(k) })
	return payload
}

func (v *viewer) output() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return string(v.raw)
}

func (v *viewer) isClosed() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.closed
}

func eventually(t *testing.T, ok func() bool, why func() string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(why())
		}
	}
}

// call makes a request as the agent.
func (r *rig) call(q protocol.Request) (string, error) {
	r.Helper()
	var b strings.Builder
	err := attach.Call(r.connect(peer{uid: 1000, pid: 7}), q, &b)
	r.mu.Lock() // what told has done is done: the race detector sees no order in bare calls of the kernel
	defer r.mu.Unlock()
	return b.String(), err
}

func (r *rig) list() protocol.Info {
	r.Helper()
	text, err := r.call(protocol.Request{Verb: protocol.VerbList})
	var i protocol.Info
	if err == nil {
		err = json.Unmarshal([]byte(text), &i)
	}
	if err != nil {
		r.Fatal(err)
	}
	return i
}

func (r *rig) noted(kind sessionop.Event) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, e := range r.events {
		if e == kind {
			n++
		}
	}
	return n
}

var errNoWindow = errors.New("no window today")

func newModel(cols, rows int) *terminal.Terminal {
	return terminal.New(terminal.Options{Cols: cols, Rows: rows})
}

// mustOpen makes a terminal pair whose far side is in raw mode.
func mustOpen(t *testing.T) (master, tty *os.File) {
	t.Helper()
	master, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	m, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	m.Lflag &^= unix.ECHO | unix.ICANON | unix.ISIG
	m.Oflag &^= unix.OPOST
	m.Iflag = 0
	if err := unix.IoctlSetTermios(int(tty.Fd()), unix.TCSETS, m); err != nil {
		t.Fatal(err)
	}
	return master, tty
}
