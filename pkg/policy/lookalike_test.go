package policy

import (
	"strings"
	"testing"

	"golang.org/x/net/idna"
)

// TestLookalike: a name that can be taken for another one is warned about, however it is written. Names of one script,
// and of those that a language writes together, are not.
func TestLookalike(t *testing.T) {
	for name, want := range map[string]string{
		"аррӏе.com": "it looks like apple.com", "раypal.com": "it looks like paypal.com", "ɡithub.com": "it looks like github.com", "*.ρνο.com": "it looks like pvo.com",
		"githμb.com": "githμb mixes letters that are Latin and Greek", "оса.рф": "оса looks like oca", "жpaypal.com": "mixes letters that are Cyrillic and Latin",
		"münchen.example": "", "пример.рф": "", "παράδειγμα.gr": "", "東京タワーabc.jp": "", "한국web.kr": "", "日本語.example": "", "مثال.example": "", "plain.example": "",
	} {
		base, wildcard := strings.CutPrefix(name, "*.")
		ascii, err := idna.Lookup.ToASCII(base)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if wildcard {
			ascii = "*." + ascii
		}
		for _, written := range []string{name, ascii, strings.ToUpper(ascii)} {
			got := warnings(parse(t, "f", written))
			if want == "" && got != "" || !strings.Contains(got, want) {
				t.Errorf("%s: %q, want %q", written, got, want)
			}
		}
		if got := warnings(parse(t, "f", "!"+name)); got != "" {
			t.Errorf("denied %s: %s", name, got)
		}
	}
}
