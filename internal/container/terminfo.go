package container

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// DefaultTerm is the terminal that a window is, for programs. Every terminfo database has it.
const DefaultTerm = "xterm-256color"

// terminfoDirs are where terminfo(5) is in Debian, Alpine and others. What the agent's home has does not count: it may be
// gone, and root does not look there.
var terminfoDirs = []string{"/etc/terminfo", "/lib/terminfo", "/usr/share/terminfo", "/usr/lib/terminfo", "/usr/local/share/terminfo"}

// Term is what programs are told of their terminal, which somebody calls asked: they can't use one that this image has no
// entry for, and then known is false. A dumb terminal needs none.
func Term(asked string) (term string, known bool) { return termIn(asked, terminfoDirs) }

func termIn(asked string, dirs []string) (term string, known bool) {
	if asked == "" || asked == "dumb" {
		return asked, true
	}
	if !strings.ContainsAny(asked, "/\x00") && asked[0] != '.' {
		for _, dir := range dirs {
			// By the first letter, or by its code where file systems ignore case (term(5)).
			for _, letter := range []string{asked[:1], fmt.Sprintf("%x", asked[0])} {
				if st, err := os.Stat(filepath.Join(dir, letter, asked)); err == nil && st.Mode().IsRegular() {
					return asked, true
				}
			}
		}
	}
	return DefaultTerm, false
}
