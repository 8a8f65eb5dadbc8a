package terminal

import (
	"bytes"
	"strings"
	"testing"
)

// show writes a screen down: rows joined with |, without spaces at their ends.
func show(t *Terminal) string { return strings.TrimRight(strings.Join(t.Text(), "|"), "|") }

// firstLook is how the first cell looks.
func firstLook(t *Terminal) look { return t.look(t.scr.rows[0].get(0).style) }

// TestScreen says what a screen of 8 columns and 4 rows shows.
func TestScreen(t *testing.T) {
	for _, test := range []struct{ name, in, want string }{
		{"plain", "ab\r\ncd", "ab|cd"},
		{"line feed keeps the column", "ab\ncd", "ab|  cd"},
		{"line feed mode", "\x1b[20hab\ncd", "ab|cd"},
		{"wrap", "abcdefghij", "abcdefgh|ij"},
		{"wrap waits", "abcdefgh\r\nij", "abcdefgh|ij"},
		{"carriage return takes the wait back", "abcdefgh\rX", "Xbcdefgh"},
		{"backspace from the last column", "abcdefgh\bX", "abcdefXh"},
		{"no wrap", "\x1b[?7labcdefghij", "abcdefgj"},
		{"no wrap, wide", "\x1b[?7labcdefgh日", "abcdef日"},
		{"scroll", "1\r\n2\r\n3\r\n4\r\n5", "2|3|4|5"},
		{"tab", "a\tb", "a      b"},
		{"tab stops", "\x1b[3g\x1b[4G\x1bH\rA\tB\tC", "A  B   C"},
		{"back tab", "\x1b[8G\x1b[ZX", "X"},
		{"wide", "日本", "日本"},
		{"wide at the edge", "abcdefg日", "abcdefg|日"},
		{"half of a wide one overwritten", "日本\x1b[2GX", " X本"},
		{"other half", "日本\x1b[3GX", "日X"},
		{"combining", "e\u0301x", "e\u0301x"},
		{"combining with nothing", "\u0301x", "x"},
		{"joined emoji", "👩\u200d👩\u200d👧x", "👩\u200d👩\u200d👧x"},
		{"skin", "👍🏽x", "👍🏽x"},
		{"flag", "🇩🇪🇫🇷x", "🇩🇪🇫🇷x"},
		{"emoji style makes wide", "☃\ufe0f\x1b[3Gx", "☃\ufe0fx"},
		{"Hangul of parts", "\u1112\u1161\u11abx", "\u1112\u1161\u11abx"},
		{"a mark too many", "e" + strings.Repeat("\u0301", 40), "e" + strings.Repeat("\u0301", 31)},
		{"not UTF-8", "a\xffb\xe2\x82c", "a\ufffdb\ufffdc"},
		{"C1 is nothing", "a\u009b31mb", "a31mb"},
		{"erase to the end", "abcdef\x1b[3D\x1b[K", "abc"},
		{"erase from the beginning", "abcdef\x1b[3D\x1b[1K", "    ef"},
		{"erase the line", "abcdef\x1b[2K", ""},
		{"erase behind a full row", "abcdefgh\x1b[K", "abcdefgh"},
		{"erase below", "a\r\nb\r\nc\x1b[2;1H\x1b[J", "a"},
		{"erase above", "a\r\nb\r\nc\x1b[2;1H\x1b[1J", "||c"},
		{"erase all", "a\r\nb\x1b[2J", ""},
		{"erase characters", "abcdef\r\x1b[2X", "  cdef"},
		{"erase half of a wide one", "日本\r\x1b[X", "  本"},
		{"insert characters", "abcdefgh\r\x1b[2@", "  abcdef"},
		{"insert cuts a wide one", "abcdef日\r\x1b[@", " abcdef"},
		{"delete characters", "abcdefgh\r\x1b[2P", "cdefgh"},
		{"delete half of a wide one", "a日b\r\x1b[2P", " b"},
		{"insert mode", "abc\r\x1b[4hX\x1b[4lY", "XYbc"},
		{"insert lines", "1\r\n2\r\n3\x1b[2H\x1b[L", "1||2|3"},
		{"delete lines", "1\r\n2\r\n3\x1b[1H\x1b[M", "2|3"},
		{"insert lines in a region", "1\r\n2\r\n3\r\n4\x1b[2;3r\x1b[2H\x1b[L", "1||2|4"},
		{"not outside it", "1\r\n2\r\n3\r\n4\x1b[2;3r\x1b[4H\x1b[L", "1|2|3|4"},
		{"region scrolls", "1\r\n2\r\n3\r\n4\x1b[2;3r\x1b[3H\n", "1|3||4"},
		{"region scrolls back", "1\r\n2\r\n3\r\n4\x1b[2;3r\x1b[2H\x1bM", "1||2|4"},
		{"no line feed below it", "\x1b[1;2r\x1b[4H\na", "|||a"},
		{"a region of one row is none", "\x1b[2;2r\x1b[4;1Ha\nb", "||a| b"},
		{"scroll up", "1\r\n2\x1b[S", "2"},
		{"scroll down", "1\r\n2\x1b[T", "|1|2"},
		{"origin mode", "\x1b[2;3r\x1b[?6h\x1b[HA\x1b[9HB", "|A|B"},
		{"cursor stops at the region", "\x1b[2;3r\x1b[2H\x1b[9AX\x1b[9BY", "|X| Y"},
		{"save and restore", "ab\x1b7\x1b[4;4H\x1b8c", "abc"},
		{"CSI s and u", "ab\x1b[s\x1b[4;4H\x1b[uc", "abc"},
		{"repeat", "ab\x1b[3b", "abbbb"},
		{"repeat stays in the row", "ab\x1b[99b", "abbbbbbb"},
		{"nothing to repeat", "ab\r\x1b[3bc", "cb"},
		{"line drawing", "\x1b(0lqk\x1b(Blqk", "┌─┐lqk"},
		{"shift out", "\x1b)0\x0eq\x0fq", "─q"},
		{"single shift", "\x1b*0\x1bNqq", "─q"},
		{"British", "\x1b(A#", "£"},
		{"alignment", "\x1b#8", "EEEEEEEE|EEEEEEEE|EEEEEEEE|EEEEEEEE"},
		{"alternate screen", "main\x1b[?1049h\x1b[Halt", "alt"},
		{"and back", "main\x1b[?1049halt\x1b[?1049l!", "main!"},
		{"alternate screen is empty each time", "\x1b[?47halt\x1b[?47l\x1b[?47h", ""},
		{"reset", "ab\x1b[3;4r\x1bcx", "x"},
		{"controls within a sequence", "ab\x1b[\r1Cx", "ax"},
		{"CAN ends a sequence", "\x1b[3\x18x", "x"},
		{"ESC begins anew", "\x1b[3\x1b[2Cx", "  x"},
		{"too many intermediate bytes", "\x1b[!!px\x1b(%Bx", "xx"},
		{"strings are not shown", "\x1bPq#0;1\x1b\\\x1b_G\x1b\\\x1b^x\x1b\\\x1bXx\x1b\\\x1b]52;c;eA==\x07x", "x"},
		{"BEL does not end DCS", "\x1bPa\x07b\x1b\\x", "x"},
		{"UTF-8 in a title", "\x1b]2;\u2713 ok\x1b\\x", "x"},
		{"vertical tab, form feed", "a\vb\fc", "a| b|  c"},
		{"next line", "a\x1bEb\x1bDc", "a|b| c"},
		{"columns and rows", "\x1b[3Gx\x1b[2dy\x1b[3`z\x1b[2;5fv", "  x|  zyv"},
		{"relative", "\x1b[2;2H\x1b[A\x1b[2Bx\x1b[2Ey\x1b[Fz", "||zx|y"},
	} {
		t.Run(test.name, func(t *testing.T) {
			term := New(Options{Cols: 8, Rows: 4})
			term.Write([]byte(test.in))
			if got := show(term); got != test.want {
				t.Errorf("%q shows\n%q, not\n%q", test.in, got, test.want)
			}
			compare(t, "restored", term, restored(term))
		})
	}
}

