package route

import "strings"

// moreThanModels are names of models that search, fetch or run something by themselves, or that stand for what the
// provider keeps: patterns in lower case.
var moreThanModels = []string{
	"*search-preview*", "*search-api*", "*deep-research*", // OpenAI's
	"*:online", "*:online:*", "*@preset/*", "openrouter/*", // OpenRouter's: with a search, a stored request, routers
	"compound*", "*/compound*", // Groq's, which search, browse and run code
	"sonar*", "perplexity/*", // Perplexity's
	"ag:*",                 // Mistral's agents, which have tools of their own
	"*://*",                // what LocalAI gets from elsewhere
	"*:cloud", "*:*-cloud", // Ollama's, which its server asks of ollama.com (its internal/modelref)
}

// MoreThanModel says whether a model is such a name. A route lets it pass with its exact name in Models, and not by a pattern.
func MoreThanModel(name string) bool { return Match(moreThanModels, strings.ToLower(name)) }
