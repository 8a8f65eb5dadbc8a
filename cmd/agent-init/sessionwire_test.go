package main

import (
	"reflect"
	"strings"
	"testing"
)

func TestSessionMessage(t *testing.T) {
	want := sessionMessage{op: sopOpen, flag: 1, cols: 80, rows: 24, id: 3, uid: 1000, pid: 42, arg: 1 << 40, value: -1, text: joinCommand("tests", []string{"make", "", "test"})}
	b, err := want.encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeSessionMessage(b)
	if err != nil || got != want {
		t.Errorf("%+v became %+v (%v)", want, got, err)
	}
	if name, argv, err := splitCommand(got.text); name != "tests" || !reflect.DeepEqual(argv, []string{"make", "", "test"}) || err != nil {
		t.Errorf("the command became %q %q (%v)", name, argv, err)
	}
	for what, bad := range map[string][]byte{
		"nothing": nil, "cut short": b[:len(b)-1], "too long": append(b[:len(b):len(b)], 0), "the head alone": b[:sessionHeadSize], "no operation": append([]byte{0}, b[1:]...),
		"an unknown one": append([]byte{byte(sopStarted) + 1}, b[1:]...),
	} {
		if m, err := decodeSessionMessage(bad); err == nil {
			t.Errorf("%s: %+v", what, m)
		}
	}
	if _, err := (sessionMessage{op: sopOpen, text: strings.Repeat("x", maxSessionText+1)}).encode(); err == nil {
		t.Error("a message too long was encoded")
	}
	for _, text := range []string{"", "name", "name\x00sh", "name\x00\x00sh\x00"} {
		if _, _, err := splitCommand(text); err == nil {
			t.Errorf("%q is a command", text)
		}
	}
}

// FuzzSessionMessage: what the keeper takes from the session server is one of
// its own messages to the byte, and a command in it survives the way back.
func FuzzSessionMessage(f *testing.F) {
	for _, m := range []sessionMessage{{op: sopReady}, {op: sopOpen, text: joinCommand("", []string{"sh"})}, {op: sopEvent, flag: 1, uid: 1000}} {
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
		if name, argv, err := splitCommand(m.text); err == nil && joinCommand(name, argv) != m.text {
			t.Fatalf("%q became %q %q", m.text, name, argv)
		}
	})
}
