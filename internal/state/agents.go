package state

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"github.com/agent-init/agent-init/internal/text"
)

// A gateway may keep several agents, each by a keeper of its own, which has files of its own: a cell. Which agent's files
// a process is about is said once, as it starts, before anything is looked up. It is a variable, as the environment is:
// some fifty places look something up, and no process is ever about two agents.

var selected string

// Select says which agent of a gateway this process is about from now on; "" is all of them.
func Select(agent string) { selected = agent }

// Selected is whom Select has named.
func Selected() string { return selected }

// AgentsDir is what the files of agents are below, wherever the files of the gateway are.
const AgentsDir = "agents"

func ofAgent(dir string) string {
	if selected == "" {
		return dir
	}
	return filepath.Join(dir, AgentsDir, selected)
}

// Agent is one of several behind a gateway, as who keeps them all sees it.
type Agent struct {
	Name     string         `json:"name"`
	Networks []netip.Prefix `json:"networks"`
	MAC      string         `json:"mac,omitempty"`
	Keeper   int            `json:"keeper"`           // the process that keeps it; 0: there is none, and it is sealed
	Restarts int            `json:"restarts"`         // of that
	Fault    string         `json:"fault,omitempty"`  // why there is none
	Health   *Health        `json:"health,omitempty"` // what its own state says, in reports
}

// Health is what one state says in reports about several.
type Health struct {
	OK       bool     `json:"ok"`
	Why      []string `json:"why,omitempty"`
	Phase    phase    `json:"phase"`
	Names    int      `json:"names"`    // that are leased
	Denied   uint64   `json:"denied"`   // of its questions
	Requests int      `json:"requests"` // that wait for a person
	Audit    string   `json:"audit"`    // its log
}

// Nobody is what came from the agents' interfaces and from none of them, in the last minutes. Of many, these are some.
type Nobody struct {
	Strangers []netip.Addr `json:"strangers"` // addresses of no agent
	Forged    []netip.Addr `json:"forged"`    // addresses of agents, sent from elsewhere
}

// OfAgent is the directory of one of the agents of a gateway.
func (d Dir) OfAgent(name string) Dir { return Dir(filepath.Join(string(d), AgentsDir, name)) }

// Examine looks at the states of all agents, and returns why not all is well.
func (s *State) Examine(d Dir, now time.Time) (why []string) {
	for i := range s.Agents {
		a := &s.Agents[i]
		var its State
		h := &Health{}
		switch err := d.OfAgent(a.Name).Read(StatusFile, &its); {
		case a.Keeper == 0:
			h.Why = []string{"sealed: " + text.FirstFault(a.Fault)}
		case err != nil:
			h.Why = []string{"starting"}
		default:
			h.OK, h.Why = its.Healthy(now)
			h.Phase, h.Names, h.Denied, h.Requests, h.Audit = its.Phase, its.Leases.Names, its.Guard.Stats.Denied, its.Grants.Requests, its.Audit.File
		}
		a.Health = h
		for _, w := range h.Why {
			why = append(why, a.Name+": "+w)
		}
	}
	return why
}

// writeAgents shows the rows of a gateway that keeps several agents.
func (s *State) writeAgents(row func(name, format string, args ...any)) {
	for i, a := range s.Agents {
		var parts []string
		for _, p := range a.Networks {
			parts = append(parts, strings.TrimSuffix(strings.TrimSuffix(p.String(), "/32"), "/128"))
		}
		what := "sealed"
		if a.Keeper != 0 {
			what = fmt.Sprintf("keeper %d", a.Keeper)
		}
		if h := a.Health; h != nil && a.Keeper != 0 {
			what += fmt.Sprintf("; %s leased, %d denied", text.Counted(h.Names, "name", "names"), h.Denied)
			if h.Requests > 0 {
				what += ", " + text.Counted(h.Requests, "request waits", "requests wait")
			}
		}
		if a.Restarts > 0 {
			what += ", restarted " + text.Times(a.Restarts)
		}
		if a.MAC != "" {
			parts = append(parts, "at "+a.MAC)
		}
		row([]string{"agents", ""}[min(i, 1)], "%s: %s; %s", a.Name, strings.Join(parts, " "), what)
	}
	if n := s.Nobody; n != nil && len(n.Strangers)+len(n.Forged) > 0 {
		row("nobody", "%s of no agent, and %s of an agent's from elsewhere: all refused", text.Counted(len(n.Strangers), "address", "addresses"), text.Counted(len(n.Forged), "address", "addresses"))
	}
	row("", "one of them: agent-init status --agent %s", s.Agents[0].Name)
}
