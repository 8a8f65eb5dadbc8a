package launch

import (
	"os/exec"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/agent-init/agent-init/internal/text"
)

// FuzzShell: a shell reads the words that were written, and a terminal of 80 columns breaks none of their lines.
func FuzzShell(f *testing.F) {
	for _, words := range []string{
		"", "a", "it's", "''", "'", "\\", "a\\", "$HOME `id` \"x\"", "-e|A=b c|-v|x", "-e", strings.Repeat("'", 200), strings.Repeat("a", 200),
		strings.Repeat("世", 100), strings.Repeat("a b|", 60), strings.Repeat("\\'", 90), "!x|~|*|#|{a,b}|a;b|&|<|>|(|)",
	} {
		f.Add(words)
	}
	f.Fuzz(func(t *testing.T, joined string) {
		if text.Clean(joined) != joined || !utf8.ValidString(joined) || len(joined) > 10000 {
			return // Check refuses it
		}
		words := strings.Split(joined, "|")
		line := shell(append([]string{"printf", `%s|`}, words...))
		for part := range strings.SplitSeq(line, "\n") {
			if n := text.Columns(part); n > columns {
				t.Errorf("%d columns: %s", n, part)
			}
		}
		out, err := exec.Command("sh", "-c", line).Output()
		if err != nil || string(out) != joined+"|" {
			t.Errorf("%v: %q became %q by\n%s", err, joined, out, line)
		}
	})
}
