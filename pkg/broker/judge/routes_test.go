package judge

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/pkg/route"
)

// asks are what may be asked over each route, and what may not though its host knows it: "METHOD PATH".
var asks = map[string]struct{ pass, refuse string }{
	"anthropic": {
		`POST /v1/messages
		POST /v1/messages?beta=true
		POST /v1/messages/count_tokens
		POST /v1/messages/count_tokens?beta=true
		GET /v1/models
		GET /v1/models?limit=1000
		GET /v1/models?beta=true&after_id=a&before_id=b&limit=1
		GET /v1/models/claude-opus-5-5`,
		`HEAD /
		HEAD /api/hello
		GET /v1/messages
		DELETE /v1/models/claude-opus-5-5
		POST /v1/messages?beta=false
		POST /v1/messages?key=x
		POST /v1/messages/batches
		GET /v1/messages/batches/b/results
		POST /v1/messages/cache_touch
		POST /v1/files
		GET /v1/files/f/content
		POST /v1/skills
		POST /v1/complete
		POST /v1/agents
		POST /v1/sessions
		POST /v1/environments/e/poll
		POST /v1/deployments
		POST /v1/memory_stores
		POST /v1/vaults/v/credentials
		POST /v1/tunnels/t/reveal_token
		GET /v1/organizations/me
		POST /v1/organizations/api_keys
		POST /v1/oauth/token
		POST /api/oauth/claude_cli/create_api_key
		GET /api/web/domain_info
		POST /api/event_logging/batch
		POST /v1/mcp/x
		POST /v1/logs
		GET /v1/me
		POST /messages
		POST /v1/v1/messages`,
	},
	"chatgpt": {
		`POST /backend-api/codex/responses
		GET /backend-api/codex/models?client_version=0.169.0
		GET /backend-api/wham/accounts/check
		GET /backend-api/wham/settings/user`,
		`GET /backend-api/codex/responses
		POST /backend-api/wham/accounts/check
		GET /backend-api/accounts/check
		POST /backend-api/codex/responses/compact
		GET /backend-api/conversations
		POST /backend-api/files
		GET /backend-api/me
		GET /api/auth/session
		POST /v1/responses`,
	},
	"openai": {
		`POST /v1/responses
		POST /v1/chat/completions
		GET /v1/models
		GET /v1/models?client_version=0.169.0
		GET /v1/models/gpt-5`,
		`GET /v1/responses
		GET /v1/responses/resp_1
		DELETE /v1/responses/resp_1
		POST /v1/responses?beta=true
		POST /v1/responses/resp_1/cancel
		GET /v1/responses/resp_1/input_items
		POST /v1/responses/compact
		POST /v1/responses/input_tokens
		POST /v1/alpha/search
		POST /v1/conversations
		GET /v1/chat/completions
		GET /v1/chat/completions/c/messages
		POST /v1/completions
		POST /v1/files
		POST /v1/uploads
		POST /v1/batches
		POST /v1/containers
		POST /v1/vector_stores
		POST /v1/assistants
		POST /v1/threads/runs
		POST /v1/agents
		POST /v1/skills
		POST /v1/evals
		POST /v1/fine_tuning/jobs
		POST /v1/images/generations
		POST /v1/images/edits
		POST /v1/audio/speech
		POST /v1/videos
		POST /v1/realtime/client_secrets
		POST /v1/webhook_endpoints
		POST /v1/moderations
		POST /v1/embeddings
		GET /v1/organization/admin_api_keys
		DELETE /v1/models/gpt-5
		POST /backend-api/codex/responses`,
	},
	"azure-openai": {
		`POST /openai/v1/responses
		POST /openai/v1/responses?api-version=preview
		POST /openai/v1/chat/completions
		GET /openai/v1/models
		POST /openai/responses?api-version=2025-04-01-preview
		POST /openai/deployments/d/chat/completions?api-version=2025-04-01
		POST /anthropic/v1/messages
		POST /anthropic/v1/messages/count_tokens`,
		`POST /openai/deployments/d/extensions/chat/completions?api-version=x
		POST /openai/deployments/d/completions
		POST /openai/deployments/d/images/generations
		POST /openai/deployments/d/e/chat/completions
		GET /openai/v1/responses/resp_1
		POST /openai/v1/files
		GET /openai/deployments
		PUT /openai/deployments/d
		POST /openai/v1/responses?api-key=x`,
	},
	"gemini": {
		`POST /v1beta/models/gemini-3.8-flash:generateContent
		POST /v1beta/models/gemini-3.8-flash:streamGenerateContent
		POST /v1beta/models/gemini-3.8-flash:streamGenerateContent?alt=sse
		POST /v1beta/models/gemini-3.8-flash:countTokens
		POST /v1/models/gemini-3.8-flash:generateContent
		GET /v1beta/models
		GET /v1beta/models?pageSize=50&pageToken=x
		GET /v1beta/models/gemini-3.8-flash`,
		`GET /v1beta/models/gemini-3.8-flash:generateContent?key=x
		POST /v1beta/models/gemini-3.8-flash:generateContent?key=x
		POST /v1beta/models/gemini-3.8-flash:generateContent?$key=x
		POST /v1beta/models/gemini-3.8-flash:generateContent?access_token=x
		POST /v1beta/models/gemini-3.8-flash:streamGenerateContent?alt=json
		POST /v1beta/models/gemini-3.8-flash:streamGenerateContent?$alt=sse
		POST /v1beta/models/gemini-3.8-flash:streamGenerateContent?alt=sse&fields=a
		POST /v1beta/models/gemini-3.8-flash:streamGenerateContent?alt=sse&callback=a
		POST /v1beta/models/gemini-3.8-flash:generateContent?%24key=x
		POST /v1beta/models/gemini-3.8-flash:batchGenerateContent
		POST /v1beta/models/gemini-3.8-flash:embedContent
		POST /v1beta/models/gemini-3.8-flash:predict
		POST /v1beta/models/gemini-3.8-flash:predictLongRunning
		POST /v1beta/models/gemini-3.8-flash:generateAnswer
		POST /v1beta/models/gemini-3.8-flash:bidiGenerateContent
		POST /v1beta/models/a:batchEmbedContents:generateContent
		POST /v1beta/models/:generateContent
		POST /v1beta/models/a/b:generateContent
		POST /v1beta/tunedModels/x:generateContent
		POST /v1beta/dynamic/x:generateContent
		POST /v1beta/interactions
		GET /v1beta/files
		POST /v1beta/files:register
		POST /upload/v1beta/files
		POST /v1beta/cachedContents
		POST /v1beta/fileSearchStores/x:importFile
		POST /v1beta/corpora
		POST /v1beta/agents
		POST /v1beta/webhooks/x:ping
		POST /v1beta/auth_tokens
		POST /v1alpha/models/x:generateContent
		POST /v1beta/openai/chat/completions`,
	},
	"openrouter": {
		`POST /api/v1/chat/completions
		POST /api/v1/responses
		POST /api/v1/messages
		POST /api/v1/messages?beta=true
		GET /api/v1/models`,
		`GET /api/v1/key
		GET /api/v1/keys
		POST /api/v1/keys
		GET /api/v1/credits
		POST /api/v1/auth/keys
		GET /api/v1/generation?id=x
		POST /api/v1/files
		POST /api/v1/images
		POST /api/v1/presets/x/chat/completions
		POST /api/v1/completions
		POST /api/alpha/responses
		GET /api/v1/workspaces`,
	},
	"mistral": {
		`POST /v1/chat/completions
		GET /v1/models
		GET /v1/models/codestral-latest`,
		`POST /v1/conversations
		POST /v1/agents
		POST /v1/agents/completions
		POST /v1/libraries
		POST /v1/ocr
		POST /v1/files
		POST /v1/batch/jobs
		POST /v1/fine_tuning/jobs
		POST /v1/connectors
		POST /v1/embeddings
		DELETE /v1/models/m`,
	},
	"deepseek": {
		`POST /chat/completions
		POST /v1/chat/completions
		POST /anthropic/v1/messages
		POST /anthropic/v1/messages?beta=true
		GET /models
		GET /v1/models`,
		`GET /user/balance
		POST /beta/completions
		POST /beta/chat/completions
		POST /anthropic/v1/files`,
	},
	"groq": {
		`POST /openai/v1/chat/completions
		POST /openai/v1/responses
		GET /openai/v1/models
		GET /openai/v1/models/x`,
		`POST /openai/v1/files
		POST /openai/v1/batches
		POST /openai/v1/audio/transcriptions
		POST /v1/fine_tunings
		POST /v1/chat/completions`,
	},
	"xai": {
		`POST /v1/chat/completions
		POST /v1/responses
		GET /v1/models
		GET /v1/models/grok-4.3`,
		`GET /v1/chat/deferred-completion/x
		GET /v1/responses/x
		DELETE /v1/responses/x
		POST /v1/files
		POST /v1/images/generations
		GET /v1/api-key
		POST /v1/messages
		POST /v1/documents/search`,
	},
	"bedrock": {
		`POST /model/anthropic.claude-opus-5-5-v1:0/converse
		POST /model/anthropic.claude-opus-5-5-v1%3A0/converse-stream
		POST /model/arn%3Aaws%3Abedrock%3Aeu-central-1%3A1%3Ainference-profile%2Fx/invoke
		POST /model/x/invoke-with-response-stream`,
		`GET /inference-profiles
		GET /inference-profiles?type=SYSTEM_DEFINED
		POST /model/x/count-tokens
		POST /model/x/invoke-with-bidirectional-stream
		POST /async-invoke
		GET /async-invoke
		POST /guardrail/g/version/1/apply
		POST /model/a%252Fb/converse
		POST /model/a/b/converse
		POST /model/..%2F..%2Fasync-invoke/converse`,
	},
	"localai": {local, `POST /models/apply
		POST /v1/images/generations
		POST /tts
		GET /system`},
	"vllm": {local, `POST /v1/load_lora_adapter
		POST /tokenize
		POST /v1/completions
		POST /reset_prefix_cache
		GET /metrics`},
	"ollama": {local, `POST /api/pull
		POST /api/push
		POST /api/create
		POST /api/chat
		DELETE /api/delete
		POST /api/web_search
		POST /api/web_fetch
		GET /api/tags`},
	"github": {gitAsks + `
		GET /o/r.git/info/lfs/github-cloud.githubusercontent.com?ticket=x
		GET /o/r.git/info/lfs/github-cloud.s3.amazonaws.com?ticket=x
		PUT /o/r.git/info/lfs/github-cloud.s3.amazonaws.com?ticket=x
		POST /o/r.git/info/lfs/lfs.github.com?ticket=x`, gitRefused + "\nGET /o/r/s/info/refs?service=git-upload-pack"},
	"bitbucket": {gitAsks, gitRefused + "\nGET /o/r/s/info/refs?service=git-upload-pack"},
	"gitea":     {gitAsks, gitRefused + "\nGET /o/r/s/info/refs?service=git-upload-pack"},
	"gitlab":    {gitAsks + "\nGET /g/h/i/r.git/info/refs?service=git-upload-pack", gitRefused},
	"git": {gitAsks + `
		GET /r.git/info/refs?service=git-upload-pack
		POST /r/git-upload-pack
		POST /r/git-receive-pack
		POST /r/info/lfs/objects/batch
		GET /r/info/lfs/here?ticket=x
		PUT /r/info/lfs/here?ticket=x
		POST /r/info/lfs/here?ticket=x`, "GET /o/r/archive/main.zip"},
}

