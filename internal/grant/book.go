// Package grant keeps the book of what was granted and asked for at run time.
package grant

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/agent-init/agent-init/allowlist.d"
	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/pkg/audit"
	"github.com/agent-init/agent-init/pkg/control"
	"github.com/agent-init/agent-init/pkg/policy"
)

// Kind is what a grant does.
type Kind string

const (
	Allow   Kind = "allow"   // by a person, for a time
	Deny    Kind = "deny"    // by a person
	Request Kind = "request" // by the agent: changes nothing until a person says so
)

// Grant is what a person, or the agent, has asked for at run time. The names of its fields in JSON are public.
type Grant struct {
	Number  uint32    `json:"number"`
	Kind    Kind      `json:"kind"`
	Target  string    `json:"target"` // an entry of a policy, without ! in front
	Reason  string    `json:"reason,omitempty"`
	UID     uint32    `json:"uid"` // who asked
	PID     int       `json:"pid,omitempty"`
	Made    time.Time `json:"made,omitzero"`
	Expires time.Time `json:"expires,omitzero"` // zero: it does not
	Asked   int       `json:"asked,omitempty"`  // of requests: how often
	Outcome outcome   `json:"outcome,omitempty"`
	Decided *Decision `json:"decided,omitempty"`
}

type outcome string

const (
	outcomeGranted outcome = "granted"
	outcomeDenied  outcome = "denied" // its target was, while it waited
	outcomeDown    outcome = "turned down"
	outcomeForgot  outcome = "forgotten" // nobody decided it in time
)

// Decision is who decided a request; there is none of one that was forgotten.
type Decision struct {
	Time   time.Time `json:"time,omitzero"`
	UID    uint32    `json:"uid"`
	Reason string    `json:"reason,omitempty"`
}

// The bounds of a book.
const (
	maxGrants   = 256 // that people made
	MaxRequests = 16  // that wait for a person
	maxDecided  = 32  // that are remembered: the agent looks what became of its own
	RequestLife = 24 * time.Hour
	DefaultFor  = 10 * time.Minute
	MaxFor      = 24 * time.Hour // what is needed for longer belongs in a file
)

// Book holds what is granted now, by number. A number is never used twice.
type Book struct {
	last    uint32
	List    []Grant
	Decided []Grant // requests, oldest first
}

// OnlyCuts says whether b takes something away that old has, and opens nothing more:
// a denial, the end of what was allowed, or both.
func (b Book) OnlyCuts(old Book) bool {
	lost := func(kind Kind, from, to Book) bool { // on the way from one to the other
		return slices.ContainsFunc(from.List, func(g Grant) bool {
			return g.Kind == kind && !slices.ContainsFunc(to.List, func(h Grant) bool { return h.Kind == kind && h.Target == g.Target })
		})
	}
	opens := lost(Deny, old, b) || lost(Allow, b, old)
	return !opens && (lost(Allow, old, b) || lost(Deny, b, old))
}

// Clone is a book that changes for itself.
func (b Book) Clone() Book {
	return Book{b.last, slices.Clone(b.List), slices.Clone(b.Decided)}
}

// decide puts a request aside with what became of it.
func (b *Book) decide(g Grant, o outcome, by *Decision) {
	g.Outcome, g.Decided, g.Expires = o, by, time.Time{}
	b.Decided = append(slices.Clone(b.Decided), g)
	b.Decided = b.Decided[max(0, len(b.Decided)-maxDecided):]
}

// Put books g, a grant of a person's, for life, in place of what was said about the same
// target before: the last word counts. If it has a number, it takes the place of that request.
func (b *Book) Put(g Grant, life time.Duration, now time.Time) (made Grant, replaced []Grant, err error) {
	given := g.Reason
	if g.Number != 0 {
		i := b.find(g.Number)
		if i < 0 || b.List[i].Kind != Request {
			return made, nil, fmt.Errorf("there is no request %d", g.Number)
		}
		if b.List[i].Target != g.Target {
			return made, nil, fmt.Errorf("request %d is about %s", g.Number, b.List[i].Target)
		}
		g.Reason = cmp.Or(given, b.List[i].Reason) // the agent's own holds
	}
	var decided []Grant
	kept := slices.DeleteFunc(slices.Clone(b.List), func(old Grant) bool {
		same := Place(old.Target) == Place(g.Target)
		if same && old.Kind == Request {
			decided = append(decided, old)
		} else if same {
			replaced = append(replaced, old)
		}
		return same
	})
	if len(kept)-requests(kept) >= maxGrants {
		return made, nil, fmt.Errorf("there are %d grants already", maxGrants)
	}
	g = b.numbered(g, life, now)
	b.List = append(kept, g)
	for _, d := range decided {
		became := outcomeGranted
		if g.Kind == Deny {
			became = outcomeDenied
		}
		b.decide(d, became, &Decision{now, g.UID, given})
	}
	return g, replaced, nil
}

