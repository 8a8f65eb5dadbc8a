package judge

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net/http"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/pkg/route"
)

const claudeOnBedrock = "us.anthropic.claude-opus-5-5-v1:0"

func converseOf(body string) asked {
	return asked{route: "bedrock", path: "/model/us.anthropic.claude-opus-5-5-v1%3A0/converse", body: body}
}

func invokeOf(body string) asked {
	return asked{route: "bedrock", path: "/model/us.anthropic.claude-opus-5-5-v1:0/invoke-with-response-stream", body: body}
}

// converseTurns are messages of each kind that clients send.
const converseTurns = `{"system":[{"text":"You are"},{"cachePoint":{"type":"default"}}],"messages":[
	{"role":"user","content":[{"text":"see https://example.org"},{"image":{"format":"png","source":{"bytes":"AA=="}}},
		{"document":{"format":"pdf","name":"a","source":{"bytes":"AA=="},"citations":{"enabled":true}}},
		{"document":{"format":"txt","name":"b","source":{"text":"https://example.org"}}},
		{"document":{"name":"c","source":{"content":[{"text":"x"}]}}},{"cachePoint":{"type":"default"}}]},
	{"role":"assistant","content":[{"reasoningContent":{"reasoningText":{"text":"hm","signature":"AA"}}},
		{"toolUse":{"toolUseId":"t","name":"f","input":{"s3Location":{"uri":"s3://b/x"}}}}]},
	{"role":"user","content":[{"toolResult":{"toolUseId":"t","status":"success","content":[{"text":"https://example.org"},
		{"json":{"s3Location":{"uri":"s3://b/x"}}},{"image":{"format":"png","source":{"bytes":"AA=="}}}]}}]}],
	"toolConfig":{"tools":[{"toolSpec":{"name":"f","description":"d","inputSchema":{"json":{"type":"object","properties":{"uri":{}}}}}},
		{"cachePoint":{"type":"default"}}],"toolChoice":{"auto":{}}},
	"inferenceConfig":{"maxTokens":1,"temperature":1},"additionalModelRequestFields":{"thinking":{"type":"enabled","budget_tokens":1},
		"anthropic_beta":["interleaved-thinking-2025-05-14"]},"requestMetadata":{"repo":"https://example.org"}}`

func TestConversePass(t *testing.T) {
	converseOf(converseTurns).passes(t, "a session", Told{Model: claudeOnBedrock, CountsUsage: true})
	stream := converseOf(converseTurns)
	stream.path += "-stream"
	stream.passes(t, "a stream", Told{Model: claudeOnBedrock, Stream: true, CountsUsage: true})
	invokeOf(`{"anthropic_version":"bedrock-2023-05-31","anthropic_beta":["x"],"max_tokens":1,"messages":[{"role":"user","content":"hi"}],
		"tools":[{"name":"f","input_schema":{}}]}`).passes(t, "invoke", Told{Model: claudeOnBedrock, Stream: true, CountsUsage: true})
}

