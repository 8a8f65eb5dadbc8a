package session

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/agent-init/agent-init/pkg/session/attach"
	"github.com/agent-init/agent-init/pkg/session/internal/frame"
	"github.com/agent-init/agent-init/pkg/session/protocol"
	"github.com/agent-init/agent-init/pkg/session/terminal"
)

// TestOverlayRequests: what waits is shown and answered; what the program does meanwhile is seen afterwards, and not
// before; and the screen is whole again.
func TestOverlayRequests(t *testing.T) {
	r := newRig(t)
	p := r.window(0)
	s := r.sit(70, 20)
	s.asks(3, "a.test")
	s.asks(4, "b.test")
	p.print("\x1b[?1003h\x1b[?1006h\x1b[>31u\x1b]11;#102030\x07\x1b[31mfirst\x1b[m\r\n")
	s.awaits("first")
	before := s.sees()
	r.ring("request 3: a.test")
	s.awaits("request 3: a.test", "Ctrl-] a")
	s.types("\x1d")
	s.types("a")
	s.awaits("the agent asks for 2 grants", " >   3", "b.test", `because "to build"`, "1 allow for 10 minutes")
	p.print("\x1b]2;gone\x07\x1b[2J\x1b[Hwhat comes meanwhile")
	eventually(t, func() bool { return strings.Contains(r.titles(), "gone") }, func() string { return "the server didn't read it" })
	if screen := s.sees(); strings.Contains(screen, "meanwhile") {
		t.Errorf("the program draws on the overlay:\n%s", screen)
	}
	s.types("1")
	s.awaits("allowed a.test for 10m", "warning: it is far", "the agent asks for 1 grant")
	s.types("1") // which was answered
	s.types("2")
	s.types("\x1b[B")
	s.awaits(" >   4")
	s.types("n")
	s.awaits("allowed b.test for 10m", "any key goes back")
	s.types(" ")
	s.shows("what comes meanwhile")
	if got := s.answered(); got != "3 a.test 1, 4 b.test 4" {
		t.Errorf("answered %s", got)
	}
	s.settled(p)
	s.mu.Lock()
	defer s.mu.Unlock()
	if before == "" || !bytes.Contains(s.raw[bytes.LastIndex(s.raw, terminal.Back()):], []byte("\x1b[?1003h")) {
		t.Error("the mouse isn't given back")
	}
}

func (r *rig) titles() (all string) {
	for _, w := range r.list().Windows {
		all += w.Title + " "
	}
	return all
}

// TestOverlayKeepsItsChoice: no request that comes, and none that goes, moves what a key is about.
func TestOverlayKeepsItsChoice(t *testing.T) {
	r := newRig(t)
	r.window(0)
	s := r.sit(70, 20)
	s.asks(3, "a.test")
	s.types("\x1da")
	s.awaits("a.test", "3 for good")
	s.mu.Lock()
	s.asked = nil
	s.mu.Unlock()
	s.asks(1, "worse.test")
	s.awaits("is no longer asked for", "worse.test", " >   3")
	s.types("3")
	s.mu.Lock()
	s.refuse = errors.New("\x1b]2;no\x07 today")
	s.mu.Unlock()
	s.types("k\x1b[B\x1b[B")
	s.awaits(" >   1")
	s.types("3")
	s.awaits("?]2;no? today")
	if got := s.answered(); got != "1 worse.test 3" {
		t.Errorf("answered %s", got)
	}
}

// TestOverlayKeysBeforeThePicture: what was typed before a person could have read the question is no answer to it, nor is
// what a terminal says that was asked by a program, nor what is pasted.
func TestOverlayKeysBeforeThePicture(t *testing.T) {
	r := newRig(t)
	p := r.window(0)
	s := r.sit(70, 20)
	s.asks(3, "a.test")
	s.types("\x1da1")
	s.awaits("1 allow for 10 minutes")
	s.types("\x1b[200~1\r2\x1b[201~\x1b]52;c;MQ==\x07\x1b[1;1R\xc2\x9b1;1R\x9b1;1R\x1b1\x1b[1;3R")
	s.types("\x1b[I\x1b[<0;1;1M")
	eventually(t, func() bool { // it may have to ask again, after an answer in 8 bits
		s.types("q")
		time.Sleep(20 * time.Millisecond)
		return s.sees() == ""
	}, s.sees)
	s.settled(p)
	if got := s.answered(); got != "" {
		t.Errorf("answered %s", got)
	}
}

