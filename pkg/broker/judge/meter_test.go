package judge

import (
	"fmt"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/pkg/route"
)

// events are server-sent events with these data.
func eventsOf(data ...string) string {
	var b strings.Builder
	for _, d := range data {
		fmt.Fprintf(&b, "event: x\ndata: %s\n\n", d)
	}
	return b.String()
}

const (
	messageStart = `{"type":"message_start","message":{"id":"msg_1","role":"assistant","content":[],"model":"claude-opus-5-5",` +
		`"usage":{"input_tokens":10,"cache_creation_input_tokens":200,"cache_read_input_tokens":3000,` +
		`"cache_creation":{"ephemeral_5m_input_tokens":200,"ephemeral_1h_input_tokens":0},"output_tokens":1}}}`
	textDelta    = `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\"usage\":{\"output_tokens\":9}}"}}`
	jsonDelta    = `{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"a\":"}}`
	messageDelta = `{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},` +
		`"usage":{"input_tokens":null,"cache_read_input_tokens":null,"output_tokens":40}}`
)

// answers are what the APIs answer, with what it has cost.
var answers = []struct {
	name    string
	body    route.Body
	kind    string
	answer  string
	in, out int64
	ok      bool
}{
	{"a message", route.Messages, "application/json", `{"id":"msg_1","content":[{"type":"tool_use","input":{"usage":{"output_tokens":7},` +
		`"a":[{"usage":{"input_tokens":9}}]}}],"usage":{"input_tokens":10,"cache_creation_input_tokens":200,` +
		`"cache_read_input_tokens":3000,"output_tokens":40,"server_tool_use":{"web_search_requests":5}}}`, 3210, 40, true},
	{"a stream of a message", route.Messages, "text/event-stream; charset=utf-8",
		eventsOf(messageStart, `{"type":"ping"}`, textDelta, jsonDelta, messageDelta, `{"type":"message_stop"}`), 3210, 40, true},
	{"two deltas, cumulative", route.Messages, "text/event-stream",
		eventsOf(messageStart, strings.Replace(messageDelta, "40", "20", 1), messageDelta), 3210, 40, true},
	{"a stream of Anthropic's on Bedrock", route.InvokeModel, "text/event-stream", eventsOf(messageStart, messageDelta), 3210, 40, true},
	{"rounds of an advisor", route.Messages, "text/event-stream", eventsOf(messageStart,
		`{"type":"message_delta","usage":{"output_tokens":40,"iterations":[`+
			`{"type":"message","input_tokens":10,"cache_creation_input_tokens":200,"cache_read_input_tokens":3000,"output_tokens":40},`+
			`{"type":"advisor_message","input_tokens":1000,"output_tokens":500,"cache_read_input_tokens":0}]}}`,
		`{"type":"message_delta","usage":{"output_tokens":41,"iterations":[`+
			`{"type":"message","input_tokens":10,"cache_creation_input_tokens":200,"cache_read_input_tokens":3000,"output_tokens":41},`+
			`{"type":"advisor_message","input_tokens":1000,"output_tokens":500}]}}`), 4210, 541, true},
	{"tokens counted", route.CountMessages, "application/json", `{"input_tokens":2095}`, 0, 0, true},
	{"a stream that was cut at once", route.Messages, "text/event-stream", eventsOf(messageStart), 3210, 1, false},
	{"a stream that was cut", route.Messages, "text/event-stream",
		eventsOf(append([]string{messageStart}, repeated(textDelta, 30)...)...), 3210, 420, false},
	{"an error", route.Messages, "application/json", `{"type":"error","error":{"type":"api_error","message":"x"}}`, 0, 0, false},
	{"an error within a stream", route.Messages, "text/event-stream",
		eventsOf(messageStart, `{"type":"error","error":{"type":"overloaded_error"}}`), 3210, 1, false},

	{"a response", route.Responses, "application/json", `{"object":"response","output":[],"usage":{"input_tokens":70,` +
		`"input_tokens_details":{"cached_tokens":60},"output_tokens":8,"output_tokens_details":{"reasoning_tokens":5},"total_tokens":78}}`,
		70, 8, true},
	{"a stream of a response", route.Responses, "text/event-stream",
		eventsOf(`{"type":"response.created","response":{"usage":null}}`, `{"type":"response.output_text.delta","delta":"hello"}`,
			`{"type":"response.output_text.done","text":"hello"}`,
			`{"type":"response.completed","response":{"output":[{"content":[{"text":"x"}]}],"usage":{"input_tokens":70,"output_tokens":8,"total_tokens":78}}}`),
		70, 8, true},
	{"a response that was cut", route.Responses, "text/event-stream", eventsOf(`{"type":"response.output_text.delta","delta":"hello"}`), 0, 2, false},

	{"a completion", route.Chat, "application/json", `{"choices":[{"message":{"content":"{\"usage\":1}"}}],` +
		`"usage":{"prompt_tokens":50,"completion_tokens":6,"total_tokens":56}}`, 50, 6, true},
	{"a stream of a completion", route.Chat, "text/event-stream", eventsOf(`{"choices":[{"delta":{"content":"a"}}],"usage":null}`,
		`{"choices":[],"usage":{"prompt_tokens":50,"completion_tokens":6,"total_tokens":56}}`, `[DONE]`), 50, 6, true},
	{"reasoning that only the total has", route.Chat, "application/json",
		`{"usage":{"prompt_tokens":50,"completion_tokens":6,"total_tokens":156}}`, 50, 106, true},
	{"a stream of Groq's", route.Chat, "text/event-stream", eventsOf(`{"choices":[],"x_groq":{"usage":{"prompt_tokens":5,"completion_tokens":6}}}`), 5, 6, true},
	{"a stream that tells nothing", route.Chat, "text/event-stream",
		eventsOf(`{"choices":[{"delta":{"content":"hello","role":"assistant"}}]}`, `[DONE]`), 0, 5, false},

	{"content", route.Generate, "application/json", `{"candidates":[{"content":{"parts":[{"text":"x"}]},"finishReason":"STOP"}],` +
		`"usageMetadata":{"promptTokenCount":30,"cachedContentTokenCount":20,"candidatesTokenCount":4,"thoughtsTokenCount":100,"totalTokenCount":134}}`, 30, 104, true},
	{"a stream of content", route.Generate, "text/event-stream",
		eventsOf(`{"candidates":[{"content":{"parts":[{"text":"x"}]}}],"usageMetadata":{"promptTokenCount":30,"totalTokenCount":30}}`,
			`{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":30,"toolUsePromptTokenCount":5,"candidatesTokenCount":4,"totalTokenCount":39}}`), 35, 4, true},
	{"a stream that is a list", route.Generate, "application/json",
		`[{"candidates":[{"content":{"parts":[{"text":"x"}]}}],"usageMetadata":{"promptTokenCount":30}},` + "\n" +
			`{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":30,"candidatesTokenCount":4}}]`, 30, 4, true},
	{"content that was blocked", route.Generate, "application/json",
		`{"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":30,"totalTokenCount":30}}`, 30, 0, true},
	{"a stream of content that was cut", route.Generate, "text/event-stream",
		eventsOf(`{"candidates":[{"content":{"parts":[{"text":"hello you"}]}}],"usageMetadata":{"promptTokenCount":30,"totalTokenCount":30}}`), 30, 3, false},

	{"a text that is nested too deep", route.Messages, "text/event-stream",
		eventsOf(`{"delta":{"a":` + strings.Repeat("[", 2*scanDepth) + `"a long text"` + strings.Repeat("]", 2*scanDepth) + `}}`), 0, 0, false},
	{"usage behind what is nested too deep", route.Messages, "application/json",
		`{"content":[{"a":` + strings.Repeat(`[{"b":`, scanDepth) + `1` + strings.Repeat(`}]`, scanDepth) + `}],` +
			`"usage":{"input_tokens":7,"output_tokens":3}}`, 7, 3, true},
	{"nothing", route.Messages, "", "", 0, 0, false},
	{"an opaque answer", route.Opaque, "application/json", `{"usage":{"input_tokens":7,"output_tokens":7}}`, 0, 0, true},
	{"numbers that are none", route.Messages, "application/json",
		`{"usage":{"input_tokens":-5,"output_tokens":1e9,"cache_read_input_tokens":99999999999999999999}}`, 0, 0, false},
	{"what is no JSON", route.Messages, "application/json", `]}],:"x"{{"usage":{"input_tokens":]5`, 0, 0, false},
}