func TestConverseRefuse(t *testing.T) {
	for body, what := range map[string]string{
		`{"messages":[{"role":"user","content":[{"image":{"format":"png","source":{"s3Location":{"uri":"s3://b/x"}}}}]}]}`:               "field",
		`{"messages":[{"role":"user","content":[{"document":{"name":"a","source":{"bytes":"AA","s3Location":{"uri":"s3://b/x"}}}}]}]}`:   "field",
		`{"messages":[{"role":"user","content":[{"video":{"format":"mp4","source":{"s3Location":{"uri":"s3://b/x"}}}}]}]}`:               "field",
		`{"messages":[{"role":"user","content":[{"audio":{"format":"mp3","source":{"s3Location":{"uri":"s3://b/x"}}}}]}]}`:               "field",
		`{"messages":[{"role":"user","content":[{"toolResult":{"toolUseId":"t","content":[{"video":{"source":{"s3Location":{}}}}]}}]}]}`: "field",
		`{"messages":[{"role":"user","content":[{"document":{"source":{"content":[{"image":{"source":{"s3Location":{}}}}]}}}]}]}`:        "field",
		`{"messages":[],"system":[{"guardContent":{"image":{"source":{"s3Location":{}}}}}]}`:                                             "field",
		`{"messages":[{"role":"user","content":[{"image":{"source":{"S3Location":{}}}}]}]}`:                                              "field",
		`{"messages":[{"role":"user","content":[{"blockOf2028":{}}]}]}`:                                                                  "field",
		`{"messages":[{"role":"user","content":["s3://b/x"]}]}`:                                                                          "content",
		`{"messages":[{"role":"user","content":"s3://b/x"}]}`:                                                                            "content",
		`{"messages":[{"role":"user","content":[],"sourceUrl":"x"}]}`:                                                                    "field",
		`{"messages":[{"role":"user","content":[],"memberOf2028":1}]}`:                                                                   "field",
		`{"messages":[],"toolConfig":{"tools":[{"systemTool":{"name":"nova_grounding"}}]}}`:                                              "tool",
		`{"messages":[],"toolConfig":{"tools":[{"toolSpec":{"name":"f"},"systemTool":{"name":"nova_code_interpreter"}}]}}`:               "tool",
		`{"messages":[],"toolConfig":{"tools":[{"toolOf2028":{}}]}}`:                                                                     "tool",
		`{"messages":[],"toolConfig":{"tools":[{"toolSpec":{"inputSchema":{"json":{"$ref":"https://example.org"}}}}]}}`:                  "content",
		`{"messages":[],"toolConfig":{"tools":{"systemTool":{"name":"nova_grounding"}}}}`:                                                "content",
		`{"messages":[],"additionalModelRequestFields":{"tools":[{"type":"web_search_20250305"}]}}`:                                      "field",
		`{"messages":[],"additionalModelRequestFields":{"mcp_servers":[{"type":"url","url":"https://example.org"}]}}`:                    "field",
		`{"messages":[],"additionalModelRequestFields":[{"tools":[]}]}`:                                                                  "content",
		`{"messages":[],"promptVariables":{"x":{"text":"y"}}}`:                                                                           "field",
		`{"messages":[],"fieldOf2028":1}`: "field",
		`{"messages":[],"toolconfig":{}}`: "field",
		`[]`:                              "json",
	} {
		converseOf(body).refuses(t, body, what)
	}
	for body, what := range map[string]string{
		`{"anthropic_version":"x","messages":[],"tools":[{"type":"web_search_20250305","name":"web_search"}]}`:            "tool",
		`{"messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"https://example.org"}}]}]}`: "content",
		`{"messages":[],"mcp_servers":[{"type":"url","url":"https://example.org"}]}`:                                      "tool",
		`{"model":"claude-opus-5-5","messages":[]}`:                                                                       "field",
		`{"stream":true,"messages":[]}`: "field",
		`{"inputText":"x"}`:             "field",
	} {
		invokeOf(body).refuses(t, body, what)
	}
}

func TestBedrockModels(t *testing.T) {
	const account = "arn%3Aaws%3Abedrock%3Aeu-central-1%3A123456789012%3A"
	for model, what := range map[string]string{
		"anthropic.claude-opus-5-5-v1%3A0": "", "us.amazon.nova-pro-v1:0": "", "meta.llama4": "",
		account + "inference-profile%2Fus.anthropic.claude-opus-5-5-v1%3A0":     "",
		account + "application-inference-profile%2Fabc":                         "model",
		"arn%3Aaws%3Abedrock%3A%3A%3Afoundation-model%2Famazon.nova-pro-v1%3A0": "",
		account + "prompt%2FABC%3Ainference-profile%2Fx":                        "model",
		"arn%3Aaws%3Asagemaker%3Aeu-central-1%3A1%3Aendpoint%2Fx":               "model",
		"ARN%3Aaws%3Ax":                       "model",
		account + "prompt%2FABCDEF%3A1":       "model",
		account + "agent-alias%2FA%2FB":       "model",
		account + "provisioned-model%2Fx":     "model",
		account + "custom-model%2Fx":          "model",
		account + "default-prompt-router%2Fx": "model",
	} {
		a := asked{route: "bedrock", path: "/model/" + model + "/converse", body: `{"messages":[]}`}
		decoded := strings.NewReplacer("%3A", ":", "%2F", "/").Replace(model)
		if what == "" {
			a.passes(t, model, Told{Model: decoded, CountsUsage: true})
			continue
		}
		a.refuses(t, model, what)
		a.change = func(r *route.Route) { r.Models = []string{"*"} }
		a.refuses(t, model, what)
		a.change = func(r *route.Route) { r.Models = []string{decoded} }
		a.passes(t, model, Told{Model: decoded, CountsUsage: true})
	}
	nova := asked{route: "bedrock", path: "/model/amazon.nova-pro-v1:0/invoke", body: `{"messages":[]}`}
	nova.refuses(t, "another's model by invoke", "model")
	r := builtin(t, "bedrock")
	for _, path := range []string{
		"/model//converse", "/model/a/b/converse", "/model/a%2F..%2Fb/converse", "/model/..%2Fx/converse", "/model/a%2f/converse", "/model/%61/converse",
		"/model/a%00/converse", "/model/a%252F/converse", "/model/x/converse/", "/model/x/count-tokens", "/async-invoke", "/guardrail/x/version/1/apply",
	} {
		if _, refusal := Head(r, "POST", path, "", http.Header{"Content-Type": {"application/json"}}); refusal == nil {
			t.Errorf("%s passes", path)
		}
	}
}

