package attach

import (
	"bytes"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/pkg/session/internal/typed"
)

// type1 feeds k pieces and returns what the program gets, with commands in
// angle brackets. The time for the rest of a sequence is over at the end.
func typeKeys(k *keys, pieces ...string) string {
	var out strings.Builder
	input := func(b []byte) { out.Write(b) }
	for _, p := range pieces {
		k.scan([]byte(p), input, func(c byte) { out.WriteString("<" + string(rune(c)) + ">") })
	}
	k.flush(input)
	return out.String()
}

func TestKeys(t *testing.T) {
	for _, c := range []struct {
		name, want string
		typed      []string
	}{
		{"text", "hello", []string{"hel", "lo"}},
		{"detach", "ab<d>c", []string{"ab\x1ddc"}},
		{"detach, in pieces", "<d>", []string{"\x1d", "d"}},
		{"twice sends it", "a\x1db", []string{"a\x1d\x1db"}},
		{"an unknown key", "<x>", []string{"\x1dx"}},
		{"as CSI u", "<d>", []string{"\x1b[93;5ud"}},
		{"as CSI u, in pieces", "<d>", []string{"\x1b[9", "3;5", "ud"}},
		{"as CSI u with Num Lock", "<d>", []string{"\x1b[93;133ud"}},
		{"as CSI u, pressed and released", "<d>", []string{"\x1b[93;5:1u\x1b[93;5:3ud"}},
		{"all keys as CSI u", "<d>", []string{"\x1b[57442;5u\x1b[93;5:1u\x1b[93;5:3u\x1b[100;1:1u\x1b[100;1:3u"[len("\x1b[57442;5u"):]}},
		{"Ctrl-5, which is Ctrl-] on a German keyboard, as CSI u", "<d>", []string{"\x1b[53;5ud"}},
		{"Ctrl-5 as modifyOtherKeys", "<d>", []string{"\x1b[27;5;53~d"}},
		{"Ctrl with AltGr", "<d>", []string{"\x1b[93;7ud"}},
		{"Ctrl with Shift, where the key needs it", "<d>", []string{"\x1b[56:93;6ud"}},
		{"a Cyrillic keyboard", "<d>", []string{"\x1b[1098::93;5u\x1b[1074::100u"}},
		{"? with Shift", "<?>", []string{"\x1b[93;5u\x1b[47:63;2u"}},
		{"released after Ctrl", "<d>", []string{"\x1b[53;5:1u\x1b[53;1:3ud"}},
		{"Ctrl-6", "\x1b[54;5u", []string{"\x1b[54;5u"}},
		{"Ctrl-Alt-5", "\x1b[53;7u", []string{"\x1b[53;7u"}},
		{"5 without Ctrl", "\x1b[53u", []string{"\x1b[53u"}},
		{"Super", "\x1b[93;13u", []string{"\x1b[93;13u"}},
		{"a modifier in between", "\x1b[57441;2u<?>", []string{"\x1b[93;5u\x1b[57441;2u?"}},
		{"as modifyOtherKeys", "<n>", []string{"\x1b[27;5;93~n"}},
		{"twice as CSI u sends it so", "\x1b[93;5u", []string{"\x1b[93;5u\x1b[93;5u"}},
		{"another key with Ctrl", "\x1b[94;5u", []string{"\x1b[94;5u"}},
		{"in a paste", "\x1b[200~a\x1ddb\x1b[201~<d>", []string{"\x1b[200~a\x1d", "db\x1b[201~\x1dd"}},
		{"a paste whose end is cut", "\x1b[200~\x1d\x1b[201~<d>", []string{"\x1b[200~\x1d\x1b[20", "1~\x1dd"}},
		{"the mouse after the prefix", "\x1b[<35;150;7M<d>", []string{"\x1d\x1b[<35;15", "0;7Md"}},
		{"an answer after the prefix", "\x1b[?62c<d>", []string{"\x1d\x1b[?62cd"}},
		{"the old mouse with the prefix inside", "\x1b[M\x1d!!", []string{"\x1b[M\x1d!!"}},
		{"Escape", "\x1b", []string{"\x1b"}},
		{"Escape after the prefix", "a", []string{"\x1d\x1b"}},
		{"UTF-8, cut", "ä€", []string{"\xc3", "\xa4\xe2\x82", "\xac"}},
		{"Alt with a key", "\x1bd", []string{"\x1b", "d"}},
		{"an answer with the prefix inside", "\x1b]11;\x1d\x1b\\", []string{"\x1b]11;\x1d\x1b", "\\"}},
	} {
		k := &keys{prefix: DefaultPrefix}
		got := typeKeys(k, c.typed...)
		if c.name == "Escape after the prefix" {
			got += typeKeys(k, "a")
		}
		if got != c.want {
			t.Errorf("%s: %q gave %q, want %q", c.name, c.typed, got, c.want)
		}
	}
	for typed, want := range map[string]string{"\x1b[98;5ud": "<d>", "\x1b[98;7ud": "\x1b[98;7ud", "\x1b[98;6ud": "\x1b[98;6ud"} {
		if got := typeKeys(&keys{prefix: 2}, typed); got != want {
			t.Errorf("Ctrl-B: %q gave %q, want %q", typed, got, want)
		}
	}
	if got := typeKeys(&keys{}, "\x1dd"); got != "\x1dd" {
		t.Errorf("without a prefix: %q", got)
	}
}

