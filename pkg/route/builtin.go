package route

import "slices"

// Builtin is the route of that name as it is without a policy's changes. To is empty where
// only the policy can say it, and has {resource} or {region} where the policy says that.
func Builtin(name string) (Route, bool) {
	for _, r := range builtins() {
		if r.Name == name {
			return r, true
		}
	}
	return Route{}, false
}

// Names are the names of the built-in routes, in the order of the docs.
func Names() []string {
	var names []string
	for _, r := range builtins() {
		names = append(names, r.Name)
	}
	return names
}

// APIs are what a server of one's own may speak, in the order of the docs.
func APIs() []string {
	return append([]string{"openai", "anthropic", "gemini", "git"}, Registries()...)
}

// OfAPI is the base of a route of one's own that speaks api: neither where it leads nor what its credential is.
func OfAPI(api string) (Route, bool) {
	if !slices.Contains(APIs(), api) {
		return Route{}, false
	}
	r, ok := Builtin(api)
	r.To, r.Credential, r.TenantHeader = "", nil, ""
	r.Elsewhere()
	return r, ok
}

// builtins makes them anew at each call, so that nobody changes another's.
func builtins() []Route {
	return []Route{
		anthropic(), openai(), chatgpt(), azureOpenAI(), gemini(),
		openrouter(), mistral(), deepseek(), groq(), xai(), bedrock(),
		localai(), vllm(), ollama(),
		github(), gitlab(), bitbucket(), gitea(), git(),
		npm(), pypi(), golang(), crates(), maven(),
	}
}

// sources are where a credential is by default: a secret of the route's name, as Docker, Compose and Podman mount them,
// or the variables that the API's clients read.
func sources(name string, variables ...string) []Source {
	from := []Source{{File: "/run/secrets/" + name}}
	for _, v := range variables {
		from = append(from, Source{Env: v})
	}
	return from
}

// get and post are endpoints.
func get(path string, query ...string) Endpoint {
	return Endpoint{Method: "GET", Path: path, Query: query}
}

func post(path string, body Body, query ...string) Endpoint {
	return Endpoint{Method: "POST", Path: path, Query: query, Body: body}
}

// bearer puts a credential on as RFC 6750 has it.
func bearer() Inject {
	return Inject{Header: "authorization", Value: "Bearer {}"}
}