// numbered is g with a number and its times. A life of 0 has no end.
func (b *Book) numbered(g Grant, life time.Duration, now time.Time) Grant {
	if g.Made = now; life > 0 {
		g.Expires = now.Add(life)
	}
	if g.Number == 0 {
		b.last++
		g.Number = b.last
	}
	return g
}

// Place is what a target is about, without flags.
func Place(target string) string {
	host, _, _ := strings.Cut(target, " ")
	return host
}

var errTooMany = errors.New("too many requests wait for a person already")

// Request books g, a proposal of the agent's. One that was made before is counted.
func (b *Book) Request(g Grant, now time.Time) (made Grant, isNew bool, err error) {
	for i := range b.List {
		if r := &b.List[i]; r.Kind == Request && r.Target == g.Target {
			r.Asked++
			return *r, false, nil
		}
	}
	if requests(b.List) >= MaxRequests {
		return made, false, errTooMany
	}
	g.Kind, g.Asked = Request, 1
	g = b.numbered(g, RequestLife, now)
	b.List = append(b.List, g)
	return g, true, nil
}

// End takes one out, whatever it is: with a request, that is a decision.
func (b *Book) End(number uint32, by Decision) (Grant, error) {
	i := b.find(number)
	if i < 0 {
		return Grant{}, fmt.Errorf("there is no grant or request %d", number)
	}
	g := b.List[i]
	b.List = slices.Delete(slices.Clone(b.List), i, i+1)
	if g.Kind == Request {
		b.decide(g, outcomeDown, &by)
	}
	return g, nil
}

// Expire takes out what is over.
func (b *Book) Expire(now time.Time) (over []Grant) {
	b.List = slices.DeleteFunc(slices.Clone(b.List), func(g Grant) bool {
		end := !g.Expires.IsZero() && past(now, g.Expires)
		if end {
			over = append(over, g)
		}
		return end
	})
	for _, g := range over {
		if g.Kind == Request {
			b.decide(g, outcomeForgot, nil)
		}
	}
	return over
}

// past says whether t is over by one of two clocks: the monotonic one, which nobody can set back, and the one on the
// wall, which goes on while the machine sleeps (clock_gettime(2)).
func past(now, t time.Time) bool {
	return !now.Before(t) || !now.Round(0).Before(t.Round(0))
}

func (b *Book) find(number uint32) int {
	return slices.IndexFunc(b.List, func(g Grant) bool { return g.Number == number })
}

func requests(list []Grant) (n int) {
	for _, g := range list {
		if g.Kind == Request {
			n++
		}
	}
	return n
}

// Over returns files with the grants behind them: each is a file of its own,
// so that decisions cite it as grant-7:1. Requests are in none.
func (b Book) Over(files *policy.Bundle) *policy.Bundle {
	out := *files
	out.Files = slices.Clone(files.Files)
	for _, g := range b.List {
		line := g.Target
		switch g.Kind {
		case Request:
			continue
		case Deny:
			line = "!" + line
		}
		out.Files = append(out.Files, policy.File{Name: g.Name(), Data: []byte(line + "\n")})
	}
	return &out
}

// Name is what stands in place of a file where a decision is by this grant.
func (g Grant) Name() string { return fmt.Sprintf("%s%d", Prefix, g.Number) }

// Prefix begins what stands in place of a file's name where a decision is by a grant.
const Prefix = "grant-"

// Ends is when a rule does that stands for a grant; zero if it doesn't end.
func (b Book) Ends(r *policy.Rule) time.Time {
	if r == nil {
		return time.Time{}
	}
	for _, g := range b.List {
		if g.Name() == r.Source.File {
			return g.Expires
		}
	}
	return time.Time{}
}

// Report is what grants.json holds, and grants --json prints.
type Report struct {
	Version int     `json:"version"`
	Grants  []Grant `json:"grants"`
}

// Event is the line of the audit log about what happened to g, by whom; nil is agent-init itself.
func (g Grant) Event(v audit.Verdict, what string, by *control.Peer) audit.Event {
	e := audit.Event{Kind: audit.Grant, Verdict: v, Name: g.Target, Rule: g.Name() + ":1", Reason: what}
	if by != nil {
		uid := by.UID
		e.UID, e.PID = &uid, by.PID
	}
	if g.Reason != "" {
		e.Reason += ": " + g.Reason
	}
	return e
}

// ParseLine reads the target of a grant.
func ParseLine(kind Kind, target string) (policy.Line, error) {
	if kind == Deny && (target == "" || target[0] != '!') {
		target = "!" + target
	}
	line, err := policy.ParseLine(target, allowlist.Files)
	switch {
	case err != nil:
		return line, fault.New(fault.Usage, "TARGET is an entry as in a policy file: api.example.com, *.example.com, 192.0.2.1:8080, @github", "%w", err)
	case line.Deny && kind == Allow:
		return line, fault.New(fault.Usage, "agent-init deny", "%s denies", line.Text)
	case line.Required:
		return line, fault.New(fault.Usage, "leave the word out", "the word required is for the self-test only")
	}
	if line.Deny {
		line.Text = line.Text[1:]
	}
	return line, nil
}
