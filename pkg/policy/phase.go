package policy

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// The phases of a container in which an agent is evaluated. Run is the policy by itself. Setup and Verify are the policy
// with the entries of phases/setup and phases/verify behind it: a denial of the policy wins there as well. In Sealed,
// which is between any two of them, nothing is allowed, and the settings are those of the policy.
const (
	Setup  = "setup"
	Run    = "run"
	Verify = "verify"
	Sealed = "sealed"
)

const (
	phasesDir = "phases"
	phaseFile = "phase"

	maxPhaseFile = 64 // bytes
)

// phaseKeys are the keys of a phase's file in YAML: a phase has entries, and no settings.
var phaseKeys = []string{"services", "domains", "networks", "deny"}

// phases reads the files of the phases into b.
func (w walker) phases(dir string, b *Bundle, total *int) error {
	names, err := w.names(filepath.Join(dir, phasesDir))
	if err != nil {
		return err
	}
	for _, name := range names {
		at := filepath.Join(phasesDir, name)
		if strings.HasPrefix(name, ".") { // a volume's own links
			continue
		}
		if name != Setup && name != Verify {
			return &FileError{filepath.Join(dir, at), "the phases with files are " + Setup + " and " + Verify,
				"rename it, or take it out; what holds in " + Run + " is the policy itself"}
		}
		listed, err := w.listed(dir, at, b)
		if err != nil {
			return err
		}
		files := []File{}
		for _, name := range listed {
			f, err := w.file(dir, name, total)
			if err != nil {
				return gone(err, filepath.Join(dir, name))
			}
			files = append(files, f)
		}
		if b.Phases == nil {
			b.Phases = map[string][]File{}
		}
		b.Phases[name] = files
	}
	return nil
}

// ReadPhase reads which phase the file of that name in dir asks for; "" if there is none. Like a policy's, it must be
// root's. The error is a *FileError.
func ReadPhase(dir string) (string, error) {
	path := filepath.Join(dir, phaseFile)
	data, err := (walker{}).read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	word := strings.TrimSpace(string(data[:min(len(data), maxPhaseFile)]))
	if !slices.Contains([]string{Setup, Run, Verify}, word) {
		return "", &FileError{path, fmt.Sprintf("it says %q", shorten(word)), "write one of: " + strings.Join([]string{Setup, Run, Verify}, " ")}
	}
	return word, nil
}

// phase takes in the files that count in the phase that b is in, and returns how many.
func (ps *parser) phase(b *Bundle) (files int) {
	for _, f := range b.Files {
		ps.file(f)
	}
	if b.Phase == Sealed { // settings stay: they open nothing, and what they keep running need not end
		return 0
	}
	own, before := b.Phases[b.Phase], len(ps.rules)
	if own != nil {
		ps.top = slices.DeleteFunc(ps.keys(), func(k key) bool { return !slices.Contains(phaseKeys, k.name) })
	}
	for _, f := range own {
		ps.file(f)
	}
	for _, r := range ps.rules[before:] {
		if r.Request != nil || r.Observe { // the broker would have to be told when there is one
			ps.errs.add(Error{Source: r.Source, Text: r.Text, Message: "a phase opens names and addresses whole: write what is about requests into the policy itself"})
		}
	}
	return len(b.Files) + len(own)
}

// CheckPhases says what is wrong with the phases of the bundle that p was read from, but for the one that it is in. The
// error is one of Parse.
func (p *Policy) CheckPhases(b *Bundle, presets fs.FS) error {
	if b.Phases == nil {
		return nil
	}
	for _, name := range append(slices.Sorted(maps.Keys(b.Phases)), Run) {
		if name == b.Phase {
			continue
		}
		other := *b
		other.Phase = name
		if _, err := p.Next(&other, presets); err != nil {
			return err
		}
	}
	return nil
}

// files are all that b was read from, those of every phase included.
func (b *Bundle) files() []File {
	return slices.Concat(b.Ceiling, b.Files, b.Phases[Setup], b.Phases[Verify])
}
