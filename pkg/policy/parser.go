package policy

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// parser collects what the files of one bundle say.
type parser struct {
	presets  fs.FS
	top      []key           // of a file in YAML, in place of those of a policy
	expanded map[string]bool // presets that were taken in already, allowed or denied

	rules       []*Rule   // in file order
	routes      []written // of the broker, in file order
	absent      []string  // routes whose credential is not there
	settings    Settings
	resolv      Resolv
	set         map[string]Source // where each setting was made, and each item of one
	errs, warns problems

	before, lists map[string]entryList // by file: of the policy before, and what was read now
	known         map[string][]byte    // Bundle.Known
}

func newParser(presets fs.FS) *parser {
	if presets == nil {
		presets = embed.FS{}
	}
	return &parser{presets: presets, expanded: map[string]bool{}, settings: defaults(), set: map[string]Source{}, lists: map[string]entryList{}}
}

func (ps *parser) file(f File) {
	if strings.ContainsFunc(f.Name, unicode.IsControl) {
		ps.errs.add(Error{Message: "a file can't have such a name", Text: f.Name})
		return
	}
	if !utf8.Valid(f.Data) {
		ps.errs.add(Error{Source: Source{File: f.Name}, Message: "the file is not UTF-8 text"})
		return
	}
	sum, known := ps.known[f.Name]
	switch path.Ext(f.Name) {
	case ".yaml", ".yml", ".json":
		if known { // it would be read as an empty one
			ps.errs.add(Error{Source: Source{File: f.Name}, Message: notKnown})
			return
		}
		ps.yaml(f)
	default:
		if known {
			ps.knownList(f.Name, sum)
		} else {
			ps.list(f)
		}
	}
}

// eachLine calls do with every line that has more than a comment and blanks: its entry, and where, in bytes.
func eachLine(data string, do func(line, col int, entry string)) {
	line := 0
	for s := range strings.Lines(strings.TrimPrefix(data, "\ufeff")) {
		line++
		s, _, _ = strings.Cut(s, "#")
		s = strings.TrimRight(s, " \t\r\n")
		if entry := strings.TrimLeft(s, " \t"); entry != "" {
			do(line, 1+len(s)-len(entry), entry)
		}
	}
}

// entry takes in the entry that is r's text. A rule that is to deny already stands where all do.
func (ps *parser) entry(r *Rule) {
	preset, f := parseEntry(r.Text, r)
	switch {
	case f != nil:
		ps.fault(r.Source, f)
	case preset != "":
		ps.preset(r.Source, preset, r.Deny)
	default:
		ps.rule(r)
	}
}

// fault reports f, which was found in an entry that begins at src.
func (ps *parser) fault(src Source, f *fault) {
	if src.Col > 0 {
		src.Col += f.at
	}
	ps.errs.add(Error{Source: src, Text: f.text, Message: f.message, Suggestion: f.suggestion})
}

// rule completes a rule that was parsed, and keeps it, if it may be and has an effect.
func (ps *parser) rule(r *Rule) {
	if r.Ports == nil && !r.Deny {
		r.Ports = r.usualPorts()
	}
	if r.Request != nil {
		r.Request.Rule = r.Source.String()
	}
	f := vet(r)
	switch {
	case f.wrong:
		ps.fault(r.Source, &fault{text: f.text, message: f.message})
		return
	case f.message != "":
		ps.warns.add(Error{Source: r.Source, Text: r.Text, Message: f.message})
	}
	if f.idle {
		return
	}
	if what := lookalike(r.Name); what != "" && !r.Deny {
		ps.warns.add(Error{Source: r.Source, Text: r.Text, Message: what})
	}
	if what := r.dropIdle(); what != "" {
		ps.warns.add(Error{Source: r.Source, Text: r.Text, Message: what + " has no effect here: it is about HTTP on port 80 of a name"})
	}
	ps.rules = append(ps.rules, r)
}

// preset takes in all entries of a preset. Denied, its names are denied on every port.
func (ps *parser) preset(src Source, name string, deny bool) {
	key := fmt.Sprint(deny, name)
	if ps.expanded[key] {
		return
	}
	data, err := fs.ReadFile(ps.presets, name+".txt")
	if err != nil || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		names, _ := fs.Glob(ps.presets, "*.txt") // only for a suggestion
		for i, f := range names {
			names[i] = strings.TrimSuffix(f, ".txt")
		}
		ps.errs.add(Error{Source: src, Text: name, Message: "unknown preset", Suggestion: Nearest(name, names)})
		return
	}
	ps.expanded[key] = true
	eachLine(string(data), func(line, col int, text string) {
		r := &Rule{Source: src, Text: text, Preset: name}
		nested, f := parseEntry(text, r)
		if f == nil && (nested != "" || r.Deny) {
			f = &fault{0, text, "a preset only allows, and names no other preset", ""}
		}
		if f != nil {
			ps.fault(Source{File: "@" + name, Line: line, Col: col}, f)
			return
		}
		if deny {
			*r = Rule{Source: src, Text: text, Preset: name, Deny: true, Name: r.Name, Wildcard: r.Wildcard, Prefix: r.Prefix}
		}
		ps.rule(r)
	})
}

// once notes that a setting was made, and says whether it was the first time.
func (ps *parser) once(src Source, key string) bool {
	if before, ok := ps.set[key]; ok {
		ps.errs.add(Error{Source: src, Text: key, Message: fmt.Sprintf("already set in %v", before)})
		return false
	}
	ps.set[key] = src
	return true
}

// parseHosts reads a hosts(5) file. What is not understood is left out, as the C library does.
func parseHosts(data string) map[string][]netip.Addr {
	hosts := map[string][]netip.Addr{}
	eachLine(data, func(_, _ int, s string) {
		word, rest := field(s)
		a, err := netip.ParseAddr(word)
		if err != nil {
			return
		}
		a = a.WithZone("").Unmap()
		for rest != "" {
			word, rest = field(rest)
			if name, problem := canonical(word); problem == "" && !slices.Contains(hosts[name], a) {
				hosts[name] = append(hosts[name], a)
			}
		}
	})
	return hosts
}

// Line is one entry by itself, as a person gives it to a command.
type Line struct {
	Text     string // canonical: it means the same in a policy file
	Deny     bool
	Required bool
	Warnings []Error // valid, but probably not meant
}

// ParseLine reads text as the one entry of a policy. The error is an ErrorList without a place, or says why not.
func ParseLine(text string, presets fs.FS) (Line, error) {
	text = strings.Trim(text, " \t")
	switch {
	case text == "":
		return Line{}, errors.New("the entry is missing")
	case strings.ContainsFunc(text, unicode.IsControl) || strings.ContainsRune(text, '#'):
		return Line{}, errors.New("an entry is one line, without a comment")
	}
	p, err := Parse(&Bundle{Files: []File{{Data: []byte(text)}}}, presets)
	if list := (ErrorList{}); errors.As(err, &list) || err != nil {
		return Line{}, placeless(list)
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
