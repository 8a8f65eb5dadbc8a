package judge

import (
	"slices"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/pkg/route"
)

// chatPaths and the like are where each API is at each route that has it.
var (
	chatPaths = map[string]string{
		"openai": "/v1/chat/completions", "azure-openai": "/openai/v1/chat/completions", "openrouter": "/api/v1/chat/completions",
		"mistral": "/v1/chat/completions", "deepseek": "/v1/chat/completions", "groq": "/openai/v1/chat/completions",
		"xai": "/v1/chat/completions", "vllm": "/v1/chat/completions", "ollama": "/v1/chat/completions", "localai": "/v1/chat/completions",
	}
	responsesPaths = map[string]string{
		"openai": "/v1/responses", "chatgpt": "/backend-api/codex/responses", "azure-openai": "/openai/v1/responses",
		"openrouter": "/api/v1/responses", "groq": "/openai/v1/responses", "xai": "/v1/responses", "vllm": "/v1/responses",
		"ollama": "/v1/responses", "localai": "/v1/responses",
	}
	messagesPaths = map[string]string{
		"anthropic": "/v1/messages", "azure-openai": "/anthropic/v1/messages", "openrouter": "/api/v1/messages", "deepseek": "/anthropic/v1/messages",
	}
)

// TestWhoRunsATool tries each type of tool at each route. Only the vendors that say so leave one to the client.
func TestWhoRunsATool(t *testing.T) {
	openais := []string{"openai", "chatgpt", "azure-openai"}
	anthropics := []string{"anthropic", "azure-openai"}
	for _, c := range []struct {
		paths map[string]string
		tool  string
		at    []string // where it passes; nil: at each
	}{
		{chatPaths, `{"type":"function","function":{"name":"f"}}`, nil},
		{responsesPaths, `{"type":"function","name":"f","parameters":{}}`, nil},
		{responsesPaths, `{"type":"custom","name":"f"}`, nil},
		{responsesPaths, `{"type":"namespace","name":"n","tools":[{"type":"function","name":"f"}]}`, nil},
		{responsesPaths, `{"type":"local_shell"}`, openais},
		{responsesPaths, `{"type":"shell","environment":{"type":"local"}}`, openais},
		{responsesPaths, `{"type":"apply_patch"}`, openais},
		{responsesPaths, `{"type":"computer"}`, openais},
		{responsesPaths, `{"type":"tool_search"}`, openais},
		{responsesPaths, `{"type":"shell"}`, []string{}},
		{responsesPaths, `{"type":"shell","environment":{"type":"container_auto"}}`, []string{}},
		{responsesPaths, `{"type":"namespace","name":"n","tools":[{"type":"local_shell"}]}`, openais},
		{chatPaths, `{"type":"local_shell"}`, openais},
		{messagesPaths, `{"name":"f","input_schema":{}}`, nil},
		{messagesPaths, `{"type":"custom","name":"f","input_schema":{}}`, nil},
		{messagesPaths, `{"type":"bash_20250124","name":"bash"}`, anthropics},
		{messagesPaths, `{"type":"text_editor_20250728","name":"str_replace_based_edit_tool"}`, anthropics},
		{messagesPaths, `{"type":"memory_20250818","name":"memory"}`, anthropics},
		{messagesPaths, `{"type":"computer_20251124","name":"computer","display_width_px":1,"display_height_px":1}`, anthropics},
		{messagesPaths, `{"type":"tool","name":"x"}`, []string{}},
		{messagesPaths, `{"type":"*","name":"x"}`, []string{}},
		{messagesPaths, `{"type":"","name":"x"}`, []string{}},
		{responsesPaths, `{"type":"shell:local"}`, []string{}},
		{responsesPaths, `{"type":"openrouter:shell"}`, []string{}},
	} {
		for name, path := range c.paths {
			body := `{"model":"m","messages":[],"tools":[` + c.tool + `]}`
			if strings.HasSuffix(path, "/responses") {
				body = `{"model":"m","input":[{"type":"additional_tools","role":"developer","tools":[` + c.tool + `]}]}`
			}
			a := asked{route: name, path: path, body: body}
			if c.at == nil || slices.Contains(c.at, name) {
				a.passes(t, name+" with "+c.tool, Told{Model: "m", CountsUsage: true})
				a.change = (*route.Route).Elsewhere
				if c.at != nil {
					a.refuses(t, name+" elsewhere with "+c.tool, "")
				}
			} else {
				a.refuses(t, name+" with "+c.tool, "tool")
			}
		}
	}
}

// TestLocalShellHasNoContainer: what says that it is the client's has nothing of a container's.
func TestLocalShellHasNoContainer(t *testing.T) {
	for _, more := range []string{
		`"network_policy":{"type":"allowlist","allowed_domains":["example.org"]}`, `"file_ids":["file-1"]`, `"container_id":"c"`,
		`"memory_limit":"64g"`, `"skills":[{"type":"skill_reference","skill_id":"s"}]`, `"skills":[{"name":"a","path":"b","source":{}}]`, `"Type":"container_auto"`,
	} {
		local := `{"type":"local",` + more + `}`
		responsesOf(`{"model":"m","input":"x","tools":[{"type":"shell","environment":`+local+`}]}`).refuses(t, local, "field")
		responsesOf(`{"model":"m","input":[{"type":"shell_call","call_id":"c","action":{},"environment":`+local+`}]}`).refuses(t, local, "field")
	}
	responsesOf(`{"model":"m","input":"x","tools":[{"type":"shell","environment":"local"}]}`).refuses(t, "a text", "")
	responsesOf(`{"model":"m","input":"x","tools":[{"type":"shell","environment":{"type":"local","skills":[{"name":"a","description":"b","path":"c"}]}}]}`).
		passes(t, "skills of the client's", Told{Model: "m", CountsUsage: true})
}