const gitAsks = `GET /o/r/info/refs?service=git-upload-pack
	GET /O/R.js.git/info/refs?service=git-receive-pack
	POST /o/r/git-upload-pack
	POST /o/r.git/git-receive-pack
	POST /o/r.git/info/lfs/objects/batch
	GET /o/r.git/info/lfs/here?ticket=x
	PUT /o/r.git/info/lfs/here?ticket=x
	POST /o/r.git/info/lfs/here?ticket=x`

const gitRefused = `GET /o/r/info/refs
	GET /o/r/info/refs?service=git-upload-archive
	GET /o/r/info/refs?service=git-upload-pack&service=git-receive-pack
	GET /o/r/info/refs?service=git-upload-pack&access_token=x
	GET /o/r/info/refs?service=git%2Dupload-pack
	POST /o/r/info/refs?service=git-upload-pack
	GET /o/r/git-upload-pack
	POST /o/r/git-upload-pack?service=git-upload-pack
	POST /o/r/git-upload-archive
	GET /o/r/info/lfs/objects/batch
	POST /o/r/info/lfs/objects/verify
	POST /o/r/info/lfs/objects
	POST /o/r/info/lfs/locks/verify
	GET /o/r/info/lfs/here?ticket=x&ticket=y
	GET /o/r/info/lfs/there?ticket=x
	GET /o/r/info/lfs/locks
	GET /o/r/HEAD
	GET /o/r/objects/info/packs
	GET /o/r/archive/main.zip
	GET /o/r/releases/download/v1/x
	GET /o/.git/info/refs?service=git-upload-pack
	GET /o/-x/info/refs?service=git-upload-pack
	GET /o/r%20s/info/refs?service=git-upload-pack
	GET /o/../r/info/refs?service=git-upload-pack
	GET /r/info/refs?service=git-upload-pack
	POST /api/v3/repos
	POST /graphql
	GET /login/oauth/access_token`

