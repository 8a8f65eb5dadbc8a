package judge

import (
	"mime"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/agent-init/agent-init/pkg/route"
)

// Head judges what a request asks for, and says which endpoint that is. rawPath is what follows the name of the route, as
// it was sent, and rawQuery what follows the question mark, without the caller's token. With a refusal, the endpoint is
// that of the path and method, or nil.
func Head(r *route.Route, method, rawPath, rawQuery string, h http.Header) (*route.Endpoint, *Refusal) {
	if refusal := canonical(rawPath, identifies(r, rawPath)); refusal != nil {
		return nil, refusal
	}
	other := false // a method is on the list
	for i := range r.Endpoints {
		e := &r.Endpoints[i]
		if !e.MatchPath(rawPath) {
			continue
		}
		if e.Method != method {
			other = true
			continue
		}
		if refusal := judgeQuery(r, e, rawQuery); refusal != nil {
			return e, refusal
		}
		if refusal := judgeContent(e, h); refusal != nil {
			return e, refusal
		}
		return e, judgeRepository(r, e, rawPath, rawQuery)
	}
	what := "path"
	if other {
		what = "method"
	}
	return nil, refuse(what, "%s %s is not on the list of route %s", quote(method, 16), quote(rawPath, 100), r.Name)
}

// judgeContent judges what the head says of the body. A body that is read as another than the provider reads it could
// have anything in it.
func judgeContent(e *route.Endpoint, h http.Header) *Refusal {
	encodings := h.Values("Content-Encoding")
	if len(encodings) > 1 || len(encodings) == 1 && !packed[strings.ToLower(encodings[0])] {
		return refuse("header", "a body may be compressed by gzip or deflate, or not at all, and not by %s "+
			"(of Codex: enable_request_compression = false)", quote(strings.Join(encodings, ", "), 64))
	}
	if e.Body == route.Empty || e.Body == route.Opaque || e.Body == route.GitObject {
		return nil
	}
	types := h.Values("Content-Type")
	if e.Body.Streams() {
		// https://git-scm.com/docs/http-protocol: a server must not take another type.
		if want := "application/x-" + path.Base(e.Path) + "-request"; !slices.Equal(types, []string{want}) {
			return refuse("header", "the body has to be of the type %s, and not %s", want, quote(strings.Join(types, ", "), 64))
		}
		return nil
	}
	if len(types) == 1 {
		kind, parameters, err := mime.ParseMediaType(types[0])
		charset, ok := parameters["charset"]
		if err == nil && kind == typeOfJSON(e.Body) &&
			(len(parameters) == 0 || len(parameters) == 1 && ok && strings.EqualFold(charset, "utf-8")) {
			return nil
		}
	}
	return refuse("header", "the body has to be of the type %s in UTF-8, and not %s", typeOfJSON(e.Body),
		quote(strings.Join(types, ", "), 64))
}

// identifies says whether a path is of an endpoint that has an identifier of a model of Bedrock's in it, whose colons and
// slashes come escaped.
func identifies(r *route.Route, path string) bool {
	return slices.ContainsFunc(r.Endpoints, func(e route.Endpoint) bool {
		return (e.Body == route.Converse || e.Body == route.InvokeModel) && e.MatchPath(path)
	})
}
