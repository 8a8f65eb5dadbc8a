package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/agent-init/agent-init/pkg/route"
)

// written is a route of the broker as files have it, and what comes of it.
type written struct {
	route.Route
	hosts  []*Rule           // entries for its hosts, the route's own first, each on its port alone
	at     map[string]Source // of its words; "" is the route
	absent bool              // its credential is, and it may be

	api, to, resource, region string
	git, inspects             string
	add                       map[string]string
	keyless                   bool
	credential                []route.Source
	inject                    route.Inject
	allow                     []route.Endpoint
	headers, tenant           []string
	env                       map[string]string
}

// place is where a word of the route stands, or the route, if the word doesn't.
func (w *written) place(word string) Source {
	if src, ok := w.at[word]; ok {
		return src
	}
	return w.at[""]
}

const maxRoutes = 100

func (ps *parser) broker(n node) {
	ps.mapping(n, nil, func(name string, n node) {
		w := written{Route: route.Route{Name: name}, at: map[string]Source{"": n.key}}
		if problem := routeName(name); problem != "" {
			ps.errs.add(Error{n.key, name, problem, Nearest(strings.ToLower(name), route.Names())})
			return
		}
		if !ps.once(n.key, n.name) {
			return
		}
		if len(ps.routes) == maxRoutes {
			ps.errs.add(Error{Source: n.key, Text: name, Message: fmt.Sprintf("a policy has %d routes at most", maxRoutes)})
			return
		}
		faults := ps.errs.count()
		keys := ps.routeKeys(&w)
		ps.mapping(n, names(keys), func(word string, n node) {
			w.at[word] = n.key
			if k := keys[slices.IndexFunc(keys, func(k key) bool { return k.name == word })]; k.keys != nil {
				ps.section(n, k.keys)
			} else {
				k.read(n)
			}
		})
		if ps.errs.count() > faults { // what follows of them is not worth a word
			return
		}
		if word, f := w.resolve(); f != nil {
			ps.errs.add(Error{w.place(word), f.text, f.message, f.suggestion})
			return
		}
		if w.Git.Write && len(w.Git.Repos) == 0 {
			ps.warns.add(Error{Source: w.place("git"), Text: name, Message: "any repository may be pushed to that the credential opens: say which, as in repos: [my-org/*]"})
		}
		ps.routes = append(ps.routes, w)
	})
}

// routeName says why a route can't have a name, which is the first segment of what the agent asks.
func routeName(s string) string {
	if s == "" || len(s) > maxLabel || strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || s[0] == '-' {
		return "a route's name has letters from a to z, digits and hyphens"
	}
	return ""
}

