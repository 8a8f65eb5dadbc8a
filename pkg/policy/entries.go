package policy

import (
	"bytes"
	"crypto/sha256"
	"maps"
	"slices"
)

// entryList is what a file of entries says by itself. The next policy takes it over where the file is still the same: a list
// may be tens of thousands of lines long, and what a denial ends goes on until the policy with the denial has been read.
type entryList struct {
	text  string
	sum   [sha256.Size]byte // of text
	steps []step
}

// step is some lines, and the line with a preset that follows: what a preset adds depends on what was read before.
type step struct {
	rules       []*Rule
	errs, warns problems
	preset      *Rule // its Preset is the name; nil at the end of the list
}

// list reads a file of entries.
func (ps *parser) list(f File) {
	l, known := ps.before[f.Name]
	if _, twice := ps.lists[f.Name]; !known || twice || l.text != string(f.Data) {
		l = readEntries(f)
	}
	ps.take(f.Name, l)
}

const notKnown = "it comes without its text, and is not a list that was read before"

// knownList takes over a list of the policy before.
func (ps *parser) knownList(name string, sum []byte) {
	l, known := ps.before[name]
	if _, twice := ps.lists[name]; !known || twice || !bytes.Equal(l.sum[:], sum) {
		ps.errs.add(Error{Source: Source{File: name}, Message: notKnown})
		return
	}
	ps.take(name, l)
}

func (ps *parser) take(name string, l entryList) {
	ps.lists[name] = l
	for _, s := range l.steps {
		ps.rules = append(ps.rules, s.rules...)
		ps.errs.join(s.errs)
		ps.warns.join(s.warns)
		if s.preset != nil {
			ps.preset(s.preset.Source, s.preset.Preset, s.preset.Deny)
		}
	}
}

func readEntries(f File) entryList {
	l, now := entryList{text: string(f.Data), sum: sha256.Sum256(f.Data)}, parser{}
	end := func(preset *Rule) {
		l.steps = append(l.steps, step{now.rules, now.errs, now.warns, preset})
		now = parser{}
	}
	eachLine(l.text, func(line, col int, entry string) {
		r := &Rule{Source: Source{f.Name, line, col}, Text: entry}
		switch preset, wrong := parseEntry(entry, r); {
		case wrong != nil:
			now.fault(r.Source, wrong)
		case preset != "":
			r.Preset = preset
			end(r)
		default:
			now.rule(r)
		}
	})
	end(nil)
	return l
}

// Brief is b for whoever has read p, and calls Next: the lists of entries that p has as well are Known. Next refuses a
// bundle with a list that it does not know.
func (p *Policy) Brief(b *Bundle) *Bundle {
	times := map[string]int{}
	for _, f := range slices.Concat(append(slices.Collect(maps.Values(b.Phases)), b.Files)...) {
		times[f.Name]++
	}
	out := *b
	out.Known = map[string][]byte{}
	brief := func(all []File) []File {
		files := slices.Clone(all)
		for i, f := range files {
			if l, known := p.lists[f.Name]; known && times[f.Name] == 1 && l.text == string(f.Data) {
				files[i].Data, out.Known[f.Name] = nil, l.sum[:]
			}
		}
		return files
	}
	out.Files, out.Phases = brief(b.Files), maps.Clone(b.Phases)
	for name, all := range b.Phases {
		out.Phases[name] = brief(all)
	}
	return &out
}
