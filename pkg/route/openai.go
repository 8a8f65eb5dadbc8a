package route

// openai is Responses and Chat Completions: https://developers.openai.com/api/reference. Closed stay, on the same host
// and with the same key: alpha/search, by which Codex has the provider open any address, stored responses, files,
// conversations, containers, vector stores, images, realtime, and the organization's own.
func openai() Route {
	r := compatible("openai", "https://api.openai.com/", "OPENAI_API_KEY", "CODEX_API_KEY")
	r.Endpoints = []Endpoint{
		post("/v1/responses", Responses),
		post("/v1/chat/completions", Chat),
		get("/v1/models", "client_version"),
		get("/v1/models/*"),
	}
	r.ClientTools = openaiTools()
	r.Env = openaiEnv("{base}/v1")
	r.TokenPrefix = "sk-"
	// Codex first tries a WebSocket, and posts when it is refused.
	r.Harmless = []Endpoint{get("/v1/responses")}
	// https://developers.openai.com/api/docs/guides/organization-blocking
	r.TenantHeader = "openai-allowed-organization-ids"
	return r
}

// chatgpt is what Codex asks with the login of a ChatGPT plan: codex-rs/core/src/client.rs and
// codex-rs/backend-client/src/client.rs of github.com/openai/codex. The account is the login's, whatever Codex says.
func chatgpt() Route {
	return Route{
		Name:       "chatgpt",
		To:         "https://chatgpt.com/",
		Credential: []Source{{Login: "/var/lib/agent-init/logins/chatgpt.json"}},
		Inject:     bearer(),
		Headers:    openaiHeaders(),
		Endpoints: []Endpoint{
			post("/backend-api/codex/responses", Responses),
			get("/backend-api/codex/models", "client_version"),
			get("/backend-api/wham/accounts/check"),
			get("/backend-api/wham/settings/user"),
		},
		Shape:       OpenAIShape,
		ClientTools: openaiTools(),
		Harmless:    []Endpoint{get("/backend-api/codex/responses")}, // the WebSocket
		LoginHost:   "auth.openai.com",
	}
}

// openaiHeaders are what OpenAI's SDKs and Codex send. Not in the list: openai-organization, openai-project and
// chatgpt-account-id, which choose who pays.
func openaiHeaders() []string {
	return []string{
		"openai-beta", "originator", "version", "session-id", "session_id", "thread-id", "x-client-request-id",
		"x-codex-*", "x-openai-internal-codex-responses-lite", "x-stainless-*",
	}
}

// openaiEnv points the clients of OpenAI's API at base, which ends in its version.
func openaiEnv(base string) map[string]string {
	return map[string]string{
		"OPENAI_BASE_URL": base,
		"OPENAI_API_KEY":  "{token}",
		"OPENAI_API_BASE": base,     // of aider
		"OPENAI_HOST":     "{base}", // of goose, which adds the rest
	}
}
