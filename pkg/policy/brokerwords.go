package policy

import (
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/agent-init/agent-init/pkg/route"
)

const (
	lower        = "abcdefghijklmnopqrstuvwxyz"
	upper        = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	alphanumeric = lower + upper + "0123456789"

	// pathChars are those that a segment of a path has without an escape (RFC 3986, pchar), but for the star.
	pathChars = alphanumeric + "-._~!$&'()+,;=:@"
	// nameChars are those of a field's name (RFC 9110, tchar).
	nameChars = alphanumeric + "!#$%&'*+-.^_`|~"
	// parameterChars are those that the name of a parameter has without an escape.
	parameterChars = alphanumeric + "-._~$"
)

// only says whether s is not empty, and has no other characters.
func only(s, chars string) bool { return s != "" && strings.Trim(s, chars) == "" }

func text(_, s string) (string, string) { return s, "" }

func label(key, s string) (string, string) {
	if !only(s, lower+"0123456789-") || len(s) > maxLabel {
		return "", key + " is one label of a name, in lower case"
	}
	return s, ""
}

// source reads file:/PATH, env:NAME or login:/PATH.
func source(s string) (route.Source, *fault) {
	kind, rest, _ := strings.Cut(s, ":")
	switch {
	case kind == "file" && path.IsAbs(rest) && path.Clean(rest) == rest && rest != "/":
		return route.Source{File: rest}, nil
	case kind == "file":
		return route.Source{}, &fault{0, s, "the file of a credential is named from / on", ""}
	case kind == "login" && path.IsAbs(rest) && path.Clean(rest) == rest && rest != "/":
		return route.Source{Login: rest}, nil
	case kind == "login":
		return route.Source{}, &fault{0, s, "the file of a login is named from / on", ""}
	case kind == "env" && isVariable(rest):
		return route.Source{Env: rest}, nil
	case kind == "env":
		return route.Source{}, &fault{0, "", "behind env: stands the name of a variable", ""}
	case s == "none":
		return route.Source{}, &fault{0, s, "none stands alone: credential: none", ""}
	case path.IsAbs(s):
		return route.Source{}, &fault{0, s, "a credential is file:/PATH, env:NAME or login:/PATH", "file:" + s}
	}
	// What stands here may be the credential itself: it is not repeated.
	return route.Source{}, &fault{0, "", "a credential is file:/PATH, env:NAME, login:/PATH, or the word none; the credential itself has no place in a policy", ""}
}

func isVariable(s string) bool { return only(s, alphanumeric+"_") && (s[0] < '0' || s[0] > '9') }

// framing is of a connection or a message, and not for a credential.
var framing = []string{"host", "content-length", "content-type", "content-encoding", "transfer-encoding", "connection", "te", "trailer", "upgrade", "expect", "keep-alive"}

func headerName(key, s string) (string, string) {
	s = strings.ToLower(s)
	if !only(s, nameChars) || slices.Contains(framing, s) {
		return "", key + " is the name of a header that is for a credential, as in Authorization"
	}
	return s, ""
}

// passedHeader reads the name of a header that passes, or how such names begin.
func passedHeader(s string) (string, *fault) {
	lower := strings.ToLower(s)
	if name := strings.TrimSuffix(lower, "*"); !only(name, strings.ReplaceAll(nameChars, "*", "")) {
		return "", &fault{0, s, "a header is a name, and a * at its end stands for anything, as in X-My-*", ""}
	}
	return lower, nil
}

// passedParameter reads the name of a parameter that passes, or how such names begin.
func passedParameter(s string) (string, *fault) {
	lower := strings.ToLower(s)
	if name, any := strings.CutSuffix(lower, "*"); !only(name, parameterChars) && !(any && name == "") {
		return "", &fault{0, s, "a parameter is a name without brackets, and a * at its end stands for anything, as in page_*", ""}
	}
	return lower, nil
}

func isHeaderValue(s string) bool {
	return strings.Count(s, "{}") == 1 && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

func basicUser(key, s string) (string, string) {
	// RFC 7617, section 2: the first colon ends the user.
	if s == "" || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' || r == ':' }) {
		return "", key + " is a name without a colon"
	}
	return s, ""
}

func queryName(key, s string) (string, string) {
	if !only(s, parameterChars) {
		return "", key + " is the name of a parameter"
	}
	return s, ""
}

// word reads the items of a list that are words.
func word(what string) func(string) (string, *fault) {
	return func(s string) (string, *fault) {
		if !only(s, alphanumeric+"_-.:") {
			return "", &fault{0, s, what, ""}
		}
		return s, nil
	}
}

// model reads a pattern of route.Match.
func model(s string) (string, *fault) {
	if strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`[]{}?\^|`, r) }) {
		return "", &fault{0, s, "a model is a name, in which * stands for any text, as in gpt-5*", ""}
	}
	return s, nil
}

var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

