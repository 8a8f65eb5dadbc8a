package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/agent-init/agent-init/pkg/policy"
)

type grantKind string

const (
	grantAllow   grantKind = "allow"   // by a person, for a time
	grantDeny    grantKind = "deny"    // by a person
	grantRequest grantKind = "request" // by the agent: changes nothing until a person says so
)

// grant is what a person, or the agent, has asked for at run time. The names of
// its fields in JSON are public.
type grant struct {
	Number  uint32    `json:"number"`
	Kind    grantKind `json:"kind"`
	Target  string    `json:"target"` // an entry of a policy, without ! in front
	Reason  string    `json:"reason,omitempty"`
	UID     uint32    `json:"uid"` // who asked
	PID     int       `json:"pid,omitempty"`
	Made    time.Time `json:"made,omitzero"`
	Expires time.Time `json:"expires,omitzero"` // zero: it does not
	Asked   int       `json:"asked,omitempty"`  // of requests: how often
	Outcome outcome   `json:"outcome,omitempty"`
	Decided *decision `json:"decided,omitempty"`
}

// outcome is what became of a request.
type outcome string

const (
	outcomeGranted outcome = "granted"
	outcomeDenied  outcome = "denied" // its target was, while it waited
	outcomeDown    outcome = "turned down"
	outcomeForgot  outcome = "forgotten" // nobody decided it in time
)

// decision is who decided a request; there is none of one that was forgotten.
type decision struct {
	Time   time.Time `json:"time,omitzero"`
	UID    uint32    `json:"uid"`
	Reason string    `json:"reason,omitempty"`
}

// The bounds of a book.
const (
	maxGrants   = 256 // that people made
	maxRequests = 16  // that wait for a person
	maxDecided  = 32  // that are remembered: the agent looks what became of its own
	requestLife = 24 * time.Hour
	defaultFor  = 10 * time.Minute
	maxFor      = 24 * time.Hour // what is needed for longer belongs in a file
)

// grantBook holds what is granted now, by number. A number is never used twice.
type grantBook struct {
	last    uint32
	list    []grant
	decided []grant // requests, oldest first
}

func (b grantBook) clone() grantBook {
	return grantBook{b.last, slices.Clone(b.list), slices.Clone(b.decided)}
}

// decide puts a request aside with what became of it.
func (b *grantBook) decide(g grant, o outcome, by *decision) {
	g.Outcome, g.Decided, g.Expires = o, by, time.Time{}
	b.decided = append(slices.Clone(b.decided), g)
	b.decided = b.decided[max(0, len(b.decided)-maxDecided):]
}

// asker is who asks for what, and why.
type asker struct {
	target string // canonical, see policy.ParseLine
	reason string
	uid    uint32
	pid    int
}

// put books a grant of a person's in place of what was said about the same
// target before: the last word counts. With number it takes the place of that
// request.
func (b *grantBook) put(kind grantKind, a asker, number uint32, life time.Duration, now time.Time) (made grant, replaced []grant, err error) {
	if number != 0 {
		i := b.find(number)
		if i < 0 || b.list[i].Kind != grantRequest {
			return grant{}, nil, fmt.Errorf("there is no request %d", number)
		}
		if b.list[i].Target != a.target {
			return grant{}, nil, fmt.Errorf("request %d is about %s", number, b.list[i].Target)
		}
	}
	given := a.reason
	if number != 0 && a.reason == "" { // the agent's own holds
		a.reason = b.list[b.find(number)].Reason
	}
	var decided []grant
	kept := slices.DeleteFunc(slices.Clone(b.list), func(g grant) bool {
		same := place(g.Target) == place(a.target)
		if same && g.Kind == grantRequest {
			decided = append(decided, g)
		} else if same {
			replaced = append(replaced, g)
		}
		return same
	})
	if count(kept, false) >= maxGrants {
		return grant{}, nil, fmt.Errorf("there are %d grants already", maxGrants)
	}
	made = grant{Number: number, Kind: kind, Target: a.target, Reason: a.reason, UID: a.uid, PID: a.pid, Made: now}
	if number == 0 {
		b.last++
		made.Number = b.last
	}
	if life > 0 {
		made.Expires = now.Add(life)
	}
	b.list = append(kept, made)
	for _, g := range decided {
		became := outcomeGranted
		if kind == grantDeny {
			became = outcomeDenied
		}
		b.decide(g, became, &decision{now, a.uid, given})
	}
	return made, replaced, nil
}

