package ui

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/agent-init/agent-init/internal/launch"
	"github.com/agent-init/agent-init/internal/text"
)

// The bounds of what a page is shown, in bytes: containers choose most of it.
const (
	maxName   = 128
	maxText   = 1024
	maxTarget = 320 // agent-init takes no longer one (pkg/control)
	maxListed = 300 // grants and requests of a container; agent-init itself keeps fewer
)

// clean is a text for the page: in one line, without a control character or a mark that reorders it, and not too long.
func clean(s string, limit int) string {
	if len(s) > limit {
		cut := limit
		for cut > 0 && !utf8.RuneStart(s[cut]) {
			cut--
		}
		s = s[:cut] + "…"
	}
	return text.Clean(s)
}

// shown is the target of a request as the page has it. Answers name it so.
func shown(target string) string { return clean(target, maxTarget) }

// grants is what agent-init grants --json prints, as far as the page shows it.
type grants struct {
	Grants []grant `json:"grants"`
}

type grant struct {
	Number  uint32    `json:"number"`
	Kind    string    `json:"kind"`
	Target  string    `json:"target"`
	Reason  string    `json:"reason"`
	UID     uint32    `json:"uid"`
	PID     int       `json:"pid"`
	Process string    `json:"process"`
	Made    time.Time `json:"made,omitzero"`
	Expires time.Time `json:"expires,omitzero"`
	Saved   bool      `json:"saved,omitempty"` // for good
	Asked   int       `json:"asked"`
	Outcome string    `json:"outcome"`
	Decided *struct {
		Time   time.Time `json:"time,omitzero"`
		UID    uint32    `json:"uid"`
		Reason string    `json:"reason"`
	} `json:"decided"`
}

// cleaned is the grant for the page.
func (g grant) cleaned() grant {
	g.Kind, g.Target, g.Outcome = clean(g.Kind, maxName), shown(g.Target), clean(g.Outcome, maxName)
	g.Reason, g.Process = clean(g.Reason, maxText), clean(g.Process, maxName)
	if g.Decided != nil {
		d := *g.Decided
		d.Reason = clean(d.Reason, maxText)
		g.Decided = &d
	}
	return g
}

// status is what agent-init status --json prints, as far as the page shows it.
type status struct {
	Healthy bool     `json:"healthy"`
	Why     []string `json:"why"`
	Phase   string   `json:"phase"`
	Mode    string   `json:"mode"`
}

// fleetView is the page's data.
type fleetView struct {
	Now        time.Time       `json:"now"`
	Fault      string          `json:"fault,omitempty"`
	Containers []containerView `json:"containers"`
	Agents     []string        `json:"agents"` // that there is an image of
	Dir        string          `json:"dir"`    // where launch was called
}

type containerView struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Agent   string    `json:"agent"`
	Image   string    `json:"image"`
	Dir     string    `json:"dir"`
	State   string    `json:"state"`
	Running bool      `json:"running"`
	Created time.Time `json:"created,omitzero"`
	Known   bool      `json:"known"` // it has answered
	Healthy bool      `json:"healthy"`
	Why     string    `json:"why,omitempty"`
	Phase   string    `json:"phase,omitempty"`
	Mode    string    `json:"mode,omitempty"`
	Grants  []grant   `json:"grants"`
	Fault   string    `json:"fault,omitempty"`
}

// view is what is known now, cleaned.
func (f *fleet) view(now time.Time) fleetView {
	f.mu.Lock()
	defer f.mu.Unlock()
	v := fleetView{Now: now, Fault: f.fault, Containers: []containerView{}, Agents: []string{}}
	for _, c := range f.list {
		v.Containers = append(v.Containers, viewOf(c, f.known[c.ID]))
	}
	seen := map[string]bool{}
	for _, i := range f.images {
		if name := clean(i.Agent, maxName); !seen[name] && len(seen) < maxShown {
			seen[name] = true
			v.Agents = append(v.Agents, name)
		}
	}
	return v
}

func viewOf(c launch.Container, k *insight) containerView {
	v := containerView{
		ID: c.ID, Name: clean(c.Name, maxName), Agent: clean(c.Agent, maxName), Image: clean(c.Image, maxName),
		Dir: clean(c.Dir, maxText), State: clean(c.Status, maxName), Running: c.Running, Created: c.Created, Grants: []grant{},
	}
	if k == nil {
		return v
	}
	v.Known, v.Healthy, v.Fault = !k.statusAt.IsZero(), k.status.Healthy, k.fault
	v.Why = clean(strings.Join(k.status.Why, "; "), maxText)
	v.Phase, v.Mode = clean(k.status.Phase, maxName), clean(k.status.Mode, maxName)
	for _, g := range k.grants.Grants[:min(len(k.grants.Grants), maxListed)] {
		v.Grants = append(v.Grants, g.cleaned())
	}
	return v
}
