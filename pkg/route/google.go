package route

// gemini is generateContent: https://ai.google.dev/api/generate-content. Closed stay, on the same host and with the
// same key: interactions, files, uploads, cachedContents, fileSearchStores, batches, agents, and what
// speaks OpenAI's API.
func gemini() Route {
	r := Route{
		Name:       "gemini",
		To:         "https://generativelanguage.googleapis.com/",
		Credential: sources("gemini", "GEMINI_API_KEY"), // GOOGLE_API_KEY may be a key to Vertex AI
		Inject:     Inject{Header: "x-goog-api-key", Value: "{}"},
		// Not in the list: x-goog-user-project, which chooses who pays, and parameters of the system that are headers too
		// (https://cloud.google.com/apis/docs/system-parameters).
		Headers:     []string{"x-goog-api-client", "x-server-timeout"},
		Shape:       GeminiShape,
		ClientTools: append(functions(), "computerUse"), // https://ai.google.dev/gemini-api/docs/computer-use
		Env: map[string]string{
			"GOOGLE_GEMINI_BASE_URL": "{base}",
			"GEMINI_API_KEY":         "{token}",
			"GOOGLE_HOST":            "{base}", // of goose
		},
		TokenPrefix: "AIza",
	}
	// No other parameter: key, access_token, callback, $alt and the like are the system's.
	for _, version := range []string{"/v1beta", "/v1"} {
		r.Endpoints = append(r.Endpoints,
			post(version+"/models/*:generateContent", Generate),
			post(version+"/models/*:streamGenerateContent", Generate, "alt=sse"),
			post(version+"/models/*:countTokens", CountGenerate),
			get(version+"/models", "pageSize", "pageToken"),
			get(version+"/models/*"),
		)
	}
	return r
}
