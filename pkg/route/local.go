package route

// localai, vllm and ollama are servers of one's own, of which the API of OpenAI's passes and no other: not what pulls,
// loads, adds or deletes models. The policy says where. They want no key unless the policy names one.
func localai() Route { return local("localai") } // https://localai.io/docs
func vllm() Route    { return local("vllm") }    // https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html
func ollama() Route  { return local("ollama") }  // https://docs.ollama.com/api/openai-compatibility

func local(name string) Route {
	return Route{
		Name:    name,
		Keyless: true,
		Inject:  bearer(),
		Headers: openaiHeaders(),
		Endpoints: []Endpoint{
			post("/v1/chat/completions", Chat),
			post("/v1/responses", Responses),
			get("/v1/models"),
			get("/v1/models/*"),
		},
		Shape:       OpenAIShape,
		ClientTools: functions(), // vLLM runs a code_interpreter, a browser and a container of its own, if it has them
		Env:         openaiEnv("{base}/v1"),
		TokenPrefix: "sk-",
	}
}
