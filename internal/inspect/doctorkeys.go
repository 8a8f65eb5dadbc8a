package inspect

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/route"
)

// keysIn are the variables of env by which clients of known APIs take their keys, each with the built-in routes that
// would take its place. A variable that a present route sets holds the broker's token, and no key. Values go nowhere.
func keysIn(env map[string]string, routes []policy.RouteEntry) map[string][]string {
	keys := map[string][]string{}
	for _, name := range route.Names() {
		r, _ := route.Builtin(name)
		for _, variable := range variablesOf(r) {
			if env[variable] != "" {
				keys[variable] = append(keys[variable], name)
			}
		}
	}
	for _, r := range routes {
		for variable := range r.Env {
			if !r.Absent {
				delete(keys, variable)
			}
		}
	}
	return keys
}

// variablesOf are those that hold a key for r.
func variablesOf(r route.Route) (all []string) {
	for _, s := range r.Credential {
		if s.Env != "" {
			all = append(all, s.Env)
		}
	}
	for variable, value := range r.Env {
		if value == "{token}" && !r.Keyless { // servers of one's own are told by variables of others
			all = append(all, variable)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// checkKeys looks for what the broker is there to hold.
func checkKeys(d *Diagnosis, p patient) string {
	for _, variable := range slices.Sorted(maps.Keys(p.keys)) {
		var open []string
		for _, name := range p.keys[variable] {
			if at := openTo(p, name); at != "" {
				open = append(open, at)
			}
		}
		fix := fmt.Sprintf("write the route %s into policy.yaml, as in broker: {%s: {credential: file:/run/secrets/%s}}, and take the variable out",
			p.keys[variable][0], p.keys[variable][0], p.keys[variable][0])
		if open == nil {
			d.warn(fix, "%s is in the agent's environment: all that the agent runs can read that key", variable)
			continue
		}
		d.warn(fix+" of the environment; an entry beside a route says unbrokered", "%s is in the agent's environment, and %s: all that the agent runs can read the key, and send anything there, also under another's key",
			variable, strings.Join(open, ", "))
	}
	return "no key of a known API in the agent's environment"
}

// openTo says which entry opens the host of a built-in route to the agent, or "".
func openTo(p patient, name string) string {
	r, _ := route.Builtin(name)
	to, err := parseSubject(r.To)
	if err != nil || p.inForce == nil {
		return ""
	}
	if ruling := p.inForce.Decide(to.name, to.port); ruling.Allowed {
		return fmt.Sprintf("%s allows %s", ruling.Rule.Source, to.name)
	}
	return ""
}

// unused is how long a broker may be without a request before that is worth a word.
const unused = 15 * time.Minute

// checkBroker looks for a broker that nobody uses, and for credentials that were not taken.
func checkBroker(d *Diagnosis, p patient) string {
	if p.state == nil || p.state.Broker.UID == 0 || len(p.state.Broker.Routes) == 0 { // what is inspected counts as no request here
		return ""
	}
	var requests, refusals uint64
	for _, r := range p.state.Broker.Routes {
		requests, refusals = requests+r.Requests, refusals+r.Refusals
		if r.Fault != "" {
			d.warn("correct what "+r.Source+" names", "the route %s keeps its older credential: %s", r.Name, r.Fault)
		}
	}
	since := p.now.Sub(p.state.Started)
	switch {
	case requests+refusals == 0 && since >= unused:
		d.warn("agent-init explain NAME names the variables that point a program at a route; see its settings", "nobody has asked it in %s: the agent's programs are not pointed at it", text.Shortly(since))
	case requests == 0 && refusals > 0:
		d.warn("see agent-init log", "it has refused all of %s", text.Counted(refusals, "request", "requests"))
	}
	return fmt.Sprintf("%s passed, %d refused", text.Counted(requests, "request", "requests"), refusals)
}
