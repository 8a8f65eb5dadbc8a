package keeper

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/mustrun"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/route"
)

// vault are credentials of a test, with a route that has two places.
func vault(t *testing.T) (c *credentials, r route.Route, put func(text string)) {
	t.Helper()
	mustrun.Root(t) // files of other owners are refused
	file := filepath.Join(t.TempDir(), "key")
	c = newCredentials(&base{publisher: &publisher{}, config: Config{Environ: map[string]string{"KEY": "sk-of-a-variable", "EMPTY": ""}}, mode: "run"}, hindrance{})
	r = route.Route{Name: "a", To: "https://a.test/", Credential: []route.Source{{File: file}, {Env: "EMPTY"}, {Env: "KEY"}}}
	return c, r, func(text string) {
		t.Helper()
		os.Remove(file)
		if text != "" {
			if err := os.WriteFile(file, []byte(text), 0o400); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestCredentials: the first that is there counts, a change is taken over, and one that is no good is not.
func TestCredentials(t *testing.T) {
	c, r, put := vault(t)
	look := func(what, secret, source, fault string) {
		t.Helper()
		got := c.of(r)
		if string(got.secret) != secret || !strings.HasPrefix(got.source, source) || !strings.Contains(got.fault, fault) || fault == "" && got.fault != "" {
			t.Errorf("%s: %s of %s, fault %q", what, got.secret, got.source, got.fault)
		}
	}
	changed := func(what string, another, news bool) {
		t.Helper()
		if a, n := c.changed([]route.Route{r}); a != another || n != news {
			t.Errorf("%s: another %v, news %v", what, a, n)
		}
	}
	if why, err := c.look(r); why != "" || err != nil {
		t.Fatalf("%q, %v", why, err)
	}
	look("a variable", "sk-of-a-variable", "env:KEY", "")
	changed("as it was", false, false)
	put("sk-of-a-file\n")
	changed("a file", true, true)
	look("a file", "sk-of-a-file", "file:", "")
	put("sk-of-a-file\nand more\n")
	changed("a bad file", false, true)
	look("a bad file", "sk-of-a-file", "file:", "printable ASCII")
	changed("it is still bad", false, false)
	put("sk-of-a-file")
	changed("it is good again", false, true)
	look("it is good again", "sk-of-a-file", "file:", "")
	put("")
	changed("the file is gone, and the variable is there", true, true)
	look("the file is gone", "sk-of-a-variable", "env:KEY", "")
	c.environ = nil
	changed("all is gone", false, true)
	look("all is gone", "sk-of-a-variable", "env:KEY", "there is no credential at file:")
}

// TestCredentialsAbsent: an optional route without a credential is left out, another one is an error, and so is what is
// there and no good.
func TestCredentialsAbsent(t *testing.T) {
	c, r, put := vault(t)
	at := policy.Source{File: "policy.yaml", Line: 2}
	c.environ = nil
	for what, tc := range map[string]struct {
		text           string
		optional, none bool
		names          []string
		wrong          string
	}{
		"it is there":        {text: "sk-of-a-file", names: nil},
		"optional":           {optional: true, names: []string{"a"}},
		"needed":             {wrong: "there is no credential at file:"},
		"without a key":      {none: true},
		"optional, and bad":  {text: "two\nlines", optional: true, wrong: "can't be used"},
		"needed, and bad":    {text: " blank", wrong: "can't be used"},
		"optional, and good": {text: "sk-of-a-file", optional: true},
	} {
		put(tc.text)
		r := r
		r.Optional, r.Keyless = tc.optional, tc.none
		c.held = map[string]credential{}
		names, wrong := c.absent([]policy.PlacedRoute{{Route: r, Source: at}})
		if !slices.Equal(names, tc.names) || (len(wrong) > 0) != (tc.wrong != "") {
			t.Errorf("%s: %v, %v", what, names, wrong)
		}
		if len(wrong) > 0 && (!strings.Contains(wrong.Error(), tc.wrong) || !strings.HasPrefix(wrong.Error(), "policy.yaml:2: ") || strings.Contains(wrong.Error(), "lines\n")) {
			t.Errorf("%s: %v", what, wrong)
		}
	}
	c.without(hindrance{why: "there is no broker"})
	names, wrong := c.absent([]policy.PlacedRoute{{Route: route.Route{Name: "b", Optional: true, Keyless: true}}})
	if why, _ := c.absence("b"); len(wrong) > 0 || len(names) != 1 || why != "there is no broker" {
		t.Errorf("without a broker: %v, %v, %q", names, wrong, why)
	}
}

// TestDress: the agent gets what points its clients to the broker, and no credential, whatever was set.
func TestDress(t *testing.T) {
	p, err := new(policy.Policy).NextWith(&policy.Bundle{Files: []policy.File{{Name: "policy.yaml", Data: []byte("broker:\n  anthropic: {credential: env:MY_KEY}\n")}}}, nil,
		func([]policy.PlacedRoute) ([]string, policy.ErrorList) { return nil, nil })
	if err != nil {
		t.Fatal(err)
	}
	k := &brokerKeeper{book: newBook(nil, p), token: "drawn", sockets: &brokerSockets{port: 4321}}
	k.base = &base{publisher: &publisher{}}
	env := map[string]string{
		"MY_KEY": "sk-secret", "ANTHROPIC_API_KEY": "sk-secret", "CLAUDE_CODE_OAUTH_TOKEN": "sk-secret", "PATH": "/bin",
		"ANTHROPIC_BASE_URL": "https://evil.test", "ANTHROPIC_AUTH_TOKEN": "sk-secret", "ENABLE_TOOL_SEARCH": "false",
	}
	k.dress(env)
	for name, want := range map[string]string{
		"PATH": "/bin", "ANTHROPIC_BASE_URL": "http://127.0.0.1:4321/anthropic", "ANTHROPIC_AUTH_TOKEN": "sk-ant-drawn", "ENABLE_TOOL_SEARCH": "false",
	} {
		if env[name] != want {
			t.Errorf("%s=%s, want %s", name, env[name], want)
		}
	}
	for name, v := range env {
		if strings.Contains(v, "secret") {
			t.Errorf("%s=%s", name, v)
		}
	}
	var none *brokerKeeper
	none.dress(env)
	none.watch()
	none.push()
	if none.identity().uid != 0 {
		t.Error("who is not there has an identity")
	}
}

// TestRoutesOf: counts go on over a change of the policy, and an absent route says why.
func TestRoutesOf(t *testing.T) {
	c := newCredentials(&base{publisher: &publisher{}, config: Config{Environ: map[string]string{"K": "sk-0123456789-0123456789"}}, mode: "run"}, hindrance{})
	text := "domains: [api.openai.com unbrokered]\nbroker:\n  anthropic: {credential: env:K}\n  openai: {credential: env:NONE, optional: true}\n"
	p, err := new(policy.Policy).NextWith(&policy.Bundle{Files: []policy.File{{Name: "policy.yaml", Data: []byte(text)}}}, nil, c.absent)
	if err != nil {
		t.Fatal(err)
	}
	got := routesOf(p, c, []state.Route{{Name: "anthropic", Requests: 7, TokensIn: 3}, {Name: "gone", Requests: 1}})
	if len(got) != 2 {
		t.Fatalf("%+v", got)
	}
	a, o := got[0], got[1]
	if !a.Present || a.Requests != 7 || a.TokensIn != 3 || a.Source != "env:K" || a.Fingerprint != route.Fingerprint([]byte("sk-0123456789-0123456789")) {
		t.Errorf("%+v", a)
	}
	if o.Present || !o.ByName || o.Why != "there is no credential at env:NONE" || o.To != "https://api.openai.com/" {
		t.Errorf("%+v", o)
	}
}
