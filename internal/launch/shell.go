package launch

import (
	"slices"
	"strings"

	"github.com/agent-init/agent-init/internal/lazy"
	"github.com/agent-init/agent-init/internal/text"
)

// columns is the width that a printed command keeps. A terminal that breaks a longer line would give a person who copies
// it two commands.
const columns = 80

var plainWord = lazy.Pattern(`^[A-Za-z0-9_@%+=:,./-]+$`)

// quote is a word as a shell reads it back.
func quote(word string) string {
	if plainWord().MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// shell is a command for a person to copy, broken so that no line is wider than columns. An option that is followed by
// its value stands in one line with it.
func shell(words []string) string {
	var out strings.Builder
	at := 0
	for i := 0; i < len(words); i++ {
		part := quote(words[i])
		if slices.Contains([]string{"-e", "-v", "-p", "-C", "-b", "-c"}, words[i]) && i+1 < len(words) {
			i++
			part += " " + quote(words[i])
		}
		switch wide := text.Columns(part); {
		case i == 0:
		case at+1+wide+2 <= columns:
			out.WriteString(" ")
			at++
		default:
			out.WriteString(" \\\n  ")
			at = 2
		}
		part = broken(part, columns-at)
		out.WriteString(part)
		at += text.Columns(part[strings.LastIndexByte(part, '\n')+1:])
	}
	return out.String()
}

// broken goes on at the beginning of the next line where a word, quoted, is wider than there is room for. A shell joins
// what a backslash ends; inside of single quotes there is none, so these end before it.
func broken(part string, room int) string {
	if text.Columns(part)+2 <= room {
		return part
	}
	var out strings.Builder
	at, inside := 0, false
	for len(part) > 0 {
		unit, apostrophe := part, strings.HasPrefix(part, `'\''`) && inside
		if apostrophe {
			unit = part[:4]
		} else {
			for i := range part {
				if i > 0 {
					unit = part[:i]
					break
				}
			}
		}
		if at+text.Columns(unit)+3 > room && len(part) > len(unit) {
			if inside {
				out.WriteString("'\\\n'")
				at = 1
			} else {
				out.WriteString("\\\n")
				at = 0
			}
			room = columns
		}
		if unit == "'" {
			inside = !inside
		}
		out.WriteString(unit)
		at += text.Columns(unit)
		part = part[len(unit):]
	}
	return out.String()
}
