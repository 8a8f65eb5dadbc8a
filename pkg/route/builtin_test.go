package route

import (
	"net/url"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestBuiltinByName(t *testing.T) {
	for _, name := range Names() {
		if r, ok := Builtin(name); !ok || r.Name != name {
			t.Errorf("Builtin(%q) = %q, %v", name, r.Name, ok)
		}
	}
	if r, ok := Builtin("nobody"); ok || r.Name != "" {
		t.Errorf("Builtin of a name that is none = %+v, %v", r, ok)
	}
	if names := Names(); len(slices.Compact(slices.Sorted(slices.Values(names)))) != len(names) {
		t.Errorf("a name stands twice in %q", names)
	}
}

// TestBuiltinsAreOnesOwn changes a route everywhere, and takes it again.
func TestBuiltinsAreOnesOwn(t *testing.T) {
	r, _ := Builtin("anthropic")
	r.Headers[0], r.Endpoints[0].Path, r.Env["ANTHROPIC_BASE_URL"], r.Inject.ByPrefix[0].Prefix = "x", "/x", "x", "x"
	again, _ := Builtin("anthropic")
	if again.Headers[0] == "x" || again.Endpoints[0].Path == "/x" ||
		again.Env["ANTHROPIC_BASE_URL"] == "x" || again.Inject.ByPrefix[0].Prefix == "x" {
		t.Errorf("a change of one's own route is in the next: %+v", again)
	}
}

func TestBuiltinsAreWellFormed(t *testing.T) {
	for _, r := range builtins() {
		if !regexp.MustCompile(`^[a-z0-9][a-z0-9-]*$`).MatchString(r.Name) {
			t.Errorf("%q is no name of a route", r.Name)
		}
		wellFormedUpstream(t, r)
		wellFormedCredential(t, r)
		wellFormedEndpoints(t, r)
		for name, value := range r.Env {
			rest := strings.NewReplacer("{base}", "", "{token}", "", "{dir}", "").Replace(value)
			if !regexp.MustCompile(`^[A-Z][A-Z0-9_]*$`).MatchString(name) || strings.ContainsAny(rest, "{}") {
				t.Errorf("%s: environment %s=%s", r.Name, name, value)
			}
		}
	}
}

func wellFormedUpstream(t *testing.T, r Route) {
	t.Helper()
	if r.To == "" {
		return // for the policy to say
	}
	u, err := url.Parse(strings.NewReplacer("{resource}", "r", "{region}", "eu-central-1").Replace(r.To))
	if err != nil || u.Scheme != "https" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || !strings.HasSuffix(u.Path, "/") {
		t.Errorf("%s: it leads to %q (%v)", r.Name, r.To, err)
	}
	if r.Private || r.Plaintext {
		t.Errorf("%s: a built-in route loosens what only a person may", r.Name)
	}
}

// wellFormedCredential holds that a credential goes to one place, and that no caller's gets through beside it.
func wellFormedCredential(t *testing.T, r Route) {
	t.Helper()
	if !r.Keyless && (len(r.Credential) == 0 || (r.Inject.Header == "") == (r.Inject.Query+r.Inject.Basic == "")) {
		t.Errorf("%s: credential %v, put on as %+v", r.Name, r.Credential, r.Inject)
	}
	for _, s := range r.Credential {
		kinds := 0
		for _, kind := range []string{s.File, s.Env, s.Login} {
			if kind != "" {
				kinds++
			}
		}
		if kinds != 1 || s.Login != "" && r.LoginHost == "" || s.Env != "" && r.Env[s.Env] != "" && r.Env[s.Env] != "{token}" {
			t.Errorf("%s: source %+v", r.Name, s)
		}
	}
	injected := []Prefixed{{Header: r.Inject.Header, Value: r.Inject.Value}}
	for _, p := range append(injected, r.Inject.ByPrefix...) {
		if p.Header != strings.ToLower(p.Header) || p.Header != "" && strings.Count(p.Value, "{}") != 1 {
			t.Errorf("%s: put on as %+v", r.Name, p)
		}
	}
	for _, h := range r.Headers {
		if h != strings.ToLower(h) || strings.Contains(strings.TrimSuffix(h, "*"), "*") {
			t.Errorf("%s: header %q", r.Name, h)
		}
		for _, never := range []string{
			"authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie", "proxy-authorization", "host",
			"anthropic-workspace-id", "anthropic-user-profile-id", "openai-organization", "openai-project", "chatgpt-account-id",
			"x-goog-user-project", "x-http-method-override", "x-amz-security-token", "x-ms-authorization", r.TenantHeader,
		} {
			if never != "" && Match([]string{h}, never) {
				t.Errorf("%s: header %q lets %s through", r.Name, h, never)
			}
		}
	}
}

func wellFormedEndpoints(t *testing.T, r Route) {
	t.Helper()
	if len(r.Endpoints) == 0 {
		t.Errorf("%s: no endpoint", r.Name)
	}
	for _, e := range r.Endpoints {
		if r.Packages.Registry != "" { // whose paths are judged besides
			if e.Body != Empty || e.Method != "GET" && e.Method != "HEAD" {
				t.Errorf("%s: %s %s", r.Name, e.Method, e.Path)
			}
			continue
		}
		if e.Path != path.Clean(e.Path) || !strings.HasPrefix(e.Path, "/") || strings.Contains(strings.TrimPrefix(e.Path, "/**"), "**") {
			t.Errorf("%s: path %q", r.Name, e.Path)
		}
		if e.Method != "GET" != (e.Body != Empty) || e.Body == Opaque || e.Method != "POST" && e.Method != "GET" && (e.Method != "PUT" || e.Body != GitObject) {
			t.Errorf("%s: %s %s with a body by the rules %q", r.Name, e.Method, e.Path, e.Body)
		}
		for _, q := range e.Query {
			if slices.Contains([]string{"key", "$key", "access_token", "api_key", "alt", "$alt", "fields", "callback"}, q) {
				t.Errorf("%s: %s with the parameter %q", r.Name, e.Path, q)
			}
		}
	}
}

// TestDocsRoutes holds the table of docs/broker.md: each route, where it leads, and its variables.
func TestDocsRoutes(t *testing.T) {
	page, err := os.ReadFile("../../docs/broker.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|.*$").FindAllStringSubmatch(string(page), -1) {
		rows[row[1]] = row[0]
	}
	for _, r := range builtins() {
		host := strings.NewReplacer("https://", "", "/maven2", "", "/", "", "{resource}", "RESOURCE", "{region}", "REGION").Replace(r.To)
		if host == "" {
			host = "a server of yours"
		}
		var variables []string
		for _, s := range r.Credential {
			if s.Env != "" {
				variables = append(variables, "`"+s.Env+"`")
			}
		}
		if variables == nil {
			variables = []string{"none"}
		}
		if want := "| `" + r.Name + "` | " + host + " | " + strings.Join(variables, ", ") + " | "; !strings.HasPrefix(rows[r.Name], want) {
			t.Errorf("docs/broker.md has %q, want %q", rows[r.Name], want)
		}
		delete(rows, r.Name)
	}
	if len(rows) > 0 {
		t.Errorf("docs/broker.md has rows of routes that are none: %q", rows)
	}
}
