// Package route has the routes of the broker as data: where a request goes, what may pass, and how the credential is
// put on. It does nothing, and imports nothing that reads what the network or the agent sends.
package route

import (
	"path"
	"strings"
	"time"
)

// Route is one way through the broker: the agent asks http://127.0.0.1:PORT/NAME/…, and the broker asks To.
type Route struct {
	Name string `json:"name"`
	To   string `json:"to"` // https://HOST[:PORT][/PREFIX]; http only for servers that Private or an address names

	Credential []Source `json:"credential"` // the first that is there is taken
	Optional   bool     `json:"optional"`   // without a credential there is no route, and the start goes on
	Keyless    bool     `json:"keyless"`    // the server wants no credential (credential: none)
	Private    bool     `json:"private"`    // the host may resolve to private addresses
	Plaintext  bool     `json:"plaintext"`  // the credential may go over http

	Inject  Inject   `json:"inject"`  // how the credential is put on
	Headers []string `json:"headers"` // what passes besides the general ones, in lower case; a * at the end stands for anything but credentials
	Query   []string `json:"query"`   // likewise parameters, of a route of one's own, or with Inspects
	Add     []Header `json:"add"`     // put on besides, a tenant's pin for one

	Endpoints  []Endpoint `json:"endpoints"`   // what may be asked; nothing else may
	Shape      Shape      `json:"shape"`       // of a refusal
	TellsUsage bool       `json:"tells_usage"` // its streams of Chat Completions tell their usage unasked

	ClientTools   []string `json:"client_tools"`   // types of tools that the client runs here; any other is the provider's
	ProviderTools []string `json:"provider_tools"` // server-side tools that may be asked for; none by default
	Models        []string `json:"models"`         // patterns as in path.Match without brackets; none: any model
	Fields        []string `json:"fields"`         // top-level fields of a body that are known besides the built-in ones
	Limits        Limits   `json:"limits"`

	Env         map[string]string `json:"env"`          // what the agent gets: {base}, {token}, and {dir}, where Files are, are replaced
	TokenPrefix string            `json:"token_prefix"` // of the agent's token, which a scanner then takes for a key

	LoginHost string `json:"login_host,omitempty"` // where a login of this API is refreshed, over HTTPS

	Harmless     []Endpoint `json:"harmless"`      // refused as all else, but clients ask it at their start and do without
	TenantHeader string     `json:"tenant_header"` // the API's header that admits the keys of named organisations alone

	Git      Git      `json:"git"`             // of a route to repositories
	Packages Packages `json:"packages"`        // of a route to a registry
	Inspects string   `json:"inspects"`        // NAME:PORT: what this route puts on goes onto an inspected name, and it has no path of its own
	Files    []File   `json:"files,omitempty"` // in the runtime directory, for programs that no variable points here
	Open     bool     `json:"open"`            // where the kernel says whose a connection is, nobody shows a token
}

// Git is what may be done with repositories.
type Git struct {
	Write    bool     `json:"write"`    // push, too
	Repos    []string `json:"repos"`    // OWNER/NAME, * stands for any text without a slash; none: any
	Branches []string `json:"branches"` // that may be pushed, as in agent/*; none: any ref
}

// Packages is which packages of a registry there are.
type Packages struct {
	Registry string        `json:"registry"` // npm, pypi, go, crates, maven; "": not a registry
	MinAge   time.Duration `json:"min_age"`  // a younger version does not exist
	Allow    []string      `json:"allow"`    // patterns, as in @scope/*; none: any
	Deny     []string      `json:"deny"`     // wins
}

// File is one in the runtime directory. What several routes have for the same name stands one behind the other; without
// a Head it is the first one's. {base},
// {token}, {dir}, {to} and its {host} are replaced.
type File struct {
	Name string `json:"name"`
	Head string `json:"head"` // once, before all
	Text string `json:"text"`
}

// Source is where a credential is: a file of root's, a variable that agent-init was started with, or a file of root's
// with a login, whose tokens the broker refreshes and the keeper writes back.
type Source struct {
	File  string `json:"file,omitempty"`
	Env   string `json:"env,omitempty"`
	Login string `json:"login,omitempty"`
}

