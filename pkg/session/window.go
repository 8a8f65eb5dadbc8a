package session

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/session/internal/frame"
	"github.com/agent-init/agent-init/pkg/session/internal/typed"
	"github.com/agent-init/agent-init/pkg/session/protocol"
	"github.com/agent-init/agent-init/pkg/session/terminal"
)

// window is a terminal pair with a program on its far side. One goroutine reads what the program prints and gives it
// to all who are to have it; it waits for the program only.
type window struct {
	server *Server
	id     uint32
	name   string
	pid    int
	begun  time.Time
	tty    protocol.TTY
	master *stream
	typing chan struct{} // taken by whoever writes input

	// Of the goroutine that reads.
	buf []byte
	n   int // bytes of buf that were read

	mu      sync.Mutex
	term    *terminal.Terminal
	clients map[*client]struct{}
	leader  *client // the client that typed last, of those that may type
	exited  bool    // the program has ended, with status
	status  int
	record  *recorder
	passing []byte // filtered output, for as long as it is handed on
	printed bool   // something
	steered bool   // more than plain text
}

// lastOutput is how long output is waited for after the program's end, while something else holds its terminal open.
const lastOutput = 300 * time.Millisecond

func newWindow(s *Server, m wire.Message, near *os.File) (*window, error) {
	master, err := openTerminal(near)
	if err != nil {
		return nil, fmt.Errorf("window %d: %w", m.ID, err)
	}
	w := &window{
		server: s, id: m.ID, name: m.Text, pid: int(m.PID), begun: time.Unix(0, m.Value), master: master,
		typing: make(chan struct{}, 1), clients: map[*client]struct{}{},
	}
	var size *unix.Winsize
	_ = master.use(func(fd int) {
		w.tty = farSide(fd)
		size, err = unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
	})
	cols, rows := 80, 24
	if err == nil && size.Col > 0 && size.Row > 0 {
		cols, rows = int(size.Col), int(size.Row)
	} else {
		w.setSize(cols, rows)
	}
	w.term = terminal.New(terminal.Options{Cols: cols, Rows: rows, Scrollback: s.config.scrollback})
	return w, nil
}

// farSide identifies the terminal that the program has.
func farSide(master int) protocol.TTY {
	fd, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		return protocol.TTY{}
	}
	defer unix.Close(int(fd))
	return protocol.TTYOf(int(fd))
}

func (w *window) run() {
	defer w.finish()
	w.buf = make([]byte, readAtOnce)
	for {
		n, err := w.read()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			n = w.rest()
		}
		if n > 0 {
			w.output(w.buf[:n])
		}
		if err == nil {
			continue
		}
		// EIO: nobody has the terminal open. The program may open it again, or its time is over.
		if ended, _ := w.ended(); ended {
			return
		}
		time.Sleep(reopen)
	}
}

const (
	readAtOnce = 64 << 10
	reopen     = 20 * time.Millisecond
)

// read waits for output, and takes what is there: the kernel gives out 4 KiB at a time at most.
func (w *window) read() (n int, err error) {
	w.n = 0
	var last error
	err = w.master.raw.Read(func(fd uintptr) bool {
		last = w.gather(int(fd))
		return w.n > 0 || last != unix.EAGAIN
	})
	if err == nil && last != unix.EAGAIN {
		err = last
	}
	return w.n, err
}

// rest takes what the terminal still has when the time to read it is over: on a busy machine that may be all of it. A terminal
// holds less than buf (drivers/tty/pty.c, pty_common_install, and N_TTY_BUF_SIZE), and what else prints there no more.
func (w *window) rest() int {
	w.n = 0
	_ = w.master.use(func(fd int) { _ = w.gather(fd) })
	return w.n
}

// gather reads what is there, and says why there is no more; nil: buf is full.
func (w *window) gather(fd int) error {
	for w.n < len(w.buf) {
		n, err := unix.Read(fd, w.buf[w.n:])
		switch {
		case err == unix.EINTR:
		case err != nil:
			return err
		case n == 0:
			return unix.EIO // nobody has it open, either
		default:
			w.n += n
		}
	}
	return nil
}

