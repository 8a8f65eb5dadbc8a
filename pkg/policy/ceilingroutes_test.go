package policy

import (
	"encoding/json"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/pkg/route"
)

// What is left of a route below one of the same name.
func TestCeilingRoutes(t *testing.T) {
	const own = "to: 'https://api.mine.example/v1/', credential: 'env:KEY', inject: {header: X-Key}"
	for _, tt := range []struct{ ceiling, policy, left, said string }{
		{"anthropic: {}", "anthropic: {}", "anthropic", ""},
		{"openai: {}", "anthropic: {}", "", "none of its routes has this name"},
		{"anthropic: {}", "anthropic: {to: 'https://mirror.example/'}", "", "it has another route of this name (to) (ceiling.d/c.yaml:3)"},
		{"anthropic: {}", "anthropic: {private: true}", "", "it has another route of this name (private)"},
		{"anthropic: {}", "anthropic: {credential: 'file:/etc/shadow'}", "", "it admits nothing of what credential has here"},
		{"anthropic: {credential: ['env:A', 'env:B']}", "anthropic: {credential: ['env:B', 'env:C']}", "anthropic credential env:B", "it admits less of credential"},
		{"anthropic: {models: ['claude-*']}", "anthropic: {}", "anthropic models claude-*", ""},
		{"anthropic: {models: ['claude-*']}", "anthropic: {models: [claude-x-4, 'gpt-*']}", "anthropic models claude-x-4", "it admits less of models"},
		{"anthropic: {models: ['claude-*']}", "anthropic: {models: ['*']}", "", "it admits nothing of what models has here"},
		{"anthropic: {models: ['*']}", "anthropic: {models: ['sonar-pro']}", "", "it admits nothing of what models has here"}, // which searches
		{"anthropic: {}", "anthropic: {provider_tools: [web_search]}", "anthropic", "it admits less of provider_tools"},
		{"anthropic: {provider_tools: [web_search]}", "anthropic: {provider_tools: [web_search]}", "anthropic tools web_search", ""},
		{"anthropic: {limits: {tokens_per_day: 10}}", "anthropic: {limits: {tokens_per_day: 20, requests_per_minute: 3}}", "anthropic limits 3 10", "it admits less of limits"},
		{"anthropic: {limits: {tokens_per_day: 10}}", "anthropic: {}", "anthropic limits 0 10", ""},
		{"anthropic: {limits: {tokens_per_day: 10}}", "anthropic: {limits: {tokens_per_day: 5}}", "anthropic limits 0 5", ""},
		{"anthropic: {tenant: org-1}", "anthropic: {}", "anthropic", ""},
		{"mine: {" + own + ", allow: [GET /a, GET /b]}", "mine: {" + own + ", allow: [GET /b, POST /b]}", "mine GET /b", "it admits less of allow"},
		{"mine: {" + own + ", allow: [GET /a], query: [page]}", "mine: {" + own + ", allow: [GET /a], query: [page, q]}", "mine GET /a query page", "it admits less of query"},
		{"mine: {" + own + ", allow: [GET /a]}", "mine: {" + own + ", allow: [POST /b]}", "", "it admits nothing of what allow has here"},
		{"mine: {" + own + ", allow: [GET /a]}", "mine: {" + own + ", allow: [GET /a], add: {x: y}}", "", "the header x is put on otherwise"},
		{"mine: {" + own + ", allow: [GET /a], add: {x: y}}", "mine: {" + own + ", allow: [GET /a]}", "mine GET /a add x", ""},
		{"github: {credential: 'env:G', repos: ['my-org/*'], git: read}", "github: {credential: 'env:G', repos: ['my-org/a', 'other/b'], git: write}", "github repos my-org/a", "it admits less of repos"},
		{"npm: {min_age: 3d, packages: {allow: ['@my/*'], deny: [x]}, credential: none}", "npm: {packages: {deny: [y]}, credential: none}", "npm 72h0m0s packages @my/* but y x", ""},
	} {
		ceiling := []byte("entries: any\nbroker:\n  " + tt.ceiling + "\n")
		p, err := Parse(&Bundle{Files: []File{{"p.yaml", []byte("broker:\n  " + tt.policy + "\n")}}, Ceiling: []File{{"ceiling.d/c.yaml", ceiling}}}, nil)
		if err != nil {
			t.Errorf("%s below %s: %v", tt.policy, tt.ceiling, err)
			continue
		}
		var left []string
		for _, r := range p.Settings.Broker {
			left = append(left, leftOf(r))
		}
		if got := strings.Join(left, ";"); got != tt.left && !(tt.said == "" && strings.HasPrefix(tt.ceiling, "anthropic: {tenant")) {
			t.Errorf("%s below %s leaves %q, want %q", tt.policy, tt.ceiling, got, tt.left)
		}
		if strings.Contains(tt.ceiling, "tenant") && !slices.ContainsFunc(p.Settings.Broker[0].Add, func(h route.Header) bool { return h.Value == "org-1" }) {
			t.Errorf("the tenant is gone: %+v", p.Settings.Broker[0].Add)
		}
		if said := warnings(p); !strings.Contains(said, tt.said) || (len(p.Cuts()) == 0) != (tt.said == "") {
			t.Errorf("%s below %s: %q, want %q", tt.policy, tt.ceiling, said, tt.said)
		}
		if (p.Broker != nil) != (tt.left != "") {
			t.Errorf("%s below %s: the broker has a policy: %v", tt.policy, tt.ceiling, p.Broker != nil)
		}
	}
	// Without a section of its own, a ceiling of names has none of them.
	if p := under(t, "*.anthropic.com", "broker: {anthropic: {}}"); p.Broker != nil || len(p.Cuts()) != 1 {
		t.Errorf("%+v", p.Cuts())
	}
	if p := under(t, "entries: any\ndeny: [api.anthropic.com]", "broker: {anthropic: {}}"); p.Broker != nil || !strings.Contains(warnings(p), "denied for good (ceiling.d/c.yaml:2)") {
		t.Errorf("%+v", p.Cuts())
	}
	if p := under(t, "entries: any", "broker: {anthropic: {}}"); p.Broker == nil {
		t.Errorf("%+v", p.Cuts())
	}
}

