package wire

import (
	"reflect"
	"strings"
	"testing"
)

func TestSessionMessage(t *testing.T) {
	want := SessionMessage{Op: SopOpen, Flag: 1, Cols: 80, Rows: 24, ID: 3, UID: 1000, PID: 42, Arg: 1 << 40, Value: -1, Text: JoinCommand("tests", []string{"make", "", "test"})}
	b, err := want.encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeSessionMessage(b)
	if err != nil || got != want {
		t.Errorf("%+v became %+v (%v)", want, got, err)
	}
	if name, argv, err := SplitCommand(got.Text); name != "tests" || !reflect.DeepEqual(argv, []string{"make", "", "test"}) || err != nil {
		t.Errorf("the command became %q %q (%v)", name, argv, err)
	}
	for what, bad := range map[string][]byte{
		"nothing": nil, "cut short": b[:len(b)-1], "too long": append(b[:len(b):len(b)], 0), "the head alone": b[:sessionHeadSize], "no operation": append([]byte{0}, b[1:]...),
		"an unknown one": append([]byte{byte(SopStarted) + 1}, b[1:]...),
	} {
		if m, err := decodeSessionMessage(bad); err == nil {
			t.Errorf("%s: %+v", what, m)
		}
	}
	if _, err := (SessionMessage{Op: SopOpen, Text: strings.Repeat("x", maxSessionText+1)}).encode(); err == nil {
		t.Error("a message too long was encoded")
	}
	for _, text := range []string{"", "name", "name\x00sh", "name\x00\x00sh\x00"} {
		if _, _, err := SplitCommand(text); err == nil {
			t.Errorf("%q is a command", text)
		}
	}
}

// FuzzSessionMessage: what the keeper takes from the session server is one of
// its own messages to the byte, and a command in it survives the way back.
func FuzzSessionMessage(f *testing.F) {
	for _, m := range []SessionMessage{{Op: SopReady}, {Op: SopOpen, Text: JoinCommand("", []string{"sh"})}, {Op: SopEvent, Flag: 1, UID: 1000}} {
		b, err := m.encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeSessionMessage(b)
		if err != nil {
			return
		}
		again, err := m.encode()
		if err != nil || string(again) != string(b) {
			t.Fatalf("%x became %x (%v)", b, again, err)
		}
		if name, argv, err := SplitCommand(m.Text); err == nil && JoinCommand(name, argv) != m.Text {
			t.Fatalf("%q became %q %q", m.Text, name, argv)
		}
	})
}
