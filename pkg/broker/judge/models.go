package judge

import (
	"slices"

	"github.com/agent-init/agent-init/pkg/route"
)

// searches says whether a model is more than one, and the route does not name it exactly.
func (q *request) searches(model string) bool {
	return route.MoreThanModel(model) && !q.listed(model)
}

// listed says whether the route's list has a model by its exact name.
func (q *request) listed(model string) bool { return slices.Contains(q.route.Models, model) }
