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

	Unbrokered bool `json:"unbrokered,omitempty"` // the entry counts only while no route of the broker goes there
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

func parseFlags(text string, at int, r *Rule) *fault {
	words := make([]string, 0, len(flags))
	for _, f := range flags {
		words = append(words, f.word)
	}
	for at < len(text) {
		word, rest := field(text[at:])
		i := slices.Index(words, word)
		switch {
		case i >= 0 && r.Deny:
			return &fault{at, word, "a deny entry takes no flags", ""}
		case i >= 0:
			*flags[i].of(&r.Flags) = !flags[i].name || r.Name != ""
		case strings.ContainsAny(word, ".:/*@!"):
			return &fault{at, word, "one entry per line, and after it only " + strings.Join(words, ", "), ""}
		default:
			return &fault{at, word, "unknown flag", Nearest(word, words)}
		}
		at = len(text) - len(rest)
	}
	return nil
}
