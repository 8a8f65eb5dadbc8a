package policy

// entryList is what a file of entries says by itself. The next policy takes it over where the file is still the same: a list
// may be tens of thousands of lines long, and what a denial ends goes on until the policy with the denial has been read.
type entryList struct {
	text  string
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
	ps.lists[f.Name] = l
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
	l, now := entryList{text: string(f.Data)}, parser{}
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
