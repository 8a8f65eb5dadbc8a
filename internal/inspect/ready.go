package inspect

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/text"
)

// Ready returns when the keeper says that it is ready, or why it is not. On a terminal it shows what the start waits
// for.
func Ready(w io.Writer, patience time.Duration) error {
	began := time.Now()
	deadline := began.Add(patience)
	shown := &waitLine{w: w}
	defer shown.clear()
	for {
		var s state.State
		err := state.Published(state.StatusFile, &s)
		if err == nil {
			if settled, err := s.Settled(); settled {
				return err
			}
		}
		switch {
		case !time.Now().After(deadline):
		case err != nil:
			f := fault.Of(err, "")
			f.Code = fault.SelfTest
			return f
		case !s.Keeper.Alive():
			return fault.New(fault.SelfTest, "see agent-init status", "not ready in time: the keeper is gone, and no other has come")
		default:
			why := string(s.Phase)
			if s.Waiting != nil {
				why += ": " + s.Waiting.Words(time.Now())
			}
			return fault.New(fault.SelfTest, "see agent-init status", "not ready in time: %s", why)
		}
		shown.show(began, patience, s.Waiting)
		time.Sleep(20 * time.Millisecond)
	}
}

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
