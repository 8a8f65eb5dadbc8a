package scorecard

import (
	"fmt"
	"slices"
	"strings"

	"github.com/agent-init/agent-init/internal/lab"
)

// Attack is one line of the catalogue.
type Attack struct {
	ID    string // "E01"
	Title string

	// Try are operations of cmd/poke, each on a line as in a shell, with quotes
	// but without anything else of a shell's. Empty: it can't be tried from inside
	// of a running container.
	Try []string
	// Watch are further addresses which nothing may arrive at, besides the
	// attack's own: ADDRESS, or PROTO/ADDRESS/PORT.
	Watch []string
	// Won takes an operation that succeeded for a success of the attack.
	Won bool
	// Judge finds in what arrived what Watch can't say.
	Judge func(*Evidence) []string
	// Answers are given by the DNS servers for the time of the attack, under
	// names with {braces}.
	Answers map[string]func(*Setting) lab.Answer

	// Limit is why it can't be closed, and what to do about it. Elsewhere is the
	// same for where agent-init does not start the agent: up and sidecar.
	Limit, Elsewhere string

	Tests []string // tests of test/attack that try it, and more of it
}

// Attacks returns the whole catalogue, in order: what could harm the means by
// which a container is confined comes after what only tries to get past it.
func Attacks() []Attack {
	return slices.Concat(dnsAttacks(), addressAttacks(), webAttacks(), localAttacks())
}

// operation is a line of Try for a setting; ok says whether the setting has all
// that it needs.
func operation(line string, values map[string]string) (args []string, ok bool) {
	line, ok = fill(line, values)
	if !ok {
		return nil, false
	}
	var word strings.Builder
	quoted, open := false, false
	for _, r := range line {
		switch {
		case r == '\'':
			quoted, open = !quoted, true
		case r == ' ' && !quoted:
			if open {
				args = append(args, word.String())
			}
			word.Reset()
			open = false
		default:
			word.WriteRune(r)
			open = true
		}
	}
	if open {
		args = append(args, word.String())
	}
	return args, true
}

// fill puts values in for {braces}. It panics on a name that no setting knows,
// which is a mistake in the table.
func fill(line string, values map[string]string) (string, bool) {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(line, "{")
		out.WriteString(before)
		if !found {
			return out.String(), true
		}
		name, after, _ := strings.Cut(rest, "}")
		value, known := values[name]
		if !known {
			panic(fmt.Sprintf("scorecard: unknown value {%s}", name))
		}
		if value == "" {
			return "", false
		}
		out.WriteString(value)
		line = after
	}
}