// routeKeys are the words of a route. A row more, and its line in policy.schema.json, is a word more.
func (ps *parser) routeKeys(w *written) []key {
	return []key{
		{name: "api", read: setting(ps, &w.api, oneOf(route.APIs()...))},
		{name: "to", read: setting(ps, &w.to, text)},
		{name: "resource", read: setting(ps, &w.resource, label)},
		{name: "region", read: setting(ps, &w.region, label)},
		{name: "credential", read: ps.credential(w)},
		{name: "optional", read: setting(ps, &w.Optional, boolean)},
		{name: "private", read: setting(ps, &w.Private, boolean)},
		{name: "plaintext", read: setting(ps, &w.Plaintext, boolean)},
		{name: "inject", keys: []key{
			{name: "header", read: setting(ps, &w.inject.Header, headerName)},
			{name: "value", read: setting(ps, &w.inject.Value, text)},
			{name: "basic", keys: []key{{name: "user", read: setting(ps, &w.inject.Basic, basicUser)}}},
			{name: "query", read: setting(ps, &w.inject.Query, queryName)},
		}},
		{name: "allow", read: list(ps, &w.allow, endpoint)},
		{name: "headers", read: list(ps, &w.headers, passedHeader)},
		{name: "query", read: list(ps, &w.Query, passedParameter)},
		{name: "env", read: ps.routeEnv(w)},
		{name: "provider_tools", read: list(ps, &w.ProviderTools, word("a tool is named by its type, as in web_search"))},
		{name: "models", read: some(ps, list(ps, &w.Models, model))},
		{name: "fields", read: list(ps, &w.Fields, word("a field is one name of the body's first level"))},
		{name: "limits", keys: []key{
			{name: "requests_per_minute", read: setting(ps, &w.Limits.RequestsPerMinute, number(1, 1_000_000))},
			{name: "tokens_per_day", read: setting(ps, &w.Limits.TokensPerDay, number[int64](1, 1_000_000_000_000))},
		}},
		{name: "tenant", read: oneOrMore(list(ps, &w.tenant, word("a tenant is the id of an organisation")))},
		{name: "git", read: setting(ps, &w.git, readOrWrite)},
		{name: "repos", read: some(ps, list(ps, &w.Git.Repos, repository))},
		{name: "branches", read: some(ps, list(ps, &w.Git.Branches, branch))},
		{name: "min_age", read: setting(ps, &w.Packages.MinAge, age)},
		{name: "packages", keys: []key{
			{name: "allow", read: some(ps, list(ps, &w.Packages.Allow, packageName))},
			{name: "deny", read: list(ps, &w.Packages.Deny, packageName)},
		}},
		{name: "inspect", read: setting(ps, &w.inspects, text)},
		{name: "add", read: ps.added(w)},
	}
}

// some reads a list without which there is any. Whoever empties one may mean none.
func some(ps *parser, read func(node)) func(node) {
	return func(n node) {
		if n.isNull() || n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
			ps.errs.add(Error{Source: n.at(), Text: n.name, Message: "an empty list could be any or none: name what there is, or leave it out, which is any"})
			return
		}
		read(n)
	}
}

// oneOrMore reads one value as a list of it.
func oneOrMore(read func(node)) func(node) {
	return func(n node) {
		if n.Kind == yaml.ScalarNode && !n.isNull() {
			n = n.of(&yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{n.Node}})
		}
		read(n)
	}
}

// credential reads where the credential is, or that there is none.
func (ps *parser) credential(w *written) func(node) {
	sources := oneOrMore(list(ps, &w.credential, source))
	return func(n node) {
		if n.Kind == yaml.ScalarNode && n.Value == "none" {
			w.keyless = true
			return
		}
		faults := ps.errs.count()
		for _, item := range append([]*yaml.Node{n.Node}, n.Content...) { // file: /x, with a blank
			if item.Kind == yaml.MappingNode {
				ps.wrong(n.of(item), "a credential is one word: file:/PATH, env:NAME or login:/PATH, without a blank")
				return
			}
		}
		if sources(n); w.credential == nil && ps.errs.count() == faults {
			ps.wrong(n, "no source is named: write file:/PATH, env:NAME, login:/PATH or none, or leave this out")
		}
	}
}

// routeEnv reads variables of the agent's that say where the route is.
func (ps *parser) routeEnv(w *written) func(node) {
	return func(n node) {
		ps.mapping(n, nil, func(variable string, n node) {
			text, ok := ps.value(n)
			rest := strings.NewReplacer("{base}", "", "{token}", "").Replace(text)
			switch {
			case !ok:
			case !isVariable(variable):
				ps.errs.add(Error{Source: n.key, Text: variable, Message: "not the name of a variable"})
			case rest == text || strings.ContainsAny(rest, "{}") || strings.ContainsFunc(rest, func(r rune) bool { return r < ' ' }):
				// What stands here may be a key: it is not repeated.
				ps.errs.add(Error{Source: n.at(), Text: variable, Message: "a variable of a route has {base} or {token} in it, as in \"{base}/v1\""})
			default:
				if w.env == nil {
					w.env = map[string]string{}
				}
				w.env[variable] = text
				w.at["env."+variable] = n.key
			}
		})
	}
}