// message is one in AWS's encoding, with a header.
func message(payload string) []byte {
	const header = "\x0b:event-type\x07\x00\x05chunk"
	var b bytes.Buffer
	for _, n := range []int{preludeSize + len(header) + len(payload) + checksumSize, len(header)} {
		b.Write(binary.BigEndian.AppendUint32(nil, uint32(n)))
	}
	b.Write(binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(b.Bytes())))
	b.WriteString(header + payload)
	b.Write(binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(b.Bytes())))
	return b.Bytes()
}

// packed is an event as invoke-with-response-stream has it.
func packed64(event string) string {
	return fmt.Sprintf(`{"bytes":"%s","p":"abcdefgh"}`, base64.StdEncoding.EncodeToString([]byte(event)))
}

func TestMeterReadsEventStreams(t *testing.T) {
	const delta = `{"contentBlockIndex":0,"delta":{"text":"hello you"},"p":"abc"}`
	const metadata = `{"metrics":{"latencyMs":1},"usage":{"inputTokens":10,"cacheReadInputTokens":3000,"cacheWriteInputTokens":200,"outputTokens":40,"totalTokens":3250}}`
	for name, c := range map[string]struct {
		body    route.Body
		parts   [][]byte
		in, out int64
		ok      bool
	}{
		"converse":                {route.Converse, [][]byte{message(`{"role":"assistant"}`), message(delta), message(`{}`), message(metadata)}, 3210, 40, true},
		"converse, cut":           {route.Converse, [][]byte{message(`{"role":"assistant"}`), message(delta)}, 0, 3, false},
		"converse, cut inside":    {route.Converse, [][]byte{message(delta), message(metadata)[:90]}, 10, 3, false},
		"an exception":            {route.Converse, [][]byte{message(delta), message(`{"message":"throttled"}`)}, 0, 3, false},
		"invoke":                  {route.InvokeModel, [][]byte{message(packed64(messageStart)), message(packed64(textDelta)), message(packed64(messageDelta))}, 3210, 40, true},
		"invoke, cut":             {route.InvokeModel, [][]byte{message(packed64(messageStart)), message(packed64(textDelta))}, 3210, 14, false},
		"invoke, no base64":       {route.InvokeModel, [][]byte{message(`{"bytes":"?"}`), message(`{`), message(packed64(messageStart)), message(packed64(messageDelta))}, 3210, 40, true},
		"a message that is wrong": {route.Converse, [][]byte{message(delta), []byte("HTTP/1.1 400 Bad Request\r\n\r\n"), message(metadata)}, 0, 3, false},
		"a long one":              {route.InvokeModel, [][]byte{message(packed64(messageStart + strings.Repeat(" ", maxBase64Chunk))), message(packed64(messageDelta))}, 0, 40, false},
		"nothing":                 {route.Converse, nil, 0, 0, false},
	} {
		whole := bytes.Join(c.parts, nil)
		for _, size := range []int{1, 3, 16, 1000, 1 << 22} {
			m := NewMeter(c.body, "application/vnd.amazon.eventstream")
			for rest := whole; len(rest) > 0; {
				n := min(size, len(rest))
				m.Write(rest[:n])
				rest = rest[n:]
			}
			if in, out, ok := m.Tokens(); in != c.in || out != c.out || ok != c.ok {
				t.Errorf("%s in pieces of %d: %d %d %v, want %d %d %v", name, size, in, out, ok, c.in, c.out, c.ok)
			}
		}
	}
	m := NewMeter(route.Converse, "application/json")
	m.Write([]byte(`{"output":{"message":{"content":[{"text":"x"}]}},` + metadata[1:]))
	if in, out, ok := m.Tokens(); in != 3210 || out != 40 || !ok {
		t.Errorf("an answer in one costs %d %d %v", in, out, ok)
	}
}

// TestEventStreamsAreBounded has messages that say that they are longer than any, or than what is kept.
func TestEventStreamsAreBounded(t *testing.T) {
	for name, lengths := range map[string][2]uint32{
		"a message": {maxMessage + 1, 0}, "headers": {maxMessage, maxHeaders + 1}, "headers beyond it": {100, 100}, "nothing": {0, 0},
		"around": {15, 0xffffffff}, "all": {0xffffffff, 0xffffffff},
	} {
		prelude := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, lengths[0]), lengths[1])
		prelude = binary.BigEndian.AppendUint32(prelude, crc32.ChecksumIEEE(prelude))
		got := 0
		m := &eventMessages{payload: func(p []byte) { got += len(p) }, end: func() { got++ }}
		m.write(append(prelude, make([]byte, 1000)...))
		if !m.broken || got > 0 {
			t.Errorf("%s: %d is read behind it", name, got)
		}
	}
	var held base64Events
	for range 100 {
		held.write(make([]byte, 64<<10))
	}
	if cap(held.kept) > 2*maxBase64Chunk || !held.long {
		t.Errorf("%d bytes are held", cap(held.kept))
	}
}
