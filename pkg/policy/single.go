package policy

import (
	"errors"
	"io/fs"
	"strings"
	"unicode"
)

// Line is one entry by itself, as a person gives it to a command.
type Line struct {
	Text     string // canonical: it means the same in a policy file
	Deny     bool
	Required bool
	Warnings []Error // valid, but probably not meant
}

// ParseLine reads text as the one entry of a policy, by the same rules. The error is an
// ErrorList without a place, or says that text is not one line.
func ParseLine(text string, presets fs.FS) (Line, error) {
	text = strings.Trim(text, " \t")
	switch {
	case text == "":
		return Line{}, errors.New("the entry is missing")
	case strings.ContainsFunc(text, unicode.IsControl) || strings.ContainsRune(text, '#'):
		return Line{}, errors.New("an entry is one line, without a comment")
	}
	p, err := Parse(&Bundle{Files: []File{{Data: []byte(text)}}}, presets)
	if err != nil {
		var list ErrorList
		if errors.As(err, &list) {
			for i := range list {
				list[i].Source = Source{}
			}
			return Line{}, list
		}
		return Line{}, err
	}
	l := Line{Text: strings.Join(strings.Fields(text), " "), Deny: strings.HasPrefix(text, "!")}
	if len(p.rules) == 0 { // valid, and without an effect: loopback
		return Line{}, ErrorList{{Text: text, Message: "the entry has no effect: " + first(p.warnings)}}
	}
	if p.rules[0].Preset == "" {
		l.Text, l.Required = p.rules[0].String(), p.rules[0].Required
	}
	for _, w := range p.warnings {
		w.Source = Source{}
		l.Warnings = append(l.Warnings, w)
	}
	return l, nil
}

func first(warnings []Error) string {
	if len(warnings) == 0 {
		return ""
	}
	return warnings[0].Message
}
