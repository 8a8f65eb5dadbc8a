package judge

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/pkg/route"
)

// finder looks for what a provider would fetch, run or keep, in what encoding/json has read. It knows no grammar: only the
// names below which a client may write what it likes.
type finder struct {
	opaque   []string // names, folded
	settings []string // likewise of what has no tools in it, so that a type there is none of a tool's
	types    []string // what the types of what the provider runs have in them
	tools    []string // members of a tool that the provider runs, folded
	places   []string // members that name what is fetched or kept, folded
	inside   []string // members that may have content in themselves, and then begin with data:, folded
}

// find says what it has found, and where.
func (f finder) find(v any) string {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			if found := f.find(item); found != "" {
				return found
			}
		}
	case map[string]any:
		kind, _ := v["type"].(string)
		for _, t := range f.types {
			if strings.Contains(kind, t) && kind != "web_search_call" {
				return "the type " + kind
			}
		}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if found := f.findIn(name, v[name]); found != "" {
				return name + ", " + found
			}
		}
	}
	return ""
}

func (f finder) findIn(name string, member any) string {
	as := folded(name)
	if member == nil || slices.Contains(f.opaque, as) {
		return ""
	}
	text, isText := member.(string)
	switch {
	case slices.Contains(f.places, as) || slices.Contains(f.tools, as):
		return fmt.Sprint(member)
	case slices.Contains(f.inside, as) && isText && !strings.HasPrefix(text, "data:"):
		return fmt.Sprintf("%q", text)
	case slices.Contains(f.settings, as):
		f.types = nil
	}
	return f.find(member)
}

var openaiFinder = finder{
	opaque: []string{
		"function", "functions", "custom", "format", "parameters", "inputschema", "outputschema", "text", "responseformat", "metadata",
		"clientmetadata", "internalchatmessagemetadatapassthrough", "arguments", "action", "actions", "operation", "annotations", "logprobs",
		"reasoningdetails", "thinkingblocks", "functioncall", "acknowledgedsafetychecks", "pendingsafetychecks", "stop", "extracontent",
	},
	settings: []string{"cachecontrol", "copilotcachecontrol", "promptcachebreakpoint", "reasoning", "streamoptions", "include", "caller", "imageurl", "file", "inputaudio"},
	types: []string{
		"search_preview", "web_search", "file_search", "code_interpreter", "code_execution", "image_generation", "mcp", "programmatic", "openrouter:",
		"item_reference", "connector", "document_library", "browser", "x_search", "container", "program",
	},
	tools:  []string{"websearchoptions", "searchparameters", "mcpservers", "datasources"},
	places: []string{"fileurl", "fileid", "serverurl", "prompt", "previousresponseid", "conversation", "vectorstoreids", "containerid", "connectorid", "apibase"},
	inside: []string{"imageurl", "videourl", "audiourl", "documenturl", "filedata", "url"},
}

var googleFinder = finder{
	opaque: []string{"args", "functioncall", "response", "responseschema", "responsejsonschema", "responseformat", "functiondeclarations", "labels",
		"partmetadata", "executablecode", "codeexecutionresult", "toolcall", "toolresponse", "audiotranscription", "stopsequences"},
	settings: []string{"toolconfig", "safetysettings", "videometadata", "mediaresolution"},
	tools: []string{"googlesearch", "googlesearchretrieval", "urlcontext", "codeexecution", "googlemaps", "filesearch", "mcpservers", "retrieval",
		"enterprisewebsearch", "exaaisearch", "parallelaisearch"},
	places: []string{"filedata", "fileuri", "cachedcontent", "continuationtoken", "routingconfig"},
}

var converseFinder = finder{
	opaque: []string{"tooluse", "json", "toolspec", "requestmetadata", "outputconfig", "citationscontent", "reasoningcontent", "additionalmodelresponsefieldpaths"},
	tools:  []string{"systemtool", "mcpservers"},
	places: []string{"s3location", "uri", "promptvariables"},
}

