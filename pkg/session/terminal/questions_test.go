package terminal

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// questions are all that pass to a terminal and have it answer, with what the model answers while there is none: "" is
// nothing. TestModeAnswers holds those about modes, TestReplies what depends on what came before.
var questions = []struct{ ask, answer string }{
	{"\x1b[c", "\x1b[?62;22c"}, {"\x1b[>c", "\x1b[>1;0;0c"}, {"\x1b[=c", "\x1bP!|00000000\x1b\\"},
	{"\x1b[>q", "\x1bP>|agent-init\x1b\\"},
	{"\x1b[5n", "\x1b[0n"}, {"\x1b[6n", "\x1b[1;1R"}, {"\x1b[?6n", "\x1b[?1;1;1R"}, {"\x1b[?996n", "\x1b[?997;1n"},
	{"\x1b[$p", "\x1b[0;0$y"}, {"\x1b[?$p", "\x1b[?0;0$y"},
	{"\x1b[?u", "\x1b[?0u"}, {"\x1b[?m", ""}, {"\x1b[?S", ""},
	{"\x1b[14t", ""}, {"\x1b[15t", ""}, {"\x1b[16t", ""}, {"\x1b[18t", "\x1b[8;4;8t"}, {"\x1b[19t", "\x1b[9;4;8t"},
	{"\x1bP$qm\x1b\\", "\x1bP1$r0m\x1b\\"}, {"\x1bP$qr\x1b\\", "\x1bP1$r1;4r\x1b\\"}, {"\x1bP$q q\x1b\\", "\x1bP1$r0 q\x1b\\"},
	{"\x1bP$qs\x1b\\", "\x1bP0$r\x1b\\"}, {"\x1bP$qt\x1b\\", "\x1bP0$r\x1b\\"}, {"\x1bP$q\"q\x1b\\", "\x1bP0$r\x1b\\"},
	{"\x1bP$q\"p\x1b\\", "\x1bP0$r\x1b\\"}, {"\x1bP+q544e\x1b\\", "\x1bP0+r\x1b\\"},
	{"\x1b_Ga=q,i=1;\x1b\\", ""},
	{"\x1b]4;0;?\x07", ""},
	{"\x1b]10;?\x07", "\x1b]10;rgb:ffff/eeee/dddd\x1b\\"}, {"\x1b]11;?\x07", "\x1b]11;rgb:0101/0202/0303\x1b\\"},
	{"\x1b]12;?\x07", "\x1b]12;rgb:ffff/eeee/dddd\x1b\\"},
	{"\x1b]13;?\x07", ""}, {"\x1b]14;?\x07", ""}, {"\x1b]15;?\x07", ""}, {"\x1b]16;?\x07", ""}, {"\x1b]17;?\x07", ""},
	{"\x1b]18;?\x07", ""}, {"\x1b]19;?\x07", ""},
}

// passes says what of a text gets to a terminal that is to answer, and to one that is not.
func passes(text string) (asked, other string) {
	return string((&Filter{Questions: true}).Write(nil, []byte(text))), string((&Filter{}).Write(nil, []byte(text)))
}

// TestEachQuestion: what a terminal answers passes to the one that is to answer, and to no other; without one, the model
// answers as listed.
func TestEachQuestion(t *testing.T) {
	for _, q := range questions {
		ask := q.ask
		if ask == "\x1b[?S" {
			ask = "\x1b[?1;1S"
		}
		if asked, other := passes(ask); strings.ReplaceAll(asked, "[0$p", "[$p") != ask && asked == "" || other != "" {
			t.Errorf("%q: %q passes to who answers, %q to others", ask, asked, other)
		}
		term := New(Options{Cols: 8, Rows: 4})
		tell(term, "ffeedd", "010203")
		term.Write([]byte(ask))
		if got := string(term.Replies()); got != q.answer {
			t.Errorf("%q is answered %q, not %q", ask, got, q.answer)
		}
	}
}

// TestNoOtherQuestion: of all sequences that there can be, those on the list ask something, and no other.
func TestNoOtherQuestion(t *testing.T) {
	listed := func(ask string) bool {
		return slices.ContainsFunc(questions, func(q struct{ ask, answer string }) bool { return q.ask == ask })
	}
	check := func(text, ask string) {
		if asked, other := passes(text); asked != other && !listed(ask) {
			t.Errorf("%q is a question that is not on the list", text)
		}
	}
	numbers := []string{""}
	for n := range 3000 {
		if n <= 130 || n > 990 && n < 1010 || n > 2020 && n < 2050 {
			numbers = append(numbers, strconv.Itoa(n))
		}
	}
	for _, private := range []string{"", "<", "=", ">", "?"} {
		for _, inter := range strings.Split("~ ~!~\"~#~$~%~&~'~(~)~*~+~,~-~.~/", "~") {
			for final := byte('@'); final < 0x7f; final++ {
				for _, n := range numbers {
					end := inter + string(final)
					ask := "\x1b[" + private + end
					if !listed(ask) {
						ask = "\x1b[" + private + n + end
					}
					check("\x1b["+private+n+end, ask)
				}
			}
		}
	}
	for n := range 6000 {
		for _, text := range []string{"?", "", "0;?", "c;?"} {
			ask := fmt.Sprintf("\x1b]%d;%s\x07", n, text)
			if n >= 10 { // several at once
				ask = fmt.Sprintf("\x1b]%d;?\x07", n)
			}
			check(fmt.Sprintf("\x1b]%d;%s\x07", n, text), ask)
		}
	}
	for c := byte(' '); c < 0x7f; c++ {
		for _, head := range []string{"\x1bP$q", "\x1bP$q ", "\x1bP$q\"", "\x1bPq", "\x1bP|", "\x1b_", "\x1b^", "\x1bk"} {
			check(head+string(c)+"\x1b\\", head+string(c)+"\x1b\\")
		}
	}
}

// TestModesAreRestored: what the model answers of a mode is what the terminal of who attaches later is told of it.
func TestModesAreRestored(t *testing.T) {
	for _, number := range slices.Concat(modeNumbers[:], mouseModes, []int{6, 47, 1047, 1049}) {
		for _, end := range []string{"h", "l"} {
			if number == 2026 { // who attaches sees all that was drawn
				continue
			}
			private, n := "?", number
			if n < 0 {
				private, n = "", -n
			}
			term, attached := New(Options{Cols: 80, Rows: 24}), New(Options{Cols: 80, Rows: 24})
			fmt.Fprintf(term, "\x1b[%s%d%s", private, n, end)
			attached.Write(term.Restore(80, 24))
			if term.report(number) != attached.report(number) {
				t.Errorf("mode %d, %s: the model answers %d, and a terminal %d", number, end, term.report(number), attached.report(number))
			}
		}
	}
}
