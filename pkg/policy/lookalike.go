package policy

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/net/idna"
)

// twins are letters that most people take for one of ASCII (UTS 39, confusables.txt, and those that fonts draw alike).
var twins = strings.NewReplacer(
	"а", "a", "в", "b", "е", "e", "о", "o", "р", "p", "с", "c", "у", "y", "х", "x", "і", "i", "ј", "j", "ѕ", "s", "һ", "h", "ԁ", "d", "ԛ", "q",
	"ԝ", "w", "ӏ", "l", "к", "k", "п", "n", "г", "r", "ѵ", "v", "ү", "y", "ь", "b", "м", "m", "н", "h", "т", "t", "ԍ", "g", "ҝ", "k",
	"α", "a", "ε", "e", "γ", "y", "η", "n", "ι", "i", "κ", "k", "ν", "v", "ο", "o", "ρ", "p", "τ", "t", "υ", "u", "χ", "x", "ω", "w", "ϲ", "c", "ϳ", "j",
	"օ", "o", "ս", "u", "հ", "h", "ո", "n", "ց", "g", "զ", "q", "ա", "w", "ɩ", "i",
	"ɑ", "a", "ɡ", "g", "ı", "i", "ȷ", "j", "ʏ", "y", "ѡ", "w", "ɪ", "i", "ʟ", "l", "ɴ", "n", "ʀ", "r",
)

// together are scripts that one language writes together (UTS 39, section 5.2).
var together = [][]string{
	{"Latin", "Han", "Hiragana", "Katakana"}, {"Latin", "Han", "Bopomofo"}, {"Latin", "Han", "Hangul"},
}

// lookalike says how a name in A-labels can be taken for another one; "" if it can't.
func lookalike(name string) string {
	if !strings.Contains(name, "xn--") {
		return ""
	}
	shown, err := idna.ToUnicode(name)
	if err != nil {
		return ""
	}
	if twin := twins.Replace(shown); twin != shown && !strings.ContainsFunc(twin, func(r rune) bool { return r > unicode.MaxASCII }) {
		return fmt.Sprintf("it looks like %s, and is another name", twin)
	}
	for label := range strings.SplitSeq(shown, ".") {
		twin := twins.Replace(label)
		scripts := scriptsOf(label)
		one := len(scripts) < 2 || slices.ContainsFunc(together, func(set []string) bool {
			return !slices.ContainsFunc(scripts, func(s string) bool { return !slices.Contains(set, s) })
		})
		switch {
		case !one:
			return fmt.Sprintf("%s mixes letters that are %s: it may be made to look like another name", label, strings.Join(scripts, " and "))
		case twin != label && !strings.ContainsFunc(twin, func(r rune) bool { return r > unicode.MaxASCII }):
			return fmt.Sprintf("%s looks like %s, and is another name", label, twin)
		}
	}
	return ""
}

// scriptsOf are the scripts of a label's letters, in their order.
func scriptsOf(label string) (scripts []string) {
	for _, r := range label {
		for name, table := range unicode.Scripts {
			if name != "Common" && name != "Inherited" && unicode.Is(table, r) && !slices.Contains(scripts, name) {
				scripts = append(scripts, name)
			}
		}
	}
	return scripts
}
