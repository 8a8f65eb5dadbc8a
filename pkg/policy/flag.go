package policy

import (
	"slices"
	"strings"
)

// flag is a word behind the target of an entry. The table below is all that there is
// about such words: a row more, and its field in Rule, is a word more.
type flag struct {
	word string
	of   func(*Rule) *bool
	name bool // says something about a name: with an address it does no harm, and nothing else
	web  bool // has an effect on HTTP on port 80 of a name only
}

// flags are in the order in which a Rule is written.
var flags = [...]flag{
	{word: "private", of: func(r *Rule) *bool { return &r.Private }, name: true},
	{word: "required", of: func(r *Rule) *bool { return &r.Required }},
	{word: "upgrade", of: func(r *Rule) *bool { return &r.Upgrade }, web: true},
	{word: "connect", of: func(r *Rule) *bool { return &r.Connect }, web: true},
}

func flagWords() []string {
	words := make([]string, len(flags))
	for i, f := range flags {
		words[i] = f.word
	}
	return words
}

// set notes a flag; false means that it is none.
func (r *Rule) set(word string) bool {
	i := slices.IndexFunc(flags[:], func(f flag) bool { return f.word == word })
	if i < 0 {
		return false
	}
	*flags[i].of(r) = !flags[i].name || r.Name != ""
	return true
}

// writeFlags writes the flags that are set, each behind a blank.
func (r *Rule) writeFlags(b *strings.Builder) {
	for _, f := range flags {
		if *f.of(r) {
			b.WriteString(" " + f.word)
		}
	}
}

// dropIdle clears the flags that have no effect on r, and returns one of them.
func (r *Rule) dropIdle() (word string) {
	if r.Name != "" && slices.Contains(r.Ports, webPort) {
		return ""
	}
	for _, f := range flags {
		if is := f.of(r); f.web && *is {
			*is, word = false, f.word
		}
	}
	return word
}

func parseFlags(text string, at int, r *Rule) *fault {
	for at < len(text) {
		word, rest := field(text[at:])
		switch {
		case r.Deny && slices.Contains(flagWords(), word):
			return &fault{at, word, "a deny entry takes no flags", ""}
		case r.set(word):
		case strings.ContainsAny(word, ".:/*@!"):
			return &fault{at, word, "one entry per line, and after it only " + strings.Join(flagWords(), ", "), ""}
		default:
			return &fault{at, word, "unknown flag", Nearest(word, flagWords())}
		}
		at = len(text) - len(rest)
	}
	return nil
}