const local = `POST /v1/chat/completions
	POST /v1/responses
	GET /v1/models
	GET /v1/models/llama3.2:latest`

// TestRoutes asks each, also with the tricks that work on paths.
func TestRoutes(t *testing.T) {
	for _, name := range route.Names() {
		if r := builtin(t, name); r.Packages.Registry != "" {
			continue // package registry has a table of its own
		}
		lists, ok := asks[name]
		if !ok {
			t.Errorf("route %s is not in the table", name)
			continue
		}
		r := builtin(t, name)
		r.Git.Write = r.ServesGit()
		asked := map[*route.Endpoint]bool{}
		for _, ask := range strings.Split(lists.pass, "\n") {
			method, target, _ := strings.Cut(strings.TrimSpace(ask), " ")
			path, query, _ := strings.Cut(target, "?")
			h := typed(r, path)
			e, refusal := Head(r, method, path, query, h)
			if refusal != nil {
				t.Errorf("%s: %s %s is refused: %s", name, method, target, refusal.Text)
			}
			asked[e] = true
			for _, trick := range []string{
				path + "/", "/" + path, path + "%2F", path + "/..", path + "/../x", strings.ToUpper(path), path + ";x", path + "%00", path + "#x",
				"/." + path, path[1:], "http://other.example" + path, strings.Replace(path, "/", "/%2E/", 1), path + "%3Fx=y", path + ".json",
			} {
				if _, refusal := Head(r, method, trick, query, h); refusal == nil && !strings.HasPrefix(trick, "/v1beta/models/") && !oneSegment(r, trick) {
					t.Errorf("%s: %s %s passes", name, method, trick)
				}
			}
			for _, other := range []string{"PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "CONNECT", "TRACE", "post", "get", ""} {
				if _, refusal := Head(r, other, path, query, h); refusal == nil && (other != "PUT" || !strings.Contains(path, "/info/lfs/")) {
					t.Errorf("%s: %s %s passes", name, other, path)
				}
			}
		}
		for i := range r.Endpoints {
			if !asked[&r.Endpoints[i]] && !strings.HasPrefix(r.Endpoints[i].Path, "/v1/models") {
				t.Errorf("%s: nothing in the table asks for %s %s", name, r.Endpoints[i].Method, r.Endpoints[i].Path)
			}
		}
		for _, ask := range strings.Split(lists.refuse, "\n") {
			method, target, _ := strings.Cut(strings.TrimSpace(ask), " ")
			path, query, _ := strings.Cut(target, "?")
			h := typed(r, path)
			if _, refusal := Head(r, method, path, query, h); refusal == nil {
				t.Errorf("%s: %s %s passes", name, method, target)
			}
		}
		for _, e := range r.Harmless {
			if _, refusal := Head(r, e.Method, e.Path, "", typed(r, e.Path)); refusal == nil {
				t.Errorf("%s: %s %s is called harmless when refused, and passes", name, e.Method, e.Path)
			}
		}
	}
}

// typed is a head with the type of the body that a path wants.
func typed(r *route.Route, path string) http.Header {
	if strings.HasSuffix(path, "/batch") {
		return http.Header{"Content-Type": {lfsType}}
	}
	if r.ServesGit() {
		return http.Header{"Content-Type": {"application/x-" + path[strings.LastIndexByte(path, '/')+1:] + "-request"}}
	}
	return http.Header{"Content-Type": {"application/json"}}
}

// oneSegment says whether a path is of an endpoint whose last segment may be any name of a model, as "x.json" is.
func oneSegment(r *route.Route, path string) bool {
	return slices.ContainsFunc(r.Endpoints, func(e route.Endpoint) bool {
		return e.Method == "GET" && strings.HasSuffix(e.Path, "/*") && e.MatchPath(path)
	})
}
