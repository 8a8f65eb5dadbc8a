package detect

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// tomlValue is a value of a TOML document: its text if it is a string, else "".
type tomlValue struct {
	text string
	line int
}

// parseTOML reads a TOML 1.0 document into its values by dotted key, the parts of
// which are joined as they are. Elements of arrays are left out, and no value is
// checked beyond its extent: it is for a few strings of a file that another program
// reads in full. Errors begin with the line.
func parseTOML(data string) (map[string]tomlValue, error) {
	p := &toml{rest: strings.ReplaceAll(strings.TrimPrefix(data, "\ufeff"), "\r\n", "\n"), line: 1, values: map[string]tomlValue{}}
	if !utf8.ValidString(data) {
		return nil, fmt.Errorf("1: not UTF-8")
	}
	if err := p.document(); err != nil {
		return nil, fmt.Errorf("%d: %w", p.line, err)
	}
	return p.values, nil
}

type toml struct {
	rest   string
	line   int
	depth  int
	values map[string]tomlValue
}

// maxTOMLDepth is how deep arrays and tables may be nested.
const maxTOMLDepth = 64

func (p *toml) document() error {
	table := ""
	for {
		p.space(true)
		switch {
		case p.rest == "":
			return nil
		case p.rest[0] == '[':
			close := "]"
			if strings.HasPrefix(p.rest, "[[") {
				close = "]]"
			}
			p.take(len(close))
			key, err := p.key()
			if err != nil {
				return err
			}
			if !strings.HasPrefix(p.rest, close) {
				return fmt.Errorf("a table's name without %s", close)
			}
			p.take(len(close))
			table = key + "."
			if close == "]]" {
				table += fmt.Sprintf("#%d.", p.line) // one of several
			}
		default:
			if err := p.pair(table); err != nil {
				return err
			}
		}
		p.space(false)
		if p.rest != "" && p.rest[0] != '\n' {
			return fmt.Errorf("more than one thing in a line")
		}
	}
}

func (p *toml) take(n int) string {
	s := p.rest[:n]
	p.line += strings.Count(s, "\n")
	p.rest = p.rest[n:]
	return s
}

// space passes blanks and comments, and line ends if lines says so.
func (p *toml) space(lines bool) {
	for p.rest != "" {
		switch c := p.rest[0]; {
		case c == ' ' || c == '\t' || c == '\n' && lines:
			p.take(1)
		case c == '#':
			n := strings.IndexByte(p.rest, '\n')
			if n < 0 {
				n = len(p.rest)
			}
			p.take(n)
		default:
			return
		}
	}
}

func (p *toml) key() (string, error) {
	var parts []string
	for {
		p.space(false)
		part := ""
		if p.rest != "" && (p.rest[0] == '"' || p.rest[0] == '\'') {
			s, err := p.quoted()
			if err != nil {
				return "", err
			}
			part = s
		} else {
			n := strings.IndexFunc(p.rest, func(r rune) bool {
				return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_')
			})
			if n < 0 {
				n = len(p.rest)
			}
			if n == 0 {
				return "", fmt.Errorf("a key is missing")
			}
			part = p.take(n)
		}
		parts = append(parts, part)
		p.space(false)
		if !strings.HasPrefix(p.rest, ".") {
			return strings.Join(parts, "."), nil
		}
		p.take(1)
	}
}

// pair reads KEY = VALUE.
func (p *toml) pair(table string) error {
	key, err := p.key()
	if err != nil {
		return err
	}
	if !strings.HasPrefix(p.rest, "=") {
		return fmt.Errorf("a key without =")
	}
	p.take(1)
	return p.value(table+key, true)
}

