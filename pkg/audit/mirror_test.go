package audit

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

// TestMirrorCounts: what a mirror that stalled has not got is counted in it, also
// where no event comes after.
func TestMirrorCounts(t *testing.T) {
	r, w := io.Pipe()
	t.Cleanup(func() { r.Close() })
	l := openTest(t, Options{Dir: t.TempDir(), Mirror: w})
	const events = 3 * mirrorQueue
	for range events {
		l.Write(Event{Kind: DNS, Verdict: Deny})
	}
	in := bufio.NewReader(r)
	var lines, missing uint64
	for lines+missing < events {
		raw, err := in.ReadBytes('\n')
		if err != nil {
			t.Fatal(err)
		}
		e, err := Decode(raw)
		switch {
		case err != nil:
			t.Fatalf("%v in %q", err, raw)
		case strings.HasPrefix(e.Reason, unmirrored):
			missing += e.Suppressed
		default:
			lines++
		}
	}
	if missing == 0 || lines+missing != events {
		t.Errorf("%d lines, %d missing, of %d", lines, missing, events)
	}
}

// failing takes a number of bytes, then fails as a full disk does, until it is mended.
type failing struct {
	bytes.Buffer
	room int
}

func (f *failing) Write(b []byte) (int, error) {
	n := min(len(b), f.room)
	f.room -= n
	f.Buffer.Write(b[:n])
	if n < len(b) {
		return n, errors.New("full")
	}
	return n, nil
}

func TestMirrorFails(t *testing.T) {
	f := &failing{room: 10}
	m := &mirror{w: f, lines: make(chan []byte, 1)}
	line := []byte(`{"event":"dns","verdict":"deny"}` + "\n")
	for range 3 {
		m.copy(line)
	}
	f.room = 1 << 20
	m.copy(nil) // nothing happens
	m.copy(line)
	got := strings.Split(strings.TrimSuffix(f.String(), "\n"), "\n")
	if len(got) != 3 {
		t.Fatalf("%q", got)
	}
	e, err := Decode([]byte(got[1]))
	if err != nil || e.Suppressed != 3 || !strings.HasPrefix(e.Reason, unmirrored) || got[2]+"\n" != string(line) {
		t.Errorf("%q: %+v, %v", got, e, err)
	}
}
