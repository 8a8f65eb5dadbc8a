package text

import (
	"bytes"
	"cmp"
	"io"
	"os"
	"strings"

	"github.com/clipperhouse/displaywidth"

	"github.com/agent-init/agent-init/internal/lazy"
)

// folder breaks lines between words. Every further part of a line begins with hang.
type folder struct {
	w     io.Writer
	width int
	hang  string
	rest  []byte // of a line that has no end yet
}

// Folded is where a command writes for a person: the terminal's width is kept, and a
// file or a pipe gets the lines as they are, for programs that read line by line.
func Folded(w io.Writer, hang string) io.Writer {
	f, ok := w.(*os.File)
	if !ok {
		return w
	}
	columns, ok := width(f)
	if !ok {
		return w
	}
	// It may not know yet: "docker exec -t" says it when the command runs already.
	return FoldedAt(w, cmp.Or(columns, 80), hang)
}

// FoldedAt is Folded for a terminal of that width.
func FoldedAt(w io.Writer, width int, hang string) io.Writer {
	return &folder{w: w, width: max(width, 2*len(hang)), hang: hang}
}

// WidthOf is the width that is kept by what Folded returned; 0 if there is none to keep.
func WidthOf(w io.Writer) int {
	if f, ok := w.(*folder); ok {
		return f.width
	}
	return 0
}

func (f *folder) Write(p []byte) (int, error) {
	f.rest = append(f.rest, p...)
	end := bytes.LastIndexByte(f.rest, '\n') + 1
	var out strings.Builder
	for line := range strings.Lines(string(f.rest[:end])) {
		out.WriteString(Fold(strings.TrimSuffix(line, "\n"), f.width, f.hang) + "\n")
	}
	f.rest = f.rest[end:]
	if _, err := io.WriteString(f.w, out.String()); err != nil {
		return 0, err
	}
	return len(p), nil
}

// wordOf is a word with the blanks before it; the last has those behind it as well. A command that two blanks set off,
// or that has a line of its own, is one word: a person copies it, and a break in it would end it there.
var wordOf = lazy.Pattern(`(?:^ *|  +)agent-init(?: [^ ]+)+(?: +$)?| *[^ ]+(?: +$)?|^ +$`)

// Fold breaks a line at blanks so that no part is wider than width, unless that is 0. A wider word stays whole.
func Fold(line string, width int, hang string) string {
	if width == 0 || Columns(line) <= width {
		return line
	}
	var out strings.Builder
	part, words := "", 0
	for _, word := range wordOf().FindAllString(line, -1) {
		if words > 0 && Columns(part+word) > width {
			out.WriteString(part + "\n")
			part, words = hang, 0
		}
		if words == 0 && out.Len() > 0 {
			word = strings.TrimLeft(word, " ")
			if word == "#" && strings.HasSuffix(hang, "# ") {
				continue // a comment goes on as one
			}
		}
		part, words = part+word, words+1
	}
	return out.String() + part
}

var colours = lazy.Pattern("\x1b\\[[^m]*m")

// Columns is how many a text takes, colours aside. A character may take two, or none.
func Columns(s string) int { return displaywidth.String(colours().ReplaceAllString(s, "")) }