// TestOverlayBehind: a terminal that has much to draw says what a program has asked it long after the overlay was to be
// there, and in pieces. None of them is a key, and keys count when it has shown what they are about.
func TestOverlayBehind(t *testing.T) {
	r := newRig(t)
	p := r.window(0)
	s := r.sit(70, 20)
	s.asks(3, "a.test")
	p.print("first")
	s.awaits("first")
	s.mu.Lock() // it draws no more
	s.types("\x1da")
	time.Sleep(600 * time.Millisecond) // longer than a client waits for a terminal that never answers
	for _, piece := range []string{"\x1b[0n", "1", "\x1b]52;c;MT", "3NT", "1\x07", "\x1bP1+r" + strings.Repeat("A", 5000), "3", "\x1b\\"} {
		s.types(piece)
		time.Sleep(50 * time.Millisecond)
	}
	s.mu.Unlock()
	s.awaits("1 allow for 10 minutes")
	s.mu.Lock()
	s.types("\x1b]52;c;MT") // a person was asked whether it may say this, and has taken a while
	time.Sleep(50 * time.Millisecond)
	s.types("3NT\x07")
	s.mu.Unlock()
	eventually(t, func() bool {
		s.types("n")
		time.Sleep(20 * time.Millisecond)
		return s.answered() != ""
	}, s.sees)
	if got := s.answered(); got != "3 a.test 4" {
		t.Errorf("answered %s", got)
	}
}

// TestOverlayPasted: a long text that is pasted into a terminal which does not mark that, and answers nothing, opens the
// list and answers nothing there.
func TestOverlayPasted(t *testing.T) {
	r := newRig(t)
	r.window(0)
	s := r.sit(70, 20)
	s.asks(3, "a.test")
	s.mu.Lock() // it answers nothing
	s.types("\x1da")
	for range 80 {
		s.types("3")
		time.Sleep(10 * time.Millisecond)
	}
	s.mu.Unlock()
	s.awaits("1 allow for 10 minutes")
	if got := s.answered(); got != "" {
		t.Errorf("answered %s", got)
	}
}

// TestOverlayNewToTheList: a key that is pressed as the first request comes is no answer to it.
func TestOverlayNewToTheList(t *testing.T) {
	r := newRig(t)
	r.window(0)
	s := r.sit(70, 20)
	s.types("\x1da")
	s.awaits("no request of the agent's waits")
	s.mu.Lock() // it draws no more
	s.asked = append(s.asked, attach.Asked{Number: 3, Target: "a.test", Since: time.Now()})
	s.mu.Unlock()
	s.awaits("a.test")
	s.types("n")
	eventually(t, func() bool { return s.answered() != "" }, s.sees)
	if got := s.answered(); got != "3 a.test 4" || strings.Count(s.shownRaw(), "\x1b[6n") != 2 {
		t.Errorf("answered %s", got)
	}
}

// TestOverlayHostileServer: a server that was taken over writes whatever it likes to the terminal, one that answers ENQ
// with a key, before the overlay is there and while it is. It presses nothing, and draws nothing there.
func TestOverlayHostileServer(t *testing.T) {
	r := newRig(t)
	server, client := r.pair()
	file, err := client.File()
	if err != nil {
		t.Fatal(err)
	}
	s := sit(t, file, 70, 20, protocol.Request{})
	s.mu.Lock()
	s.back = func(shown []byte) []byte { return bytes.Repeat([]byte("1"), bytes.Count(shown, []byte{5})) }
	s.mu.Unlock()
	s.asks(3, "a.test")
	var stop, asked sync.WaitGroup
	done := make(chan struct{})
	asked.Add(1)
	stop.Go(func() { // what it is asked
		frames := &frame.Reader{R: server}
		for first := true; ; first = false {
			if _, _, err := frames.Next(); err != nil {
				return
			}
			if first {
				asked.Done()
			}
		}
	})
	asked.Wait()
	must := func(k frame.Kind, payload string) {
		if err := writeFrame(server, k, payload); err != nil {
			select {
			case <-done:
			default:
				t.Error(err)
			}
		}
	}
	must(frame.Window, `{"id":0,"name":"w0\u001b[2J","clients":[]}`)
	must(frame.Output, "\x05\x1b[?69h\x1b[5;10s\x1b[8m\x1b G\x1b]11;#000000\x07\x1b]10;#000000\x07\x1b[6n\x05")
	stop.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			must(frame.Output, strings.Repeat("\x05\x1b[HPRESS 1 TO GO ON\x1b[6n\x07", 5))
			must(frame.Screen, "\x1bc\x05LIES")
			must(frame.Traces, "\x05")
			must(frame.Answer, "\x1b[2J\x05")
			must(frame.Answer, "")
			must(frame.Window, `{"id":1,"name":"\u0005","clients":[]}`)
		}
	})
	s.types("\x1da")
	s.awaits("1 allow for 10 minutes")
	for range 100 {
		if screen := s.sees(); strings.Contains(screen, "PRESS") || strings.Contains(screen, "LIES") {
			t.Fatalf("the server draws on the overlay:\n%s", screen)
		}
		time.Sleep(2 * time.Millisecond)
	}
	s.mu.Lock()
	over := s.raw[bytes.LastIndex(s.raw, terminal.Over()):]
	if bytes.Contains(over, []byte{5}) || bytes.Contains(over, []byte{7}) {
		t.Errorf("the terminal is told %q", over)
	}
	s.mu.Unlock()
	if got := s.answered(); got != "" {
		t.Errorf("answered %s", got)
	}
	close(done)
	server.Close()
	stop.Wait()
	if err := <-s.ended; !errors.Is(err, attach.ErrLost) {
		t.Errorf("ended with %v", err)
	}
	s.leftAlone()
}

