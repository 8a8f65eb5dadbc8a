package container

import "regexp"

// screens are the ways in which an agent is worked with on a terminal; all but the last are there for their pictures.
func (a agentSpec) screens() []screenSpec {
	once, twice := []string{"C-z"}, []string{"C-z", "C-z"} // where something was typed, Gemini CLI takes that back
	switch a.name {
	case "claude":
		return []screenSpec{{ready: "shift+tab to cycle", menu: "/add-dir", end: "/exit", sleep: once,
			asks: [][2]string{{"❯ No, exit", "Down"}, {"❯ Yes, I trust", "Enter"},
				{"❯ No (recommended)", "Up"}, {"❯ Yes", "Enter"}}}}
	case "codex":
		return []screenSpec{{ready: "Ask Codex to do anything", menu: "/keymap", end: "/quit", sleep: once}}
	case "gemini":
		key := [][2]string{{"● 2. Use Gemini API Key", "Enter"}, {"Enter Gemini API Key", "Enter"}}
		model := []string{"-m", "gemini-2.5-flash"} // the one that it takes by itself is chosen by another model
		ui := func(text string) map[string]string {
			return map[string]string{"/etc/gemini-cli/settings.json": `{"security":{"auth":{"selectedType":"gemini-api-key"}},"ui":{"hideTips":true,` + text + `}}`}
		}
		return []screenSpec{
			{args: model, ready: "Type your message", menu: "compress", end: "/quit", files: ui(`"useAlternateBuffer":false`),
				live: regexp.MustCompile(`^ Shift\+Tab to`)},
			{args: model, ready: "Type your message", menu: "compress", end: "/quit", files: ui(`"useAlternateBuffer":true`)},
			{args: model, ready: "Type your message", end: "/quit", sleep: twice, asks: key},
		}
	case "opencode":
		// A tip comes and goes, and what it suggests to ask is another each time.
		return []screenSpec{{ready: "ctrl+p commands", menu: "/editor", end: "/exit", sleep: once, moving: regexp.MustCompile(`Ask anything… .*`)}}
	case "qwen":
		return []screenSpec{{ready: "Type your message", end: "/quit", sleep: twice}}
	case "pi":
		return []screenSpec{{ready: "(auto)", end: "/quit", sleep: once}}
	case "copilot":
		return []screenSpec{{ready: "/ commands", end: "/exit", sleep: once, asks: [][2]string{{"❯ 1. Yes", "Enter"}}}}
	case "goose":
		return []screenSpec{{ready: "Enter to send", end: "/exit", sleep: once}}
	}
	return []screenSpec{{ready: "stand-in, ready", end: "/exit", sleep: once}} // see testdata/stand-in.sh
}