func repeated(s string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = s
	}
	return all
}

// TestMeter gives each answer in pieces of several sizes, with each end of a line.
func TestMeter(t *testing.T) {
	for _, c := range answers {
		for _, end := range []string{"\n", "\r\n", "\r"} {
			answer := strings.ReplaceAll(c.answer, "\n", end)
			for _, size := range []int{1, 2, 3, 7, 1000, 1 << 20} {
				m := NewMeter(c.body, c.kind)
				for rest := answer; rest != ""; {
					n := min(size, len(rest))
					if written, err := m.Write([]byte(rest[:n])); written != n || err != nil {
						t.Fatal(written, err)
					}
					rest = rest[n:]
				}
				if in, out, ok := m.Tokens(); in != c.in || out != c.out || ok != c.ok {
					t.Errorf("%s, lines that end in %q, in pieces of %d: %d %d %v, want %d %d %v",
						c.name, end, size, in, out, ok, c.in, c.out, c.ok)
				}
			}
		}
	}
}

// TestMeterIsBounded has answers that never end what they have begun.
func TestMeterIsBounded(t *testing.T) {
	piece := func(s string) []byte { return []byte(strings.Repeat(s, (64<<10)/len(s))) }
	for name, p := range map[string][]byte{
		"a text":       []byte(strings.Repeat("x", 64<<10)),
		"names":        piece(`{"` + strings.Repeat("n", 100) + `":`),
		"depth":        piece(`[`),
		"numbers":      piece(`1`),
		"lines":        piece("data: \n"),
		"line ends":    piece("\r"),
		"no field":     piece("x"),
		"many members": piece(`"a":1,`),
	} {
		for _, kind := range []string{"application/json", "text/event-stream"} {
			m := NewMeter(route.Messages, kind)
			m.Write([]byte("data: {\"usage\":{\"input_tokens\":1,\"x\":"))
			m.Write(p)
			if n := testing.AllocsPerRun(100, func() { m.Write(p) }); n > 0 {
				t.Errorf("%s in %s: %v allocations each", name, kind, n)
			}
			if held := cap(m.scan.path) + cap(m.scan.word); held > 4<<10 {
				t.Errorf("%s in %s: %d bytes are held", name, kind, held)
			}
		}
	}
}

