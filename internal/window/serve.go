package window

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/internal/wire/sessionop"
	"github.com/agent-init/agent-init/pkg/audit"
)

// readRequests serves what the server asks. It may be anybody's by now: each request is one that the agent could
// fulfil by itself.
func (s *Session) readRequests(_ context.Context, ch *wire.Channel) error {
	for {
		m, file, err := ch.Receive()
		if file != nil {
			file.Close() // the server has none to give
		}
		switch {
		case errors.Is(err, wire.ErrMalformed):
			return errors.New("the session server sent a malformed message")
		case err != nil:
			return fmt.Errorf("the session server closed its channel: %w", err)
		}
		s.mu.Lock()
		s.seen = time.Now()
		s.mu.Unlock()
		switch m.Op {
		case wire.OpReady:
			s.serving(ch)
		case wire.OpPong:
			s.counted(int(m.Arg), int(m.Value))
		case sessionop.Open:
			s.openFor(m)
		case sessionop.Kill:
			s.kill(m.ID)
		case sessionop.Full:
			s.rotateRecord(m.ID)
		case sessionop.Noted:
			s.recordEvent(m)
		default:
			return errors.New("the session server sent an unknown request")
		}
	}
}

// serving hands over what there is. The lock is held throughout, so that every window is handed over once.
func (s *Session) serving(ch *wire.Channel) {
	s.mu.Lock()
	s.live = ch
	for id := range s.nextID {
		if w := s.windows[id]; w != nil {
			s.hand(w, 0, s.served)
		}
	}
	s.tell(wire.Message{Op: wire.OpReady}, nil)
	again := s.served
	s.served = true
	if s.over {
		s.tell(wire.Message{Op: sessionop.End}, nil)
	}
	s.mu.Unlock()
	s.host.Update(func(st *state.State) { st.Session.OK = true })
	if again {
		s.note(audit.Info, 0, "session server serves again")
	}
	s.host.Publish()
	if s.console != nil {
		s.console.connect(ch)
	}
}

func (s *Session) note(v audit.Verdict, pid int, reason string, args ...any) {
	s.host.Record(audit.Event{Kind: audit.Session, Verdict: v, PID: pid, Reason: fmt.Sprintf(reason, args...)})
}

// tell sends a message to the server, if there is one, with a file or nil. The lock is held.
func (s *Session) tell(m wire.Message, file *os.File) {
	if s.live == nil {
		return
	}
	if err := s.live.Send(m, file); err != nil {
		s.host.Log.Debug("telling the session server", "error", err)
	}
}

func (s *Session) openFor(m wire.Message) {
	name, argv, err := sessionop.SplitCommand(m.Text)
	if err == nil && name != "" {
		err = sessionop.CheckName(name)
	}
	if len(argv) == 0 {
		argv = []string{s.host.Shell()}
	}
	if err == nil {
		_, err = s.open(name, argv, m.Cols, m.Rows, m.Arg)
	}
	if err != nil {
		s.mu.Lock()
		s.tell(wire.Message{Op: sessionop.Refused, Arg: m.Arg, Text: err.Error()}, nil)
		s.mu.Unlock()
	}
}

func (s *Session) counted(windows, clients int) {
	if clients > 0 {
		s.looked.Do(func() { close(s.shown) })
	}
	changed := false
	s.host.Update(func(st *state.State) {
		changed = st.Session.Windows != windows || st.Session.Attached != clients
		st.Session.Windows, st.Session.Attached = windows, clients
	})
	if changed {
		s.publishSoon()
	}
}

// publishSoon publishes what has changed, a few times a second at most.
func (s *Session) publishSoon() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.publishing {
		return
	}
	s.publishing = true
	time.AfterFunc(publishWithin, func() {
		s.mu.Lock()
		s.publishing = false
		s.mu.Unlock()
		s.host.Publish()
	})
}

const publishWithin = 200 * time.Millisecond

var sessionEvents = map[sessionop.Event]string{
	sessionop.Attached:  "attached to window %d",
	sessionop.Detached:  "detached from window %d",
	sessionop.Opened:    "opened window %d",
	sessionop.KillAsked: "asked to end window %d",
	sessionop.PutOut:    "client put out, it took nothing: window %d",
}

func (s *Session) recordEvent(m wire.Message) {
	if sessionop.Event(m.Flag) == sessionop.RecordLost {
		s.note(audit.Fault, 0, "the record of window %d can't be written: it ends here", m.ID)
		return
	}
	text, ok := sessionEvents[sessionop.Event(m.Flag)]
	if !ok {
		return
	}
	e := audit.Event{Kind: audit.Session, Verdict: audit.Info, UID: &m.UID, PID: int(m.PID), Reason: fmt.Sprintf(text, m.ID)}
	if m.Arg != 0 {
		e.Reason += ", read-only"
	}
	if m.PID == 0 {
		e.Reason += ", from the container's terminal"
	}
	s.host.Record(e)
}
