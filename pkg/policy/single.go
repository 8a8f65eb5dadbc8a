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

// ParseLine reads text as the one entry of a policy, by the same rules. The error is an ErrorList without a place, or
// says that text is not one line.
func ParseLine(text string, presets fs.FS) (Line, error) {
	text = strings.Trim(text, " \t")
	switch {
	case text == "":
		return Line{}, errors.New("the entry is missing")
	case strings.ContainsFunc(text, unicode.IsControl) || strings.ContainsRune(text, '#'):
		return Line{}, errors.New("an entry is one line, without a comment")
	}
	p, err := Parse(&Bundle{Files: []File{{Data: []byte(text)}}}, presets)
	if list := (ErrorList{}); errors.As(err, &list) {
		return Line{}, placeless(list)
	}
	if err != nil {
		return Line{}, err
	}
	l := Line{Warnings: placeless(p.Warnings), Text: strings.Join(strings.Fields(text), " "), Deny: strings.HasPrefix(text, "!")}
	if len(p.rules) == 0 { // valid, and without an effect: loopback
		why := append(l.Warnings, Error{})[0].Message
		return Line{}, ErrorList{{Text: text, Message: "the entry has no effect: " + why}}
	}
	if p.rules[0].Preset == "" {
		l.Text, l.Required = p.rules[0].String(), p.rules[0].Required
	}
	return l, nil
}

// placeless are errors of a text that stands in no file.
func placeless(list ErrorList) ErrorList {
	for i := range list {
		list[i].Source = Source{}
	}
	return list
}
