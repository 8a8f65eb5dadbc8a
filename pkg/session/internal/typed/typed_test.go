package typed

import "testing"

func TestWithoutReports(t *testing.T) {
	for typed, want := range map[string]string{
		"abc": "abc", "\x1b[I": "", "\x1b[O": "", "a\x1b[?62;22cb": "ab", "\x1b[12;40R": "", "\x1b[1;5R": "\x1b[1;5R",
		"\x1b]11;rgb:0/0/0\x07": "", "\x1bP>|x\x1b\\": "", "\x1b[A": "\x1b[A", "\x1b[?1u": "", "\x1b[97;5u": "\x1b[97;5u",
		"\x1b[<0;1;1M": "\x1b[<0;1;1M", "\x1b_Gi=1;OK\x1b\\": "", "\x1b[?2026;2$y": "", "\x1b": "\x1b",
	} {
		if got := WithoutReports([]byte(typed)); string(got) != want {
			t.Errorf("%q: %q", typed, got)
		}
	}
}
