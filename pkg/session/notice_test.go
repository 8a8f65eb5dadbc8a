package session

import (
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/internal/wire/sessionop"
	"github.com/agent-init/agent-init/pkg/session/internal/frame"
	"github.com/agent-init/agent-init/pkg/session/protocol"
)

func (r *rig) ring(words string) {
	r.server.Take(wire.Message{Op: sessionop.Notice, Text: words}, nil)
}

// title is what the viewer's terminal is called.
func (v *viewer) title() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.term.Title()
}

// older lets the client's notice have been there for long enough.
func (r *rig) older() {
	for _, w := range r.server.list() {
		w.mu.Lock()
		for c := range w.clients {
			c.since = c.since.Add(-time.Hour)
		}
		w.mu.Unlock()
	}
}

// TestNotice: a notice stands above the screen with a sound and a title, the program goes on below it, and a key takes it
// away, which the program gets. Then all is as it was, the title too.
func TestNotice(t *testing.T) {
	r := newRig(t)
	p := r.window(0)
	v := r.attach(protocol.Request{Cols: 30, Rows: 4, Key: "Ctrl-] a"})
	p.print("\x1b]2;mine\x1b\\first\r\nsecond")
	v.shows("first\nsecond")
	r.ring("request 3: a.test")
	v.shows(" request 3: a.test   Ctrl-] a\nsecond")
	if got := v.title(); got != "agent-init: request 3: a.test" {
		t.Errorf("the title is %q", got)
	}
	if raw := v.output(); strings.Count(raw, "\a") != 1 || strings.Count(raw, "\x1b]9;agent-init: request 3: a.test\x1b\\") != 1 {
		t.Errorf("no sound, or more than one: %q", raw)
	}
	p.print("\r\nthird\a\x1b]2;still mine\x07")
	v.shows(" request 3: a.test   Ctrl-] a\nsecond\nthird")
	v.send(frame.Input, "\x1b[I\x1b[<35;1;1M") // focus, and the mouse
	v.send(frame.Input, "x")                   // too early
	p.typed("x")
	v.shows(" request 3: a.test   Ctrl-] a\nsecond\nthird")
	r.older()
	v.send(frame.Input, "\x1b[O\x1b[<35;1;1M")
	p.typed("\x1b[<35;1;1M")
	v.shows(" request 3: a.test   Ctrl-] a\nsecond\nthird")
	v.send(frame.Input, "y")
	p.typed("y")
	v.shows("first\nsecond\nthird")
	if got := v.title(); got != "still mine" {
		t.Errorf("the title is %q", got)
	}
	p.print("\r\nuntouched")
	v.shows("first\nsecond\nthird\nuntouched")
	if frames := v.kinds(); frames[len(frames)-1] != frame.Output {
		t.Error("what comes after is not the untouched stream")
	}
	r.ring("request 3: a.test") // again
	r.ring("")
	r.ring("request 4: b.test")
	v.shows(" request 4: b.test   Ctrl-] a\nsecond\nthird\nuntouched")
	if raw := v.output(); strings.Count(raw, "\x1b]9;agent-init: ") != 1 {
		t.Error("it sounds again at once")
	}
	r.ring("")
	v.shows("first\nsecond\nthird\nuntouched")
}

// kinds are those of the frames that came.
func (v *viewer) kinds() (out []frame.Kind) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, f := range v.frames {
		out = append(out, f.k)
	}
	return out
}

