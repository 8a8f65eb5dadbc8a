package fakellm

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// The model has command run, and believes that it was when it is told printed, which command itself does not say. A part of
// it is refused a host; with Hints, the shell has to say so.
const (
	command = "curl -sS https://refused.example.com/; seq -f lab-%g 42 42"
	printed = "lab-42"
	hint    = "agent-init: the policy refused refused.example.com"
)

// text is what the model says: Text, unless the tool was called and its result is not what it prints.
func (m *Model) text(body []byte) string {
	called := m.Tools && bytes.Contains(body, []byte(command))
	switch {
	case called && !bytes.Contains(body, []byte(printed)):
		return "the command did not run"
	case called && m.Hints && !bytes.Contains(body, []byte(hint)):
		return "the shell did not say who refused a host to the command"
	}
	return Text
}

// call is the use of a tool. One that takes text instead of JSON has a script.
type call struct {
	name   string
	args   object
	script string
}

// toolOf is the call that a model that wants tools answers a request with: of the tool that runs commands, unless it was
// called already, or the request has no such tool.
func (m *Model) toolOf(body []byte) *call {
	if !m.Tools || bytes.Contains(body, []byte(command)) {
		return nil
	}
	var request any
	if json.Unmarshal(body, &request) != nil {
		return nil
	}
	return shellIn(request)
}

// shellIn looks for a tool that runs commands: its schema has a property for one. Each API has its tools in other places, and
// puts the schema under another name.
func shellIn(v any) *call {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			if c := shellIn(item); c != nil {
				return c
			}
		}
	case object:
		if c := shellOf(v); c != nil {
			return c
		}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if c := shellIn(v[name]); c != nil {
				return c
			}
		}
	}
	return nil
}

func shellOf(tool object) *call {
	name, _ := tool["name"].(string)
	if name == "exec" && tool["type"] == "custom" { // Codex has JavaScript there, which calls the other tools
		return &call{name: name, script: `const r = await tools.exec_command({cmd: ` + quoted(command) + `}); text(JSON.stringify(r));`}
	}
	if !slices.ContainsFunc([]string{"bash", "shell", "exec", "execute"}, func(word string) bool {
		return strings.Contains(strings.ToLower(name), word)
	}) {
		return nil
	}
	for _, key := range []string{"input_schema", "parameters", "parametersJsonSchema"} {
		schema, _ := tool[key].(object)
		properties, _ := schema["properties"].(object)
		for _, what := range []string{"command", "cmd"} {
			if p, ok := properties[what].(object); ok {
				return &call{name: name, args: arguments(schema, properties, what, p)}
			}
		}
	}
	return nil
}

// arguments are the command, and something for everything else that the schema requires.
func arguments(schema, properties object, what string, p object) object {
	args := object{what: command}
	if p["type"] == "array" {
		args[what] = []any{"bash", "-c", command}
	}
	required, _ := schema["required"].([]any)
	for _, r := range required {
		name, _ := r.(string)
		p, _ := properties[name].(object)
		if _, given := args[name]; given || p == nil {
			continue
		}
		if any, ok := p["anyOf"].([]any); ok && len(any) > 0 {
			p, _ = any[0].(object)
		}
		kind, _ := p["type"].(string)
		choice, _ := p["enum"].([]any)
		switch strings.ToLower(kind) {
		case "boolean":
			args[name] = false
		case "number", "integer":
			args[name] = 30
		default:
			args[name] = "run a command"
			if len(choice) > 0 {
				args[name] = choice[0]
			}
		}
	}
	return args
}

func quoted(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic("fakellm: " + err.Error()) // values of our own making, or out of JSON
	}
	return string(raw)
}
