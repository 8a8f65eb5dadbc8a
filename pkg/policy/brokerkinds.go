package policy

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agent-init/agent-init/pkg/route"
)

// ofModels finds what only a route to a model's API has.
func (w *written) ofModels() (string, *fault) {
	const message = "this is about a model's API: leave it out, or say which, as in api: openai"
	for _, word := range []string{"provider_tools", "models", "fields", "tenant"} {
		if _, ok := w.at[word]; ok {
			return word, &fault{0, word, message, ""}
		}
	}
	if w.Limits.TokensPerDay > 0 {
		return "limits", &fault{0, "tokens_per_day", message, ""}
	}
	return "", nil
}

// bounded completes which repositories, or which packages, there are.
func (w *written) bounded(base *route.Route, _ bool) (string, *fault) {
	for _, word := range []string{"git", "repos", "branches"} {
		if _, ok := w.at[word]; ok && !base.ServesGit() {
			return word, &fault{0, word, "this is about repositories: leave it out, or say so, as in api: git", ""}
		}
	}
	for _, word := range []string{"min_age", "packages"} {
		if _, ok := w.at[word]; ok && base.Packages.Registry == "" {
			return word, &fault{0, word, "this is about a registry of packages: leave it out, or say which, as in api: npm", ""}
		}
	}
	for _, name := range slices.Concat(w.Packages.Allow, w.Packages.Deny) {
		if form := fitsNone(base.Packages.Registry, name); form != "" {
			return "packages", &fault{0, name, "no package has such a name: " + form, ""}
		}
	}
	w.Git.Write = w.git == "write"
	if len(w.Git.Branches) > 0 && !w.Git.Write {
		return "branches", &fault{0, "branches", "these are what may be pushed, and nothing may: leave them out, or write git: write", ""}
	}
	return "", nil
}

// inspecting completes a route that puts its credential onto an inspected name. It has no path of its own.
func (w *written) inspecting(base *route.Route, builtin bool) (string, *fault) {
	only := []string{"", "inspect", "credential", "optional", "plaintext", "inject", "env", "add", "headers", "query"}
	for _, word := range slices.Sorted(maps.Keys(w.at)) {
		if name, _, _ := strings.Cut(word, "."); !slices.Contains(only, name) {
			return word, &fault{0, word, "a route with inspect has no path of its own, and only " + strings.Join(only[2:], ", ") + " beside it", ""}
		}
	}
	if builtin {
		return "inspect", &fault{0, w.inspects, "this route is built in, with a path of its own: give the one with inspect another name", ""}
	}
	r := Rule{}
	if f := parseTarget(w.inspects, &r); f != nil {
		return "inspect", f
	}
	if r.Ports == nil {
		r.Ports = []Port{HTTPS}
	}
	if r.Name == "" || r.Wildcard || r.Ports[0].Proto != TCP {
		return "inspect", &fault{0, w.inspects, "a credential goes onto one inspected name: write NAME, or NAME:PORT", ""}
	}
	for _, list := range []struct {
		word  string
		names []string
	}{{"headers", w.headers}, {"query", w.Query}} {
		if at := slices.IndexFunc(list.names, func(name string) bool { return strings.HasSuffix(name, "*") }); at >= 0 {
			return list.word, &fault{0, list.names[at], "beside inspect, this list has what passes though it reads like a credential: write each name in full", ""}
		}
	}
	for variable, value := range w.env {
		if strings.Contains(value, "{base}") {
			return "env." + variable, &fault{0, variable, "a route with inspect has no base URL: only {token} can stand here", ""}
		}
	}
	w.Inspects = r.Name + ":" + strconv.Itoa(int(r.Ports[0].Number))
	if w.keyless && len(w.add) == 0 {
		return "credential", &fault{0, "none", "without a credential there is nothing to put on: leave the route out, or write add", ""}
	}
	base.Env = map[string]string{}
	return "", nil
}

// adding completes what is put on besides the credential.
func (w *written) adding(base *route.Route, _ bool) (string, *fault) {
	for _, name := range slices.Sorted(maps.Keys(w.add)) {
		if name == base.Inject.Header || slices.ContainsFunc(base.Add, func(h route.Header) bool { return h.Name == name }) {
			return "add", &fault{0, name, "this header is put on already: leave it out here", ""}
		}
		base.Add = append(base.Add, route.Header{Name: name, Value: w.add[name]})
	}
	return "", nil
}

