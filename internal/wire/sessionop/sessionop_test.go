package sessionop

import (
	"reflect"
	"testing"
)

func TestCommand(t *testing.T) {
	if name, argv, err := SplitCommand(JoinCommand("tests", []string{"make", "", "test"})); name != "tests" || !reflect.DeepEqual(argv, []string{"make", "", "test"}) || err != nil {
		t.Errorf("the command became %q %q (%v)", name, argv, err)
	}
	for _, text := range []string{"", "name", "name\x00sh", "name\x00\x00sh\x00"} {
		if _, _, err := SplitCommand(text); err == nil {
			t.Errorf("%q is a command", text)
		}
	}
}

// FuzzCommand: a command that the session server asks for survives the way back.
func FuzzCommand(f *testing.F) {
	f.Add(JoinCommand("", []string{"sh"}))
	f.Fuzz(func(t *testing.T, text string) {
		if name, argv, err := SplitCommand(text); err == nil && JoinCommand(name, argv) != text {
			t.Fatalf("%q became %q %q", text, name, argv)
		}
	})
}