// TestStyle says how the character after SGR looks.
func TestStyle(t *testing.T) {
	for in, want := range map[string]look{
		"1;3;4;7;9":              {Attr: bold | italic | reverse | strike, Underline: 1},
		"2;5;8;53":               {Attr: faint | blink | conceal | overline},
		"1;2;22":                 {},
		"31;42":                  {FG: kindBasic | 1, BG: kindBasic | 2},
		"97;107":                 {FG: kindBasic | 15, BG: kindBasic | 15},
		"38;5;200;48;5;7":        {FG: kindIndexed | 200, BG: kindIndexed | 7},
		"38;2;1;2;3;1":           {FG: kindRGB | 0x010203, Attr: bold},
		"38:2:1:2:3;48:2::4:5:6": {FG: kindRGB | 0x010203, BG: kindRGB | 0x040506},
		"58:5:9;4:3":             {UL: kindIndexed | 9, Underline: 3},
		"58;2;7;8;9;4":           {UL: kindRGB | 0x070809, Underline: 1},
		"21":                     {Underline: 2},
		"4:4;24":                 {},
		"38;5;300;1":             {Attr: bold},
		"38;2;1;2":               {},
		"4:9;1":                  {Attr: bold},
		"31;;1":                  {Attr: bold},
		"999;1":                  {Attr: bold},
	} {
		term := New(Options{Cols: 8, Rows: 1})
		term.Write([]byte("\x1b[" + in + "mx"))
		if got := firstLook(term); got != want {
			t.Errorf("%s: %+v, not %+v", in, got, want)
		}
		sgr := appendStyle(nil, look{}, want)
		term.Write([]byte("\x1b[m\r" + string(sgr) + "x"))
		if got := firstLook(term); got != want {
			t.Errorf("%s written as %q: %+v, not %+v", in, sgr, got, want)
		}
	}
}