func TestEstimate(t *testing.T) {
	for bytes, tokens := range map[int64]int64{0: 0, 1: 1, 3: 1, 4: 2, 300: 100} {
		if got := Estimate(bytes); got != tokens {
			t.Errorf("%d bytes are %d tokens, want %d", bytes, got, tokens)
		}
	}
}

// FuzzMeter holds that an answer costs the same however it is cut into pieces, and never less than nothing.
func FuzzMeter(f *testing.F) {
	for i, c := range answers {
		f.Add([]byte(c.answer), uint8(i), strings.HasPrefix(c.kind, "text/event-stream"))
	}
	bodies := []route.Body{route.Messages, route.Responses, route.Chat, route.Generate, route.InvokeModel, route.Converse}
	f.Fuzz(func(t *testing.T, answer []byte, which uint8, stream bool) {
		kind := "application/json"
		if stream {
			kind = "text/event-stream"
		}
		whole := NewMeter(bodies[int(which)%len(bodies)], kind)
		whole.Write(answer)
		pieces := NewMeter(bodies[int(which)%len(bodies)], kind)
		for i := range answer {
			pieces.Write(answer[i : i+1])
		}
		in, out, ok := whole.Tokens()
		inPieces, outPieces, okPieces := pieces.Tokens()
		if in != inPieces || out != outPieces || ok != okPieces {
			t.Errorf("%q costs %d %d %v, and in pieces %d %d %v", answer, in, out, ok, inPieces, outPieces, okPieces)
		}
		if in < 0 || out < 0 || ok && in == 0 && len(whole.dialect.counts) > 0 {
			t.Errorf("%q costs %d %d %v", answer, in, out, ok)
		}
	})
}

// TestMost: what a request may come to is what it says, and the most that it lets the model write.
func TestMost(t *testing.T) {
	for _, c := range []struct {
		kind route.Body
		body string
		out  int64
	}{
		{route.Messages, `{"max_tokens":9}`, 9}, {route.Messages, `{"max_tokens":9e3}`, 9000}, {route.Messages, `{"max\u005ftokens":7}`, 7},
		{route.Messages, `{"a":{"max_tokens":9}}`, unsaid}, {route.Messages, `{"max_tokens":-1}`, unsaid}, {route.Messages, `{"max_tokens":null}`, unsaid},
		{route.Messages, `{"max_tokens":1e300}`, 1 << 40}, {route.CountMessages, `{"max_tokens":9}`, -1},
		{route.Responses, `{"max_output_tokens":8}`, 8}, {route.Chat, `{"max_tokens":8,"max_completion_tokens":9,"n":3}`, 27},
		{route.Generate, `{"generationConfig":{"maxOutputTokens":5,"candidateCount":2}}`, 10}, {route.Generate, `{"generation_config":{"maxOutputTokens":5}}`, 5},
		{route.Converse, `{"inferenceConfig":{"maxTokens":5}}`, 5},
	} {
		want := Estimate(int64(len(c.body))) + c.out
		if c.out < 0 {
			want = 0
		}
		if got := Most(c.kind, []byte(c.body)); got != want {
			t.Errorf("%s of %s may come to %d, want %d", c.body, c.kind, got, want)
		}
	}
}
