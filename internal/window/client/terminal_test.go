package client

import (
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

// TestExecQuestions: a person's terminal is asked only while its answers go to the
// command. With its input from elsewhere, from the background, and when the command has
// ended, they would be typed into the person's shell.
func TestExecQuestions(t *testing.T) {
	const questions = "\x1b[c\x1b[6n\x1b]11;?\x07"
	for _, heard := range []bool{true, false} {
		relay, printed, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		shown, out, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		o := &Terminal{Out: out, relay: relay}
		o.heard.Store(heard)
		if _, err := printed.WriteString("a" + questions + "b"); err != nil {
			t.Fatal(err)
		}
		printed.Close()
		o.show(80, 24)
		out.Close()
		got, err := io.ReadAll(shown)
		if err != nil {
			t.Fatal(err)
		}
		want := "ab"
		if heard {
			want = "a" + questions + "b"
		}
		if len(got) < len(want) || string(got[:len(want)]) != want {
			t.Errorf("with its answers heard: %v, the terminal gets %q, want %q and what takes it back", heard, got, want)
		}
		relay.Close()
		shown.Close()
	}
}

// TestExecLastOutput has the time for the last of a command's output pass before any of it is read, as on a busy machine, while
// something else holds its terminal open.
func TestExecLastOutput(t *testing.T) {
	relay, printed, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer relay.Close()
	defer printed.Close()
	shown, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer shown.Close()
	want := strings.Repeat("a line\n", 1000) + "the last of it"
	if _, err := printed.WriteString(want); err != nil {
		t.Fatal(err)
	}
	if err := relay.SetReadDeadline(time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	(&Terminal{Out: out, relay: relay}).show(80, 24)
	out.Close()
	if got, err := io.ReadAll(shown); err != nil || string(got) != want {
		t.Errorf("%d bytes are shown (%v), want %d", len(got), err, len(want))
	}
}
