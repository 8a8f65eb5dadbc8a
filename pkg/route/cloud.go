package route

// azureOpenAI is https://learn.microsoft.com/azure/ai-foundry/openai/reference, and Anthropic's API as Foundry has it.
// The policy says which resource, or by to: https://RESOURCE.services.ai.azure.com/. Closed stay what manages, files,
// and "on your data" by its own path.
func azureOpenAI() Route {
	return Route{
		Name:       "azure-openai",
		To:         "https://{resource}.openai.azure.com/",
		Credential: sources("azure-openai", "AZURE_OPENAI_API_KEY"),
		Inject:     Inject{Header: "api-key", Value: "{}"},
		Headers:    append(openaiHeaders(), "anthropic-version", "anthropic-beta"),
		Endpoints: []Endpoint{
			post("/openai/v1/responses", Responses, "api-version"),
			post("/openai/v1/chat/completions", Chat, "api-version"),
			get("/openai/v1/models", "api-version"),
			post("/openai/responses", Responses, "api-version"),
			post("/openai/deployments/*/chat/completions", Chat, "api-version"),
			post("/anthropic/v1/messages", Messages, "beta=true"),
			post("/anthropic/v1/messages/count_tokens", CountMessages, "beta=true"),
		},
		Shape:       OpenAIShape,
		ClientTools: append(openaiTools(), anthropicTools()...),
		Env: map[string]string{
			"AZURE_OPENAI_ENDPOINT": "{base}", // of OpenAI's SDKs and goose
			"AZURE_OPENAI_API_KEY":  "{token}",
			"AZURE_API_BASE":        "{base}", // of aider
			"AZURE_API_KEY":         "{token}",
		},
	}
}

// bedrock is https://docs.aws.amazon.com/bedrock/latest/APIReference/API_Operations_Amazon_Bedrock_Runtime.html with a
// key of its own (https://docs.aws.amazon.com/bedrock/latest/userguide/api-keys.html), not signed requests. Closed stay
// async-invoke, which writes to a bucket, guardrails, and count-tokens, whose body holds another in base64.
func bedrock() Route {
	return Route{
		Name:       "bedrock",
		To:         "https://bedrock-runtime.{region}.amazonaws.com/",
		Credential: sources("bedrock", "AWS_BEARER_TOKEN_BEDROCK"),
		Inject:     bearer(),
		Headers:    []string{"anthropic-version", "anthropic-beta", "x-stainless-*", "x-app"},
		Endpoints: []Endpoint{
			post("/model/*/converse", Converse),
			post("/model/*/converse-stream", Converse),
			post("/model/*/invoke", InvokeModel),
			post("/model/*/invoke-with-response-stream", InvokeModel),
		},
		Shape:       PlainShape,
		ClientTools: anthropicTools(),
		Env: map[string]string{
			"AWS_BEARER_TOKEN_BEDROCK":         "{token}",
			"AWS_ENDPOINT_URL_BEDROCK_RUNTIME": "{base}", // of AWS's SDKs
			"ANTHROPIC_BEDROCK_BASE_URL":       "{base}", // of Claude Code
		},
		Harmless: []Endpoint{get("/inference-profiles")}, // of Claude Code, which then takes the models that it knows
	}
}
