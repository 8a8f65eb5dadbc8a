package session

import (
	"runtime"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/pkg/session/internal/frame"
	"github.com/agent-init/agent-init/pkg/session/protocol"
)

// links fills a screen with cells of two hyperlinks in turns, as long as links may be.
func links(cols, rows int) string {
	link := func(c string) string {
		return "\x1b]8;;http://" + strings.Repeat(c, 2000) + "/\x1b\\" + c
	}
	var b strings.Builder
	b.WriteString("\x1b[H")
	pair := link("a") + link("b")
	for range rows {
		b.WriteString(strings.Repeat(pair, cols/2))
		b.WriteString("\r\n")
	}
	return b.String() + "\x1b]8;;\x1b\\\x1b[1;1Hthe top"
}

// TestLabCostlyScreen attaches to a screen whose every cell has another hyperlink than the one
// before, at a size of its own: it is shown, and costs the server no more than a screen.
func TestLabCostlyScreen(t *testing.T) {
	r := newRig(t)
	p := r.window(0)
	main := r.attach(protocol.Request{Cols: 120, Rows: 50})
	main.got(frame.Screen)
	p.print(links(120, 49))
	top := func(v *viewer) {
		t.Helper()
		eventually(t, func() bool { return strings.HasPrefix(v.screen(), "the top") }, func() string { return "the screen is\n" + v.screen() })
	}
	top(main)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var viewers []*viewer
	for range 3 {
		viewers = append(viewers, r.attach(protocol.Request{Cols: 110, Rows: 48, Read: true}))
	}
	for i, v := range viewers {
		top(v)
		if n := len(v.output()); n > 4<<20 {
			t.Errorf("client %d was sent %d bytes", i, n)
		}
		if v.isClosed() {
			t.Errorf("client %d was put out", i)
		}
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 30<<20 {
		t.Errorf("three attachments took %d MB", n>>20)
	}
	if text, err := r.call(protocol.Request{Verb: protocol.VerbHistory, Styles: true}); err != nil || len(text) > 2<<20 {
		t.Errorf("the history has %d bytes, %v", len(text), err)
	}
}