// resolve fills the route with what is built in. What is wrong is with a word, or with "", which is the route.
func (w *written) resolve() (word string, f *fault) {
	base, builtin := route.Builtin(w.Name)
	if w.api != "" && !builtin {
		base, _ = route.OfAPI(w.api)
	}
	steps := []func(base *route.Route, builtin bool) (string, *fault){w.named, w.upstream, w.authenticated, w.judged, w.bounded, w.adding}
	if w.inspects != "" {
		steps = []func(base *route.Route, builtin bool) (string, *fault){w.inspecting, w.authenticated, w.adding}
	}
	for _, step := range steps {
		if word, f := step(&base, builtin); f != nil {
			return word, f
		}
	}
	w.Route = merged(base, w.Route)
	w.Headers = append(w.Headers, w.headers...)
	if w.Env == nil && w.env != nil {
		w.Env = map[string]string{}
	}
	maps.Copy(w.Env, w.env)
	return "to", w.locate()
}

// merged is a base with what files say of it.
func merged(base, r route.Route) route.Route {
	base.Name, base.Optional, base.Private, base.Plaintext, base.Limits = r.Name, r.Optional, r.Private, r.Plaintext, r.Limits
	base.ProviderTools, base.Models, base.Fields = r.ProviderTools, r.Models, append(base.Fields, r.Fields...)
	base.Git, base.Inspects, base.Query = r.Git, r.Inspects, r.Query
	base.Packages.MinAge, base.Packages.Allow, base.Packages.Deny = r.Packages.MinAge, r.Packages.Allow, r.Packages.Deny
	return base
}

// ownHeaders are what requests of any API have by HTTP itself (RFC 9110, sections 13 and 14; RFC 7240; RFC 6266).
var ownHeaders = []string{"if-*", "range", "prefer", "content-language", "content-disposition"}

// named finds what the name and the API don't go with.
func (w *written) named(base *route.Route, builtin bool) (string, *fault) {
	switch {
	case builtin && w.api != "":
		return "api", &fault{0, w.api, "a built-in route has its API already: leave this out", ""}
	case !builtin && w.to == "":
		return "", &fault{0, w.Name, "no route of this name is built in, and one of your own says where it leads, as in to: https://host/", Nearest(w.Name, route.Names())}
	}
	return "", nil
}

// upstream completes where the route leads.
func (w *written) upstream(base *route.Route, builtin bool) (string, *fault) {
	vendor := base.To
	for _, fill := range []struct{ word, value string }{{"resource", w.resource}, {"region", w.region}} {
		hole := "{" + fill.word + "}"
		switch open := strings.Contains(base.To, hole); {
		case fill.value != "" && !open:
			return fill.word, &fault{0, fill.value, "the address of this route has no " + fill.word + ": leave this out", ""}
		case fill.value != "" && w.to != "":
			return fill.word, &fault{0, fill.value, "to says all of the address: leave this out", ""}
		case open && w.to == "" && fill.value == "":
			return "", &fault{0, w.Name, "the address of this route is not known without " + fill.word + ": write it, or to", ""}
		}
		base.To = strings.ReplaceAll(base.To, hole, fill.value)
	}
	if w.to != "" {
		if vendor != "" && !strings.Contains(vendor, "{") {
			base.Elsewhere()
		}
		base.To = w.to
		for i := range base.Endpoints { // a mirror has all of it
			base.Endpoints[i].To = ""
		}
	}
	if base.To == "" {
		return "", &fault{0, w.Name, "this route leads to a server of your own: say where, as in to: http://host:8000/", ""}
	}
	var host Rule
	to, f := parseTo(base.To, &host)
	if f != nil {
		return "to", f
	}
	base.To = to.below(base.Endpoints)
	if to.scheme != "http" {
		return "", nil
	}
	if host.Name != "" && !w.Private {
		return "to", &fault{0, w.to, "http leads only to an address, or to a server of your own: write https, or private: true", ""}
	}
	if !(w.keyless || base.Keyless && w.credential == nil) && !w.Plaintext {
		return "to", &fault{0, w.to, "the credential would go over the network in the clear: write https, or plaintext: true", ""}
	}
	return "", nil
}