// TestNoticeLater: who comes later sees it as well, in silence; who asks what it is about is rid of it; and a terminal
// without escape sequences gets a line.
func TestNoticeLater(t *testing.T) {
	r := newRig(t)
	p := r.window(0)
	p.print("text")
	eventually(t, func() bool { return r.list().Windows[0].Cols != 0 && r.hasPrinted() }, func() string { return "nothing was printed" })
	r.ring("request 3: \x1b[31ma.test\x07\u202e" + strings.Repeat("x", 100))
	v := r.attach(protocol.Request{Cols: 20, Rows: 3})
	v.shows("text\n\n request 3: ?[31ma.…")
	if strings.Contains(v.output(), "\x1b]9;") || strings.Contains(v.output(), "\x1b[31m") {
		t.Errorf("it sounds, or is coloured: %q", v.output())
	}
	v.send(frame.Seen, "")
	v.shows("text")
	plain := r.attach(protocol.Request{Cols: 80, Rows: 3, Plain: true})
	eventually(t, func() bool { return strings.Contains(plain.output(), "\r\n[agent-init: request 3: ?[31ma.test") }, plain.output)
	v.send(frame.Detach, "")
	v.got(frame.Done)
	if raw := v.output(); strings.Count(raw, "\x1b[22;2t") != strings.Count(raw, "\x1b[23;2t") {
		t.Errorf("the title is put aside more often than it is taken back: %q", raw)
	}
}

func (r *rig) hasPrinted() bool {
	for _, w := range r.server.list() {
		w.mu.Lock()
		printed := w.printed
		w.mu.Unlock()
		if printed {
			return true
		}
	}
	return false
}

// TestNoticeOfLostServer: the title is among what a client takes back by itself.
func TestNoticeOfLostServer(t *testing.T) {
	r := newRig(t)
	r.window(0)
	v := r.attach(protocol.Request{Cols: 30, Rows: 4})
	r.ring("request 3: a.test")
	v.shows("\n\n\n request 3: a.test")
	eventually(t, func() bool { return strings.Contains(v.got(frame.Traces), takeTitle) }, func() string { return "the client isn't told of the title" })
}

// TestAskBeside: windows and history are told to a client that looks on.
func TestAskBeside(t *testing.T) {
	r := newRig(t)
	p := r.window(0)
	v := r.attach(protocol.Request{Cols: 30, Rows: 4})
	p.print("one\r\n\x1b[31mtwo\x1b[m\r\nthree\r\nfour\r\nfive")
	v.shows("two\nthree\nfour\nfive")
	for what, want := range map[byte]string{frame.AskHistory: "one\ntwo\nthree\nfour\nfive\n", frame.AskWindows: `"name":"w0"`} {
		v.mu.Lock()
		v.frames = nil
		v.mu.Unlock()
		v.send(frame.Ask, string(what))
		answer := func() (all string, end bool) {
			v.mu.Lock()
			defer v.mu.Unlock()
			for _, f := range v.frames {
				if f.k == frame.Answer {
					all, end = all+f.payload, f.payload == ""
				}
			}
			return all, end
		}
		eventually(t, func() bool { _, end := answer(); return end }, func() string { return "no answer" })
		if got, _ := answer(); !strings.Contains(got, want) {
			t.Errorf("asked for %c: %q, want %q", what, got, want)
		}
	}
	p.print("\r\nsix")
	v.shows("three\nfour\nfive\nsix")
}

// TestSwitchTo: a window with top is opened once, and a window is ended; who only looks does neither.
func TestSwitchTo(t *testing.T) {
	r := newRig(t)
	r.server.config.Top = []string{"/agent-init", "top"}
	r.window(0)
	looker := r.attach(protocol.Request{Cols: 30, Rows: 4, Read: true})
	looker.got(frame.Window)
	looker.send(frame.Switch, "t")
	looker.send(frame.Switch, "x")
	looker.send(frame.Detach, "")
	looker.got(frame.Done)
	v := r.attach(protocol.Request{Cols: 30, Rows: 4})
	v.got(frame.Window)
	v.send(frame.Switch, "t")
	v.send(frame.Switch, "x")
	eventually(t, func() bool { r.mu.Lock(); defer r.mu.Unlock(); return len(r.killed) > 0 }, func() string { return "nothing is ended" })
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.opened) != 1 || r.opened[0].Name != "top" || strings.Join(r.opened[0].Argv, " ") != "/agent-init top" || len(r.killed) != 1 || r.killed[0] != 0 {
		t.Errorf("opened %+v, ended %v", r.opened, r.killed)
	}
}
