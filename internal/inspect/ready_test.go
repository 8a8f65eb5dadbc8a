package inspect

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/internal/text"
)

// TestWaitLine: who waits at a terminal sees for how long and for what, in one line that is taken away; nobody else
// sees anything.
func TestWaitLine(t *testing.T) {
	master, terminal, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	shown := make(chan string)
	go func() {
		data, _ := io.ReadAll(master) // ends with EIO, when the terminal is closed
		shown <- string(data)
	}()
	on := &state.Waiting{Step: "prove the confinement", For: "a-name-that-is-rather-long\x1b]0;x\a.internal.corp.example:8443", Since: time.Now()}
	l := &waitLine{w: terminal}
	l.show(time.Now(), time.Minute, on) // in the first second there is nothing to tell
	l.show(time.Now().Add(-90*time.Second), 2*time.Minute, nil)
	l.show(time.Now().Add(-91*time.Second), 2*time.Minute, on)
	l.clear()
	terminal.Close()
	lines := strings.Split(<-shown, "\r\x1b[K")
	if len(lines) != 4 || !strings.Contains(lines[1], "1m30s of 2m at most") || !strings.Contains(lines[2], "prove the confinement: waits for a-name") || lines[3] != "" {
		t.Errorf("shown: %q", lines)
	}
	for _, line := range lines {
		if text.Columns(line) > 79 || strings.ContainsAny(line, "\x1b\a\n") {
			t.Errorf("%q", line)
		}
	}

	var b bytes.Buffer
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, w := range []io.Writer{&b, null} {
		l := &waitLine{w: w}
		l.show(time.Now().Add(-time.Minute), time.Hour, on)
		if l.clear(); l.last != 0 || b.Len() > 0 {
			t.Errorf("without a terminal it shows %q", b.String())
		}
	}
}