// authenticated completes where the credential is and goes.
func (w *written) authenticated(base *route.Route, builtin bool) (string, *fault) {
	in := w.inject
	ways := 0
	for _, way := range []string{in.Header, in.Basic, in.Query} {
		if way != "" {
			ways++
		}
	}
	_, injects := w.at["inject"]
	switch {
	case w.keyless && injects:
		return "inject", &fault{0, "", "without a credential there is nothing to put on: leave this out", ""}
	case w.keyless && builtin && w.to == "" && !base.Keyless && base.AsksModels():
		return "credential", &fault{0, "none", "this API asks for a credential: name a file:/… or env:…", ""}
	case w.keyless:
		base.Keyless, base.Credential, base.Inject = true, nil, route.Inject{}
		return "", nil
	case w.credential != nil:
		base.Keyless, base.Credential = false, w.credential
	}
	switch {
	case base.Keyless && injects:
		return "inject", &fault{0, "", "without a credential there is nothing to put on: write credential, too", ""}
	case base.Keyless:
		base.Inject = route.Inject{}
		return "", nil
	case base.Credential == nil:
		return "", &fault{0, w.Name, "the credential is missing: say where it is, as in credential: file:/run/secrets/" + w.Name + ", or credential: none", ""}
	case base.LoginHost == "" && slices.ContainsFunc(base.Credential, func(s route.Source) bool { return s.Login != "" }):
		return "credential", &fault{0, "", "agent-init can't refresh a login of this API: routes with one are anthropic and chatgpt", ""}
	case injects && ways != 1:
		return "inject", &fault{0, "", "a credential is put on in one way: {header: NAME, value: \"Bearer {}\"}, {basic: {user: NAME}} or {query: NAME}", ""}
	case injects && in.Value != "" && in.Header == "":
		return "inject", &fault{0, "", "only a header has a value", ""}
	case injects && in.Value != "" && !isHeaderValue(in.Value):
		return "inject", &fault{0, "", "the value of a header is one line with {} for the credential, as in \"Bearer {}\"", ""}
	case injects:
		if in.Header != "" && in.Value == "" {
			in.Value = "{}"
		}
		base.Inject = in
	case base.Inject.Header == "" && base.Inject.Basic == "" && base.Inject.Query == "":
		return "", &fault{0, w.Name, "how the credential is put on is missing, as in inject: {header: Authorization, value: \"Bearer {}\"}", ""}
	}
	return "", nil
}

// judged completes what may be asked.
func (w *written) judged(base *route.Route, builtin bool) (string, *fault) {
	if !base.AsksModels() {
		if word, f := w.ofModels(); f != nil {
			return word, f
		}
	}
	if builtin || w.api != "" {
		if _, ok := w.at["allow"]; ok {
			return "allow", &fault{0, "", "the API of this route says what may be asked: leave this out", ""}
		}
		if len(w.Query) > 0 {
			return "query", &fault{0, w.Query[0], "the API of this route says which parameters pass: leave this out", ""}
		}
		if len(w.tenant) > 0 && base.TenantHeader == "" {
			return "tenant", &fault{0, w.tenant[0], "the API of this route has no header for it: leave this out", ""}
		}
		if len(w.tenant) > 0 {
			base.Add = append(base.Add, route.Header{Name: base.TenantHeader, Value: strings.Join(w.tenant, ",")})
		}
		return "", nil
	}
	base.Headers = ownHeaders
	if base.Endpoints = w.allow; len(w.allow) == 0 {
		return "", &fault{0, w.Name, "nothing may be asked on this route: say what, as in allow: [\"GET /v1/**\"]", ""}
	}
	return "", nil
}
