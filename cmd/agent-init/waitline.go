package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/text"
)

// waitLine tells a person at a terminal, once a second, how long agent-init has been waiting, and for what.
type waitLine struct {
	w    io.Writer
	last time.Duration // that was shown, in seconds
}

func (l *waitLine) show(began time.Time, patience time.Duration, on *state.Waiting) {
	f, ok := l.w.(*os.File)
	took := time.Since(began).Truncate(time.Second)
	if took == l.last || !ok || !text.IsTerminal(f) {
		return
	}
	l.last = took
	line := fmt.Sprintf("agent-init: waits until the container is confined, %s of %s at most", text.Shortly(took), text.Shortly(patience))
	if on != nil {
		line = fmt.Sprintf("agent-init: waits, %s of %s at most: %s", text.Shortly(took), text.Shortly(patience), text.Clean(on.Words(time.Now())))
	}
	line, _ = text.Cut(line, 79)
	fmt.Fprintf(l.w, "\r\x1b[K%s", line)
}

func (l *waitLine) clear() {
	if l.last > 0 {
		fmt.Fprint(l.w, "\r\x1b[K")
	}
}