// place is what a target is about, without flags.
func place(target string) string {
	host, _, _ := strings.Cut(target, " ")
	return host
}

var errTooManyRequests = errors.New("too many requests wait for a person already")

// request books a proposal of the agent's. One that was made before is counted.
func (b *grantBook) request(a asker, now time.Time) (g grant, isNew bool, err error) {
	for i := range b.list {
		if r := &b.list[i]; r.Kind == grantRequest && r.Target == a.target {
			r.Asked++
			return *r, false, nil
		}
	}
	if count(b.list, true) >= maxRequests {
		return grant{}, false, errTooManyRequests
	}
	b.last++
	g = grant{Number: b.last, Kind: grantRequest, Target: a.target, Reason: a.reason, UID: a.uid, PID: a.pid,
		Made: now, Expires: now.Add(requestLife), Asked: 1}
	b.list = append(b.list, g)
	return g, true, nil
}

// end takes one out, whatever it is: with a request, that is a decision.
func (b *grantBook) end(number uint32, by decision) (grant, error) {
	i := b.find(number)
	if i < 0 {
		return grant{}, fmt.Errorf("there is no grant or request %d", number)
	}
	g := b.list[i]
	b.list = slices.Delete(slices.Clone(b.list), i, i+1)
	if g.Kind == grantRequest {
		b.decide(g, outcomeDown, &by)
	}
	return g, nil
}

// expire takes out what is over.
func (b *grantBook) expire(now time.Time) (over []grant) {
	b.list = slices.DeleteFunc(slices.Clone(b.list), func(g grant) bool {
		end := !g.Expires.IsZero() && past(now, g.Expires)
		if end {
			over = append(over, g)
		}
		return end
	})
	for _, g := range over {
		if g.Kind == grantRequest {
			b.decide(g, outcomeForgot, nil)
		}
	}
	return over
}

// past says whether t is over by one of two clocks: the monotonic one, which
// nobody can set back, and the one on the wall, which goes on while the machine
// sleeps (clock_gettime(2)).
func past(now, t time.Time) bool {
	return !now.Before(t) || !now.Round(0).Before(t.Round(0))
}

func (b *grantBook) find(number uint32) int {
	return slices.IndexFunc(b.list, func(g grant) bool { return g.Number == number })
}

func count(list []grant, requests bool) (n int) {
	for _, g := range list {
		if (g.Kind == grantRequest) == requests {
			n++
		}
	}
	return n
}

// over returns files with the grants behind them: each is a file of its own,
// so that decisions cite it as grant-7:1. Requests are in none.
func (b grantBook) over(files *policy.Bundle) *policy.Bundle {
	out := *files
	out.Files = slices.Clone(files.Files)
	for _, g := range b.list {
		line := g.Target
		switch g.Kind {
		case grantRequest:
			continue
		case grantDeny:
			line = "!" + line
		}
		out.Files = append(out.Files, policy.File{Name: g.name(), Data: []byte(line + "\n")})
	}
	return &out
}

// name is what stands in place of a file where a decision is by this grant.
func (g grant) name() string { return fmt.Sprintf("%s%d", grantPrefix, g.Number) }

const grantPrefix = "grant-"

// ends is when a rule does that stands for a grant; zero if it doesn't end.
func (b grantBook) ends(r *policy.Rule) time.Time {
	if r == nil {
		return time.Time{}
	}
	for _, g := range b.list {
		if g.name() == r.Source.File {
			return g.Expires
		}
	}
	return time.Time{}
}

// grantsReport is what grants.json holds, and grants --json prints.
type grantsReport struct {
	Version int     `json:"version"`
	Grants  []grant `json:"grants"`
}
