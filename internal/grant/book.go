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
	Seat    bool      `json:"terminal,omitempty"` // the person at the container's own terminal did, and the uid is of the client there
	Afar    *Afar     `json:"afar,omitempty"`     // somebody elsewhere did, by a signed answer
	Made    time.Time `json:"made,omitzero"`
	Expires time.Time `json:"expires,omitzero"`  // zero: it does not
	Saved   bool      `json:"saved,omitempty"`   // for good: it stands in a file, and in the policy as that file's
	Asked   int       `json:"asked,omitempty"`   // of requests: how often
	Held    bool      `json:"held,omitempty"`    // of requests: a question for a name made it, which is held
	Longest int64     `json:"longest,omitempty"` // of requests: for how many seconds it may be allowed from afar
	Outcome Outcome   `json:"outcome,omitempty"`
	Decided *Decision `json:"decided,omitempty"`
}

// Afar is who has decided from afar, by their own account, and by which way that came: a file or the webhook.
type Afar struct {
	Who string `json:"who"`
	Way string `json:"way"`
}

// Outcome is what became of a request; "" as long as it waits.
type Outcome string

const (
	WasGranted    Outcome = "granted"
	WasDenied     Outcome = "denied" // its target was, while it waited
	WasTurnedDown Outcome = "turned down"
	WasForgotten  Outcome = "forgotten" // nobody decided it in time
	StillWaits    Outcome = "timed out" // who waited for it does so no longer; it waits on
)

// Decision is who decided a request; there is none of one that was forgotten.
type Decision struct {
	Time   time.Time `json:"time,omitzero"`
	UID    uint32    `json:"uid"`
	Reason string    `json:"reason,omitempty"`
	Seat   bool      `json:"terminal,omitempty"` // see Grant
	Afar   *Afar     `json:"afar,omitempty"`
}

// The bounds of a book.
const (
	maxGrants   = 256 // that people made for a time
	MaxRequests = 16  // that wait for a person
	maxDecided  = 32  // that are remembered: the agent looks what became of its own
	maxHeld     = 8   // of the requests, that questions which are held have made
	HeldLife    = 10 * time.Minute
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
func (b *Book) decide(g Grant, o Outcome, by *Decision) {
	g.Outcome, g.Decided, g.Expires = o, by, time.Time{}
	b.Decided = append(slices.Clone(b.Decided), g)
	b.Decided = b.Decided[max(0, len(b.Decided)-maxDecided):]
}

// Put books g, a grant of a person's, for life, in place of what was said about the same
// target before: the last word counts. If it has a number, it takes the place of that request.
// One for a time takes no place of one for good, which holds again behind it.
func (b *Book) Put(g Grant, life time.Duration, now time.Time) (made Grant, replaced []Grant, err error) {
	given := g.Reason
	if g.Number != 0 {
		asked := b.Waiting(g.Number)
		if asked == nil {
			return made, nil, fmt.Errorf("there is no request %d", g.Number)
		}
		if asked.Target != g.Target {
			return made, nil, fmt.Errorf("request %d is about %s", g.Number, asked.Target)
		}
		g.Reason = cmp.Or(given, asked.Reason) // the agent's own holds
	}
	var decided []Grant
	kept := slices.DeleteFunc(slices.Clone(b.List), func(old Grant) bool {
		same := sameTarget(old.Target, g.Target) && (g.Saved || !old.Saved)
		if same && old.Kind == Request {
			decided = append(decided, old)
		} else if same {
			replaced = append(replaced, old)
		}
		return same
	})
	n, most := 0, maxGrants
	for _, old := range kept {
		if old.Kind != Request && old.Saved == g.Saved {
			n++
		}
	}
	if g.Saved {
		most = maxSaved
	}
	if n >= most {
		return made, nil, fmt.Errorf("there are %d grants already", most)
	}
	g = b.numbered(g, life, now)
	b.List = append(kept, g)
	for _, d := range decided {
		became := WasGranted
		if g.Kind == Deny {
			became = WasDenied
		}
		b.decide(d, became, &Decision{now, g.UID, given, g.Seat, g.Afar})
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

// sameTarget says whether two targets are about the same: the same place, and there not about different requests.
func sameTarget(a, b string) bool {
	of, with := requestsOf(a), requestsOf(b)
	return Place(a) == Place(b) && (of == "" || with == "" || of == with)
}

// requestsOf are the words of a target that say which requests it is about; "" if it is about connections.
func requestsOf(target string) string {
	var words []string
	for i, w := range strings.Fields(target) {
		if i > 0 && (w == "read" || w == strings.ToUpper(w) || strings.ContainsAny(w, "/=")) {
			words = append(words, w)
		}
	}
	return strings.Join(words, " ")
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
	life, all, held := RequestLife, 0, 0
	for _, r := range b.List {
		if r.Kind != Request {
			continue
		}
		if all++; r.Held {
			held++
		}
	}
	if all >= MaxRequests || g.Held && held >= maxHeld {
		return made, false, errTooMany
	}
	if g.Held {
		life = HeldLife
	}
	g.Kind, g.Asked = Request, 1
	g = b.numbered(g, life, now)
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
		b.decide(g, WasTurnedDown, &by)
	}
	return g, nil
}

// Waiting is the request of that number that nobody has decided, or nil.
func (b *Book) Waiting(number uint32) *Grant {
	if i := b.find(number); i >= 0 && b.List[i].Kind == Request {
		return &b.List[i]
	}
	return nil
}

// TurnDown ends a request about target, and nothing else: what was granted or denied meanwhile has the request's number.
func (b *Book) TurnDown(number uint32, target string, by Decision) (Grant, error) {
	if g := b.Waiting(number); g == nil || g.Target != target {
		return Grant{}, fmt.Errorf("request %d, for %s, does not wait any more", number, target)
	}
	return b.End(number, by)
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
			b.decide(g, WasForgotten, nil)
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

// Over returns files with the grants behind them: each is a file of its own,
// so that decisions cite it as grant-7:1. Requests are in none, and what was saved is in files already.
func (b Book) Over(files *policy.Bundle) *policy.Bundle {
	out := *files
	out.Files = slices.Clone(files.Files)
	for _, g := range b.List {
		if g.Saved { // it stands in a file
			continue
		}
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
