package session

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/wire/sessionop"
	"github.com/agent-init/agent-init/pkg/session/attach"
	"github.com/agent-init/agent-init/pkg/session/protocol"
	"github.com/agent-init/agent-init/pkg/session/terminal"
)

// seat is a person's terminal with a client on it, and a list of requests that is the test's.
type seat struct {
	*testing.T
	master *os.File
	tty    *os.File
	ended  chan error
	over   chan struct{} // when it has

	mu      sync.Mutex
	screen  *terminal.Terminal
	raw     []byte
	back    func([]byte) []byte // what the terminal answers to what it is shown, besides
	asked   []attach.Asked
	answers []string
	refuse  error
}

// sit shows a session on a terminal of that size.
func sit(t *testing.T, conn *os.File, cols, rows int, request protocol.Request) *seat {
	t.Helper()
	s := &seat{T: t, ended: make(chan error, 1), over: make(chan struct{}), screen: newModel(cols, rows)}
	s.master, s.tty = mustOpen(t)
	same, err := unix.Dup(int(conn.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // its descriptors may be others' when it has ended
		_ = unix.Shutdown(same, unix.SHUT_RDWR)
		_ = unix.Close(same)
		<-s.over
		s.master.Close()
		s.tty.Close()
	})
	if err := pty.Setsize(s.master, &pty.Winsize{Cols: uint16(cols), Rows: uint16(rows)}); err != nil {
		t.Fatal(err)
	}
	go s.show()
	go func() {
		_, err := attach.Run(attach.Options{Dial: func() (*os.File, error) { return conn, nil }, In: s.tty, Out: s.tty, Prefix: attach.DefaultPrefix,
			Local: true, Request: request, Requests: attach.Requests{List: s.list, Answer: s.answer}})
		s.ended <- err
		close(s.over)
	}()
	return s
}

func (s *seat) show() {
	b := make([]byte, 32<<10)
	for {
		n, err := s.master.Read(b)
		if err != nil {
			return
		}
		s.mu.Lock()
		_, _ = s.screen.Write(b[:n])
		s.raw = append(s.raw, b[:n]...)
		answers := s.screen.Replies()
		if s.back != nil {
			answers = append(s.back(b[:n]), answers...)
		}
		_, err = s.master.Write(answers) // before anybody has seen it
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (s *seat) list() ([]attach.Asked, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]attach.Asked{}, s.asked...), nil
}

func (s *seat) answer(a attach.Asked, v sessionop.Verdict) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers = append(s.answers, fmt.Sprintf("%d %s %d", a.Number, a.Target, v))
	if s.refuse != nil {
		return nil, s.refuse
	}
	for i := range s.asked {
		if s.asked[i].Number == a.Number {
			s.asked[i].Became = "granted"
		}
	}
	return []string{"allowed " + a.Target + " for 10m", "warning: it is far"}, nil
}

func (s *seat) asks(number uint32, target string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, attach.Asked{Number: number, Target: target, Reason: "to build", From: "pid 7 npm", Since: time.Now()})
}

func (s *seat) answered() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.answers, ", ")
}

func (s *seat) sees() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return screenText(s.screen)
}

func (s *seat) shownRaw() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.raw)
}

func (s *seat) types(keys string) {
	s.Helper()
	if _, err := s.master.WriteString(keys); err != nil {
		s.Fatal(err)
	}
}

func (s *seat) awaits(texts ...string) {
	s.Helper()
	eventually(s.T, func() bool {
		screen := s.sees()
		for _, text := range texts {
			if !strings.Contains(screen, text) {
				return false
			}
		}
		return true
	}, func() string { return fmt.Sprintf("the screen lacks one of %q:\n%s", texts, s.sees()) })
}

func (s *seat) shows(want string) {
	s.Helper()
	eventually(s.T, func() bool { return s.sees() == want }, func() string { return "the screen is\n" + s.sees() + "\nwant\n" + want })
}

// settled waits until what was typed before has been handled: a key that is pressed now is shown by the program.
func (s *seat) settled(p *program) {
	s.Helper()
	s.types("z")
	eventually(s.T, func() bool { return strings.HasSuffix(p.input(), "z") }, func() string {
		select {
		case err := <-s.ended:
			return fmt.Sprintf("the client has ended with %v", err)
		default:
			return fmt.Sprintf("the program got %q", p.input())
		}
	})
}

func (r *rig) sit(cols, rows int) *seat {
	r.Helper()
	file, err := r.connect(peer{local: true}).File()
	if err != nil {
		r.Fatal(err)
	}
	return sit(r.T, file, cols, rows, protocol.Request{})
}
