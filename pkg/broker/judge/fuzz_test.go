package judge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/pkg/route"
)

// FuzzJSON holds that each document that parse takes is the same to encoding/json, and one alone.
func FuzzJSON(f *testing.F) {
	for _, seed := range []string{
		claudeCode, `{"a":1,"\u0061":2}`, `[1,"\ud83d\ude00",{"":null}]`, `{"a":"\ud83d"}`, "\ufeff{}", `{}{}`, `[1e400]`, `[NaN]`,
		"\"\xff\"", `[[[[]]]]`, `{"a":{"b":[true,false,-0.5E-7]}}`, " \t\r\n1 ",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		v, err := parse(body)
		if err != nil {
			return
		}
		d := json.NewDecoder(bytes.NewReader(body))
		d.UseNumber()
		var other any
		if err := d.Decode(&other); err != nil {
			t.Fatalf("%q is none to encoding/json: %v", body, err)
		}
		if _, err := d.Token(); err != io.EOF {
			t.Errorf("%q goes on for encoding/json", body)
		}
		if got := asAny(v); !reflect.DeepEqual(got, other) {
			t.Errorf("%q is %v, and %v to encoding/json", body, got, other)
		}
	})
}

// FuzzMessages holds that nothing passes in which encoding/json sees a relay.
func FuzzMessages(f *testing.F) {
	f.Add([]byte(claudeCode))
	add := func(_, body, _ string) { f.Add([]byte(body)) }
	for _, c := range relays {
		add("", c[0], "")
	}
	bySource(add)
	byTool(add)
	r := builtin(f, "anthropic")
	r.Models = []string{"claude-*", "a", "b"}
	e := &r.Endpoints[0]
	f.Fuzz(func(t *testing.T, body []byte) {
		kept := bytes.Clone(body)
		told, refusal := Body(r, e, "/v1/messages", body)
		if !bytes.Equal(kept, body) {
			t.Error("the body was changed")
		}
		if refusal != nil {
			return
		}
		top, ok := second(t, body).(map[string]any)
		if !ok {
			t.Fatalf("%q passes", body)
		}
		if told.Model != top["model"] || told.Stream != (top["stream"] == true) || !route.Match(r.Models, told.Model) {
			t.Errorf("%q tells %+v", body, told)
		}
		for name := range top {
			if _, ok := anthropic().objects["request"].members[name]; !ok && top[name] != nil {
				t.Errorf("%q passes with the field %s", body, name)
			}
		}
		if found := relayIn(top); found != "" {
			t.Errorf("%q passes with %s", body, found)
		}
	})
}

// opaque are the names below which a client may write what it likes.
var opaque = map[string]bool{
	"input": true, "input_schema": true, "input_examples": true, "citations": true, "cache_control": true, "metadata": true,
	"output_config": true, "output_format": true, "thinking": true, "safeguards": true, "context_hint": true, "diagnostics": true,
	"caller": true, "tool_choice": true, "configs": true, "default_config": true, "transformations": true, "tabs": true,
	"state_changes": true, "fallback_credit_token": true, "trigger": true, "from": true, "url_sources": true, "caching": true,
	"user_location": true, "allowed_callers": true, "allowed_domains": true, "blocked_domains": true, "edits": true,
	"stop_sequences": true,
}

// relayIn looks for what the provider would fetch, run or keep, anywhere. It knows no grammar, and so no place.
func relayIn(v any) string {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			if found := relayIn(item); found != "" {
				return found
			}
		}
	case map[string]any:
		kind, _ := v["type"].(string)
		for _, part := range []string{"web_", "code_execution", "mcp", "advisor", "container", "url", "file"} {
			if strings.HasPrefix(kind, part) {
				return "the type " + kind
			}
		}
		result := kind == "tool_search_tool_result"
		for name, member := range v {
			full := member != nil && !reflect.DeepEqual(member, []any{})
			if full && (name == "mcp_servers" || name == "container" || name == "thread" || name == "skills") {
				return name
			}
			if model, ok := member.(string); name == "model" && ok && !strings.HasPrefix(model, "claude-") && model != "a" && model != "b" {
				return fmt.Sprintf("the model %q", model)
			}
			if opaque[name] || result && name == "content" || kind != "" && name == "tools" {
				continue
			}
			if found := relayIn(member); found != "" {
				return found
			}
		}
	}
	return ""
}

// TestRelayInNotices shows that the fuzz target's own judge is none that lets everything pass.
func TestRelayInNotices(t *testing.T) {
	if found := relayIn(second(t, []byte(claudeCode))); found != "" {
		t.Errorf("Claude Code's request has %s", found)
	}
	for _, body := range []string{
		ask(`"tools":[{"type":"web_fetch_20250910"}]`), says(`{"type":"image","source":{"type":"url"}}`),
		says(`{"type":"tool_addition","tool":{"type":"tool_definition","definition":{"type":"advisor_20260301"}}}`),
		ask(`"container":"c"`), ask(`"fallbacks":[{"model":"other"}]`),
	} {
		if relayIn(second(t, []byte(body))) == "" {
			t.Errorf("nothing is found in %s", body)
		}
	}
}
