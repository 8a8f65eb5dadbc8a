// Package attach is the client of a session: it shows a server's window on a terminal, and asks for what needs none.
package attach

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/session/internal/frame"
	"github.com/agent-init/agent-init/pkg/session/internal/typed"
	"github.com/agent-init/agent-init/pkg/session/protocol"
	"github.com/agent-init/agent-init/pkg/session/terminal"
)

// Options say how a client shows a window on a terminal.
type Options struct {
	// Dial connects to the server. If the connection breaks, it is called again, unless the client is Local.
	Dial    func() (*os.File, error)
	Request protocol.Request // Window, Read, Nested; the rest is filled in

	In, Out *os.File         // the person's terminal
	Signals <-chan os.Signal // SIGWINCH, SIGCONT, and requests to end
	Prefix  Prefix

	// Local is for the container's own terminal: the client goes on to the next window when one ends, waits for a key
	// after it was detached, and draws again when the size has changed: it may be another terminal.
	Local bool
	Again string // how to come back, for the person; of a Local one, with the bracket that ends the note

	Requests Requests // of the agent's; its zero value: there is none to be seen
}

// Result is how an attachment ended.
type Result struct {
	Detached bool
	Code     int // the window's exit code, if it ended
	Window   string
}

// Errors of Attach.
var (
	// ErrLost is a server that went away and did not come back.
	ErrLost = errors.New("the connection to the session was lost")
	// ErrTerminal is a terminal that was hung up.
	ErrTerminal = errors.New("the terminal was lost")
	// ErrSignal is a signal that asked to end.
	ErrSignal = errors.New("ended by a signal")
)

// How long the client waits.
const (
	escapeTime  = 25 * time.Millisecond  // for the rest of a sequence, before it was the key Escape
	settleTime  = 150 * time.Millisecond // for further changes of size
	sizeTime    = 200 * time.Millisecond // for a terminal that has no size yet
	detachTime  = time.Second            // for the server to say goodbye
	endTime     = 400 * time.Millisecond // for the window to end as well: PID 1 ends all processes together
	stuckSignal = time.Second            // for a client that is blocked to act on a signal
	lostTime    = 10 * time.Second       // for a server to come back
	lostPause   = 100 * time.Millisecond // before the first try; each further one waits twice as long
	mostPause   = 2 * time.Second
	steadyAfter = time.Second // a connection that lives as long was one
)

// maxTyped is how much input waits for a server that does not take it. More is lost, but the prefix key still works.
const maxTyped = 256 << 10

// Run shows a window on the terminal until it ends, the person leaves, or something breaks. The terminal stays as it
// was.
func Run(o Options) (Result, error) {
	woken, waker, err := os.Pipe()
	if err != nil {
		return Result{}, err
	}
	defer woken.Close()
	defer waker.Close()
	a := &attachment{
		o: o, in: int(o.In.Fd()), out: int(o.Out.Fd()), keys: keys{prefix: o.Prefix}, sock: -1, woken: woken, waker: waker,
		signals: make(chan os.Signal, 64), came: make(chan came, 16),
	}
	saved, err := unix.IoctlGetTermios(a.in, unix.TCGETS)
	if errors.Is(err, unix.EIO) {
		return Result{}, ErrTerminal
	}
	if err != nil {
		return Result{}, fmt.Errorf("the input is no terminal: %w", err)
	}
	a.saved = *saved
	if err := a.makeRaw(); err != nil {
		return Result{}, err
	}
	defer a.restore()
	stop := make(chan struct{})
	defer close(stop)
	go a.watchSignals(stop)
	err = a.run()
	a.closeConn()
	a.reset() // if the server has not said goodbye
	return a.result, err
}

// attachment is one client at work. One goroutine has all of it.
type attachment struct {
	o       Options
	in, out int
	sock    int
	signals chan os.Signal
	woken   *os.File // can be read once waker was written: there is something else to do
	waker   *os.File
	conn    *os.File
	saved   unix.Termios
	keys    keys

	typed   []byte // frames that the server has not taken yet
	from    *socket
	frames  frame.Reader
	buf     []byte
	result  Result
	dirty   bool      // the terminal shows a window
	traces  []byte    // takes back what the window left there
	over    *overlay  // nil: the terminal shows the window
	came    chan came // what came of answers to requests
	answers bool      // the terminal does, to what it is asked
	fault   error     // of a key
	name    string    // of the window
	idle    bool      // Local, and detached
	cols    int
	rows    int

	// Deadlines, or zero.
	leaving  time.Time // for the server to let us go
	ending   time.Time // for the window to end, after a signal
	settling time.Time // for further changes of size
	escape   time.Time // for the rest of a sequence
	retry    time.Time // to connect again: there is no connection

	connected time.Time     // last
	lostFirst time.Time     // when the last steady connection ended
	pause     time.Duration // before the next try
}

func (a *attachment) makeRaw() error {
	t := Raw(a.saved)
	if err := unix.IoctlSetTermios(a.in, unix.TCSETS, &t); err != nil {
		return fmt.Errorf("set the terminal to raw mode: %w", err)
	}
	return nil
}

