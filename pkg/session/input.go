package session

import (
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/agent-init/agent-init/pkg/session/internal/typed"
)

// input types b into the window for c, which becomes the leader by it. It waits
// while the program does not read: that holds up c alone.
func (w *window) input(c *client, b []byte) {
	w.mu.Lock()
	if _, ok := w.clients[c]; !ok || c.readOnly {
		w.mu.Unlock()
		return
	}
	if w.leader != c {
		// A terminal says some things by itself. The program has them from the
		// leader's terminal, or did not ask.
		if b = typed.WithoutReports(b); len(b) == 0 {
			w.mu.Unlock()
			return
		}
		w.lead(c)
		if !w.live(c) {
			c.queue.spoilt()
		}
	}
	for seq, complete := range typed.Sequences(b) {
		if complete && len(seq) > 4 {
			w.term.Learn(seq) // for programs that ask while nobody looks
		}
	}
	c.typed = time.Now()
	c.active = c.typed
	w.mu.Unlock()

	select {
	case w.typing <- struct{}{}:
	case <-c.queue.done:
		return
	case <-w.done:
		return
	}
	defer func() { <-w.typing }()
	for b = b[writeNow(w.raw, b):]; len(b) > 0; {
		select {
		case <-c.queue.done:
			return
		case <-w.done:
			return
		default:
		}
		if err := w.master.SetWriteDeadline(time.Now().Add(typeAtOnce)); err != nil {
			return
		}
		n, err := w.master.Write(b)
		b = b[n:]
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return // the window is about to end
		}
	}
}

const typeAtOnce = 500 * time.Millisecond

// writeNow writes what is taken without waiting, and returns how much. Who waits finds
// an error that is final.
func writeNow(to syscall.RawConn, b []byte) (n int) {
	_ = to.Write(func(fd uintptr) bool {
		for n < len(b) {
			m, err := syscall.Write(int(fd), b[n:])
			if err == syscall.EINTR {
				continue
			}
			if m <= 0 || err != nil {
				break
			}
			n += m
		}
		return true
	})
	return n
}
