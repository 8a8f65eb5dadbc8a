package session

import (
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/creack/pty"

	"github.com/agent-init/agent-init/pkg/session/attach"
)

// A client whose server is lost takes back what programs did to the terminal: what
// every terminal can be told, and what only the server could know.
func TestServerLost(t *testing.T) {
	r := newRig(t)
	p := r.window(0)
	master, tty := mustOpen(t)
	defer tty.Close()
	if err := pty.Setsize(master, &pty.Winsize{Cols: 80, Rows: 24}); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var shown strings.Builder
	output := func() string {
		mu.Lock()
		defer mu.Unlock()
		return shown.String()
	}
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := master.Read(b)
			if err != nil {
				return
			}
			mu.Lock()
			shown.Write(b[:n])
			mu.Unlock()
		}
	}()
	conn := r.connect(peer{uid: 1000, pid: 7})
	file, err := conn.File()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := attach.Run(attach.Options{Dial: func() (*os.File, error) { return file, nil }, In: tty, Out: tty, Local: true, Prefix: attach.DefaultPrefix})
		ended <- err
	}()
	p.print("\x1b[?1003h\x1b]2;first\x07\x1b[22;0t\x1b[22;0t\x1b]4;3;#123456\x07\x1b]11;#102030\x07\x1b]9;4;1;50\x07there it is")
	eventually(t, func() bool { return strings.Contains(output(), "there it is") }, func() string { return "it shows " + output() })
	mu.Lock()
	before := shown.Len()
	mu.Unlock()
	if err := conn.CloseRead(); err != nil { // the server can't say anything any more
		t.Fatal(err)
	}
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, attach.ErrLost) && !errors.Is(err, io.EOF) {
		t.Errorf("ended with %v", err)
	}
	for _, want := range []string{"\x1b[?1000l", "\x1b]104\x1b\\", "\x1b]111\x1b\\", "\x1b]9;4;0\x1b\\", "\x1b[23;0t\x1b[23;0t"} {
		eventually(t, func() bool { return strings.Contains(output()[before:], want) }, func() string { return "no " + want + " in " + output()[before:] })
	}
	if again := strings.Count(output()[before:], "\x1b[23;0t"); again != 2 {
		t.Errorf("%d titles taken back, want 2", again)
	}
	if strings.Contains(output()[before:], "\x1b]110\x1b\\") {
		t.Error("a colour that nobody has changed is taken back")
	}
}
