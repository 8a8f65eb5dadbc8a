package route

// anthropic is the Messages API: https://docs.claude.com/en/api/messages. Closed stay, on the same host and with the
// same key: files, batches, skills, agents, sessions, vaults, organizations, /api, and oauth/token, which mints tokens.
func anthropic() Route {
	return Route{
		Name:       "anthropic",
		To:         "https://api.anthropic.com/",
		Credential: sources("anthropic", "ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"),
		Inject: Inject{
			Header: "x-api-key", Value: "{}",
			// What `claude setup-token` prints is an OAuth token. The API takes it as a bearer's, and with this beta alone
			// (anthropic-sdk-typescript, src/client.ts, OAUTH_API_BETA_HEADER).
			ByPrefix: []Prefixed{{
				Prefix: "sk-ant-oat", Header: "authorization", Value: "Bearer {}",
				Append: []Header{{Name: "anthropic-beta", Value: "oauth-2025-04-20"}},
			}},
		},
		// Not in the list: anthropic-workspace-id and anthropic-user-profile-id, which choose who pays.
		Headers: []string{
			"anthropic-version", "anthropic-beta", "anthropic-dangerous-direct-browser-access",
			"x-stainless-*", "x-app", "x-client-request-id",
			"x-claude-code-session-id", "x-claude-code-agent-id", "x-claude-code-parent-agent-id",
		},
		Endpoints: []Endpoint{
			post("/v1/messages", Messages, "beta=true"),
			post("/v1/messages/count_tokens", CountMessages, "beta=true"),
			get("/v1/models", "beta=true", "limit", "after_id", "before_id"),
			get("/v1/models/*", "beta=true"),
		},
		Shape:       AnthropicShape,
		ClientTools: anthropicTools(),
		Env: map[string]string{
			"ANTHROPIC_BASE_URL":   "{base}",
			"ANTHROPIC_AUTH_TOKEN": "{token}", // Claude Code asks no question about it, as it does about ANTHROPIC_API_KEY
			"ANTHROPIC_API_BASE":   "{base}",  // of aider
			"ANTHROPIC_HOST":       "{base}",  // of goose
			"ENABLE_TOOL_SEARCH":   "true",    // of Claude Code, which may leave it out where the address is not Anthropic's
		},
		TokenPrefix:  "sk-ant-",
		LoginHost:    "platform.claude.com", // Claude Code 2.1.330
		Harmless:     []Endpoint{{Method: "HEAD", Path: "/"}, {Method: "HEAD", Path: "/api/hello"}},
		TenantHeader: "anthropic-allowed-org-ids", // https://support.claude.com/en/articles/13198485
	}
}
