package policy

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// yaml takes in a file in YAML. Nothing is expanded, so a file costs no more than its size.
func (ps *parser) yaml(f File) {
	dec := yaml.NewDecoder(bytes.NewReader(f.Data))
	var doc, next yaml.Node
	err := dec.Decode(&doc)
	if err == nil {
		err = dec.Decode(&next)
	}
	switch {
	case err == nil:
		ps.errs.add(Error{Source: node{Node: &next, file: f.Name}.at(), Message: "only one document per file"})
	case !errors.Is(err, io.EOF):
		ps.errs.add(yamlError(f, err))
	case len(doc.Content) == 1: // more than comments
		top := ps.top
		if top == nil {
			top = ps.keys()
		}
		ps.section(node{Node: doc.Content[0], file: f.Name}, top)
	}
}

// node is a value in a file.
type node struct {
	*yaml.Node
	file, name string // of the key, with its section in front: "dns.qps"; of the whole file ""
	key        Source // where the key is
}

// of returns a node inside of n.
func (n node) of(inner *yaml.Node) node { return node{inner, n.file, n.name, n.key} }

// at returns where the text of a node begins.
func (n node) at() Source {
	src := Source{File: n.file, Line: n.Line, Col: n.Column}
	if n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0 {
		src.Col++
	}
	return src
}

func (n node) isNull() bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// mapping calls do with each known key of a mapping and its value.
func (ps *parser) mapping(n node, known []string, do func(key string, value node)) {
	if n.isNull() {
		return
	}
	if n.Kind != yaml.MappingNode {
		ps.wrong(n, cmp.Or(n.name, "the file")+" must be a list of key: value")
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.of(n.Content[i]), n.of(n.Content[i+1])
		name, ok := ps.scalar(key, "a key")
		whole := strings.TrimPrefix(n.name+"."+name, ".")
		switch {
		case !ok:
		case seen[name]:
			ps.wrong(key, "the key is there twice")
		case known != nil && !slices.Contains(known, name) && former[whole] != "":
			ps.wrong(key, former[whole])
		case known != nil && !slices.Contains(known, name):
			ps.errs.add(Error{Source: key.at(), Text: name, Message: "unknown key", Suggestion: Nearest(name, known)})
		default:
			seen[name] = true
			value.name, value.key = whole, key.at()
			do(name, value)
		}
	}
}

func (ps *parser) items(read func(src Source, text string)) func(node) {
	return func(list node) {
		switch {
		case list.isNull():
			return
		case list.Kind != yaml.SequenceNode:
			ps.wrong(list, list.name+" must be a list, with - in front of each item")
			return
		}
		for _, item := range list.Content {
			n := list.of(item)
			if host := n.host(); host != "" && n.name == "domains" {
				ps.errs.add(Error{n.at(), host, "rules for single requests stand behind the name, in an entry for each", host + " GET /PATH/**"})
				continue
			} else if host != "" && n.name == "services" {
				ps.errs.add(Error{n.at(), host, "a preset takes no rules: name its hosts under domains, with the requests behind them, or write a route under broker", ""})
				continue
			}
			text, ok := ps.scalar(n, "an item of "+n.name)
			trimmed := strings.Trim(text, " \t")
			switch {
			case !ok:
			case trimmed == "":
				ps.wrong(n, "an item of "+n.name+" is empty")
			case strings.ContainsAny(trimmed, "\r\n"):
				ps.wrong(n, "one entry per item")
			default:
				src := n.at()
				src.Col += len(text) - len(strings.TrimLeft(text, " \t"))
				read(src, trimmed)
			}
		}
	}
}

// host returns the host, or service, that an item narrows to some requests, as it can be in the policy of a proxy that
// looks into all of TLS; "" if it doesn't. To take the host for the item would allow more than was written.
func (n node) host() string {
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if key, value := n.Content[i], n.Content[i+1]; (key.Value == "host" || key.Value == "name") && value.Kind == yaml.ScalarNode {
			return value.Value
		}
	}
	return ""
}

// scalar returns the text of a node that must be a plain or quoted value.
func (ps *parser) scalar(n node, what string) (string, bool) {
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		ps.wrong(n, "anchors and aliases are not supported")
	case n.Kind != yaml.ScalarNode || n.isNull():
		ps.wrong(n, what+" must be one value")
	case n.Style&yaml.TaggedStyle != 0:
		// An entry that begins with ! is a tag to YAML.
		ps.errs.add(unquoted(n.at(), strings.Trim(n.Tag+" "+n.Value, " ")))
	default:
		return n.Value, true
	}
	return "", false
}

func (ps *parser) wrong(n node, message string) {
	ps.errs.add(Error{Source: n.at(), Text: n.Value, Message: message})
}

// unquoted is the error of a text that means something else to YAML.
func unquoted(src Source, text string) Error {
	return Error{src, text, "YAML needs quotes around this", strconv.Quote(text)}
}

// yamlError says where a file stops being YAML, by the library's message; an entry without quotes is the usual cause.
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
	special := regexp.MustCompile("(?:^\\s*-\\s+|[\\[,:]\\s*)([*@!%`][^\\s,\\]]+)")
	for i := first; i <= last; i++ {
		if at := special.FindStringSubmatchIndex(lines[i-1]); at != nil {
			return unquoted(Source{f.Name, i, at[2] + 1}, lines[i-1][at[2]:at[3]])
		}
	}
	e.Message = "not valid YAML: " + message
	return e
}
