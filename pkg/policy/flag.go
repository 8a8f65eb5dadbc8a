package policy

import (
	"slices"
	"strings"
)

// Flags are the words behind an entry, by which JSON names them.
type Flags struct {
	Private  bool `json:"private,omitempty"`  // the name may resolve to private addresses
	Required bool `json:"required,omitempty"` // the self-test must reach it
	Upgrade  bool `json:"upgrade,omitempty"`  // HTTP on port 80 may switch to another protocol
	Connect  bool `json:"connect,omitempty"`  // the name is an HTTP proxy, asked by CONNECT on port 80

	Unbrokered bool `json:"unbrokered,omitempty"` // the entry counts only while the broker does not go there

	TLS     bool `json:"tls,omitempty"`     // the port carries TLS, and the name gate looks at the name inside
	HTTP    bool `json:"http,omitempty"`    // it carries HTTP, likewise
	Direct  bool `json:"direct,omitempty"`  // past the name gate: the leased address is all that is looked at
	Observe bool `json:"observe,omitempty"` // the name is inspected, and what no entry allows passes and is recorded
}

// flag is a word behind the target of an entry. A row more, and its field in Flags, is a word more.
type flag struct {
	word string
	of   func(*Flags) *bool
	name bool // says something about a name: with an address it does no harm, and nothing else
	web  bool // has an effect on HTTP on port 80 of a name only
}

var flags = [...]flag{
	{word: "private", of: func(f *Flags) *bool { return &f.Private }, name: true},
	{word: "required", of: func(f *Flags) *bool { return &f.Required }},
	{word: "upgrade", of: func(f *Flags) *bool { return &f.Upgrade }, web: true},
	{word: "connect", of: func(f *Flags) *bool { return &f.Connect }, web: true},
	{word: "unbrokered", of: func(f *Flags) *bool { return &f.Unbrokered }},
	{word: "tls", of: func(f *Flags) *bool { return &f.TLS }},
	{word: "http", of: func(f *Flags) *bool { return &f.HTTP }},
	{word: "direct", of: func(f *Flags) *bool { return &f.Direct }, name: true},
	{word: "observe", of: func(f *Flags) *bool { return &f.Observe }},
}

// dropIdle clears the flags that have no effect on r, and returns one of them.
func (r *Rule) dropIdle() (word string) {
	if r.Name != "" && slices.Contains(r.Ports, HTTP) {
		return ""
	}
	for _, f := range flags {
		if is := f.of(&r.Flags); f.web && *is {
			*is, word = false, f.word
		}
	}
	return word
}

// parseFlags reads the words behind a target, from an offset in the text on.
func parseFlags(text string, at int, r *Rule) *fault {
	if at == len(text) { // as most entries
		return nil
	}
	words := make([]string, 0, len(flags))
	for _, f := range flags {
		words = append(words, f.word)
	}
	for at < len(text) {
		word, rest := field(text[at:])
		end, f := parseRequest(text, at, r)
		i := slices.Index(words, word)
		switch {
		case f != nil:
			return f
		case end > at:
			at = end
			continue
		case i >= 0 && r.Deny:
			return &fault{at, word, "a deny entry takes no flags", ""}
		case i >= 0:
			*flags[i].of(&r.Flags) = !flags[i].name || r.Name != ""
		case strings.ContainsAny(word, ".:/*@!"):
			return &fault{at, word, "one entry per line; behind it stand only METHODS /PATH, and words such as private", ""}
		default:
			return &fault{at, word, "unknown flag", meant(word, slices.Concat(words, requestWords))}
		}
		at = len(text) - len(rest)
	}
	return nil
}
