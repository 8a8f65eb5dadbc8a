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

// compatible is a route to an API that is OpenAI's in its form. The keys are variables of the API's clients.
func compatible(name, to string, keys ...string) Route {
	return Route{
		Name: name, To: to, Credential: sources(name, keys...), Inject: bearer(), Headers: openaiHeaders(),
		Shape: OpenAIShape, ClientTools: functions(),
	}
}

// openrouter is https://openrouter.ai/docs/api/reference/overview (OpenRouterTeam/typescript-sdk, src/models). Closed
// stay keys, credits, generation, files, presets and workspaces.
func openrouter() Route {
	r := compatible("openrouter", "https://openrouter.ai/", "OPENROUTER_API_KEY")
	// The first two say which program asks, for OpenRouter's rankings.
	r.Headers = append(r.Headers, "http-referer", "x-title", "anthropic-version", "anthropic-beta")
	r.Endpoints = []Endpoint{
		post("/api/v1/chat/completions", Chat),
		post("/api/v1/responses", Responses),
		post("/api/v1/messages", Messages, "beta=true"),
		get("/api/v1/models"),
	}
	r.TellsUsage = true // src/models/chatstreamoptions.ts: "always included"
	r.Env = map[string]string{
		"OPENROUTER_API_KEY":  "{token}",
		"OPENROUTER_BASE_URL": "{base}/api/v1",
		"OPENROUTER_API_BASE": "{base}/api/v1", // of aider
		"OPENROUTER_HOST":     "{base}",        // of goose
	}
	r.TokenPrefix = "sk-or-v1-"
	return r
}

// mistral is https://docs.mistral.ai/api (mistralai/client-python, docs/models). Closed stay conversations, agents,
// libraries, ocr, files, batch, fine_tuning, connectors and workflows.
func mistral() Route {
	r := compatible("mistral", "https://api.mistral.ai/", "MISTRAL_API_KEY")
	r.Endpoints = []Endpoint{
		post("/v1/chat/completions", Chat),
		get("/v1/models"),
		get("/v1/models/*"),
	}
	r.TellsUsage = true // docs/models/completionchunk.md; its requests have no stream_options
	r.Env = map[string]string{
		"MISTRAL_API_KEY":  "{token}",
		"MISTRAL_BASE_URL": "{base}/v1",
		"MISTRAL_API_BASE": "{base}/v1", // of aider
	}
	return r
}

// deepseek is https://api-docs.deepseek.com. Closed stay user/balance and beta.
func deepseek() Route {
	r := compatible("deepseek", "https://api.deepseek.com/", "DEEPSEEK_API_KEY")
	r.Headers = append(r.Headers, "anthropic-version", "anthropic-beta")
	r.Endpoints = []Endpoint{
		post("/chat/completions", Chat),
		post("/v1/chat/completions", Chat),
		post("/anthropic/v1/messages", Messages, "beta=true"),
		get("/models"),
		get("/v1/models"),
	}
	r.Env = map[string]string{
		"DEEPSEEK_API_KEY":  "{token}",
		"DEEPSEEK_BASE_URL": "{base}/v1",
		"DEEPSEEK_API_BASE": "{base}/v1", // of aider
	}
	r.TokenPrefix = "sk-"
	return r
}

// groq is https://console.groq.com/docs/api-reference (groq/groq-python). Closed stay files, batches,
// fine tuning and audio.
func groq() Route {
	r := compatible("groq", "https://api.groq.com/", "GROQ_API_KEY")
	r.Endpoints = []Endpoint{
		post("/openai/v1/chat/completions", Chat),
		post("/openai/v1/responses", Responses),
		get("/openai/v1/models"),
		get("/openai/v1/models/*"),
	}
	r.TellsUsage = true // src/groq/types/chat/chat_completion_chunk.py, XGroq
	r.Env = map[string]string{
		"GROQ_API_KEY":  "{token}",
		"GROQ_BASE_URL": "{base}",           // of Groq's SDKs, which add openai/v1
		"GROQ_API_BASE": "{base}/openai/v1", // of aider
		"GROQ_HOST":     "{base}",           // of goose
	}
	r.TokenPrefix = "gsk_"
	return r
}

// xai is https://docs.x.ai/docs/api-reference (xai-org/xai-sdk-python). Closed stay deferred and stored completions,
// files, collections, images, api-key.
func xai() Route {
	r := compatible("xai", "https://api.x.ai/", "XAI_API_KEY")
	r.Endpoints = []Endpoint{
		post("/v1/chat/completions", Chat),
		post("/v1/responses", Responses),
		get("/v1/models"),
		get("/v1/models/*"),
	}
	r.Env = map[string]string{
		"XAI_API_KEY":  "{token}",
		"XAI_BASE_URL": "{base}/v1",
		"XAI_API_BASE": "{base}/v1", // of aider
		"XAI_HOST":     "{base}/v1", // of goose
	}
	r.TokenPrefix = "xai-"
	return r
}
