package judge

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

const (
	maxSelection = 64    // how deep selections and values may be in each other; servers refuse much less
	maxTokens    = 50000 // of a document
)

// document reads a document of GraphQL (https://spec.graphql.org/September2025, sections 2 and 3) strictly, and keeps
// nothing of it but which operations there are. What another reader could take for something else is refused: a line
// that ends by a carriage return alone, and a block string that a reader from before 2018 takes for three strings.
type document struct {
	text string
	at   int    // behind the token
	kind byte   // of the token: 'n' for a name, 'v' for a number, 's' for a string, '.' for …, 0 at the end, else itself
	name string // of kind 'n'

	tokens, depth int
	operations    []string // query, mutation or subscription, each
}

// errDocument is what all faults of a document are.
var errDocument = errors.New("is no document of GraphQL that can be judged")

// parseDocument gives the kinds of the operations in a document, of which there is one at least.
func parseDocument(text string) ([]string, error) {
	d := &document{text: text}
	if !utf8.ValidString(text) {
		return nil, errDocument
	}
	err := d.next()
	for err == nil && d.kind != 0 {
		err = d.definition()
	}
	if err == nil && len(d.operations) == 0 {
		err = errDocument
	}
	if err != nil {
		return nil, fmt.Errorf("%w (near byte %d)", err, d.at)
	}
	return d.operations, nil
}

// definition is an operation or a fragment. A type system's has no business in a request.
func (d *document) definition() error {
	if d.kind == '{' {
		d.operations = append(d.operations, "query")
		return d.selection()
	}
	if d.kind != 'n' {
		return errDocument
	}
	word := d.name
	switch word {
	case "query", "mutation", "subscription":
		d.operations = append(d.operations, word)
		return d.all(d.next, d.option('n'), d.variables, d.directives, d.selection)
	case "fragment":
		return d.all(d.next, d.fragmentName, d.variables, d.typeCondition, d.directives, d.selection)
	}
	return errDocument
}

func (d *document) all(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// token goes on behind a token of a kind.
func (d *document) token(kind byte) func() error {
	return func() error {
		if d.kind != kind {
			return errDocument
		}
		return d.next()
	}
}

// option goes on behind a token of a kind, and what has to follow that, if there is such a token.
func (d *document) option(kind byte, behind ...func() error) func() error {
	return func() error {
		if d.kind != kind {
			return nil
		}
		return d.all(d.next, func() error { return d.all(behind...) })
	}
}

func (d *document) fragmentName() error {
	if d.name == "on" {
		return errDocument
	}
	return d.token('n')()
}

func (d *document) typeCondition() error {
	if d.kind != 'n' || d.name != "on" {
		return errDocument
	}
	return d.all(d.next, d.token('n'))
}

// within reads what stands between two brackets: one at least, or any number.
func (d *document) within(open, end byte, some bool, each func() error) error {
	if d.depth++; d.depth > maxSelection {
		return errDocument
	}
	if err := d.token(open)(); err != nil {
		return err
	}
	for n := 0; d.kind != end || some && n == 0; n++ {
		if err := each(); err != nil {
			return err
		}
	}
	d.depth--
	return d.next()
}

func (d *document) selection() error { return d.within('{', '}', true, d.selected) }

// selected is a field, or a fragment that is spread or stands there.
func (d *document) selected() error {
	if d.kind == '.' {
		if err := d.next(); err != nil {
			return err
		}
		if d.kind == 'n' && d.name != "on" {
			return d.all(d.next, d.directives)
		}
		if d.kind == 'n' {
			return d.all(d.typeCondition, d.directives, d.selection)
		}
		return d.all(d.directives, d.selection)
	}
	// What stands in front of a colon is an alias.
	err := d.all(d.token('n'), d.option(':', d.token('n')), d.arguments, d.directives)
	if err != nil || d.kind != '{' {
		return err
	}
	return d.selection()
}

func (d *document) arguments() error {
	if d.kind != '(' {
		return nil
	}
	return d.within('(', ')', true, d.member)
}

// member is a name with a value, of arguments or of an object.
func (d *document) member() error {
	return d.all(d.token('n'), d.token(':'), d.value)
}

func (d *document) directives() error {
	for d.kind == '@' {
		if err := d.all(d.next, d.token('n'), d.arguments); err != nil {
			return err
		}
	}
	return nil
}

// variables are those that an operation defines. Of a fragment they are no standard any more, but some servers take them.
func (d *document) variables() error {
	if d.kind != '(' {
		return nil
	}
	return d.within('(', ')', true, func() error {
		return d.all(d.variable, d.token(':'), d.typeReference, d.option('=', d.value), d.directives)
	})
}

func (d *document) variable() error { return d.all(d.token('$'), d.token('n')) }

func (d *document) typeReference() error {
	if d.kind != '[' {
		return d.all(d.token('n'), d.option('!'))
	}
	if d.depth++; d.depth > maxSelection {
		return errDocument
	}
	err := d.all(d.next, d.typeReference, d.token(']'), d.option('!'))
	d.depth--
	return err
}

func (d *document) value() error {
	switch d.kind {
	case 'n', 'v', 's':
		return d.next()
	case '$':
		return d.variable()
	case '[':
		return d.within('[', ']', false, d.value)
	case '{':
		return d.within('{', '}', false, d.member)
	}
	return errDocument
}