// added reads headers that are put on as they stand. None is a secret.
func (ps *parser) added(w *written) func(node) {
	return func(n node) {
		ps.mapping(n, nil, func(name string, n node) {
			value, ok := ps.value(n)
			header, problem := headerName("", name)
			switch {
			case !ok:
			case problem != "":
				ps.errs.add(Error{Source: n.key, Text: name, Message: "not the name of a header that can be put on"})
			case value == "" || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }):
				ps.errs.add(Error{Source: n.at(), Text: name, Message: "the value of a header is one line of printable ASCII"})
			case w.add[header] != "":
				ps.errs.add(Error{Source: n.key, Text: name, Message: "the header is there twice"})
			default:
				if w.add == nil {
					w.add = map[string]string{}
				}
				w.add[header] = value
			}
		})
	}
}

func readOrWrite(key, s string) (string, string) {
	if s != "read" && s != "write" {
		return "", key + " is read, or write for pushes too"
	}
	return s, ""
}

// repository reads OWNER/NAME, or more segments where groups have groups.
func repository(s string) (string, *fault) {
	name := strings.TrimSuffix(s, ".git")
	segments := strings.Split(name, "/")
	if len(segments) < 2 || slices.ContainsFunc(segments, func(segment string) bool {
		return !only(segment, alphanumeric+"._~+-*") || segment == "." || segment == ".."
	}) {
		return "", &fault{0, s, "a repository is OWNER/NAME, in which * stands for any text without a slash, as in my-org/*", ""}
	}
	return name, nil
}

// branch reads a branch, or a ref from refs/ on (git-check-ref-format(1)).
func branch(s string) (string, *fault) {
	wrong := strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`~^:?[\`, r) })
	if wrong || s == "" || strings.Contains(s, "..") || strings.Contains(s, "//") || strings.Contains(s, "@{") ||
		s[0] == '/' || s[0] == '-' || strings.HasSuffix(s, "/") || strings.HasSuffix(s, ".") {
		return "", &fault{0, s, "a branch is a name in which * stands for any text without a slash, as in agent/*; other refs begin with refs/", ""}
	}
	return s, nil
}

// packageName reads a package, with the scope or group in front of it.
func packageName(s string) (string, *fault) {
	if !only(s, alphanumeric+"._~+-*/@:!") || s[0] == '/' || strings.HasSuffix(s, "/") {
		return "", &fault{0, s, "a package is its name, in which * stands for any text, as in @scope/*", ""}
	}
	return s, nil
}

// fitsNone says what names of packages look like in a registry, if none of them can fit a pattern.
func fitsNone(registry, s string) string {
	scoped := s[0] == '@' || s[0] == '*'
	switch registry {
	case "npm":
		if strings.Contains(s, ":") || strings.Contains(s, "/") && !scoped || s[0] == '@' && !strings.ContainsAny(s, "/*") {
			return "npm's are NAME or @SCOPE/NAME"
		}
	case "maven":
		if !strings.ContainsAny(s, ":*") || strings.ContainsAny(s, "@/!") {
			return "Maven's are GROUP:ARTIFACT"
		}
	case "pypi", "crates":
		if strings.ContainsAny(s, "@/:!") {
			return "here they have no scope"
		}
	}
	return ""
}

// age reads a time of days and weeks too.
func age(key, s string) (time.Duration, string) {
	const high = 10 * 365 * 24 * time.Hour
	unit := map[string]time.Duration{"d": 24 * time.Hour, "w": 7 * 24 * time.Hour}[s[max(len(s)-1, 0):]]
	d, err := time.ParseDuration(s)
	if unit > 0 {
		var n int
		n, err = strconv.Atoi(s[:len(s)-1])
		d = time.Duration(min(max(n, 0), int(high/unit)+1)) * unit
	}
	if err != nil || d <= 0 || d > high {
		return 0, fmt.Sprintf("%s is a time, as in 3d, 12h or 2w", key)
	}
	return d, ""
}