// leftOf says of a route what a ceiling may have taken.
func leftOf(r route.Route) string {
	s := []string{r.Name}
	usual, builtin := route.Builtin(r.Name)
	if r.Packages.MinAge > 0 {
		s = append(s, r.Packages.MinAge.String())
	}
	for _, e := range r.Endpoints {
		if !builtin {
			s = append(s, e.Method, e.Path)
		}
	}
	if len(r.Add) > len(usual.Add) {
		s = append(s, "add", r.Add[len(r.Add)-1].Name)
	}
	if builtin && len(r.Credential) == 1 && r.Credential[0].Env != "G" {
		s = append(s, "credential", "env:"+r.Credential[0].Env)
	}
	add := func(what string, list []string) {
		if len(list) > 0 {
			s = append(append(s, what), list...)
		}
	}
	add("models", r.Models)
	add("tools", r.ProviderTools)
	add("query", r.Query)
	add("repos", r.Git.Repos)
	add("packages", r.Packages.Allow)
	add("but", r.Packages.Deny)
	if l := r.Limits; l != (route.Limits{}) {
		b, _ := json.Marshal([]int64{int64(l.RequestsPerMinute), l.TokensPerDay})
		s = append(s, "limits", strings.NewReplacer("[", "", "]", "", ",", " ").Replace(string(b)))
	}
	return strings.Join(s, " ")
}

// A field of a route that is not compared by itself has to be the same.
func TestCeilingKnowsEveryField(t *testing.T) {
	itself := []string{"Credential", "Headers", "Query", "Add", "Endpoints", "ProviderTools", "Models", "Fields", "Limits", "Env", "Optional", "Git", "Packages"}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[route.Route]()) {
		var r route.Route
		switch v := reflect.ValueOf(&r).Elem().FieldByIndex(f.Index); {
		case slices.Contains(itself, f.Name):
			continue
		case v.Kind() == reflect.String:
			v.SetString("x")
		case v.Kind() == reflect.Bool:
			v.SetBool(true)
		case v.Kind() == reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		case v.Kind() == reflect.Struct:
			v.Field(0).SetString("x")
		default:
			t.Errorf("%s: this test can't change it", f.Name)
		}
		if _, why, _ := routeWithin(r, route.Route{}); why == "" {
			t.Errorf("a route with another %s is below the ceiling", f.Name)
		}
	}
}

// FuzzCovers: what a pattern has that another covers, the other has.
func FuzzCovers(f *testing.F) {
	f.Add("claude-*", "claude-x-*", "claude-x-4")
	f.Add("*/*", "my-org/*", "my-org/a")
	f.Add("*a*b*", "xa*yb", "xa1yb")
	f.Fuzz(func(t *testing.T, top, p, name string) {
		if len(top)+len(p) > 200 || strings.ContainsAny(top+p, `[]?\`) || strings.ContainsRune(name, '*') {
			return
		}
		if covers(top, p) && route.Match([]string{p}, name) && !route.Match([]string{top}, name) {
			t.Fatalf("%q covers %q, and has not %q", top, p, name)
		}
	})
}

// The schema of a ceiling has the keys that its parser has.
func TestSchemaOfCeiling(t *testing.T) {
	var root struct{ Properties map[string]any }
	data, err := os.ReadFile("ceiling.schema.json")
	if err == nil {
		err = json.Unmarshal(data, &root)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got, want := slices.Sorted(maps.Keys(root.Properties)), slices.Sorted(slices.Values(names(newParser(nil).ceilingKeys(&Ceiling{})))); !slices.Equal(got, want) {
		t.Errorf("the schema has %q, the parser %q", got, want)
	}
}
