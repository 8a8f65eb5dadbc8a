package registry

import (
	"bytes"
	"errors"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

var (
	errShape = errors.New("has another shape than the registry's")
	errMany  = errors.New("has too many values")
)

const (
	// maxMembers bounds what an object, an array or another list has. What a publisher writes into a manifest comes along.
	maxMembers = 1 << 17

	// maxFields bounds what all files of a list have together, each of which is kept apart.
	maxFields = 1 << 19
)

// member is a name and a value of an object, or an item of an array, as they stand in the document.
type member struct {
	name  string
	quote []byte // the name as it stands there
	value []byte
	at    int // of the value, in the object or array
}

// members are those of an object, or the items of an array. A name that stands twice is an error: of two readers, each
// could take another one.
func members(raw []byte, kind jsontext.Kind) ([]member, error) {
	// Cut descriptions end in half a surrogate pair, so UTF-8 is not asked for. bytes.Buffer is read in place.
	d := jsontext.NewDecoder(bytes.NewBuffer(raw), jsontext.AllowInvalidUTF8(true))
	if d.PeekKind() != kind {
		return nil, errShape
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	var all []member
	for d.PeekKind() != '}' && d.PeekKind() != ']' {
		if len(all) == maxMembers {
			return nil, errMany
		}
		var m member
		if kind == '{' {
			name, err := d.ReadValue()
			if err != nil {
				return nil, err
			}
			m.quote = bytes.Clone(name)
			m.name = unquoted(name)
		}
		v, err := d.ReadValue()
		if err != nil {
			return nil, err
		}
		m.at = int(d.InputOffset()) - len(v)
		m.value = raw[m.at : m.at+len(v)]
		all = append(all, m)
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	if _, err := d.ReadToken(); err != io.EOF {
		return nil, errShape
	}
	return all, nil
}

// find is the member of that name; the zero one if there is none.
func find(all []member, name string) member {
	for _, m := range all {
		if m.name == name {
			return m
		}
	}
	return member{}
}

// text is a value that is a string, else "".
func (m member) text() string { return unquoted(m.value) }

func unquoted(raw []byte) string {
	if len(raw) == 0 || raw[0] != '"' {
		return ""
	}
	b, err := jsontext.AppendUnquote(nil, raw)
	if err != nil {
		return ""
	}
	return string(b)
}

func quoted(s string) []byte {
	b, err := jsontext.AppendQuote(nil, s)
	if err != nil {
		return []byte(`""`)
	}
	return b
}

// object writes members as they stood.
func object(all []member) [][]byte {
	out := [][]byte{[]byte("{")}
	for i, m := range all {
		if i > 0 {
			out = append(out, []byte(","))
		}
		out = append(out, m.quote, []byte(":"), m.value)
	}
	return append(out, []byte("}"))
}

func joined(pieces [][]byte) []byte { return bytes.Join(pieces, nil) }
