package judge

import (
	"slices"
	"strings"

	"github.com/agent-init/agent-init/pkg/route"
)

// moreThanModels are names of models that search, fetch or run something by themselves, or that stand for what the
// provider keeps: patterns in lower case.
var moreThanModels = []string{
	"*search-preview*", "*search-api*", "*deep-research*", // OpenAI's
	"*:online", "*:online:*", "*@preset/*", "openrouter/*", // OpenRouter's: with a search, a stored request, routers
	"compound*", "*/compound*", // Groq's, which search, browse and run code
	"sonar*", "perplexity/*", // Perplexity's
	"ag:*",  // Mistral's agents, which have tools of their own
	"*://*", // what LocalAI gets from elsewhere
}

// searches says whether a model is more than one, and the route does not name it exactly.
func (q *request) searches(model string) bool {
	return route.Match(moreThanModels, strings.ToLower(model)) && !q.listed(model)
}

// listed says whether the route's list has a model by its exact name.
func (q *request) listed(model string) bool { return slices.Contains(q.route.Models, model) }
