package judge

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agent-init/agent-init/pkg/route"
)

const (
	maxDepth  = 200     // of nesting: no API's own goes beyond 20, schemas of tools beyond 60
	maxValues = 1 << 18 // of a document, names included: the tree has 4 MiB then, and the names that are compared 32
	maxNumber = 40      // bytes of a number: a float64 and an int64 need 24
)

// Kinds of values. The zero kind is that of a value that is not there.
const (
	absent jsontext.Kind = 0
	null   jsontext.Kind = 'n'
	text   jsontext.Kind = '"'
	number jsontext.Kind = '0'
	object jsontext.Kind = '{'
	array  jsontext.Kind = '['
)

const _ uint32 = route.MaxBody // a place in a body has its room in a node

// node is a value, or the name in front of one. The nodes of a document stand in its order, so a list or an object
// is followed by what it has.
type node struct {
	from, to uint32 // the bytes of the document
	next     uint32 // the node behind all that this one has
	kind     jsontext.Kind
}

// value is a place in a document that was parsed. The zero value is that of no place: it has nothing.
type value struct {
	body  []byte
	nodes []node // this one first
}

// parse reads a document by RFC 8259 and the stricter RFC 7493: a name that stands twice in an object, however
// it is escaped, what isn't UTF-8, and half a surrogate pair are errors. So are a byte order mark, a second document,
// and what goes beyond the bounds above. The tree refers to body, which is not copied.
func parse(body []byte) (value, error) {
	decoder := jsontext.NewDecoder(bytes.NewBuffer(body)) // which is read in place, by its documentation
	nodes := make([]node, 0, len(body)/128+16)
	var open []uint32 // the lists and objects around
	for {
		kind := decoder.PeekKind()
		if kind == ']' || kind == '}' {
			if _, err := decoder.ReadToken(); err != nil {
				return value{}, err
			}
			around := &nodes[open[len(open)-1]]
			open = open[:len(open)-1]
			around.to, around.next = uint32(decoder.InputOffset()), uint32(len(nodes))
		} else {
			if len(nodes) == maxValues {
				return value{}, fmt.Errorf("has more than %d values", maxValues)
			}
			if kind == object || kind == array {
				if _, err := decoder.ReadToken(); err != nil {
					return value{}, err
				}
				if open = append(open, uint32(len(nodes))); len(open) > maxDepth {
					return value{}, fmt.Errorf("is nested more than %d deep", maxDepth)
				}
				nodes = append(nodes, node{from: uint32(decoder.InputOffset()) - 1, kind: kind})
				continue
			}
			raw, err := decoder.ReadValue()
			if err != nil {
				return value{}, err
			}
			if err := checkNumber(kind, raw); err != nil {
				return value{}, err
			}
			end := uint32(decoder.InputOffset())
			nodes = append(nodes, node{from: end - uint32(len(raw)), to: end, next: uint32(len(nodes)) + 1, kind: kind})
		}
		if len(open) > 0 {
			continue
		}
		if _, err := decoder.ReadToken(); err != io.EOF {
			return value{}, errors.New("has something behind its end")
		}
		return value{body, nodes}, nil
	}
}

// checkNumber refuses numbers that readers read in ways of their own.
func checkNumber(kind jsontext.Kind, raw []byte) error {
	if kind != number {
		return nil
	}
	if len(raw) > maxNumber {
		return fmt.Errorf("has a number of more than %d bytes", maxNumber)
	}
	if bytes.ContainsAny(raw, "eE") {
		if _, err := strconv.ParseFloat(string(raw), 64); err != nil {
			return errors.New("has a number that is too large")
		}
	}
	return nil
}

func (v value) kind() jsontext.Kind {
	if len(v.nodes) == 0 {
		return absent
	}
	return v.nodes[0].kind
}

// none says that a value is not there, or null. APIs take the two as one.
func (v value) none() bool { return v.kind() == absent || v.kind() == null }

// scalar says that a value has no others in it.
func (v value) scalar() bool { return v.kind() != object && v.kind() != array }

func (v value) raw() []byte {
	if len(v.nodes) == 0 {
		return nil
	}
	return v.body[v.nodes[0].from:v.nodes[0].to]
}

// str is what a text says, and nil where there is none. It is not to be changed.
func (v value) str() []byte {
	if v.kind() != text {
		return nil
	}
	raw := v.raw()
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw[1 : len(raw)-1]
	}
	unquoted, err := jsontext.AppendUnquote(make([]byte, 0, len(raw)), raw)
	if err != nil {
		panic("judge: a text that was parsed has no meaning: " + err.Error())
	}
	return unquoted
}

// at is the value that stands i nodes further, and how many nodes it has.
func (v value) at(i int) (value, int) {
	base := v.nodes[0].next - uint32(len(v.nodes)) // what the numbers of nodes begin with here
	size := int(v.nodes[i].next-base) - i
	return value{v.body, v.nodes[i : i+size]}, size
}

// members are the names and values of an object, in order. Of anything else there are none.
func (v value) members() iter.Seq2[[]byte, value] {
	return func(yield func([]byte, value) bool) {
		if v.kind() != object {
			return
		}
		for i := 1; i < len(v.nodes); {
			name, _ := v.at(i)
			member, size := v.at(i + 1)
			if !yield(name.str(), member) {
				return
			}
			i += 1 + size
		}
	}
}

// items are the values of a list, in order. Of anything else there are none.
func (v value) items() iter.Seq[value] {
	return func(yield func(value) bool) {
		if v.kind() != array {
			return
		}
		for i := 1; i < len(v.nodes); {
			item, size := v.at(i)
			if !yield(item) {
				return
			}
			i += size
		}
	}
}

// get is the member of an object that has a name.
func (v value) get(name string) value {
	for n, member := range v.members() {
		if string(n) == name {
			return member
		}
	}
	return value{}
}
