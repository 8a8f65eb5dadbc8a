package wire

import (
	"strings"
	"testing"
)

// TestCheckRequest: the keeper takes from the guard only what can be shown to a
// person as it is.
func TestCheckRequest(t *testing.T) {
	for _, m := range []Message{{Name: ""}, {Name: "a\nb"}, {Name: "é.example"}, {Name: "a.example # x"}, {Name: "!a.example"}, {Name: "A.example"},
		{Name: "a.example" + strings.Repeat(" ", 60) + "12  allow    b.example"}, {Name: " a.example"}, {Name: "a.example GET /$(id)"}, {Name: "a.example GET /a;b"}, {Name: "a.example \x1b[2J"}, {Name: "a.exAmple GET /"},
		{Name: "a.example", Text: "\x1b[2J"}, {Name: "a.example", Text: "é"}} {
		if CheckRequest(m) == nil {
			t.Errorf("%+v is taken", m)
		}
	}
	for _, name := range []string{"[2001:db8::1]:53/udp private", "a.example GET,HEAD /v1/Items/** max_upload=1KiB", "*.a.example * /a%2Fb~c+d"} {
		if err := CheckRequest(Message{Name: name, Text: "why not?"}); err != nil {
			t.Error(err)
		}
	}
}

func FuzzPlainText(f *testing.F) {
	f.Add("why\x1b[2J")
	f.Add(strings.Repeat("é", 300))
	f.Fuzz(func(t *testing.T, s string) {
		got := PlainText(s)
		if len(got) > MaxText || CheckRequest(Message{Name: "a.example", Text: got}) != nil {
			t.Errorf("%q becomes %q", s, got)
		}
	})
}