// value reads a value, and keeps it under key if keep says so.
func (p *toml) value(key string, keep bool) error {
	p.space(false)
	if p.depth++; p.depth > maxTOMLDepth {
		return fmt.Errorf("nested too deep")
	}
	defer func() { p.depth-- }()
	v := tomlValue{line: p.line}
	switch {
	case p.rest == "":
		return fmt.Errorf("a value is missing")
	case p.rest[0] == '[':
		return p.list('[', ']', key, keep)
	case p.rest[0] == '{':
		return p.list('{', '}', key, keep)
	case p.rest[0] == '"' || p.rest[0] == '\'':
		s, err := p.quoted()
		if err != nil {
			return err
		}
		v.text = s
	default:
		n := strings.IndexAny(p.rest, ",]}#\n")
		if n < 0 {
			n = len(p.rest)
		}
		if strings.TrimSpace(p.take(n)) == "" {
			return fmt.Errorf("a value is missing")
		}
	}
	if _, ok := p.values[key]; ok && keep {
		return fmt.Errorf("a key is there twice")
	}
	if keep {
		p.values[key] = v
	}
	return nil
}

// list reads an array, or an inline table.
func (p *toml) list(open, end byte, key string, keep bool) error {
	if open == '[' && keep {
		p.values[key] = tomlValue{line: p.line}
	}
	p.take(1)
	for {
		p.space(true)
		if p.rest == "" {
			return fmt.Errorf("%c without %c", open, end)
		}
		if p.rest[0] == end {
			p.take(1)
			return nil
		}
		var err error
		switch {
		case open == '[':
			err = p.value("", false)
		case keep:
			err = p.pair(key + ".")
		default:
			if _, err = p.key(); err == nil {
				if !strings.HasPrefix(p.rest, "=") {
					return fmt.Errorf("a key without =")
				}
				p.take(1)
				err = p.value("", false)
			}
		}
		if err != nil {
			return err
		}
		p.space(true)
		if p.rest != "" && p.rest[0] == ',' {
			p.take(1)
		} else if p.rest != "" && p.rest[0] != end {
			return fmt.Errorf("neither , nor %c", end)
		}
	}
}

// quoted reads a string of any of the four kinds.
func (p *toml) quoted() (string, error) {
	mark := p.rest[:1]
	long := strings.HasPrefix(p.rest, strings.Repeat(mark, 3))
	if long {
		mark = strings.Repeat(mark, 3)
	}
	p.take(len(mark))
	if long && strings.HasPrefix(p.rest, "\n") {
		p.take(1)
	}
	var b strings.Builder
	for {
		switch {
		case p.rest == "" || p.rest[0] == '\n' && !long:
			return "", fmt.Errorf("a string without its end")
		case strings.HasPrefix(p.rest, mark):
			p.take(len(mark))
			for extra := 0; long && extra < 2 && strings.HasPrefix(p.rest, mark[:1]); extra++ {
				b.WriteString(p.take(1)) // """a"""": up to two marks before the end belong to the string
			}
			return b.String(), nil
		case p.rest[0] == '\\' && mark[0] == '"':
			if err := p.escape(&b); err != nil {
				return "", err
			}
		default:
			b.WriteString(p.take(1))
		}
	}
}

func (p *toml) escape(b *strings.Builder) error {
	const plain = "btnfr\"\\e"
	if len(p.rest) < 2 {
		return fmt.Errorf("a string without its end")
	}
	switch c := p.rest[1]; {
	case strings.IndexByte(plain, c) >= 0:
		p.take(2)
		b.WriteByte("\b\t\n\f\r\"\\\x1b"[strings.IndexByte(plain, c)])
	case c == 'u' || c == 'U':
		digits := 4
		if c == 'U' {
			digits = 8
		}
		var r rune
		if len(p.rest) < 2+digits {
			return fmt.Errorf("a character's number is cut short")
		}
		if n, err := fmt.Sscanf(p.rest[2:2+digits], fmt.Sprintf("%%0%dx", digits), &r); n != 1 || err != nil {
			return fmt.Errorf("a character's number is no number")
		}
		p.take(2 + digits)
		b.WriteRune(r)
	case c == '\n' || c == ' ' || c == '\t':
		p.take(1)
		p.take(len(p.rest) - len(strings.TrimLeft(p.rest, " \t\n")))
	default:
		return fmt.Errorf("an unknown escape in a string")
	}
	return nil
}
