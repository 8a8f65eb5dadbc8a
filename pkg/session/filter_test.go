package session

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"
)

func pass(f filter, pieces ...string) string {
	var out []byte
	for _, p := range pieces {
		out = f.write(out, []byte(p))
	}
	return string(out)
}

func TestFilterClipboard(t *testing.T) {
	clip := base64.StdEncoding.EncodeToString([]byte("secret"))
	tmux := func(s string) string { return "\x1bPtmux;" + strings.ReplaceAll(s, "\x1b", "\x1b\x1b") + "\x1b\\" }
	for _, c := range []struct{ name, in, want string }{
		{"text", "plain text, ünïcödé, \x80 and \xff", "plain text, ünïcödé, \x80 and \xff"},
		{"a write", "a\x1b]52;c;" + clip + "\x07b", "a\x1b]52;c;" + clip + "\x07b"},
		{"a write, ST", "a\x1b]52;c;" + clip + "\x1b\\b", "a\x1b]52;c;" + clip + "\x1b\\b"},
		{"a read", "a\x1b]52;c;?\x07b", "ab"},
		{"a read, ST", "a\x1b]52;c;?\x1b\\b", "ab"},
		{"a read, primary", "a\x1b]52;p;?\x07b", "ab"},
		{"a read, no selection", "a\x1b]52;;?\x07b", "ab"},
		{"a read after blanks", "a\x1b]52;c; ?\x07b", "ab"},
		{"a read with zeros", "a\x1b]00052;c;?\x07b", "ab"},
		{"a read with many zeros", "a\x1b]" + strings.Repeat("0", 200) + "52;c;?\x07b", "ab"},
		{"a read with controls", "a\x1b]5\x002\x01;c;?\x07b", "ab"},
		{"a read, C1", "a\x9d52;c;?\x07b", "ab"},
		{"a read, C1 in UTF-8", "a\xc2\x9d52;c;?\xc2\x9cb", "ab"},
		{"a read that is cut off", "a\x1b]52;c;?\x1b[mb", "a\x1b[mb"},
		{"a read after ESC ESC", "a\x1b\x1b]52;c;?\x07b", "ab"},
		{"a read in a title", "a\x1b]0;x\x1b]52;c;?\x07b", "a\x1b]0;xb"},
		{"a read in a DCS", "a\x1bPq\x1b]52;c;?\x07b", "a\x1bPqb"},
		{"a read in an APC", "a\x1b_G\x1b]52;c;?\x07b", "a\x1b_Gb"},
		{"a read in a CSI", "a\x1b[1\x1b]52;c;?\x07b", "ab"},
		{"a read for the terminal outside of tmux", "a" + tmux("x\x1b]52;c;?\x07y") + "b", "a" + tmux("xy") + "b"},
		{"a write for it", "a" + tmux("\x1b]52;c;"+clip+"\x07") + "b", "a" + tmux("\x1b]52;c;"+clip+"\x07") + "b"},
		{"a read two levels out", tmux(tmux("\x1b]52;c;?\x07")), tmux(tmux(""))},
		{"kitty's read", "a\x1b]5522;type=read;Lg==\x1b\\b", "ab"},
		{"kitty's write", "a\x1b]5522;type=write\x1b\\b", "a\x1b]5522;type=write\x1b\\b"},
		{"a read with a control in it", "a\x1b]52;c\x9a;?\x07b\x1b]5\x9a2;c;?\x07", "a\x9a;?\x07b\x9a2;c;?\x07"},
		{"a read whose ESC is apart", "a\x1b\x9a]52;c;?\x07b", "a\x9a]52;c;?\x07b"},
		{"too much", "a\x1b]52;c;" + strings.Repeat("A", maxClipboard+maxHead) + "\x07b", "ab"},
		{"a title", "\x1b]0;52;c;?\x07\x1b]2;ü\x9c?\x1b\\", "\x1b]0;52;c;?\x07\x1b]2;ü\x9c?\x1b\\"},
		{"a link", "\x1b]8;id=1;http://x/?q=52;c\x1b\\x\x1b]8;;\x1b\\", "\x1b]8;id=1;http://x/?q=52;c\x1b\\x\x1b]8;;\x1b\\"},
		{"questions", "\x1b[c\x1b[6n\x1b]11;?\x07\x1b[?2026$p\x1b[>q\x1b[?u", "\x1b[c\x1b[6n\x1b]11;?\x07\x1b[?2026$p\x1b[>q\x1b[?u"},
		{"an image", "\x1bPq#0;2;0;0;0\x1b\\", "\x1bPq#0;2;0;0;0\x1b\\"},
		{"synchronized output", "\x1b[?2026h\x1b[1;1Hx\x1b[?2026l", "\x1b[?2026h\x1b[1;1Hx\x1b[?2026l"},
		{"NEL in UTF-8", "a\xc2\x85b\xc2\xa0", "a\xc2\x85b\xc2\xa0"},
	} {
		if got := pass(filter{}, c.in); got != c.want {
			t.Errorf("%s: %.80q gave %.80q, want %.80q", c.name, c.in, got, c.want)
		}
		var bytewise []string
		for i := range len(c.in) {
			bytewise = append(bytewise, c.in[i:i+1])
		}
		if got := pass(filter{}, bytewise...); got != c.want {
			t.Errorf("%s, byte by byte: %.80q gave %.80q, want %.80q", c.name, c.in, got, c.want)
		}
	}
	if got := pass(filter{noClipboard: true}, "a\x1b]52;c;"+clip+"\x07b"); got != "ab" {
		t.Errorf("without the clipboard: %q", got)
	}
}