// Inject is where a credential goes. One of Header, Basic and Query is set, or none with Keyless.
type Inject struct {
	Header string `json:"header,omitempty"` // in lower case
	Value  string `json:"value,omitempty"`  // of the header, with {} for the credential: "Bearer {}"
	Basic  string `json:"basic,omitempty"`  // the user of Basic authentication
	Query  string `json:"query,omitempty"`  // a parameter of the query

	ByPrefix []Prefixed `json:"by_prefix,omitempty"` // the first whose prefix the credential has is put on instead
}

// Prefixed is how a credential of another kind is put on, which its first characters tell.
type Prefixed struct {
	Prefix string   `json:"prefix"`
	Header string   `json:"header"`           // in lower case
	Value  string   `json:"value"`            // with {} for the credential
	Append []Header `json:"append,omitempty"` // to the list that the caller sent in a header, once
}

// Header is one line of a request's head.
type Header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Endpoint is a method, and a canonical path below the route, where * is a segment or a part of one, and ** at the end or the
// beginning any segments.
type Endpoint struct {
	Method string   `json:"method"`
	Path   string   `json:"path"`
	Query  []string `json:"query,omitempty"`  // what may stand in the query: name, name=value, or * for what the route's Query has
	Body   Body     `json:"body,omitempty"`   // the rules that judge the body
	To     string   `json:"to,omitempty"`     // where it leads instead of the route's To, without the credential
	Answer Answer   `json:"answer,omitempty"` // what is taken out of an answer, or changed in it
}

// Body names the rules that judge what a request has inside, and how the answer tells its usage.
type Body string

const (
	Empty         Body = ""               // there must be none
	Opaque        Body = "opaque"         // of a route of one's own: not looked at, and bounded
	Messages      Body = "messages"       // Anthropic's Messages API
	CountMessages Body = "count-messages" // likewise, to count tokens
	Responses     Body = "responses"      // OpenAI's Responses API
	Chat          Body = "chat"           // OpenAI's Chat Completions
	Generate      Body = "generate"       // Gemini's generateContent and streamGenerateContent
	CountGenerate Body = "count-generate" // Gemini's countTokens
	Converse      Body = "converse"       // Bedrock's converse and converse-stream
	InvokeModel   Body = "invoke-model"   // Bedrock's invoke, of Anthropic's models
	GitUpload     Body = "git-upload"     // what git-upload-pack is asked for: streamed
	GitReceive    Body = "git-receive"    // a push: its commands are judged, and then it is streamed
	GitLFS        Body = "git-lfs"        // where large files are
	GitObject     Body = "git-object"     // a large file, or that it has arrived: streamed
)

// Answer names the rules for an answer that does not pass as it is.
type Answer string

// LFSAnswer tells where large files are: it has tickets of the broker's instead.
const LFSAnswer Answer = "lfs"

// Shape is the form that an API gives its errors.
type Shape string

const (
	PlainShape     Shape = "" // {"error": {"message": …}}
	AnthropicShape Shape = "anthropic"
	OpenAIShape    Shape = "openai"
	GeminiShape    Shape = "gemini"
	GitShape       Shape = "git"  // text, which git shows
	TextShape      Shape = "text" // likewise pip, go, cargo, mvn
	NPMShape       Shape = "npm"
)

// Limits bound what the agent spends; 0 is no limit. The keeper counts, so no end of a broker resets them.
type Limits struct {
	RequestsPerMinute int   `json:"requests_per_minute,omitempty"`
	TokensPerDay      int64 `json:"tokens_per_day,omitempty"`
}

// MaxBody bounds a request's body, also unpacked: Anthropic's limit, which is the largest of the APIs'.
const MaxBody = 32 << 20

// IdleTime is how long a stream may be silent. No client waits longer.
const IdleTime = 15 * time.Minute

// Match says whether one of patterns has name; each * stands for any text.
func Match(patterns []string, name string) bool {
	for _, p := range patterns {
		if ok, err := path.Match(strings.ReplaceAll(p, "/", "\x00"), strings.ReplaceAll(name, "/", "\x00")); ok && err == nil {
			return true
		}
	}
	return false
}