// endpoint reads "METHOD /PATH" of a route of one's own.
func endpoint(s string) (route.Endpoint, *fault) {
	method, rest := field(s)
	e := route.Endpoint{Method: method, Path: rest, Query: []string{"*"}, Body: route.Opaque}
	if !slices.Contains(methods, method) {
		up := strings.ToUpper(method)
		if strings.HasPrefix(method, "/") {
			return e, &fault{0, s, "a method stands in front of the path", "GET " + s}
		}
		return e, &fault{0, method, "a method is one of " + strings.Join(methods, ", "), Nearest(up, methods)}
	}
	if method == "GET" || method == "HEAD" {
		e.Body = route.Empty
	}
	at := len(s) - len(rest)
	if rest == "" || rest[0] != '/' {
		return e, &fault{at, s, "a path stands behind the method, from / on, as in GET /v1/**", ""}
	}
	if f := pathPattern(rest, pathChars); f != nil {
		f.at += at
		return e, f
	}
	return e, nil
}

// pathPattern finds what is wrong with a pattern of canonical paths, which begins with /. Besides a star, segments have
// these characters.
func pathPattern(s, chars string) *fault {
	segments := strings.Split(s[1:], "/")
	for i, segment := range segments {
		switch last := i == len(segments)-1; {
		case segment == "**" && last, segment == "" && last:
		case strings.Contains(segment, "**"):
			return &fault{0, s, "** is the whole of the last segment, and stands for any number of them", ""}
		case segment == "." || segment == ".." || segment == "":
			return &fault{0, s, "no path that is asked has such a segment", path.Clean(s)}
		case !only(segment, chars+"*"):
			return &fault{0, s, "a path is written without escapes and without a query; * stands for a segment or a part of one", ""}
		}
	}
	return nil
}

// target is a URL that a route leads to.
type target struct {
	scheme, host string // the host with its port, if that is not the scheme's
	path         string // ends in /
}

// below is the URL that stands in front of the endpoints: the version in which a base URL ends by habit is theirs.
func (t target) below(endpoints []route.Endpoint) string {
	for at := 1; at < len(t.path); at += 1 + strings.IndexByte(t.path[at:], '/') {
		if habit := t.path[at-1:]; slices.ContainsFunc(endpoints, func(e route.Endpoint) bool { return strings.HasPrefix(e.Path, habit) }) {
			t.path = t.path[:at]
			break
		}
	}
	return t.scheme + "://" + t.host + t.path
}

// parseTo reads the URL that a route leads to, and its host and port into r.
func parseTo(s string, r *Rule) (target, *fault) {
	const form = "a route leads to a URL, as in https://api.example.com/v1/"
	scheme, rest, ok := strings.Cut(s, "://")
	t := target{scheme: strings.ToLower(scheme)}
	port := map[string]string{"https": "443", "http": "80"}[t.scheme]
	switch {
	case !ok && parseTarget(strings.SplitN(s, "/", 2)[0], &Rule{}) == nil:
		return t, &fault{0, s, form, "https://" + s}
	case !ok || port == "":
		return t, &fault{0, s, form, ""}
	}
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return t, &fault{0, "", form, ""} // not repeated: there may be a password in it
	case u.User != nil:
		return t, &fault{0, "", "the URL of a route holds no user: write credential and inject", ""}
	case strings.ContainsAny(rest, "?#%"):
		return t, &fault{0, s, "the URL of a route has no query, no fragment and no escapes", ""}
	}
	host, at := u.Host, len(scheme)+len("://")
	if u.Port() == "" {
		host = strings.TrimSuffix(host, ":") + ":" + port
	}
	if f := parseTarget(host, r); f != nil {
		return t, &fault{at, s, f.message, ""}
	}
	if f := reachable(r); f != "" {
		return t, &fault{at, s, f, ""}
	}
	if t.path, ok = prefixOf(u.Path); !ok {
		return t, &fault{0, s, "the path of a route's URL has no empty segment, no dots alone, and nothing that needs an escape", ""}
	}
	t.host = r.Target()
	if r.Prefix.IsValid() && r.Prefix.Addr().Is6() {
		t.host = "[" + t.host + "]"
	}
	if number := strconv.Itoa(int(r.Ports[0].Number)); number != port {
		t.host += ":" + number
	}
	return t, nil
}

// prefixOf is what a path puts in front of those of endpoints: it begins and ends in one slash.
func prefixOf(path string) (string, bool) {
	inner := strings.TrimSuffix(strings.TrimPrefix(path, "/"), "/")
	if inner == "" {
		return "/", true
	}
	for segment := range strings.SplitSeq(inner, "/") {
		if segment == "." || segment == ".." || !only(segment, pathChars) {
			return "", false
		}
	}
	return "/" + inner + "/", true
}

// reachable says why no route leads to the host of r.
func reachable(r *Rule) string {
	class := Public
	if r.Name == "" {
		class = Classify(r.Prefix.Addr())
	}
	switch {
	case r.Wildcard || r.Name == "" && !r.Prefix.IsSingleIP() || r.Ports[0].Proto != TCP:
		return "a route leads to one host, over TCP"
	case r.Ports[0].Number == 53:
		return "no route leads to port 53, which is for DNS"
	case r.Name == "localhost" || strings.HasSuffix(r.Name, ".localhost") || class == Loopback:
		return "loopback needs no route: the agent reaches it by itself"
	case class == Never:
		return "metadata, multicast and reserved addresses are never reached"
	}
	return ""
}
