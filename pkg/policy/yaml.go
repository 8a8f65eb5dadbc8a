package policy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// yaml takes in a file in YAML. The nodes are read as they stand: nothing is
// expanded, so a file costs no more than its size.
func (ps *parser) yaml(f File) {
	dec := yaml.NewDecoder(bytes.NewReader(f.Data))
	var doc, next yaml.Node
	err := dec.Decode(&doc)
	if errors.Is(err, io.EOF) {
		return // nothing but comments
	}
	if err == nil {
		if err = dec.Decode(&next); err == nil {
			ps.errs.add(Error{Source: at(f.Name, &next), Message: "only one document per file"})
			return
		}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		ps.errs.add(yamlError(f, err))
		return
	}
	if len(doc.Content) != 1 || isNull(doc.Content[0]) {
		return
	}
	root := doc.Content[0]
	ps.section(f.Name, "", root, keys())
}

// mapping calls do with each known key of a mapping and its value.
func (ps *parser) mapping(file string, n *yaml.Node, what string, known []string, do func(key string, value *yaml.Node)) {
	if isNull(n) {
		return
	}
	if n.Kind != yaml.MappingNode {
		ps.wrong(file, n, what+" must be a list of key: value")
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		name, ok := ps.scalar(file, key, "a key")
		switch {
		case !ok:
		case seen[name]:
			ps.wrong(file, key, "the key is there twice")
		case known != nil && !slices.Contains(known, name):
			ps.errs.add(Error{Source: at(file, key), Text: name, Message: "unknown key", Suggestion: Nearest(name, known)})
		default:
			seen[name] = true
			do(name, value)
		}
	}
}

// each calls do with each text of a list.
func (ps *parser) each(file string, n *yaml.Node, what string, do func(src Source, text string)) {
	if isNull(n) {
		return
	}
	if n.Kind != yaml.SequenceNode {
		ps.wrong(file, n, what+" must be a list, with - in front of each item")
		return
	}
	for _, item := range n.Content {
		if host := hostOf(item); host != "" && (what == "domains" || what == "services") {
			ps.errs.add(Error{Source: at(file, item), Text: host, Suggestion: host + ", for all requests",
				Message: "rules for single requests can't be held, since TLS is not broken"})
			continue
		}
		text, ok := ps.scalar(file, item, "an item of "+what)
		if !ok {
			continue
		}
		trimmed := strings.Trim(text, " \t")
		switch {
		case trimmed == "":
			ps.wrong(file, item, "an item of "+what+" is empty")
		case strings.ContainsAny(trimmed, "\r\n"):
			ps.wrong(file, item, "one entry per item")
		default:
			src := at(file, item)
			src.Col += len(text) - len(strings.TrimLeft(text, " \t"))
			do(src, trimmed)
		}
	}
}

// hostOf returns the host, or service, that an item narrows to some requests, as it can be in the policy
// of a proxy that breaks TLS; "" if it doesn't. To take the host for the item would allow more than was written.
func hostOf(item *yaml.Node) string {
	if item.Kind != yaml.MappingNode {
		return ""
	}
	for i := 0; i+1 < len(item.Content); i += 2 {
		key, value := item.Content[i], item.Content[i+1]
		if (key.Value == "host" || key.Value == "name") && value.Kind == yaml.ScalarNode {
			return value.Value
		}
	}
	return ""
}

// scalar returns the text of a node that must be a plain or quoted value.
func (ps *parser) scalar(file string, n *yaml.Node, what string) (string, bool) {
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		ps.wrong(file, n, "anchors and aliases are not supported")
	case n.Kind != yaml.ScalarNode || isNull(n):
		ps.wrong(file, n, what+" must be one value")
	case n.Style&yaml.TaggedStyle != 0:
		// An entry that begins with ! is a tag to YAML.
		text := strings.Trim(n.Tag+" "+n.Value, " ")
		ps.errs.add(Error{Source: at(file, n), Text: text, Message: "YAML needs quotes around this", Suggestion: strconv.Quote(text)})
	default:
		return n.Value, true
	}
	return "", false
}

// wrong reports a node.
func (ps *parser) wrong(file string, n *yaml.Node, message string) {
	ps.errs.add(Error{Source: at(file, n), Text: n.Value, Message: message})
}

// at returns where the text of a node begins.
func at(file string, n *yaml.Node) Source {
	src := Source{File: file, Line: n.Line, Col: n.Column}
	if n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0 {
		src.Col++
	}
	return src
}

func isNull(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.Tag == "!!null"
}

// yamlError says where a file stops being YAML. The library tells the line, or
// the one before it, inside its message, if at all. Entries that need quotes are
// the usual cause.
func yamlError(f File, err error) Error {
	message := strings.TrimPrefix(err.Error(), "yaml: ")
	lines := strings.Split(string(f.Data), "\n")
	e := Error{Source: Source{File: f.Name}}
	first, last := 1, len(lines)
	var n int
	if _, serr := fmt.Sscanf(message, "line %d:", &n); serr == nil && n >= 1 && n <= len(lines) {
		_, message, _ = strings.Cut(message, ": ")
		e.Source.Line, e.Source.Col, e.Text = n, 1, strings.TrimSpace(lines[n-1])
		first, last = n, min(n+1, len(lines))
	}
	e.Message = "not valid YAML: " + message
	special := regexp.MustCompile("(?:^\\s*-\\s+|[\\[,:]\\s*)([*@!%`][^\\s,\\]]+)")
	for i := first; i <= last; i++ {
		if at := special.FindStringSubmatchIndex(lines[i-1]); at != nil {
			text := lines[i-1][at[2]:at[3]]
			return Error{
				Source:     Source{File: f.Name, Line: i, Col: at[2] + 1},
				Text:       text,
				Message:    "YAML needs quotes around this",
				Suggestion: strconv.Quote(text),
			}
		}
	}
	return e
}
