package scorecard

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/agent-init/agent-init/internal/lab"
)

// Attack is one line of the catalogue.
type Attack struct {
	ID    string // "E01"
	Title string

	// Try are operations of cmd/poke, each on a line as in a shell, with quotes
	// but without anything else of a shell's; with an @ in front, what happens to
	// the container meanwhile: see Scene.
	Try []string
	// Why it is not tried, in a word, if Try is empty.
	Why string
	// Watch are further addresses which nothing may arrive at, besides the
	// attack's own: ADDRESS, or PROTO/ADDRESS/PORT.
	Watch []string
	// Own says that it is about what the agent's own container lets it do. Where a gateway confines it, that is none of the
	// gateway's: only frames are tried, and what arrives alone decides.
	Own bool
	// Won takes an operation that succeeded for a success of the attack.
	Won bool
	// Judge finds in what arrived what Watch can't say.
	Judge func(*Evidence) []string
	// Answers are given by the DNS servers for the time of the attack, under
	// names with {braces}.
	Answers map[string]func(*Setting) lab.Answer
	// Serve has the web servers serve {sub} by it.
	Serve func(bad) http.Handler

	// Limit is why it can't be closed, and what to do about it. Elsewhere is the
	// same for where agent-init does not start the agent: up and sidecar.
	Limit, Elsewhere string

	Tests []string // tests of test/attack that try it, and more of it
}

// Attacks returns the whole catalogue, in order: what could harm the means by
// which a container is confined comes after what only tries to get past it.
func Attacks() []Attack {
	return slices.Concat(dnsAttacks(), answerAttacks(), addressAttacks(), networkAttacks(), webAttacks(), keyAttacks(), providerAttacks(), ruleAttacks(), localAttacks(), foundAttacks())
}

// operation is a line of Try for a setting; missing is what the setting lacks
// for it.
func operation(line string, values map[string]string) (args []string, missing string) {
	line, missing = fill(line, values)
	if missing != "" {
		return nil, missing
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
	return args, ""
}

// fill puts values in for {braces}; missing is the first that has none. It panics on a name that no setting knows,
// which is a mistake in the table.
func fill(line string, values map[string]string) (filled, missing string) {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(line, "{")
		out.WriteString(before)
		if !found {
			return out.String(), ""
		}
		name, after, _ := strings.Cut(rest, "}")
		value, known := values[name]
		if !known {
			panic(fmt.Sprintf("scorecard: unknown value {%s}", name))
		}
		if value == "" {
			return "", name
		}
		out.WriteString(value)
		line = after
	}
}
