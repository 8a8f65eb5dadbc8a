package route

// What follows speaks OpenAI's API, each with additions of its own. The judge refuses those that fetch, search or keep.
// Each vendor's reference lists functions as the client's, and nothing else for sure:
//
//   - OpenRouter runs local_shell, shell and bash in a container, also by OpenAI's and Anthropic's types
//     (https://openrouter.ai/docs/guides/features/server-tools/shell)
//   - Mistral: https://docs.mistral.ai/capabilities/function_calling
//   - DeepSeek: https://api-docs.deepseek.com/guides/tool_calls
//   - Groq: https://console.groq.com/docs/tool-use/overview
//   - xAI: https://docs.x.ai/developers/tools/overview

// openrouter is https://openrouter.ai/docs/api/reference/overview (OpenRouterTeam/typescript-sdk, src/models). Closed
// stay keys, credits, generation, files, presets and workspaces.
func openrouter() Route {
	return Route{
		Name:       "openrouter",
		To:         "https://openrouter.ai/",
		Credential: sources("openrouter", "OPENROUTER_API_KEY"),
		Inject:     bearer(),
		// The first two say which program asks, for OpenRouter's rankings.
		Headers: append(openaiHeaders(), "http-referer", "x-title", "anthropic-version", "anthropic-beta"),
		Endpoints: []Endpoint{
			post("/api/v1/chat/completions", Chat),
			post("/api/v1/responses", Responses),
			post("/api/v1/messages", Messages, "beta=true"),
			get("/api/v1/models"),
		},
		Shape:       OpenAIShape,
		ClientTools: functions(),
		TellsUsage:  true, // src/models/chatstreamoptions.ts: "always included"
		Env: map[string]string{
			"OPENROUTER_API_KEY":  "{token}",
			"OPENROUTER_BASE_URL": "{base}/api/v1",
			"OPENROUTER_API_BASE": "{base}/api/v1", // of aider
			"OPENROUTER_HOST":     "{base}",        // of goose
		},
		TokenPrefix: "sk-or-v1-",
	}
}

// mistral is https://docs.mistral.ai/api (mistralai/client-python, docs/models). Closed stay conversations, agents,
// libraries, ocr, files, batch, fine_tuning, connectors and workflows.
func mistral() Route {
	return Route{
		Name:       "mistral",
		To:         "https://api.mistral.ai/",
		Credential: sources("mistral", "MISTRAL_API_KEY"),
		Inject:     bearer(),
		Headers:    openaiHeaders(),
		Endpoints: []Endpoint{
			post("/v1/chat/completions", Chat),
			get("/v1/models"),
			get("/v1/models/*"),
		},
		Shape:       OpenAIShape,
		ClientTools: functions(),
		TellsUsage:  true, // docs/models/completionchunk.md; its requests have no stream_options
		Env: map[string]string{
			"MISTRAL_API_KEY":  "{token}",
			"MISTRAL_BASE_URL": "{base}/v1",
			"MISTRAL_API_BASE": "{base}/v1", // of aider
		},
	}
}

// deepseek is https://api-docs.deepseek.com. Closed stay user/balance and beta.
func deepseek() Route {
	return Route{
		Name:       "deepseek",
		To:         "https://api.deepseek.com/",
		Credential: sources("deepseek", "DEEPSEEK_API_KEY"),
		Inject:     bearer(),
		Headers:    append(openaiHeaders(), "anthropic-version", "anthropic-beta"),
		Endpoints: []Endpoint{
			post("/chat/completions", Chat),
			post("/v1/chat/completions", Chat),
			post("/anthropic/v1/messages", Messages, "beta=true"),
			get("/models"),
			get("/v1/models"),
		},
		Shape:       OpenAIShape,
		ClientTools: functions(),
		Env: map[string]string{
			"DEEPSEEK_API_KEY":  "{token}",
			"DEEPSEEK_BASE_URL": "{base}/v1",
			"DEEPSEEK_API_BASE": "{base}/v1", // of aider
		},
		TokenPrefix: "sk-",
	}
}

// groq is https://console.groq.com/docs/api-reference (groq/groq-python). Closed stay files, batches,
// fine tuning and audio.
func groq() Route {
	return Route{
		Name:       "groq",
		To:         "https://api.groq.com/",
		Credential: sources("groq", "GROQ_API_KEY"),
		Inject:     bearer(),
		Headers:    openaiHeaders(),
		Endpoints: []Endpoint{
			post("/openai/v1/chat/completions", Chat),
			post("/openai/v1/responses", Responses),
			get("/openai/v1/models"),
			get("/openai/v1/models/*"),
		},
		Shape:       OpenAIShape,
		ClientTools: functions(),
		TellsUsage:  true, // src/groq/types/chat/chat_completion_chunk.py, XGroq
		Env: map[string]string{
			"GROQ_API_KEY":  "{token}",
			"GROQ_BASE_URL": "{base}",           // of Groq's SDKs, which add openai/v1
			"GROQ_API_BASE": "{base}/openai/v1", // of aider
			"GROQ_HOST":     "{base}",           // of goose
		},
		TokenPrefix: "gsk_",
	}
}

// xai is https://docs.x.ai/docs/api-reference (xai-org/xai-sdk-python). Closed stay deferred and stored completions,
// files, collections, images, api-key.
func xai() Route {
	return Route{
		Name:       "xai",
		To:         "https://api.x.ai/",
		Credential: sources("xai", "XAI_API_KEY"),
		Inject:     bearer(),
		Headers:    openaiHeaders(),
		Endpoints: []Endpoint{
			post("/v1/chat/completions", Chat),
			post("/v1/responses", Responses),
			get("/v1/models"),
			get("/v1/models/*"),
		},
		Shape:       OpenAIShape,
		ClientTools: functions(),
		Env: map[string]string{
			"XAI_API_KEY":  "{token}",
			"XAI_BASE_URL": "{base}/v1",
			"XAI_API_BASE": "{base}/v1", // of aider
			"XAI_HOST":     "{base}/v1", // of goose
		},
		TokenPrefix: "xai-",
	}
}
