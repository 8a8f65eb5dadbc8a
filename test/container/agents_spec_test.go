package container

import (
	"path/filepath"
	"strings"
	"testing"
)

// agentSpec is how an agent is asked one thing, without a person.
type agentSpec struct {
	name    string
	program string   // if it is not the agent's name
	from    string   // "npm", or what a stand-in takes the place of
	allow   string   // the provider's entry, where the agent has none of its own
	env     []string // credentials that the far side takes
	prompt  []string // after the program
	quiet   []string // what turns the vendor's defaults on again: variables to unset, files to empty, flags
	off     []string // what the image turns off: variables, and settings of files, as FILE: TEXT
	broker  brokered // how it is asked over the broker
	mcp     string   // what its model hears of the tools of agent-init mcp, which the image names to it
}

// brokered is what an agent needs to be asked over the broker.
type brokered struct {
	route    string
	variable string   // what the key is given in, where it is no file
	env      []string // what a person says besides
	flags    []string // what has tools run without a question
	calls    []string // what it asks its model, but for the names of models
	unasked  []string // questions of the first start that are not asked, being about a key
}

const question = "say hello"

// agents are all of them, in the order of the documentation's table.
func agents() []agentSpec {
	const anthropic = "ANTHROPIC_API_KEY=sk-ant-test"
	return []agentSpec{
		{name: "claude", from: "npm", env: []string{anthropic}, prompt: []string{"-p", question},
			quiet: []string{"DISABLE_AUTOUPDATER", "DISABLE_UPDATES", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
				"CLAUDE_CODE_DISABLE_OFFICIAL_MARKETPLACE_AUTOINSTALL"},
			off: []string{"DISABLE_AUTOUPDATER=1", "DISABLE_UPDATES=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
				"CLAUDE_CODE_DISABLE_OFFICIAL_MARKETPLACE_AUTOINSTALL=1"},
			broker: brokered{route: "anthropic", variable: "ANTHROPIC_API_KEY", flags: []string{"--allowedTools", "Bash(seq:*)", "Bash(curl:*)"},
				calls: []string{"POST /v1/messages"}, unasked: []string{"❯ No (recommended)", "❯ Yes"}},
			mcp: "mcp__agent-init__explain"},
		{name: "codex", from: "npm", env: []string{"CODEX_API_KEY=sk-test"}, prompt: []string{"exec", "--skip-git-repo-check", question},
			quiet: []string{"--enable", "api_key_model_discovery", "--enable", "plugins", "-c", "analytics.enabled=true", "-c", "check_for_update_on_startup=true"},
			off:   []string{"/etc/codex/config.toml: check_for_update_on_startup = false", "/etc/codex/config.toml: [analytics]enabled = false"},
			broker: brokered{route: "openai", variable: "CODEX_API_KEY", flags: []string{"--dangerously-bypass-approvals-and-sandbox"},
				calls: []string{"POST /v1/responses"}},
			mcp: "mcp__agent_init"}, // its tools are looked up
		{name: "gemini", from: "npm", env: []string{"GEMINI_API_KEY=test"}, prompt: []string{"-m", "gemini-2.5-flash", "-p", question},
			quiet: []string{"/etc/gemini-cli/system-defaults.json"},
			off:   []string{`/etc/gemini-cli/system-defaults.json: "enableAutoUpdate": false, "enableAutoUpdateNotification": false`, `/etc/gemini-cli/system-defaults.json: "usageStatisticsEnabled": false`},
			broker: brokered{route: "gemini", variable: "GEMINI_API_KEY", flags: []string{"-y"},
				calls: []string{"POST /v1beta/models/"}, unasked: []string{"● 2. Use Gemini API Key", "Enter Gemini API Key"}},
			mcp: "mcp_agent-init_explain"},
		{name: "opencode", from: "npm", allow: "api.anthropic.com", env: []string{anthropic},
			prompt: []string{"run", "-m", "anthropic/claude-sonnet-4-5", question},
			quiet: []string{"OPENCODE_DISABLE_AUTOUPDATE", "OPENCODE_DISABLE_MODELS_FETCH", "OPENCODE_DISABLE_LSP_DOWNLOAD",
				"OPENCODE_DISABLE_DEFAULT_PLUGINS", "OPENCODE_DISABLE_SHARE"},
			off:    []string{"OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1", "OPENCODE_DISABLE_SHARE=1"},
			broker: brokered{route: "anthropic", variable: "ANTHROPIC_API_KEY", calls: []string{"POST /v1/messages"}},
			mcp:    "agent-init_explain"},
		{name: "qwen", from: "npm", env: []string{"OPENAI_API_KEY=sk-test", "OPENAI_MODEL=qwen3-coder-plus",
			"OPENAI_BASE_URL=https://dashscope.aliyuncs.com/compatible-mode/v1"}, prompt: []string{"--auth-type", "openai", "-p", question},
			quiet: []string{"/etc/qwen-code/system-defaults.json", "QWEN_USAGE_STATISTICS_ENABLED"},
			off:   []string{`/etc/qwen-code/system-defaults.json: "enableAutoUpdate": false`, `/etc/qwen-code/system-defaults.json: "usageStatisticsEnabled": false`, "QWEN_USAGE_STATISTICS_ENABLED=false"},
			broker: brokered{route: "openai", variable: "OPENAI_API_KEY", env: []string{"OPENAI_MODEL=gpt-5.4"}, flags: []string{"-y"},
				calls: []string{"POST /v1/chat/completions"}},
			mcp: "mcp__agent-init__explain"},
		{name: "crush", from: "GitHub", allow: "api.anthropic.com",
			off: []string{"CRUSH_DISABLE_METRICS=1", "DO_NOT_TRACK=1", "CRUSH_DISABLE_PROVIDER_AUTO_UPDATE=1"}},
		{name: "pi", from: "npm", allow: "api.anthropic.com", env: []string{anthropic},
			prompt: []string{"-p", "--provider", "anthropic", "--model", "claude-sonnet-4-5", question},
			quiet:  []string{"PI_OFFLINE", "PI_SKIP_VERSION_CHECK", "PI_TELEMETRY"},
			off:    []string{"PI_OFFLINE=1", "PI_SKIP_VERSION_CHECK=1", "PI_TELEMETRY=0"},
			broker: brokered{route: "anthropic", variable: "ANTHROPIC_API_KEY", calls: []string{"POST /v1/messages"}}},
		{name: "copilot", from: "npm", allow: "api.openai.com", env: []string{"COPILOT_PROVIDER_BASE_URL=https://api.openai.com/v1",
			"COPILOT_PROVIDER_TYPE=openai", "COPILOT_PROVIDER_API_KEY=sk-test", "COPILOT_MODEL=gpt-4.1"},
			prompt: []string{"-p", question, "--allow-all-tools"}, quiet: []string{"COPILOT_AUTO_UPDATE"},
			off: []string{"COPILOT_AUTO_UPDATE=false"},
			broker: brokered{route: "openai", variable: "OPENAI_API_KEY", env: []string{"COPILOT_PROVIDER_TYPE=openai", "COPILOT_MODEL=gpt-4.1"},
				flags: []string{"--allow-all-tools"}, calls: []string{"POST /v1/chat/completions", "401 GET /repos/github/copilot-cli/"}}},
		{name: "goose", from: "npm", allow: "api.openai.com", env: []string{"GOOSE_PROVIDER=openai", "GOOSE_MODEL=gpt-4.1", "OPENAI_API_KEY=sk-test"},
			prompt: []string{"run", "--no-session", "-t", question}, quiet: []string{"GOOSE_TELEMETRY_OFF"},
			off: []string{"GOOSE_TELEMETRY_OFF=1"},
			broker: brokered{route: "openai", variable: "OPENAI_API_KEY", env: []string{"GOOSE_PROVIDER=openai", "GOOSE_MODEL=gpt-4.1"},
				calls: []string{"GET /v1/models", "POST /v1/chat/completions"}}},
		{name: "aider", from: "PyPI", allow: "api.anthropic.com",
			off: []string{"AIDER_CHECK_UPDATE=false", "AIDER_ANALYTICS=false"}},
		{name: "cursor", program: "cursor-agent", from: "the vendor"},
	}
}

func (a agentSpec) command() []string {
	if a.program != "" {
		return []string{a.program}
	}
	return []string{a.name}
}

// asShipped is the command for one prompt, as the image is.
func (a agentSpec) asShipped() []string {
	if a.prompt == nil {
		return args(a.command(), []string{"--version"})
	}
	return args(a.command(), a.prompt)
}

// asVendor is the same with what the image turns off turned on again: variables are unset, settings
// emptied by options of the engine, and flags added.
func (a agentSpec) asVendor(t *testing.T) (options, command []string) {
	t.Helper()
	empty, err := filepath.Abs("testdata/empty.json")
	if err != nil {
		t.Fatal(err)
	}
	unset := []string{"env"}
	var flags []string
	for _, q := range a.quiet {
		switch {
		case strings.HasPrefix(q, "/"):
			options = append(options, "-v", empty+":"+q+":ro")
		case q == strings.ToUpper(q):
			unset = append(unset, "-u", q)
		default:
			flags = append(flags, q)
		}
	}
	return options, args(unset, a.command(), flags, a.prompt)
}
