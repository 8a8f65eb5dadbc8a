package xtables

import (
	"context"
	"fmt"
	"strings"
)

// Program is a program that a backend wants run.
type Program struct {
	Path  string   // absolute
	Args  []string // without the name
	Env   []string // the whole environment
	Stdin []byte
}

// Runner runs a program to its end and returns what it wrote. The error says how
// it ended, if not with status 0. When ctx ends, the program is killed.
type Runner func(ctx context.Context, p Program) (stdout, stderr []byte, err error)

// run is r with an error that quotes the program.
func (r Runner) run(ctx context.Context, p Program) ([]byte, error) {
	out, errs, err := r(ctx, p)
	if err == nil {
		return out, nil
	}
	said := strings.Join(strings.Fields(string(errs)), " ")
	if len(said) > maxSaid {
		said = said[:maxSaid]
	}
	if said != "" {
		return nil, fmt.Errorf("%s: %w: %s", p.Path, err, said)
	}
	return nil, fmt.Errorf("%s: %w", p.Path, err)
}

// maxSaid bounds how much of a program's complaints an error tells.
const maxSaid = 500
