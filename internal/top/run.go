package top

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/session/attach"
)

// Options say how it is shown.
type Options struct {
	In, Out *os.File // a terminal
	Colour  bool
	Every   time.Duration // between looks, or longer: see share

	// Decide allows or denies as root, and returns what came of it. Explain says why a place is allowed or denied.
	Decide  func(context.Context, Act) (string, error)
	Explain func(place string) (string, error)
}

// share is which part of a processor looking may take: between two looks pass as many times what the last one took. So a
// container with a hundred thousand connections is looked at more rarely, and nothing else has to wait for it.
const share = 25

const longest = 30 * time.Second // between two looks, whatever they take

// ErrNoTerminal is an input or an output that is none.
var ErrNoTerminal = errors.New("this is no terminal")

const escapeTime = 25 * time.Millisecond // for the rest of a sequence, before it was the key Escape

// shower is a screen at work. One goroutine has all of it.
type shower struct {
	o        Options
	reader   *Reader
	model    *Model
	view     *View
	shown    Shown
	painter  painter
	recorder *recorder
	busy     bool // a decision or an explanation is under way
	done     chan func()
}

// Run shows what r reads until the person leaves, the terminal goes, or ctx ends.
func Run(ctx context.Context, r *Reader, o Options) error {
	saved, err := unix.IoctlGetTermios(int(o.In.Fd()), unix.TCGETS)
	if err != nil {
		return ErrNoTerminal
	}
	if _, err := unix.IoctlGetWinsize(int(o.Out.Fd()), unix.TIOCGWINSZ); err != nil {
		return ErrNoTerminal
	}
	raw := attach.Raw(*saved)
	if err := unix.IoctlSetTermios(int(o.In.Fd()), unix.TCSETS, &raw); err != nil {
		return fmt.Errorf("set the terminal to raw mode: %w", err)
	}
	defer func() { _ = unix.IoctlSetTermios(int(o.In.Fd()), unix.TCSETSF, saved) }()
	ctx, stop := signal.NotifyContext(ctx, unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	s := &shower{o: o, reader: r, model: NewModel(), view: &View{}, painter: painter{out: o.Out, colour: o.Colour}, done: make(chan func(), 1)}
	if err := s.painter.begin(); err != nil {
		return err
	}
	defer func() { _ = s.painter.end() }()
	err = s.loop(ctx)
	if s.recorder != nil {
		err = errors.Join(err, s.recorder.file.Close())
	}
	return err
}

func (s *shower) loop(ctx context.Context) error {
	typed := make(chan []byte)
	go readKeys(ctx, s.o.In, typed)
	sizes := make(chan os.Signal, 1)
	signal.Notify(sizes, unix.SIGWINCH, unix.SIGCONT)
	defer signal.Stop(sizes)
	look := time.NewTimer(0)
	paid := spent()
	var rest []byte
	var escape <-chan time.Time
	for {
		var keys []key
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
			if err := s.look(); err != nil {
				return err
			}
			now := spent()
			look.Reset(pause(s.o.Every, now-paid))
			paid = now
			continue
		case do := <-s.done:
			s.busy = false
			do()
		case <-sizes:
			s.painter.forget()
		case b, open := <-typed:
			if !open {
				return nil // the terminal is gone
			}
			keys, rest = parseKeys(append(rest, b...), true)
		case <-escape:
			keys, rest = parseKeys(rest, false)
		}
		if escape = nil; len(rest) > 0 {
			escape = time.After(escapeTime)
		}
		for _, k := range keys {
			if !s.do(ctx, s.view.Key(k, &s.shown)) {
				return nil
			}
		}
		if err := s.draw(); err != nil {
			return err
		}
	}
}

// pause is how long nothing is looked at after a look that has taken so much of a processor, with what was read and drawn
// since the one before.
func pause(every, cost time.Duration) time.Duration { return max(every, min(share*cost, longest)) }

// spent is how much time of a processor this process has taken so far.
func spent() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func readKeys(ctx context.Context, in io.Reader, typed chan<- []byte) {
	defer close(typed)
	for {
		b := make([]byte, 4096)
		n, err := in.Read(b)
		if err != nil {
			return
		}
		select {
		case typed <- b[:n]:
		case <-ctx.Done():
			return
		}
	}
}

func (s *shower) look() error {
	s.model.Take(s.reader.Look())
	s.shown = s.model.Show()
	if s.recorder != nil {
		if err := s.recorder.write(s.view.Seen(s.shown)); err != nil {
			s.stopRecording()
			s.view.Say("recording has ended: "+err.Error(), true)
		}
	}
	return s.draw()
}

func (s *shower) draw() error {
	width, height := 80, 24 // until the terminal knows: "docker exec -t" says it when the command runs already
	if size, err := unix.IoctlGetWinsize(int(s.o.Out.Fd()), unix.TIOCGWINSZ); err == nil && size.Col > 0 && size.Row > 0 {
		width, height = int(size.Col), int(size.Row)
	}
	return s.painter.paint(s.view.Frame(s.shown, width, height))
}

// do does what a key asks for, and returns false if that is to leave. What may take a while is done beside: looking goes on.
func (s *shower) do(ctx context.Context, a Act) bool {
	switch a.Deed {
	case Quit:
		return false
	case Record:
		s.record()
	case Explain:
		s.beside(func() func() {
			text, err := s.o.Explain(a.Target)
			return func() {
				if err != nil {
					s.view.Say(err.Error(), true)
					return
				}
				s.view.Explain(a.Target, text)
			}
		})
	case Allow, Deny, TurnDown:
		s.view.Say("asking …", false)
		s.beside(func() func() {
			said, err := s.o.Decide(ctx, a)
			return func() {
				if err != nil {
					said = err.Error()
				}
				s.view.Say(said, err != nil)
			}
		})
	}
	return true
}

// beside runs do outside of the loop, one at a time, and what it returns inside.
func (s *shower) beside(do func() func()) {
	if s.busy {
		s.view.Say("the last one is still under way", true)
		return
	}
	s.busy = true
	go func() { s.done <- do() }()
}

func (s *shower) record() {
	if s.recorder != nil {
		name := s.recorder.file.Name()
		s.stopRecording()
		s.view.Say("recorded into "+name, false)
		return
	}
	r, err := newRecorder(recordName(s.shown.Time))
	if err != nil {
		s.view.Say(err.Error(), true)
		return
	}
	s.recorder = r
	s.view.Recording(r.file.Name())
	s.view.Say("what is shown goes to "+r.file.Name()+"; R again ends it", false)
}

func (s *shower) stopRecording() {
	s.recorder.file.Close()
	s.recorder = nil
	s.view.Recording("")
}

// Once looks twice, so that there are rates, and returns what is to be shown.
func Once(ctx context.Context, r *Reader, every time.Duration) (Shown, error) {
	m := NewModel()
	m.Take(r.Look())
	select {
	case <-ctx.Done():
		return Shown{}, ctx.Err()
	case <-time.After(every):
	}
	m.Take(r.Look())
	return m.Show(), nil
}

// Write writes one frame for people, as wide as it is said, and as long as it takes.
func (s Shown) Write(w io.Writer, width int) error {
	v := &View{}
	for _, l := range v.whole(&s, width) {
		if _, err := fmt.Fprintln(w, trimmed(l)); err != nil {
			return err
		}
	}
	return nil
}