// TestReplies says what programs are answered.
func TestReplies(t *testing.T) {
	for _, test := range []struct{ in, want string }{
		{"\x1b[c", "\x1b[?62;22c"},
		{"\x1b[1c", ""},
		{"\x1b[>c", "\x1b[>1;0;0c"},
		{"\x1b[=c", "\x1bP!|00000000\x1b\\"},
		{"\x1b[>q", "\x1bP>|agent-init\x1b\\"},
		{"\x1b[5n", "\x1b[0n"},
		{"\x1b[3;4H\x1b[6n", "\x1b[3;4R"},
		{"\x1b[2;4r\x1b[?6h\x1b[2;3H\x1b[6n\x1b[?6n", "\x1b[2;3R\x1b[?2;3;1R"},
		{"\x1b[?996n", "\x1b[?997;1n"},
		{"\x1b[?2004$p\x1b[?2004h\x1b[?2004$p\x1b[?4711$p\x1b[?7$p", "\x1b[?2004;2$y\x1b[?2004;1$y\x1b[?4711;0$y\x1b[?7;1$y"},
		{"\x1b[?2026$p\x1b[?1049h\x1b[?1049$p\x1b[?1002h\x1b[?1002$p", "\x1b[?2026;2$y\x1b[?1049;1$y\x1b[?1002;1$y"},
		{"\x1b[4$p\x1b[4h\x1b[4$p\x1b[5$p", "\x1b[4;2$y\x1b[4;1$y\x1b[5;0$y"},
		{"\x1b]10;?\x07\x1b]11;?\x1b\\", "\x1b]10;rgb:ffff/eeee/dddd\x1b\\\x1b]11;rgb:0101/0202/0303\x1b\\"},
		{"\x1b]11;#abc\x07\x1b]11;?\x07", "\x1b]11;rgb:aaaa/bbbb/cccc\x1b\\"},
		{"\x1b]4;1;rgb:80/00/ff;1;?\x07", "\x1b]4;1;rgb:8080/0000/ffff\x1b\\"},
		{"\x1b]4;2;?\x07\x1b]17;?\x07", ""},
		{"\x1b[?u\x1b[>5u\x1b[?u\x1b[<u\x1b[?u", "\x1b[?0u\x1b[?5u\x1b[?0u"},
		{"\x1b[18t\x1b[14t", "\x1b[8;4;8t"},
		{"\x1b[1;38;2;1;2;3;4:3m\x1bP$qm\x1b\\", "\x1bP1$r0;1;38;2;1;2;3;4:3m\x1b\\"},
		{"\x1bP$qm\x1b\\\x1bP$qr\x1b\\\x1b[4 q\x1bP$q q\x1b\\\x1bP$qx\x1b\\", "\x1bP1$r0m\x1b\\\x1bP1$r1;4r\x1b\\\x1bP1$r4 q\x1b\\\x1bP0$r\x1b\\"},
		{"\x1bP+q544e\x1b\\", "\x1bP0+r\x1b\\"},
		{"\x1b]2;evil\x07\x1b[21t\x1b[20t", ""},
	} {
		term := New(Options{Cols: 8, Rows: 4})
		tell(term, "ffeedd", "010203")
		term.Write([]byte(test.in))
		if got := string(term.Replies()); got != test.want {
			t.Errorf("%q is answered %q, not %q", test.in, got, test.want)
		}
		if again := term.Replies(); len(again) > 0 {
			t.Errorf("%q: %q again", test.in, again)
		}
	}
	silent := New(Options{Cols: 8, Rows: 4})
	silent.Write([]byte("\x1b]11;?\x07\x1b[?u\x1b[?996n"))
	if got := silent.Replies(); len(got) > 0 {
		t.Errorf("answers what it doesn't know: %q", got)
	}
	silent.Write(bytes.Repeat([]byte("\x1b[c"), 10000))
	if got := silent.Replies(); len(got) > maxReplies || len(got) < maxReplies/2 {
		t.Errorf("%d bytes of replies", len(got))
	}
}