// restore also forgets what was typed and not read: a shell would take a terminal's late answer for a command.
func (a *attachment) restore() {
	_ = unix.IoctlSetTermios(a.in, unix.TCSETSF, &a.saved)
}

// reset brings a terminal back that shows nobody knows what.
func (a *attachment) reset() {
	if a.dirty && !a.o.Request.Plain {
		reset := terminal.New(terminal.Options{Cols: 80, Rows: 24, Scrollback: -1}).Reset()
		_ = a.write(slices.Concat([]byte(terminal.CutOff), reset, a.traces, []byte("\x1b[999;1H\r\n")))
	}
	a.dirty = false
}

// watchSignals hands signals to the loop. One that asks to end also works while a terminal takes nothing.
func (a *attachment) watchSignals(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case sig := <-a.o.Signals:
			select {
			case a.signals <- sig:
				a.wake()
			default: // it is blocked
			}
			if sig == unix.SIGWINCH || sig == unix.SIGCONT {
				continue
			}
			select {
			case <-stop:
				return
			case <-time.After(stuckSignal):
				a.restore()
				signal.Reset(sig)
				_ = unix.Kill(unix.Getpid(), sig.(syscall.Signal))
			}
		}
	}
}

func (a *attachment) run() error {
	if err := a.connect(); err != nil {
		return err
	}
	a.buf = make([]byte, 64<<10)
	for {
		err := a.wait()
		for len(a.signals) > 0 && err == nil {
			err = a.signalled(<-a.signals)
		}
		for len(a.came) > 0 && err == nil {
			err = a.took(<-a.came)
		}
		if err == nil {
			err = a.expired()
		}
		if errors.Is(err, io.EOF) {
			err = a.disconnected()
		}
		if errors.Is(err, errFinished) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

var errFinished = errors.New("finished")

func (a *attachment) expired() error {
	if past(a.escape) {
		a.escape = time.Time{}
		a.keys.flush(a.input)
		if a.fault != nil {
			return a.fault
		}
	}
	if err := a.looks(); err != nil {
		return err
	}
	if past(a.settling) {
		a.settling = time.Time{}
		switch {
		case !a.o.Local || !a.dirty:
		case a.over != nil:
			return a.reopen()
		default:
			a.sendSize()
		}
	}
	if past(a.retry) {
		return a.reconnect()
	}
	if past(a.ending) {
		return ErrSignal
	}
	if past(a.leaving) {
		return a.left()
	}
	return nil
}

func (a *attachment) signalled(sig os.Signal) error {
	switch {
	case sig == syscall.SIGWINCH:
		if cols, rows := a.size(); cols > 0 && !a.idle {
			if cols != a.cols || rows != a.rows {
				a.cols, a.rows = cols, rows
				a.sendSize()
				if a.over != nil {
					a.over.shown = a.over.shown[:0]
					return a.paint()
				}
			}
			a.settling = time.Now().Add(settleTime)
		}
	case sig == syscall.SIGCONT: // a shell had the terminal meanwhile
		if err := a.makeRaw(); err != nil {
			return ErrTerminal
		}
		if a.over != nil {
			return a.reopen()
		}
		a.sendSize()
	case sig == syscall.SIGTERM && a.ending.IsZero():
		a.ending = time.Now().Add(endTime)
	default:
		return ErrSignal
	}
	return nil
}

// sendSize says the terminal's size; said again, it has the server draw the screen.
func (a *attachment) sendSize() { a.send(frame.Resize, frame.Size(a.cols, a.rows)) }

func (a *attachment) send(k frame.Kind, payload []byte) {
	if k == frame.Input && len(a.typed) > maxTyped {
		return
	}
	a.typed = frame.Append(a.typed, k, payload)
	a.flush()
}

func (a *attachment) flush() {
	if a.sock < 0 {
		a.typed = a.typed[:0]
		return
	}
	n, _ := unix.Write(a.sock, a.typed) // what is final is found by reading
	a.typed = append(a.typed[:0], a.typed[max(n, 0):]...)
}

func (a *attachment) input(b []byte) {
	switch {
	case a.over != nil:
		a.fault = cmp.Or(a.fault, a.pressed(b))
	case len(b) == 0:
	case !a.o.Request.Read:
		a.send(frame.Input, b)
	case len(typed.WithoutReports(b)) > 0:
		a.send(frame.Seen, nil)
	}
}

func (a *attachment) fromTerminal() error {
	n, err := unix.Read(a.in, a.buf)
	switch {
	case err == unix.EINTR || err == unix.EAGAIN:
		return nil
	case err != nil || n == 0:
		return ErrTerminal
	case a.idle: // a key brings the window back
		a.hello()
		return nil
	}
	a.keys.scan(a.buf[:n], a.input, a.command)
	if a.escape = (time.Time{}); len(a.keys.held) > 0 { // if nothing follows soon, it was the key Escape
		a.escape = time.Now().Add(escapeTime)
	}
	return a.fault
}
