package judge

import (
	"encoding/json"
	"testing"
)

// grafts are values that a provider would fetch, run or keep something by, somewhere.
var grafts = []string{
	`"https://example.org"`, `{"url":"https://example.org"}`, `[{"type":"web_search"}]`, `{"type":"web_search"}`,
	`{"type":"mcp","server_url":"https://example.org"}`, `[{"type":"input_image","image_url":"https://example.org"}]`,
	`{"type":"input_file","file_id":"file-1"}`, `[{"type":"image_url","image_url":{"url":"https://example.org"}}]`,
	`[{"type":"additional_tools","tools":[{"type":"web_search"}]}]`, `[{"type":"item_reference","id":"x"}]`, `[{"id":"x"}]`,
	`{"fileData":{"fileUri":"https://example.org"}}`, `[{"file_data":{"file_uri":"https://example.org"}}]`, `{"parts":{"fileData":{}}}`,
	`{"urlContext":{}}`, `[{"google_search":{}}]`, `{"functionDeclarations":[],"googleSearch":{}}`,
	`{"s3Location":{"uri":"s3://b/x"}}`, `{"source":{"s3Location":{"uri":"s3://b/x"}}}`, `[{"image":{"source":{"s3Location":{}}}}]`,
	`[{"systemTool":{"name":"nova_grounding"}}]`, `{"type":"container_auto"}`, `true`, `1`,
}

// graftNames are names of members that do so.
var graftNames = []string{
	"type", "Type", "tools", "Tools", "image_url", "imageUrl", "file_url", "file_id", "file_data", "url", "URL", "server_url", "prompt",
	"previous_response_id", "conversation", "background", "web_search_options", "search_parameters", "plugins", "data_sources", "mcp_servers",
	"fileData", "fileUri", "cachedContent", "cached_content", "googleSearch", "url_context", "parts", "contents", "content", "output", "source",
	"s3Location", "systemTool", "environment", "container", "functionResponse", "generateContentRequest", "input", "messages", "message_of_2028",
}

// TestGraftedRelays puts each of them at each place of requests that pass: as a value, and as another member. What passes
// then has them where a client may write what it likes, and nowhere else.
func TestGraftedRelays(t *testing.T) {
	count, faults := map[bool]int{}, map[string]int{}
	for _, c := range []struct {
		asked
		finder
		body string
	}{
		{responsesOf(""), openaiFinder, with(codexFrame, "")},
		{chatOf(""), openaiFinder, with(chatTurns, `,"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"allowed_tools",
			"allowed_tools":{"tools":[{"type":"function"}]}},"reasoning":{"effort":"low"},"stream_options":{"include_usage":true}`)},
		{generateOf(""), googleFinder, geminiCLI},
		{asked{route: "gemini", path: countPath}, googleFinder, `{"generateContentRequest":` + geminiCLI + `}`},
		{converseOf(""), converseFinder, converseTurns},
	} {
		r, e, path := c.endpoint(t)
		try := func(root any) {
			body, err := json.Marshal(root)
			if err != nil {
				t.Fatal(err)
			}
			_, refusal := Body(r, e, path, body)
			count[refusal == nil]++
			if found := c.find(second(t, body)); refusal == nil && found != "" {
				faults[found]++
			}
		}
		root := second(t, []byte(c.body))
		try(root)
		eachPlace(root, func(any) {}, func(set func(any), old any) {
			for _, graft := range grafts {
				set(second(t, []byte(graft)))
				try(root)
			}
			set(old)
			object, ok := old.(map[string]any)
			if !ok {
				return
			}
			for _, name := range graftNames {
				if _, has := object[name]; has {
					continue
				}
				for _, graft := range grafts[:3] {
					object[name] = second(t, []byte(graft))
					try(root)
				}
				delete(object, name)
			}
		})
	}
	for fault, n := range faults {
		t.Errorf("%d requests pass with %s", n, fault)
	}
	if count[true] < 100 || count[false] < 10000 {
		t.Errorf("%d pass and %d do not", count[true], count[false])
	}
}

// eachPlace visits each value below one, with what sets it.
func eachPlace(v any, set func(any), visit func(set func(any), old any)) {
	switch v := v.(type) {
	case []any:
		for i, item := range v {
			eachPlace(item, func(to any) { v[i] = to }, visit)
		}
	case map[string]any:
		for name, member := range v {
			eachPlace(member, func(to any) { v[name] = to }, visit)
		}
	}
	visit(set, v)
}