// tell has a terminal answer like one with a keyboard of kitty's, and these colours.
func tell(t *Terminal, fg, bg string) {
	for i, c := range []string{fg, bg} {
		t.Learn([]byte("\x1b]1" + string(rune('0'+i)) + ";rgb:" + c[:2] + "/" + c[2:4] + "/" + c[4:] + "\x1b\\"))
	}
	t.Learn([]byte("\x1b[?0u"))
}

func TestLearn(t *testing.T) {
	for text, want := range map[string]bool{"ff/00/10": true, "ffff/0000/1010": true, "f/0/1": false, "ff/00": false, "zz/00/10": false, "-f/00/10": false, "": false} {
		term := New(Options{Cols: 8, Rows: 4})
		if term.Learn([]byte("\x1b]11;rgb:" + text + "\x1b\\")); len(term.known) > 0 != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
}

// TestHistory says what scrolled away and how it is put together.
func TestHistory(t *testing.T) {
	for _, test := range []struct{ name, in, plain, styled string }{
		{"empty", "", "", ""},
		{"lines", "1\r\n2\r\n3\r\n4", "1\n2\n3\n4\n", "1\n2\n3\n4\n"},
		{"wrapped", "abcdefghij\r\n2\r\n3\r\n4", "abcdefghij\n2\n3\n4\n", "abcdefghij\n2\n3\n4\n"},
		{"wide at the edge", "abcdefg日x\r\n\n\n", "abcdefg日x\n\n\n", "abcdefg日x\n\n\n"},
		{"styles", "\x1b[1;31ma\x1b[mb\r\n\n\n", "ab\n\n\n", "\x1b[1;31ma\x1b[mb\n\n\n"},
		{"links", "\x1b]8;;http://x/\x07a\x1b]8;;\x07b\r\n\n\n", "ab\n\n\n", "\x1b]8;;http://x/\x1b\\a\x1b]8;;\x1b\\b\n\n\n"},
		{"coloured to the end", "\x1b[41ma\x1b[K\x1b[m\r\n\n\n", "a\n\n\n", "\x1b[41ma\x1b[K\x1b[m\n\n\n"},
		{"the alternate screen while it is seen", "1\r\n2\x1b[?1049h\x1b[H3\r\n4\r\n5\r\n6", "1\n2\n4\n5\n6\n", "1\n2\n4\n5\n6\n"},
		{"and not when it is gone", "1\r\n2\x1b[?1049h\x1b[H3\r\n4\r\n5\r\n6\x1b[?1049l", "1\n2\n", "1\n2\n"},
		{"nor what scrolls in a region", "1\r\n2\r\n3\x1b[2;3r\x1b[3H\n4", "1\n3\n4\n", "1\n3\n4\n"},
		{"erased", "1\r\n2\r\n3\r\n4\x1b[3J", "2\n3\n4\n", "2\n3\n4\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			term := New(Options{Cols: 8, Rows: 3})
			term.Write([]byte(test.in))
			plain, styled := string(term.History(false)), string(term.History(true))
			if strings.TrimRight(plain, "\n") != strings.TrimRight(test.plain, "\n") {
				t.Errorf("plain %q, not %q", plain, test.plain)
			}
			if strings.TrimRight(styled, "\n") != strings.TrimRight(test.styled, "\n") {
				t.Errorf("styled %q, not %q", styled, test.styled)
			}
		})
	}
}