func TestFilterQuestions(t *testing.T) {
	f := filter{noQueries: true}
	for _, q := range []string{
		"\x1b[c", "\x1b[0c", "\x1b[>c", "\x1b[=c", "\x1b[5n", "\x1b[6n", "\x1b[?6n", "\x1b[?996n", "\x1b[?2026$p", "\x1b[4$p", "\x1b[>q", "\x1b[>0q",
		"\x1b[?u", "\x1b[18t", "\x1b[14;2t", "\x1b[21t", "\x1b[?1;1;0S", "\x1b[1;1;1;1;24;80*y", "\x1b[2$w", "\x1b[x", "\x1bZ",
		"\x1b]10;?\x07", "\x1b]11;?\x07", "\x1b]4;1;?\x07", "\x1bP+q544e\x07\x18"[:9], "\x1b_Gi=1,a=q;AAAA", "\x9bc", "\xc2\x9b6n", "\x1bP$qm",
	} {
		if got := pass(f, "a", q, "\x1b\\b"); strings.TrimSuffix(got, "\x1b\\b") != "a" {
			t.Errorf("%q passed: %q", q, got)
		}
	}
	for _, s := range []string{
		"\x1b[2J", "\x1b[1;31m", "\x1b[>1u", "\x1b[<u", "\x1b[u", "\x1b[?25h", "\x1b[2 q", "\x1b[22;0t", "\x1b[23t", "\x1b[8;24;80t", "\x1b[3S", "\x1b[!p",
		"\x1b[>4;1m", "\x1b]11;#000000\x07", "\x1b]0;what?\x07", "\x1b_Gf=100,a=T;AAAA\x1b\\", "\x1bPq~\x1b\\", "\x1b[?c",
	} {
		if got := pass(f, s); got != s {
			t.Errorf("%q gave %q", s, got)
		}
	}
}

// FuzzFilter: however output is cut, the same passes; text is untouched; what
// passed passes again; and nothing that passed reads the clipboard by the
// plainest of readings.
func FuzzFilter(f *testing.F) {
	for _, s := range []string{"a\x1b]52;c;?\x07b", "\x1bPtmux;\x1b\x1b]52;c;?\x07\x1b\\", "\xc2\x9d52;;?\x9c", "\x1b[6n\x1b]11;?\x1b\\", "\x1b\x1b\x1b]52;c;QQ==\x1b\\", "\x1b]5\x0052;x"} {
		f.Add([]byte(s), 1, false)
		f.Add([]byte(s), 3, true)
	}
	f.Fuzz(func(t *testing.T, b []byte, cut int, noQueries bool) {
		whole := pass(filter{noQueries: noQueries}, string(b))
		var pieces []string
		for rest := b; len(rest) > 0; rest = rest[min(max(1, cut&0xff), len(rest)):] {
			pieces = append(pieces, string(rest[:min(max(1, cut&0xff), len(rest))]))
		}
		if got := pass(filter{noQueries: noQueries}, pieces...); got != whole {
			t.Fatalf("%q: at once %q, in pieces %q", b, whole, got)
		}
		if bytes.IndexByte(b, esc) < 0 && bytes.IndexFunc(b, func(r rune) bool { return r >= 0x80 }) < 0 && whole != string(b) {
			t.Fatalf("text %q became %q", b, whole)
		}
		if strings.Contains(whole, "\x1b]52;c;?") && !strings.HasSuffix(whole, "?") {
			t.Fatalf("%q gave %q", b, whole)
		}
	})
}

func BenchmarkFilter(b *testing.B) {
	text := []byte(strings.Repeat("some text of a usual length, with \x1b[1mbold\x1b[m words and ünïcödé\r\n", 1000))
	f := filter{}
	var out []byte
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		out = f.write(out[:0], text)
	}
}
