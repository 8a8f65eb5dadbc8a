package report

import (
	"cmp"
	"slices"
	"time"

	"github.com/agent-init/agent-init/pkg/audit"
)

const (
	maxRoutes = 64
	maxModels = 64 // of a route. The agent names them
)

// Route is what went through one route of the broker.
type Route struct {
	Name      string  `json:"name"`
	To        string  `json:"to,omitempty"`
	Source    string  `json:"source,omitempty"` // of its credential, as the policy says it
	Key       few     `json:"fingerprints"`     // of the credentials that were used
	Requests  uint64  `json:"requests"`
	Refused   uint64  `json:"refused"`
	Failed    uint64  `json:"failed"` // that the API answered with a status of 400 or more
	Out       uint64  `json:"bytes_out"`
	In        uint64  `json:"bytes_in"`
	TokensIn  uint64  `json:"tokens_in"`
	TokensOut uint64  `json:"tokens_out"`
	Models    []Model `json:"models"`
	Cost      *Cost   `json:"cost,omitempty"` // left out without prices

	models *folded[Model]
	first  time.Time
}

// Model is the share of one model.
type Model struct {
	Name      string   `json:"name"`
	Requests  uint64   `json:"requests"`
	TokensIn  uint64   `json:"tokens_in"`
	TokensOut uint64   `json:"tokens_out"`
	Cost      *float64 `json:"cost,omitempty"` // left out if no price is known
}

func (t *tally) route(e audit.Event) {
	n := 1 + e.Suppressed
	r := t.routes.of(e.Route, func() *Route {
		weight := func(m *Model) uint64 { return m.Requests + m.TokensIn + m.TokensOut }
		return &Route{Name: e.Route, first: e.Time, models: newFolded(maxModels, weight)}
	})
	if e.Verdict != audit.Allow {
		r.Refused += n
	} else {
		r.Requests += n
		r.Key.add(e.Key)
	}
	if e.Verdict == audit.Allow && e.Status >= 400 {
		r.Failed += n
	}
	r.Out, r.In = r.Out+e.Out, r.In+e.In
	r.TokensIn, r.TokensOut = r.TokensIn+e.TokensIn, r.TokensOut+e.TokensOut
	t.totals.TokensIn, t.totals.TokensOut = t.totals.TokensIn+e.TokensIn, t.totals.TokensOut+e.TokensOut
	if e.Model == "" || e.Verdict != audit.Allow {
		return
	}
	m := r.models.of(e.Model, func() *Model { return &Model{Name: e.Model} })
	m.Requests += n
	m.TokensIn, m.TokensOut = m.TokensIn+e.TokensIn, m.TokensOut+e.TokensOut
}

// routesOf are the routes by name, each with its models, and those of the policy that nobody used.
func (t *tally) routesOf() []Route {
	list, _ := t.routes.list()
	for i := range list {
		list[i].Models, _ = list[i].models.list()
	}
	for _, e := range t.policy.RouteEntries() {
		i := slices.IndexFunc(list, func(r Route) bool { return r.Name == e.Name })
		if i < 0 {
			i = len(list)
			list = append(list, Route{Name: e.Name, Models: []Model{}})
		}
		list[i].To, list[i].Source = cmp.Or(e.Inspects, e.To), e.Source
	}
	slices.SortFunc(list, func(a, b Route) int { return cmp.Compare(a.Name, b.Name) })
	return list
}