// input types b into the window for c, which becomes the leader by it. It waits until the program reads. Where that does
// not read what another client types, what c types is lost: c could neither end the window nor look at another one.
func (w *window) input(c *client, b []byte) {
	w.mu.Lock()
	if _, ok := w.clients[c]; !ok || c.readOnly {
		w.mu.Unlock()
		return
	}
	c.see(b)
	if w.leader != c {
		// A terminal says some things by itself. The program has them from the leader's terminal, or did not ask.
		if b = typed.WithoutReports(b); len(b) == 0 {
			w.mu.Unlock()
			return
		}
		w.lead(c)
		if !w.live(c) {
			c.queue.spoil()
		}
	}
	if len(b) > shortest {
		for seq, complete := range typed.Sequences(b) {
			if complete && len(seq) > shortest {
				w.term.Learn(seq) // for programs that ask while nobody looks
			}
		}
	}
	c.typed = time.Now()
	c.active = c.typed
	w.mu.Unlock()

	select {
	case w.typing <- struct{}{}:
	case <-c.queue.done:
		return
	case <-time.After(typeAtOnce):
		c.queue.put(frame.Output, []byte{'\a'}, true)
		return
	}
	defer func() { <-w.typing }()
	for b = b[w.master.writeNow(b):]; len(b) > 0; {
		select {
		case <-c.queue.done:
			return
		default:
		}
		n, err := w.master.write(b, time.Now().Add(typeAtOnce))
		if b = b[n:]; err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return // the window ends, or has
		}
	}
}

const (
	shortest   = 4 // bytes, at most, that say nothing of the terminal
	typeAtOnce = 500 * time.Millisecond
)

// recorder writes what a window prints as an asciicast, version 2 (docs.asciinema.org/manual/asciicast/v2). Input is
// never in it: people type secrets. It belongs to its window's lock.
type recorder struct {
	file  io.WriteCloser
	out   *bufio.Writer
	begun time.Time
	size  int64
	limit int64
	line  bytes.Buffer
	full  func()
	broke func(error)

	// Who replays a record is asked nothing, and keeps their clipboard. What passes is whole UTF-8.
	filter terminal.Filter
	passed []byte
}

const flushEvery = time.Second // how long an event stays in memory

// header begins a file, with the screen as it is, if there is one.
func (r *recorder) header(cols, rows int, name string, screen []byte) {
	if r.size > 0 {
		return
	}
	b, err := json.Marshal(struct {
		Version   int               `json:"version"`
		Width     int               `json:"width"`
		Height    int               `json:"height"`
		Timestamp int64             `json:"timestamp"`
		Title     string            `json:"title"`
		Env       map[string]string `json:"env"`
	}{2, cols, rows, r.begun.Unix(), name, map[string]string{"TERM": "xterm-256color"}})
	if err == nil {
		r.write(append(b, '\n'))
		r.event("o", screen)
	}
}

func (r *recorder) output(b []byte) {
	r.passed = r.filter.Write(r.passed[:0], b)
	r.event("o", r.passed)
	if cap(r.passed) > 4*readAtOnce {
		r.passed = nil
	}
	if r.size > r.limit {
		r.limit += r.limit/4 + 1 // to ask again, should nothing come of it
		r.flush()                // who is asked looks at the file
		r.full()
	}
}

func (r *recorder) resize(cols, rows int) { r.event("r", fmt.Appendf(nil, "%dx%d", cols, rows)) }

func (r *recorder) event(code string, data []byte) {
	if len(data) == 0 {
		return
	}
	r.line.Reset()
	fmt.Fprintf(&r.line, "[%.6f, %q, ", time.Since(r.begun).Seconds(), code)
	e := json.NewEncoder(&r.line)
	e.SetEscapeHTML(false)
	if err := e.Encode(string(data)); err == nil { // it ends the line
		r.line.Truncate(r.line.Len() - 1)
		r.line.WriteString("]\n")
		r.write(r.line.Bytes())
	}
}

func (r *recorder) write(b []byte) {
	if r.out != nil {
		n, err := r.out.Write(b)
		r.size += int64(n)
		r.failed(err)
	}
}

func (r *recorder) flush() {
	if r.out != nil {
		r.failed(r.out.Flush())
	}
}

func (r *recorder) failed(err error) {
	if err != nil {
		r.out = nil
		r.broke(err)
	}
}

func (r *recorder) close() {
	r.event("o", r.filter.Close(nil))
	r.flush()
	r.out = nil
	r.file.Close()
}
