package scorecard

import (
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"

	"github.com/agent-init/agent-init/internal/lab"
)

// Outcome is what became of an attack.
type Outcome int

// What can become of an attack.
const (
	Untried Outcome = iota // not from inside of a running container, or this one lacks what it takes
	Blocked                // nothing arrived
	Limited                // it can't be closed, and is said to be open
	Leaked                 // something arrived
)

// String is the outcome in the words of the table.
func (o Outcome) String() string {
	return [...]string{"–", "blocked", "limit", "**LEAKS**"}[o]
}

// word is the outcome in the words of a Report.
func (o Outcome) word() string { return [...]string{"untried", "blocked", "limit", "leaks"}[o] }

// Result is what became of an attack in a setting.
type Result struct {
	Attack  *Attack
	Outcome Outcome
	Leaks   []string // what arrived
	Tried   int      // operations
	Why     string   // it was not tried
}

// String is what became of it in the words of the table.
func (r Result) String() string {
	if r.Outcome == Untried && r.Why != "" {
		return "– " + r.Why
	}
	return r.Outcome.String()
}

// Run makes the attacks, one after the other, and judges each by what arrived.
func Run(s *Setting, attacks []Attack) ([]Result, error) {
	if err := s.look(); err != nil {
		return nil, err
	}
	var out []Result
	for i := range attacks {
		r, err := s.run(&attacks[i])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", attacks[i].ID, err)
		}
		out = append(out, r)
	}
	return out, nil
}

// look finds out whether what is allowed can be reached at all: without it, attacks that ride on it are not tried. Where the
// agent has a proxy, names may be for that alone to resolve.
func (s *Setting) look() error {
	s.Resolves = len(s.Proxies) == 0
	if s.Allowed == "" {
		return nil
	}
	ask := []string{"http", "-insecure", "https://" + s.Allowed + "/"}
	for _, args := range append(s.proxied(ask), ask) {
		p, err := s.Agent(append([]string{"-patient"}, args...)...)
		if err != nil {
			return err
		}
		s.refusal = strings.TrimPrefix(s.refusal+"; "+p.Err, "; ")
		if s.Works = p.OK || p.Detail["status"] != nil; s.Works {
			break
		}
	}
	if s.Resolves {
		return nil
	}
	p, err := s.Agent("resolve", s.Allowed)
	s.Resolves = p.OK
	return err
}

func (s *Setting) run(a *Attack) (Result, error) {
	r := Result{Attack: a, Why: a.Why}
	if s.Only != "" && !strings.Contains(s.Only, a.ID[:1]) {
		r.Why = "as in Docker"
		return r, nil
	}
	if !s.Keys && strings.Contains("KP", a.ID[:1]) {
		r.Why = lacks("keys")
		return r, nil
	}
	values := s.values(a)
	if !s.Works {
		for _, name := range []string{"ok", "ok4", "ok6", "sub", "wildcard", "mixed-case", "two-questions", "ech-ok", "route"} {
			values[name] = ""
		}
	}
	steps, why := s.steps(a, values)
	if why != "" {
		r.Why = why
	}
	for try := 1; ; try++ {
		said, tried, err := s.try(a, values, steps)
		if err != nil {
			return r, err
		}
		if r.Tried = tried; tried == 0 {
			break
		}
		arrived, lacking := s.collect(a, values, said).leaks()
		r.Leaks = slices.Concat(arrived, lacking)
		if len(arrived) > 0 || len(lacking) == 0 || try == tries {
			break
		}
	}
	if len(a.Try) == 0 && a.Limit != "" {
		r.Outcome = Limited // open everywhere, without a trial
	}
	switch {
	case r.Tried == 0:
	case len(r.Leaks) == 0:
		r.Outcome = Blocked
	case a.Limit != "", a.Elsewhere != "" && !s.Starts && !s.Open:
		r.Outcome = Limited
	default:
		r.Outcome = Leaked
	}
	return r, nil
}

// tries is how often an attack is made after which only something lacks, such as the answer to a question: that may be
// the doing of a busy machine. What has arrived once has arrived.
const tries = 3

// try makes an attack, and returns what its operations said and how many there were.
func (s *Setting) try(a *Attack, values map[string]string, steps [][]string) (said []Said, tried int, err error) {
	s.answer(a, values)
	s.forget()
	for _, args := range steps {
		if event, is := strings.CutPrefix(args[0], "@"); is {
			before := len(said)
			if err := s.happen(a, append([]string{event}, args[1:]...), &said); err != nil {
				return nil, 0, fmt.Errorf("%q: %w", args, err)
			}
			if event == "fresh" || len(said) > before {
				tried++
			}
			continue
		}
		p, err := s.Agent(args...)
		if err != nil {
			return nil, 0, fmt.Errorf("%q: %w", args, err)
		}
		if p.Op == "run" && strings.Contains(p.Err, exec.ErrNotFound.Error()) {
			continue // the image lacks the program: nothing was tried
		}
		said = append(said, Said{args, p})
		tried++
	}
	return said, tried, nil
}

// steps are the operations of an attack for which this setting has all that they
// need. If it lacks an event the others would prove nothing: then there are none.
func (s *Setting) steps(a *Attack, values map[string]string) (steps [][]string, why string) {
	tries := 0
	for _, line := range a.Try {
		event := strings.HasPrefix(line, "@")
		args, missing := operation(line, values)
		word := lacks(missing)
		if s.Apart && a.Own && !strings.Contains(line, "{frame") {
			word, missing = ownContainer, line
		}
		if missing == "" && event {
			word = s.missing(args[0][1:], args[1:])
		}
		switch {
		case word == "" && missing == "":
			steps = append(append(steps, args), s.proxied(args)...)
			if !event || args[0] == "@fresh" || args[0] == "@raced-restart" {
				tries++
			}
		case event:
			return nil, word
		case why == "":
			why = word
		}
	}
	if tries == 0 {
		return nil, why // nothing but events
	}
	return steps, why
}

// ownContainer is why an attack is not tried behind a gateway.
const ownContainer = "its own container"

// lacks says in a word what a setting lacks that has no value for a name.
func lacks(name string) string {
	switch name {
	case "":
		return ""
	case "sub", "wildcard":
		return "no wildcard"
	case "engine-dns":
		return "no engine's DNS"
	case "gw6", "ok6", "frame6":
		return "no IPv6"
	case "frame4":
		return "no gateway"
	case "agent-init", "control", "run", "policy":
		return "not inside"
	case "workspace":
		return "no workspace"
	case "keys", "stranger", "provider":
		return "no key"
	case "ruled", "ruled4":
		return "no rules"
	}
	if _, is := bodies()[name]; is {
		return "no key"
	}
	if _, is := ruleBodies()[name]; is {
		return "no rules"
	}
	return "nothing allowed"
}

// answer has the DNS servers know the names that belong to an attack.
func (s *Setting) answer(a *Attack, values map[string]string) {
	b := a.bad()
	own := lab.Answer{Addrs: []netip.Addr{b.v4, b.v6}}
	s.Lab.DNS.Set(b.name, own)
	s.Lab.DNS.Set("*."+b.name, own)
	s.Lab.DNS.Set(b.other, lab.Answer{Addrs: lab.Names()[s.Allowed]})
	for name, answer := range a.Answers {
		if name, missing := fill(name, values); missing == "" {
			s.Lab.DNS.Set(name, answer(s))
		}
	}
	if a.Serve != nil && values["sub"] != "" {
		s.Lab.Web.Handle(values["sub"], a.Serve(b))
	}
}
