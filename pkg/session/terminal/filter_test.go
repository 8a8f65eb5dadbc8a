package terminal

import (
	"encoding/base64"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// all passes what may pass to the person who typed last.
var all = Filter{Clipboard: true, Questions: true}

func pass(f Filter, pieces ...string) string {
	var out []byte
	for _, p := range pieces {
		out = f.Write(out, []byte(p))
	}
	return string(out)
}

// bytewise passes s in pieces of one byte.
func bytewise(f Filter, s string) string {
	return pass(f, strings.Split(s, "")...)
}

func tmux(s string) string {
	return "\x1bPtmux;" + strings.ReplaceAll(s, "\x1b", "\x1b\x1b") + "\x1b\\"
}

func TestFilterClipboard(t *testing.T) {
	clip := base64.StdEncoding.EncodeToString([]byte("secret"))
	for _, c := range []struct{ name, in, want string }{
		{"text", "plain text, ünïcödé, \x7f\a\b\t\v\f\r\n", "plain text, ünïcödé, \x7f\a\b\t\v\f\r\n"},
		{"what is no UTF-8", "a\x80b\xffc\xe2\x82d\x9d52;c;?\x07", "a\ufffdb\ufffdc\ufffdd\ufffd52;c;?\x07"},
		{"a write", "a\x1b]52;c;" + clip + "\x07b", "a\x1b]52;c;" + clip + "\x07b"},
		{"a write, ST", "a\x1b]52;c;" + clip + "\x1b\\b", "a\x1b]52;c;" + clip + "\x1b\\b"},
		{"a read", "a\x1b]52;c;?\x07b", "ab"},
		{"a read, ST", "a\x1b]52;c;?\x1b\\b", "ab"},
		{"a read, primary", "a\x1b]52;p;?\x07b", "ab"},
		{"a read, no selection", "a\x1b]52;;?\x07b", "ab"},
		{"a read, no semicolon", "a\x1b]52\x07b\x1b]52;c\x07", "ab"},
		{"a read after blanks", "a\x1b]52;c; ?\x07b", "ab"},
		{"a read with zeros", "a\x1b]00052;c;?\x07b", "ab"},
		{"a write with zeros", "a\x1b]00052;c;" + clip + "\x07b", "a\x1b]52;c;" + clip + "\x07b"},
		{"a read with many zeros", "a\x1b]" + strings.Repeat("0", 200) + "52;c;?\x07b", "ab"},
		{"a read with controls", "a\x1b]5\x002\x01;c;?\x07b", "ab"},
		{"a read, 2^32+52", "a\x1b]4294967348;c;?\x07b", "ab"},
		{"a read, 2^64+52", "a\x1b]18446744073709551668;c;?\x07b", "ab"},
		{"a read after ESC BEL", "a\x1b\x07]52;c;?\x07b", "a\x07b"},
		{"a read after ESC LF", "a\x1b\n]52;c;?\x07b", "a\nb"},
		{"a read after ESC NUL", "a\x1b\x00]52;c;?\x07b", "ab"},
		{"a read after ESC DEL", "a\x1b\x7f]52;c;?\x07b", "ab"},
		{"a read after ESC and a byte of no sequence", "a\x1b\x9a]52;c;?\x07b", "a\ufffd]52;c;?\x07b"},
		{"a read after ESC CAN", "a\x1b\x18]52;c;?\x07b", "a]52;c;?\x07b"},
		{"a read, C1", "a\x9d52;c;?\x07b", "a\ufffd52;c;?\x07b"},
		{"a read, C1 in UTF-8", "a\xc2\x9d52;c;?\xc2\x9cb", "a52;c;?b"},
		{"a read that is cut off", "a\x1b]52;c;?\x1b[mb", "a\x1b[mb"},
		{"a write that is cut off", "a\x1b]52;c;" + clip + "\x1b[mb", "a\x1b[mb"},
		{"a write that is cancelled", "a\x1b]52;c;" + clip + "\x18b", "ab"},
		{"a read after ESC ESC", "a\x1b\x1b]52;c;?\x07b", "ab"},
		{"a read in a title", "a\x1b]0;x\x1b]52;c;?\x07b", "ab"},
		{"a read in a title of screen's", "a\x1bkx\x1b]52;c;?\x07b", "ab"},
		{"a read in a DCS", "a\x1bPq\x1b]52;c;?\x07b", "a\x1bPq\x1b\\b"},
		{"a read for the terminal outside of screen", "a\x1bP\x1b]52;c;?\x07\x1b\\b", "ab"},
		{"a read in an APC", "a\x1b_G\x1b]52;c;?\x07b", "ab"},
		{"a read in a CSI", "a\x1b[1\x1b]52;c;?\x07b", "ab"},
		{"a read after another coding system", "\x1b%@a\xc3\x9d52;c;?\x07b\x1b%G", "a\xc3\x9d52;c;?\x07b"},
		{"a read for the terminal outside of tmux", "a" + tmux("x\x1b]52;c;?\x07y") + "b", "a" + tmux("xy") + "b"},
		{"a read for it, spoilt", "a" + tmux("x\x1b\x07]52;c;?\x07y") + "b", "a" + tmux("x\x07y") + "b"},
		{"a write for it", "a" + tmux("\x1b]52;c;"+clip+"\x07") + "b", "a" + tmux("\x1b]52;c;"+clip+"\x07") + "b"},
		{"a read for it in two pieces", tmux("\x1b]52;c;") + tmux("?\x07"), tmux("") + tmux("?\x07")},
		{"a read two levels out", tmux(tmux("\x1b]52;c;?\x07")), tmux(tmux(""))},
		{"an image for it that is cut off", "\x1bPtmux;\x1b\x1bPq~~\x1b[mx", "\x1bPtmux;\x1b\x1bPq~~\x1b\x1b\\\x1b\\\x1b[mx"},
		{"kitty's read", "a\x1b]5522;type=read;Lg==\x1b\\b", "ab"},
		{"kitty's write", "a\x1b]5522;type=write\x1b\\b", "ab"},
		{"iTerm2's write", "a\x1b]1337;CopyToClipboard=\x07secret\x1b]1337;EndCopy\x07b\x1b]1337;Copy=:" + clip + "\x07", "asecretb"},
		{"too much", "a\x1b]52;c;" + strings.Repeat("A", maxClipboard+maxHead) + "\x07b", "ab"},
		{"as much as may be", "a\x1b]52;c;" + strings.Repeat("A", maxClipboard) + "\x07b", "a\x1b]52;c;" + strings.Repeat("A", maxClipboard) + "\x07b"},
		{"a title", "\x1b]0;52;c;?\x07\x1b]2;ü\x9c?\x1b\\", "\x1b]0;52;c;?\x07\x1b]2;ü\ufffd?\x1b\\"},
		{"a title with controls", "\x1b]2;a\nb\x85c\xc2\x9cd\x1b\\", "\x1b]2;ab\ufffdcd\x1b\\"},
		{"a link", "\x1b]8;id=1;http://x/?q=52;c\x1b\\x\x1b]8;;\x1b\\", "\x1b]8;id=1;http://x/?q=52;c\x1b\\x\x1b]8;;\x1b\\"},
		{"questions", "\x1b[c\x1b[6n\x1b]11;?\x07\x1b[?2026$p\x1b[>q\x1b[?u", "\x1b[c\x1b[6n\x1b]11;?\x07\x1b[?2026$p\x1b[>q\x1b[?u"},
		{"an image", "\x1bPq#0;2;0;0;0\n\x1b\\", "\x1bPq#0;2;0;0;0\x1b\\"},
		{"kitty's image", "\x1b_Gf=100,a=T,m=1;AAAA\x1b\\\x1b_Gm=0;\x1b\\\x1b_Ga=d\x1b\\", "\x1b_Gf=100,a=T,m=1;AAAA\x1b\\\x1b_Gm=0;\x1b\\\x1b_Ga=d\x1b\\"},
		{"synchronized output", "\x1b[?2026h\x1b[1;1Hx\x1b[?2026l", "\x1b[?2026h\x1b[1;1Hx\x1b[?2026l"},
		{"numbers out of range", "\x1b[99999999H\x1b[1;;3:4m", "\x1b[65535H\x1b[1;;3:4m"},
	} {
		if got := pass(all, c.in); got != c.want {
			t.Errorf("%s: %.80q gave %.80q, want %.80q", c.name, c.in, got, c.want)
		}
		if got := bytewise(all, c.in); got != c.want {
			t.Errorf("%s, byte by byte: %.80q gave %.80q, want %.80q", c.name, c.in, got, c.want)
		}
	}
	if got := pass(Filter{Questions: true}, "a\x1b]52;c;"+clip+"\x07b"+tmux("\x1b]52;c;"+clip+"\x07")); got != "ab"+tmux("") {
		t.Errorf("without the clipboard: %q", got)
	}
}

func TestFilterQuestions(t *testing.T) {
	for _, q := range []string{
		"\x1b[c", "\x1b[0c", "\x1b[>c", "\x1b[=c", "\x1b[5n", "\x1b[6n", "\x1b[?6n", "\x1b[?996n", "\x1b[?2026$p", "\x1b[4$p", "\x1b[>q", "\x1b[>0q",
		"\x1b[?u", "\x1b[18t", "\x1b[14;2t", "\x1b[?1;1;0S", "\x1b]10;?\x07", "\x1b]11;?\x07", "\x1b]4;1;?\x07", "\x1bP+q544e\x1b\\",
		"\x1b_Gi=1,a=q;AAAA\x1b\\", "\x1b_Gi=1,a=q\x1b\\", "\x1bP$qm\x1b\\",
	} {
		if got := pass(Filter{}, "a"+q+"b"); got != "ab" {
			t.Errorf("%q passed: %q", q, got)
		}
		if got := pass(all, q); got != q {
			t.Errorf("%q gave %q", q, got)
		}
	}
	for in, want := range map[string]string{
		"\x1b]10;?;#111;?;#222\x07":          "\x1b]11;#111\x07\x1b]13;#222\x07",
		"\x1b]4;1;?;2;#333;3;?;4;#444\x1b\\": "\x1b]4;2;#333\x1b\\\x1b]4;4;#444\x1b\\",
	} {
		if got := pass(Filter{}, in); got != want {
			t.Errorf("%q gave %q, want %q", in, got, want)
		}
	}
	for _, s := range []string{
		"\x1b[2J", "\x1b[1;31m", "\x1b[>1u", "\x1b[<u", "\x1b[u", "\x1b[s", "\x1b[?25h", "\x1b[2 q", "\x1b[22;0t", "\x1b[23t", "\x1b[3S", "\x1b[!p", "\x1b7\x1b8",
		"\x1b[>4;1m", "\x1b]11;#000000\x07", "\x1b]0;what?\x07", "\x1b_Gf=100,a=T;AAAA\x1b\\", "\x1bPq~\x1b\\", "\x1b(0\x1b)B", "\x1b]104\x07", "\x1b]110\x1b\\",
		"\x1b]9;4;1;20\x07", "\x1b]9;done\x07", "\x1b]99;i=1:d=0;hello\x1b\\", "\x1b]777;notify;a;b\x07", "\x1b]133;A\x07", "\x1b]133;D;1\x07",
	} {
		if got := pass(Filter{}, s); got != s {
			t.Errorf("%q gave %q", s, got)
		}
	}
}

// TestFilterRefuses is what no person's terminal is told, with where it is from.
func TestFilterRefuses(t *testing.T) {
	for in, why := range map[string]string{
		"\x1bP0;1|17/6563686f0d\x1b\\":                 "DECUDK: a text on a function key (ctlseqs)",
		"\x1bP@kitty-cmd{\"cmd\":\"ls\"}\x1b\\":        "kitty's remote control",
		"\x1bP1$t0\x1b\\":                              "DECRSPS",
		"\x1bP$qx\x1b\\":                               "DECRQSS of what is nothing: CVE-2008-2383",
		"\x1bP$qm\nls\n\x1b\\":                         "the same",
		"\x1bP+p54\x1b\\":                              "XTSETTCAP",
		"\x1bP1!z48\x1b\\":                             "DECDMAC: a macro",
		"\x1bP1000p%begin\x1b\\":                       "tmux -CC in iTerm2",
		"\x1bP2000p{}\x1b\\":                           "iTerm2's ssh integration",
		"\x1b[1*z":                                     "DECINVM: a macro is typed",
		"\x1b[1;1;1;1;9;9*y":                           "DECRQCRA: what the screen shows",
		"\x1b[5i\x1b[4i\x1b[?5i\x1b[i":                 "printing",
		"\x1b[20t\x1b[21t":                             "titles, as if typed",
		"\x1b[1t\x1b[2t\x1b[3;0;0t\x1b[8;9;9t\x1b[24t": "the window",
		"\x1b[>2t\x1b[>1T":                             "how titles are reported",
		"\x1b[\x22p\x1b[61\x22p\x1b G\x1b F":           "DECSCL and S8C1T: C1 in answers",
		"\x1b%@\x1b%G\x1b%/G":                          "another coding system",
		"\x1b[2h\x1b[12l":                              "KAM, SRM: the keyboard",
		"\x1b[?2l":                                     "VT52",
		"\x1bZ\x05":                                    "DECID, ENQ",
		"\x1b[?1061h\x1b[?1050;1051;1052;1053;1060h":   "xterm's keyboards",
		"\x1b[?1034h\x1b[?1035l\x1b[?1036l\x1b[?1039h": "what Meta sends",
		"\x1b[?9001h":                                  "Windows Terminal's keyboard",
		"\x1b[?5522h\x1b[?19997h":                      "kitty's pasting, and signals",
		"\x1b[?737769h\x1b[?1337h":                     "foot's input method, iTerm2's keys",
		"\x1b[?1061r\x1b[?1061s":                       "XTRESTORE of such",
		"\x1b[?4294968357h":                            "2^32+1061",
		"\x1b[?69h\x1b[1;2s\x1b[?45h\x1b[?3h\x1b[?40h": "margins, reverse wrap, columns",
		"\x1b['z\x1b[1'{\x1b['|":                       "locators",
		"\x1b[#P\x1b[#Q\x1b[#R\x1b[#{\x1b[#}":          "stacks",
		"\x1b[>1s\x1b[>0p\x1b[>1f":                     "Shift, pointer, keys",
		"\x1b[?5c\x1b[9;1]\x1b[12]":                    "the Linux console's own",
		"\x1b]3;X=y\x07":                               "a property of a window",
		"\x1b]7;file://localhost/tmp\x07":              "where a new window starts",
		"\x1b]l x\x1b\\\x1b]Ix\x1b\\":                  "Sun's titles, a file of an icon",
		"\x1b]P0ffffff":                                "the Linux console's palette: cut off at the end",
		"\x1b]9;2;x\x07\x1b]9;6;x\x07\x1b]9;7;calc\x07\x1b]9;9;C:\x07":     "ConEmu's: a box, a macro, a program, a directory",
		"\x1b]46;/tmp/log\x07\x1b]50;?\x07\x1b]50;#+1\x07":                 "a log, a font: CVE-2022-45063",
		"\x1b]60\x07\x1b]61;allowTitleOps\x07":                             "what xterm allows",
		"\x1b]22;crosshair\x07\x1b]21;foreground=?\x07":                    "kitty's pointer and colours",
		"\x1b]83;exec ls\x07\x1b!x":                                        "commands of screen",
		"\x1b]633;E;rm -rf\x07":                                            "a command line in VS Code's history",
		"\x1b]777;precmd\x07\x1b]777;container;push;x\x07":                 "urxvt's and VTE's others",
		"\x1b]99;i=x:a=report;y\x1b\\\x1b]99;i=x:p=?;\x1b\\":               "kitty's answers",
		"\x1b]1337;File=name=eA==:AAAA\x07\x1b]1337;SetProfile=x\x07":      "iTerm2's",
		"\x1b]1337;ReportVariable=eA==\x07\x1b]1337;OpenURL=:eA==\x07":     "iTerm2's",
		"\x1b_Ga=T,t=f;L2V0Yy9wYXNzd2Q=\x1b\\":                             "a file of the person's machine",
		"\x1b_Ga=T,t=t;eA==\x1b\\\x1b_Ga=T,t=s;eA==\x1b\\":                 "one that is deleted, shared memory",
		"\x1b_title\x1b\\\x1b^message\x1b\\\x1bXx\x1b\\\x1bktitle\x1b\\":   "strings without a use",
		"\x1b#3\x1b#6\x1b-A\x1b.A\x1b|\x1b}\x1b~\x1b6\x1b9\x1bl\x1bm\x1bF": "what the model does not know",
	} {
		if got := pass(all, in); got != "" {
			t.Errorf("%s: %q gave %q", why, in, got)
		}
		if got := pass(all, tmux(in)); got != tmux("") {
			t.Errorf("%s, for the terminal outside: %q gave %q", why, in, got)
		}
	}
	for in, want := range map[string]string{
		"\x1b[?1;1061;9001;25h":                      "\x1b[?1;25h",
		"\x1b[2;4h":                                  "\x1b[4h",
		"\x1b]8;;file:///etc/passwd\x07x":            "\x1b]8;;\x07x",
		"\x1b]8;;javascript:1\x07\x1b]8;;x\x07":      "\x1b]8;;\x07\x1b]8;;\x07",
		"\x1b]4;1;red;300;blue;2;\x27x\x27\x07":      "\x1b]4;1;red\x07",
		"\x1b(K":                                     "\x1b(B",
		"\x1b[>4n":                                   "\x1b[>4m",
		"\x1b[22;0;7t":                               "\x1b[22;0t",
		"\x1b[" + strings.Repeat("1;", 40) + "1m":    "\x1b[" + strings.Repeat("1;", 31) + "1m",
		"\x1b]99;i=1:d=0;hello\x07\x1b]9;4;01;5\x07": "\x1b]99;i=1:d=0;hello\x07\x1b]9;4;1;5\x07",
	} {
		if got := pass(all, in); got != want {
			t.Errorf("%q gave %q, want %q", in, got, want)
		}
	}
}

// TestFilterModes holds for every number there is: a mode that passes is taken back by
// Reset. So no mode of any terminal is left on, whatever its document says.
func TestFilterModes(t *testing.T) {
	reset := string(New(Options{Cols: 80, Rows: 24}).Reset())
	screens := []int{6, 47, 1047, 1048, 1049} // by other means: TestReset
	passed := 0
	for n := range maxParam + 1 {
		for _, private := range []string{"", "?"} {
			for _, final := range "hlsr" {
				in := "\x1b[" + private + strconv.Itoa(n) + string(final)
				got := pass(all, in)
				if got == "" || private == "" && final > 'l' { // without it these are others
					continue
				}
				if got != in {
					t.Fatalf("%q gave %q", in, got)
				}
				passed++
				set, unset := "\x1b["+private+strconv.Itoa(n)+"h", "\x1b["+private+strconv.Itoa(n)+"l"
				if !strings.Contains(reset, unset) && !strings.Contains(reset, set) && !(private == "?" && slices.Contains(screens, n)) {
					t.Errorf("%q passes, and Reset does not take it back", in)
				}
			}
		}
	}
	if want := 4*(len(screens)+len(mouseModes)+len(modeNumbers)-2) + 2*2; passed != want {
		t.Errorf("%d sequences passed, want %d", passed, want)
	}
}

// TestFilterTakesOurs: Restore, Reset and what takes traces back are told to terminals
// without a filter, so nothing in them may be what it refuses.
func TestFilterTakesOurs(t *testing.T) {
	for _, in := range append(slices.Clone(pieces), strings.Join(pieces, "")) {
		term := New(Options{Cols: 20, Rows: 6})
		term.Write([]byte(in))
		for what, b := range map[string][]byte{"Restore": term.Restore(20, 6), "Reset": term.Reset(), "Undo": term.Traces().Undo()} {
			got := pass(all, string(b))
			if got = strings.ReplaceAll(got, "\x1b\\", ""); got != strings.ReplaceAll(string(b), "\x1b\\", "") {
				t.Errorf("after %q: %s\nsays   %q\npasses %q", in, what, b, got)
			}
		}
	}
}

// mayPass is all that may come out of the filter, in another's words: what a terminal
// of any kind can read in one way only.
var mayPass = regexp.MustCompile(`^(?:[^\x00-\x06\x10-\x1f\x{80}-\x{9f}]|` +
	`\x1b[78=>DEHMNOcno]|\x1b[()*+][0AB]|\x1b#8|` +
	`\x1b\[[0-9:;]*[@A-HIJ-MPSTXZ` + "`" + `abcdefgjkmnrstu]|\x1b\[(?:4|20)(?:;(?:4|20))*[hl]|` +
	`\x1b\[\?[0-9;:]*[hlsrJKnumS]|\x1b\[>[0-9;:]*[mucq]|\x1b\[<[0-9;:]*u|\x1b\[=[0-9;:]*[uc]|` +
	`\x1b\[[0-9;:]* q|\x1b\[[0-9;:]*!p|\x1b\[\??[0-9;:]*\$p|` +
	`\x1b\](?:[0124-9]|1[0-9]|99|104|11[0-9]|133|633|777)(?:;[^\x00-\x1f\x{7f}-\x{9f}]*)?(?:\x07|\x1b\\)|` +
	`\x1b\]52;[cpqs0-7]*;[A-Za-z0-9+/=]*(?:\x07|\x1b\\)|` +
	`\x1bP[0-9;:]*q[ -~]*\x1b\\|\x1bP\$q(?:[mrst]| q|"[qp])\x1b\\|\x1bP\+q[0-9a-fA-F;]+\x1b\\|` +
	`\x1b_G[-a-zA-Z0-9=,]*(?:;[ -~]*)?\x1b\\)*$`)

var asksColour = regexp.MustCompile(`\x1b\](?:4|1[0-9]);[^\x07\x1b]*\?`)

var ofModes = regexp.MustCompile(`\x1b\[\?([0-9;:]*)[hlsr]`)

// refused says what is in out that a terminal must not get.
func refused(out string) string {
	if !utf8.ValidString(out) {
		return "is no UTF-8"
	}
	// What tmux would hand to the terminal outside.
	var rest strings.Builder
	for {
		before, after, ok := strings.Cut(out, "\x1bPtmux;")
		rest.WriteString(before)
		if !ok {
			break
		}
		end := 0
		for end < len(after) && !(after[end] == 0x1b && after[end+1] != 0x1b) {
			if end++; after[end-1] == 0x1b {
				end++
			}
		}
		if why := refused(strings.ReplaceAll(after[:end], "\x1b\x1b", "\x1b")); why != "" {
			return "outside of tmux: " + why
		}
		out = after[end+2:]
	}
	out = rest.String()
	if !mayPass.MatchString(out) {
		return "has what is on no list"
	}
	for _, m := range ofModes.FindAllStringSubmatch(out, -1) {
		for _, n := range strings.Split(m[1], ";") {
			mode, err := strconv.Atoi(n)
			if known := New(Options{}).mode(mode) != 0 || mode == 1048; err != nil || !known {
				return "changes mode " + n
			}
		}
	}
	return ""
}

// FuzzFilter: what passes, read again, has nothing of what is refused; it shows the same
// screen as all of it; it passes again as it is, however it is cut; and text is untouched.
func FuzzFilter(f *testing.F) {
	for _, s := range append(slices.Clone(pieces), "a\x1b]52;c;?\x07b", tmux("\x1b]52;c;?\x07"), tmux(tmux("x\x1bPq~")), "\xc2\x9d52;;?\x9c", "\x1b[6n\x1b]11;?\x1b\\",
		"\x1b\x1b\x1b]52;c;QQ==\x1b\\", "\x1b]5\x0052;x", "\x1b\x07]52;c;?\x07", "\x1b]4294967348;c;?\x07", "\x1bP0;1|17/41\x1b\\", "\x1b[?1;1061h", "\x1b_Gt=f;AA\x1b\\") {
		f.Add([]byte(s), 1, false)
		f.Add([]byte(s), 3, true)
	}
	f.Fuzz(func(t *testing.T, b []byte, cut int, whole bool) {
		filter := Filter{Questions: whole, Clipboard: whole}
		out := filter.Write(nil, b)
		out = filter.Close(out)
		pieces := Filter{Questions: whole, Clipboard: whole}
		var inPieces []byte
		for rest := b; len(rest) > 0; rest = rest[min(max(1, cut&0xff), len(rest)):] {
			inPieces = pieces.Write(inPieces, rest[:min(max(1, cut&0xff), len(rest))])
		}
		if inPieces = pieces.Close(inPieces); string(inPieces) != string(out) {
			t.Fatalf("%q: at once %q, in pieces %q", b, out, inPieces)
		}
		if why := refused(string(out)); why != "" {
			t.Fatalf("%q gave %q, which %s", b, out, why)
		}
		if !whole && (strings.Contains(string(out), "\x1b]52;") || asksColour.Match(out)) {
			t.Fatalf("%q gave %q", b, out)
		}
		again := Filter{Questions: whole, Clipboard: whole}
		if twice := again.Close(again.Write(nil, out)); string(twice) != string(out) {
			t.Fatalf("%q gave %q, and that %q", b, out, twice)
		}
		if !slices.ContainsFunc(b, func(c byte) bool { return !permitC0(c) && (c < ' ' || c > '~') }) && string(out) != string(b) {
			t.Fatalf("text %q became %q", b, out)
		}
		plain := Filter{Plain: true}
		if text := plain.Write(nil, b); slices.ContainsFunc([]rune(string(text)), func(r rune) bool { return r < ' ' && !strings.ContainsRune("\a\b\t\n\r", r) || isC1(r) }) {
			t.Fatalf("%q as text is %q", b, text)
		}
		raw, filtered := New(Options{Cols: 20, Rows: 6}), New(Options{Cols: 20, Rows: 6})
		raw.Write(b)
		filtered.Write(out)
		compare(t, "what passes", raw, filtered)
	})
}
