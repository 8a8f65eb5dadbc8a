package gateway

import (
	"bytes"
	"slices"
	"strings"
)

// readHead reads from src until it holds a whole message head, whose length it
// returns; the head stays with src. It calls began, if there is one, at the first byte.
func readHead(src *source, began func()) (int, error) {
	for len(src.held()) == 0 {
		if err := src.fill(); err != nil {
			return 0, err
		}
	}
	if began != nil {
		began()
	}
	if c := src.held()[0]; c != 0 && c != '\n' && !isToken(c) {
		return 0, refusedNotHTTP
	}
	for start := 0; ; {
		end, err := readLine(src, start, bufferSize, refusedLineEnd)
		switch {
		case err == errFull:
			return 0, refusedHeadSize
		case err != nil:
			return 0, err
		case bytes.IndexByte(src.held()[start:end], 0) >= 0:
			return 0, refusedControl
		case end == start+2:
			return end, nil
		}
		start = end
	}
}

// readLine reads from src until it holds a line from start on, and returns where that ends, behind its CR LF. It
// returns bad at once for a line that ends in anything else, or has more than limit bytes.
func readLine(src *source, start, limit int, bad *refusal) (end int, err error) {
	for i := start; ; {
		b := src.held()
		for ; i < len(b); i++ {
			cr := i > start && b[i-1] == '\r'
			switch {
			case i-start >= limit, cr != (b[i] == '\n'):
				return 0, bad
			case cr:
				return i + 1, nil
			}
		}
		if err := src.fill(); err != nil {
			return 0, ended(err, true)
		}
	}
}

// rewrite returns a message head without some fields, which Connection names no more
// either. The head of the last message says close (RFC 9112, section 9.6) in the only
// Connection field that it has: of several, some readers see the first one.
func rewrite(head []byte, last bool, without ...string) []byte {
	if last {
		without = append(without, "keep-alive", "")
	}
	var b strings.Builder
	options := []string{"close"}
	for i, line := range strings.Split(strings.TrimSuffix(string(head), "\r\n\r\n"), "\r\n") {
		name, value, _ := strings.Cut(line, ":")
		if name = strings.ToLower(name); i > 0 && slices.Contains(without, name) {
			continue
		}
		if i > 0 && name == "connection" {
			all := members(value)
			kept := slices.DeleteFunc(slices.Clone(all), func(m string) bool { return slices.Contains(without, strings.ToLower(m)) })
			switch {
			case last:
				for _, m := range kept {
					if m = strings.ToLower(m); !slices.Contains(options, m) {
						options = append(options, m)
					}
				}
				continue
			case len(kept) == 0:
				continue
			case len(kept) < len(all):
				line = "Connection: " + strings.Join(kept, ", ")
			}
		}
		b.WriteString(line + "\r\n")
	}
	if last {
		b.WriteString("Connection: " + strings.Join(options, ", ") + "\r\n")
	}
	return []byte(b.String() + "\r\n")
}

// fields are those of a header in their order, with names in lower case.
type fields []struct{ name, value string }

func parseFields(rest string) (fields, error) {
	f := make(fields, 0, 16)
	for line := ""; rest != "\r\n"; {
		line, rest, _ = strings.Cut(rest, "\r\n")
		if err := f.add(line); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// add takes one line of a header (RFC 9112, section 5).
func (f *fields) add(line string) error {
	if line[0] == ' ' || line[0] == '\t' {
		return refusedFold
	}
	name, value, ok := strings.Cut(line, ":")
	if !ok || !isTokens(name) {
		return refusedField
	}
	if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
		return refusedControl
	}
	*f = append(*f, struct{ name, value string }{strings.ToLower(name), strings.Trim(value, " \t")})
	return nil
}

func (f fields) all(name string) (values []string) {
	for _, l := range f {
		if l.name == name {
			values = append(values, l.value)
		}
	}
	return values
}

// option says whether a Connection field names it.
func (f fields) option(name string) bool {
	return slices.ContainsFunc(f.all("connection"), func(value string) bool {
		return slices.ContainsFunc(members(value), func(s string) bool { return strings.EqualFold(s, name) })
	})
}

// members returns the members of a field that is a list (RFC 9110, section 5.6.1).
func members(value string) []string {
	all := strings.Split(value, ",")
	for i, m := range all {
		all[i] = strings.Trim(m, " \t")
	}
	return all
}

// isToken says whether c may be in a token (RFC 9110, section 5.6.2).
func isToken(c byte) bool {
	return 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
}

func isTokens(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r >= 0x80 || !isToken(byte(r)) })
}
