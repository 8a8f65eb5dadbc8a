package terminal

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Numbers of operating system commands that only one of filter and model acts on.
const (
	workdir   = 7 // of the model: a directory of the container's is nothing to the person's machine
	clipboard = 52
)

// command reads the number of an operating system command, which a semicolon ends,
// and its text, clean. A number that some terminal could wrap around to another is none.
func command(data []byte) (number int, rest string, ok bool) {
	digits, rest, _ := strings.Cut(string(data), ";")
	number, err := strconv.Atoi(digits)
	ok = err == nil && isNumber(digits) && len(strings.TrimLeft(digits, "0")) <= 5
	return number, clean(rest, utf8.UTFMax*len(rest)), ok
}

// appendCommand appends what has no semicolon if there is no text (104 to 119) as that.
func appendCommand(dst []byte, name, rest string, bel bool) []byte {
	dst = append(append(dst, 0x1b, ']'), name...)
	if rest != "" || len(name) < 3 || name > "119" {
		dst = append(dst, ';')
	}
	dst = append(dst, rest...)
	if bel {
		return append(dst, 0x07)
	}
	return append(dst, 0x1b, '\\')
}

// permitCommand returns what of a command may pass, whether that asks something, and whether anything may. Not on the
// list: properties of windows (3), special colours (5), fonts (50: their answer was a way to type, CVE-2022-45063),
// xterm's log (46), kitty's clipboard (5522), colours (21) and pointers (22), and whatever has no reason to be.
func permitCommand(number int, rest string) (_ string, asks, ok bool) {
	switch {
	case number <= 2:
		return clean(rest, maxTitle), false, true
	case number == 4:
		return permitPalette(rest)
	case number == 8:
		return permitLink(rest), false, true
	case number == 9:
		rest, ok = permitNotice(rest)
	case number >= 10 && number <= 19:
		specs := strings.Split(rest, ";")
		specs = specs[:min(len(specs), 20-number)]
		for _, spec := range specs {
			if spec != "?" && !isColor(spec) {
				return "", false, false
			}
			asks = asks || spec == "?"
		}
		return strings.Join(specs, ";"), asks, true
	case number == clipboard:
		rest, ok = permitClipboard(rest)
	case number == 99:
		rest, ok = permitKittyNotice(rest)
	case number == 104:
		ok = strings.Trim(rest, "0123456789;") == ""
	case number >= 110 && number <= 119:
		ok = rest == ""
	case number == 133 || number == 633: // marks of prompts; not VS Code's command lines (633;E)
		mark, code, _ := strings.Cut(rest, ";")
		ok = len(mark) == 1 && strings.Contains("ABCD", mark) && (code == "" || mark == "D" && isNumber(code))
	case number == 777: // urxvt's; other words call extensions of it
		ok = strings.HasPrefix(rest, "notify;")
		rest = clean(rest, maxTitle)
	}
	return rest, false, ok
}

// permitPalette reads pairs of a number and a colour, or ? to ask.
func permitPalette(rest string) (_ string, asks, ok bool) {
	fields := strings.Split(rest, ";")
	var pairs []string
	for i := 0; i+1 < len(fields); i += 2 {
		n, err := strconv.Atoi(fields[i])
		spec := fields[i+1]
		if err != nil || n < 0 || n > 255 || spec != "?" && !isColor(spec) {
			continue
		}
		asks = asks || spec == "?"
		pairs = append(pairs, strconv.Itoa(n), spec)
	}
	return strings.Join(pairs, ";"), asks, len(pairs) > 0
}

// permitLink reads parameters;URI. A link that may not be is the end of the one before it. Others than these schemes
// have a terminal run whatever is registered for them; a file would be one of the person's machine.
func permitLink(rest string) string {
	_, uri, _ := strings.Cut(rest, ";")
	scheme, _, _ := strings.Cut(uri, ":")
	switch strings.ToLower(scheme) {
	case "http", "https", "mailto":
		if len(rest) <= maxLink {
			return rest
		}
	}
	return ";"
}

// permitNotice reads OSC 9: iTerm2's notification, or progress (4;…). ConEmu and those
// after it have other numbers there, which sleep, wait for a key and run programs.
func permitNotice(rest string) (string, bool) {
	if state, ok := strings.CutPrefix(rest, "4;"); ok {
		p, ok := readProgress(state)
		return "4;" + p, ok
	}
	if number, _, _ := strings.Cut(rest, ";"); number == "" || isNumber(number) {
		return "", false
	}
	return clean(rest, maxTitle), true
}

// permitKittyNotice reads OSC 99: keys;text. Without reports, whose answers have an
// identifier of the program's in them, without icons, buttons and sounds.
func permitKittyNotice(rest string) (string, bool) {
	keys, words, ok := strings.Cut(rest, ";")
	if !ok || len(rest) > 2*maxTitle {
		return "", false
	}
	for _, field := range strings.Split(keys, ":") {
		key, value, _ := strings.Cut(field, "=")
		if field == "" {
			continue
		}
		if len(key) != 1 || !strings.Contains("idpeuo", key) || key == "p" && value != "title" && value != "body" ||
			len(value) > 64 || strings.Trim(value, letters+"0123456789-_") != "" {
			return "", false
		}
	}
	return keys + ";" + words, true
}

// permitClipboard reads selections;base64. What is something else asks for the clipboard (?), or empties it.
func permitClipboard(rest string) (string, bool) {
	which, words, ok := strings.Cut(rest, ";")
	const base64 = letters + "0123456789+/="
	return rest, ok && len(which) <= 12 && strings.Trim(which, "cpqs01234567") == "" && len(words) <= maxClipboard && strings.Trim(words, base64) == ""
}

func isNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// isColor tells names and specifications of colours from anything else; it does not know all names.
func isColor(spec string) bool {
	return spec != "" && len(spec) <= 40 && strings.Trim(spec, letters+"0123456789#:/. ") == ""
}

// clean makes a text of what a program sent: no control characters, valid, of limit bytes at most.
func clean(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\ufffd"))
	for len(s) > limit {
		_, n := utf8.DecodeLastRuneInString(s[:limit+1])
		s = s[:limit+1-n]
	}
	return s
}