// TestOverlayHelp lists the windows, and goes to one.
func TestOverlayHelp(t *testing.T) {
	r := newRig(t)
	first := r.window(0)
	second := r.window(0)
	first.print("the first")
	second.print("\x1b]2;its \"title\"\x07the second")
	s := r.sit(70, 20)
	s.awaits("the first")
	s.types("\x1d")
	s.types("?")
	s.awaits("> 0", "w1", `"its \"title\""`, "end this window", "70x20, window 0")
	s.types("1")
	s.shows("the second")
	s.types("\x1d?")
	s.awaits("> 1")
	s.types("x")
	s.awaits("end window 1, w1?")
	s.types("n")
	s.shows("the second")
	s.types("\x1dx")
	s.awaits("y end it")
	s.types("y")
	eventually(t, func() bool { r.mu.Lock(); defer r.mu.Unlock(); return len(r.killed) == 1 && r.killed[0] == 1 }, func() string { return "the window isn't ended" })
	s.types("\x1d?")
	s.awaits("> 1")
	s.types("d")
	s.awaits("detached")
	s.types("x")
	s.shows("the second")
}

// TestOverlayScroll: what has scrolled away is read, searched and left; keys don't reach the program.
func TestOverlayScroll(t *testing.T) {
	r := newRig(t)
	p := r.window(0)
	s := r.sit(40, 6)
	for i := range 50 {
		p.print(fmt.Sprintf("line %d\r\n", i))
	}
	p.print("\x1b[31mEnd\x1b[m")
	s.awaits("line 49\nEnd")
	before := s.sees()
	s.types("\x1d[")
	s.awaits("line 47\nline 48\nline 49\nEnd\n", "47-51 of 51")
	s.types("\x1b[5~")
	s.awaits("line 43\n", "43-47 of 51")
	s.types("g")
	s.awaits("line 0\n", "1-5 of 51")
	s.types("\x1b[6~j")
	s.awaits("line 5\n", "6-10 of 51")
	s.types("G/")
	s.awaits("/▏")
	s.types("LINE 1x")
	s.types("\x7f")
	s.types("\r")
	s.awaits(`no further "LINE 1"`)
	s.types("/line 1\r")
	s.awaits("line 17\nline 18\nline 19\n")
	s.types("n")
	s.awaits("line 16\nline 17\nline 18\n")
	s.types("N")
	s.awaits("line 17\nline 18\nline 19\n")
	s.types("q")
	s.shows(before)
	s.settled(p)
	if p.input() != "z" {
		t.Errorf("the program got %q", p.input())
	}
}

// TestOverlayOfEndedWindow: where the window ends meanwhile, the terminal is given back.
func TestOverlayOfEndedWindow(t *testing.T) {
	r := newRig(t)
	p := r.window(0)
	file, err := r.connect(peer{uid: 0, pid: 7}).File()
	if err != nil {
		t.Fatal(err)
	}
	s := &seat{T: t, ended: make(chan error, 1), screen: newModel(40, 6)}
	s.master, s.tty = mustOpen(t)
	defer s.tty.Close()
	if err := pty.Setsize(s.master, &pty.Winsize{Cols: 40, Rows: 6}); err != nil {
		t.Fatal(err)
	}
	go s.show()
	go func() {
		_, err := attach.Run(attach.Options{Dial: func() (*os.File, error) { return file, nil }, In: s.tty, Out: s.tty, Prefix: attach.DefaultPrefix, Requests: attach.Requests{List: s.list}})
		s.ended <- err
	}()
	p.print("text")
	s.awaits("text")
	s.types("\x1da")
	s.awaits("no request of the agent's waits")
	r.exited(p.id, 3)
	p.tty.Close()
	if err := <-s.ended; err != nil {
		t.Error(err)
	}
	s.leftAlone()
}

// leftAlone waits until the terminal is back from the overlay's screen.
func (s *seat) leftAlone() {
	s.Helper()
	eventually(s.T, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return bytes.LastIndex(s.raw, []byte("\x1b[?1049l")) > bytes.LastIndex(s.raw, []byte("\x1b[?1049h"))
	}, func() string { return "the terminal is left on the overlay's screen" })
}