// fuzzRelays fuzzes what a route makes of bodies, by seeds.
func fuzzRelays(f *testing.F, a asked, finder finder, model string, seeds ...string) {
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	for _, s := range clients(f) {
		if s.Route == a.route {
			f.Add([]byte(s.Body))
		}
	}
	r, e, path := a.endpoint(f)
	r.Models = []string{"m", "gpt-*", "gemini-*", "*anthropic*"}
	f.Fuzz(func(t *testing.T, body []byte) {
		kept := bytes.Clone(body)
		told, refusal := Body(r, e, path, body)
		if !bytes.Equal(kept, body) {
			t.Error("the body was changed")
		}
		if refusal != nil {
			if told != (Told{}) || refusal.What == "" || refusal.Text == "" {
				t.Errorf("%q is refused by %+v and tells %+v", body, refusal, told)
			}
			return
		}
		top, ok := second(t, body).(map[string]any)
		if !ok {
			t.Fatalf("%q passes", body)
		}
		want := model
		if model == "" {
			want, _ = top["model"].(string)
		}
		if told.Model != want || !route.Match(r.Models, told.Model) || model == "" && told.Stream != (top["stream"] == true) {
			t.Errorf("%q tells %+v", body, told)
		}
		if found := finder.find(top); found != "" {
			t.Errorf("%q passes with %s", body, found)
		}
	})
}

func FuzzResponses(f *testing.F) {
	seeds := []string{with(codexFrame, ""), `{"model":"m","input":[{"id":"msg_1"}]}`, `{"model":"m","input":"x","previous_response_id":"r","background":true}`}
	for _, tool := range providersTools {
		seeds = append(seeds, with(`{"model":"m","input":[{"type":"additional_tools","tools":[{"type":"namespace","tools":[%s]}]}]}`, tool))
	}
	for _, address := range addresses {
		seeds = append(seeds, with(`{"model":"m","input":[{"type":"custom_tool_call_output","output":[{"type":"input_file","file_data":%s}]}]}`, address))
	}
	fuzzRelays(f, responsesOf(""), openaiFinder, "", seeds...)
}

func FuzzChat(f *testing.F) {
	seeds := []string{with(chatTurns, ""), `{"model":"m","messages":[],"web_search_options":{},"plugins":[{"id":"web"}]}`,
		`{"model":"m","messages":[],"tool_choice":{"type":"allowed_tools","allowed_tools":{"tools":[{"type":"mcp"}]}}}`}
	for _, tool := range providersTools {
		seeds = append(seeds, with(`{"model":"m","messages":[],"tools":[%s]}`, tool))
	}
	for _, address := range addresses {
		seeds = append(seeds, with(`{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":%s}]}]}`, address))
	}
	fuzzRelays(f, chatOf(""), openaiFinder, "", seeds...)
}

func FuzzGenerate(f *testing.F) {
	fuzzRelays(f, generateOf(""), googleFinder, "gemini-3.8-flash", geminiCLI,
		`{"contents":{"parts":{"file_data":{"file_uri":"https://example.org"}}},"tools":{"url_context":{},"functionDeclarations":{}}}`,
		`{"system_instruction":{"parts":[{"function_response":{"parts":[{"fileData":{}}]}}]},"cached_content":"x","model":"models/gemini-3.8-flash"}`)
}

func FuzzConverse(f *testing.F) {
	fuzzRelays(f, converseOf(""), converseFinder, claudeOnBedrock, converseTurns,
		`{"messages":[{"content":[{"toolResult":{"content":[{"video":{"source":{"s3Location":{"uri":"s3://b/x"}}}}]}}]}]}`,
		`{"messages":[],"toolConfig":{"tools":[{"systemTool":{"name":"nova_grounding"}}]},"additionalModelRequestFields":{"mcp_servers":[]}}`)
}

// TestFindersNotice shows that the fuzz targets' own judges let what is good pass, and not everything.
func TestFindersNotice(t *testing.T) {
	for body, f := range map[string]finder{
		with(codexFrame, ""): openaiFinder, with(chatTurns, ""): openaiFinder, geminiCLI: googleFinder, converseTurns: converseFinder,
	} {
		if found := f.find(second(t, []byte(body))); found != "" {
			t.Errorf("%.60s… has %s", body, found)
		}
	}
	for body, f := range map[string]finder{
		`{"input":[{"tools":[{"type":"web_search"}]}]}`: openaiFinder, `{"a":[{"image_url":{"url":"https://example.org"}}]}`: openaiFinder,
		`{"a":{"IMAGE_URL":"http://x"}}`: openaiFinder, `{"previous_response_id":"r"}`: openaiFinder,
		`{"a":{"file_data":{}}}`: googleFinder, `{"tools":{"url_context":{}}}`: googleFinder,
		`{"a":{"source":{"s3Location":{}}}}`: converseFinder,
	} {
		if f.find(second(t, []byte(body))) == "" {
			t.Errorf("nothing is found in %s", body)
		}
	}
}

// folded is what names have in common that differ in case, hyphens and underscores at most.
func folded(name string) string {
	return strings.ToLower(strings.NewReplacer("_", "", "-", "").Replace(name))
}