// Nothing that reaches the program ends in the middle of a sequence.
func TestKeysWhole(t *testing.T) {
	text := "a\x1b[<35;150;7Mü\x1bOP\x1b[200~x\x1b[201~\x1b]11;rgb:00/00/00\x1b\\"
	for cut := range len(text) {
		k := &keys{prefix: DefaultPrefix}
		var all []byte
		input := func(b []byte) {
			all = append(all, b...)
			for seq, complete := range typed.Sequences(b) {
				if !complete {
					t.Errorf("cut at %d: %q is not complete", cut, seq)
				}
			}
		}
		k.scan([]byte(text[:cut]), input, nil)
		k.scan([]byte(text[cut:]), input, nil)
		if string(all) != text {
			t.Errorf("cut at %d: %q", cut, all)
		}
	}
}

func TestPrefix(t *testing.T) {
	for text, want := range map[string]Prefix{"ctrl-]": 0x1d, "C-a": 1, "^B": 2, "Ctrl+\\": 0x1c, "none": 0} {
		if p, err := ParsePrefix(text); p != want || err != nil {
			t.Errorf("%s: %v, %v", text, p, err)
		}
	}
	for _, text := range []string{"", "x", "ctrl-", "ctrl-[", "ctrl-m", "ctrl-ab", "ctrl-1", "ctrl-@", "^é"} {
		if p, err := ParsePrefix(text); err == nil {
			t.Errorf("%q is %v", text, p)
		}
	}
	if p, err := ParsePrefix(DefaultPrefix.Name()); p != DefaultPrefix || err != nil {
		t.Errorf("%v, %v", p, err)
	}
}

// FuzzKeys: however input is cut, the program gets the same, and without a
// prefix it gets all of it.
func FuzzKeys(f *testing.F) {
	for _, s := range []string{"abc", "\x1dd", "\x1b[93;5u\x1b[93;5:3u?", "\x1b[200~\x1d\x1b[201~", "\x1b\x1b\x1b[M\x1d", "\x1b]52;c;\x1b", "\xf0\x9f\x98"} {
		f.Add([]byte(s), 1)
		f.Add([]byte(s), 2)
	}
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		cut = max(1, cut&0x3f)
		var pieces []string
		for rest := b; len(rest) > 0; rest = rest[min(cut, len(rest)):] {
			pieces = append(pieces, string(rest[:min(cut, len(rest))]))
		}
		if got := typeKeys(&keys{}, pieces...); got != string(b) {
			t.Fatalf("%q became %q", b, got)
		}
		if len(b) > typed.MaxHeld {
			return // beyond that a sequence is cut where it comes
		}
		whole, cutUp := typeKeys(&keys{prefix: DefaultPrefix}, string(b)), typeKeys(&keys{prefix: DefaultPrefix}, pieces...)
		if whole != cutUp {
			t.Fatalf("%q: at once %q, in pieces %q", b, whole, cutUp)
		}
		if !bytes.Contains(b, []byte{byte(DefaultPrefix)}) && !bytes.ContainsAny(b, "u~") && whole != string(b) {
			t.Fatalf("%q became %q", b, whole)
		}
	})
}
