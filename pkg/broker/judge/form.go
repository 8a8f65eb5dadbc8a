package judge

import (
	"bytes"
	"mime"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

const maxParameter = 256 // bytes of a name; those that are looked for are shorter

// Form looks in a body, as it goes by, for a parameter that has the server take a POST for another method: _method of
// Rails, Laravel, Symfony and Spring, in a form or at the top of JSON.
type Form struct {
	look  func(c byte) *Refusal
	dull  func(p []byte) int // how many bytes at the start of p don't matter: most of a large body
	found *Refusal

	word    []byte // of a name, or of the head of a part
	skip    bool   // what follows is a value
	between string // parts
	depth   int    // of JSON
	inText  bool
	escaped bool
}

// NewForm returns what looks into a body of a content type, or nil if servers read no parameters there.
func NewForm(contentType string) (*Form, *Refusal) {
	lower := strings.ToLower(contentType)
	f := &Form{}
	switch {
	case strings.TrimSpace(lower) == "": // Rack takes it for a form
		f.look, f.dull = f.encoded, f.inValue
		return f, nil
	case strings.Contains(lower, "urlencoded"):
		f.look, f.dull = f.encoded, f.inValue
	case strings.Contains(lower, "multipart"):
		f.look, f.dull = f.part, f.inPart
	case strings.Contains(lower, "json"):
		f.look, f.dull = f.json, f.inOther
	default:
		return nil, nil
	}
	_, parameters, err := mime.ParseMediaType(contentType)
	switch charset := strings.ToLower(parameters["charset"]); {
	case err != nil, charset != "" && charset != "utf-8" && charset != "us-ascii" && charset != "iso-8859-1":
		return nil, refuse("header", "the content type can't be read, or has another charset than UTF-8: %s", quote(contentType, 64))
	}
	if strings.Contains(lower, "multipart") {
		return f, f.bounded(lower, parameters["boundary"])
	}
	return f, nil
}

// Judge looks at what comes next, unpacked. With a refusal it is not to go on.
func (f *Form) Judge(p []byte) *Refusal {
	for len(p) > 0 && f.found == nil {
		if n := f.dull(p); n > 0 {
			p = p[n:]
			continue
		}
		f.found, p = f.look(p[0]), p[1:]
	}
	return f.found
}

// End looks at what stood last.
func (f *Form) End() *Refusal { return f.Judge([]byte("\r\n\r\n")) }

// keep keeps a byte of a word. One that is too long is none that is looked for.
func (f *Form) keep(c byte, most int) {
	if len(f.word) <= most {
		f.word = append(f.word, c)
	}
}

func (f *Form) name(escaped string) *Refusal {
	f.word = f.word[:0]
	if !overrides(escaped) {
		return nil
	}
	return inBody(escaped)
}

func inBody(name string) *Refusal {
	return refuse("method", "parameter %s in the body would change the method", quote(name, 64))
}

// encoded is a form as in a query.
func (f *Form) encoded(c byte) *Refusal {
	switch {
	case c == '&' || c == ';' || c == '\n':
		name := string(f.word)
		if f.skip {
			name = ""
		}
		f.skip = false
		return f.name(name)
	default: // of a name, which ends with '='
		f.skip = true
		return f.name(string(f.word))
	}
}

// inValue is within a value, or a name, which is kept.
func (f *Form) inValue(p []byte) int {
	if f.skip {
		return until(p, "&;\n")
	}
	n := until(p, "&;\n=")
	f.word = append(f.word, p[:min(n, max(0, maxParameter+1-len(f.word)))]...)
	return n
}

// until is how many bytes of p stand in front of the first of some characters.
func until(p []byte, chars string) int {
	if i := bytes.IndexAny(p, chars); i >= 0 {
		return i
	}
	return len(p)
}

// json looks at the names at the top.
func (f *Form) json(c byte) *Refusal {
	switch {
	case f.escaped:
		f.escaped = false
		f.keep(c, maxParameter)
	case f.inText && c == '"':
		f.inText = false
		if f.skip || f.depth != 1 {
			return nil
		}
		f.skip = true
		name, err := jsontext.AppendUnquote(nil, append([]byte{'"'}, append(f.word, '"')...))
		if err != nil {
			return f.name(string(f.word))
		}
		return f.name(string(name))
	case f.inText:
		f.escaped = c == '\\'
		f.keep(c, maxParameter)
	case c == '"':
		f.inText, f.word = true, f.word[:0]
	case c == '{' || c == '[':
		f.depth++
		f.skip = f.depth != 1 || c == '['
	case c == '}' || c == ']':
		f.depth--
	case c == ',':
		f.skip = f.depth != 1
	}
	return nil
}

// inOther is within a text that is no name at the top.
func (f *Form) inOther(p []byte) int {
	if !f.inText || f.escaped || !f.skip && f.depth == 1 {
		return 0
	}
	return until(p, `"\`)
}
