package policy

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/agent-init/agent-init/internal/lazy"
	"github.com/agent-init/agent-init/pkg/route"
)

// requestWords are those about requests, besides methods and a path.
var requestWords = []string{"read", "graphql=query", "max_upload=SIZE", "websocket"}

// askedMethods are those that an entry names: the usual ones, and those of WebDAV (RFC 4918, RFC 3253, RFC 5323).
// CONNECT and TRACE are none of a server that answers requests.
var askedMethods = slices.Concat(methods, []string{"PROPFIND", "PROPPATCH", "MKCOL", "COPY", "MOVE", "LOCK", "UNLOCK", "REPORT", "SEARCH"})

// parseRequest reads one word about requests, or METHODS /PATH, that begins at an offset of text. It returns the offset
// of what follows, or the same one if the word is of another kind.
func parseRequest(text string, at int, r *Rule) (end int, f *fault) {
	word, rest := field(text[at:])
	end = len(text) - len(rest)
	key, value, _ := strings.Cut(word, "=")
	switch {
	case strings.HasPrefix(word, "/"):
		return at, &fault{at, word, "methods stand in front of a path, or * for any of them", "GET " + word}
	case isMethods(word):
		return parseMethods(text, at, r)
	case r.Deny && (key == "graphql" || key == "max_upload" || word == "websocket"):
		return at, &fault{at, word, "a deny entry takes METHODS /PATH, and no words", ""}
	case key == "graphql" && value == route.GraphQLQuery:
		r.request().GraphQL = value
	case key == "graphql":
		return at, &fault{at, word, "of GraphQL, only queries can be told apart", "graphql=" + route.GraphQLQuery}
	case key == "max_upload":
		n, ok := bytesOf(value)
		if !ok {
			return at, &fault{at, word, "behind max_upload= stands a size, as in max_upload=64KiB", sizeMeant(key, value)}
		}
		if r.request().MaxUpload = n; n == 0 {
			r.Request.MaxUpload = -1
		}
	case word == "websocket":
		r.request().WebSocket = true
	default:
		return at, nil
	}
	return end, nil
}

// sizeMeant is the word with a size in units that are read, or "".
func sizeMeant(key, value string) string {
	digits := strings.TrimRight(value, "kKmMgGiIbB")
	unit := map[string]string{"kb": "KiB", "kib": "KiB", "mb": "MiB", "m": "MiB", "mib": "MiB", "gb": "GiB", "g": "GiB", "gib": "GiB"}[strings.ToLower(value[len(digits):])]
	if _, ok := bytesOf(digits + unit); !ok || unit == "" {
		return ""
	}
	return key + "=" + digits + unit
}

// meant is the word that people write another one for, or "".
func meant(word string, known []string) string {
	key, value, sized := strings.Cut(word, "=")
	switch key = strings.ReplaceAll(strings.ToLower(key), "-", "_"); {
	case slices.Contains([]string{"ro", "readonly", "read_only"}, key):
		return "read"
	case sized && Nearest(key, []string{"max_upload"}) != "":
		return "max_upload=" + value
	case sized && Nearest(key, []string{"graphql"}) != "":
		return "graphql=query"
	}
	return Nearest(word, known)
}

// request returns what the rule says about requests.
func (r *Rule) request() *route.Request {
	if r.Request == nil {
		r.Request = &route.Request{}
	}
	return r.Request
}

// isMethods says whether a word is meant to name methods, rightly or not.
func isMethods(word string) bool {
	return word == "*" || word == "read" || only(word, upper+",-") ||
		slices.ContainsFunc(strings.FieldsFunc(strings.ToUpper(word), between), func(m string) bool { return slices.Contains(askedMethods, m) })
}

// between says whether c is what people put between methods.
func between(c rune) bool { return strings.ContainsRune(",|+;/", c) }

// parseMethods reads METHODS /PATH, or the word read, with a path or without.
func parseMethods(text string, at int, r *Rule) (end int, f *fault) {
	word, rest := field(text[at:])
	end = len(text) - len(rest)
	if r.Request != nil && (r.Request.Methods != nil || r.Request.Path != "") {
		return at, &fault{at, word, "an entry has methods and a path once: write another entry for others", ""}
	}
	path, after := field(rest)
	if all := strings.ToUpper(strings.Trim(word, ",") + "," + strings.Trim(path, ",")); path != "" && namesMethods(all) == nil {
		return at, &fault{at, word + " " + path, "methods stand without blanks, as in GET,HEAD", all}
	}
	switch word {
	case "*":
		r.request().Methods = nil
	case "read":
		r.request().Methods = route.Reading()
	default:
		if f := namesMethods(word); f != nil {
			f.at = at
			return at, f
		}
		r.request().Methods = strings.Split(word, ",")
	}
	switch {
	case strings.HasPrefix(path, "/"):
	case word == "read":
		return end, nil
	case strings.Contains(path, "/"):
		return at, &fault{end, path, "a path stands behind the methods, from / on", word + " /" + path}
	default:
		return at, &fault{at, word, "a path stands behind the methods, from / on", word + " /**"}
	}
	if f := askedPath(path); f != nil {
		f.at += end
		return at, f
	}
	r.Request.Path = path
	return len(text) - len(after), nil
}

// escapes are those that a pattern of paths may have: of a slash within a segment, as GitLab's projects and npm's scopes
// have, of a blank, of what ends a path (#, ; and ?), and of what is not ASCII. Others have one more spelling, or more
// than one meaning.
var escapes = lazy.Pattern(`%(2[03F]|3[BF]|[89A-F][0-9A-F])`)

// askedPath finds what is wrong with the path of an entry.
func askedPath(s string) *fault {
	plain := escapes().ReplaceAllString(s, "")
	if strings.Contains(plain, "%") {
		return &fault{0, s, "of escapes, a path has only those that it can't do without, in capitals, as in my-org%2Frepo", ""}
	}
	if strings.Contains(s, "%") && !utf8.ValidString(unescaped(s)) {
		return &fault{0, s, "the path is not in UTF-8", ""}
	}
	if f := pathPattern(s, pathChars+"%"); f != nil {
		return f
	}
	// The broker refuses what some servers take for an empty segment, or for one of dots.
	pieces := strings.Split(unescaped(s), "/")[1:]
	for i, piece := range pieces {
		if end := strings.IndexAny(piece, ";?#"); end >= 0 {
			piece = piece[:end]
		}
		if strings.Trim(piece, ". ") == "" && (piece != "" || i < len(pieces)-1) {
			return &fault{0, s, "no path that is asked has such a segment: servers take it for an empty one, or for dots", ""}
		}
	}
	return nil
}

// unescaped is s without its escapes.
func unescaped(s string) string {
	return escapes().ReplaceAllStringFunc(s, func(e string) string {
		b, _ := strconv.ParseUint(e[1:], 16, 8) // they are hexadecimal
		return string([]byte{byte(b)})
	})
}

// namesMethods finds what is wrong with a list of methods.
func namesMethods(word string) *fault {
	if strings.ContainsFunc(strings.ReplaceAll(word, ",", ""), between) {
		return &fault{0, word, "methods stand with commas between them", strings.ToUpper(strings.Join(strings.FieldsFunc(word, between), ","))}
	}
	var seen []string
	for m := range strings.SplitSeq(word, ",") {
		switch up := strings.ToUpper(m); {
		case m == "":
			return &fault{0, word, "methods stand without blanks, as in GET,HEAD", strings.Trim(word, ",")}
		case m != up && slices.Contains(askedMethods, up):
			return &fault{0, word, "methods are written in capitals", strings.ToUpper(word)}
		case !slices.Contains(askedMethods, m):
			return &fault{0, word, "a method is one of " + strings.Join(methods, ", ") + ", or of WebDAV's", Nearest(up, askedMethods)}
		case slices.Contains(seen, m):
			return &fault{0, word, "a method stands there twice: " + m, ""}
		}
		seen = append(seen, m)
	}
	return nil
}

// vetCarried finds what does not go together in what a port carries, and who looks into it.
func vetCarried(r *Rule) finding {
	about := func(what string) finding { return wrong(r.Target(), what) }
	is := func(port Port) bool { return slices.Contains(r.Ports, port) }
	looks := r.TLS || r.HTTP || r.Inspects()
	switch {
	case !looks && !r.Direct:
		return finding{}
	case looks && r.Name == "":
		return about("what is inside a connection is judged by its name: name the host")
	case len(r.Ports) == 1 && r.Ports[0].Proto == UDP:
		return about("only TCP is looked into: what goes over UDP passes by address")
	case r.Deny:
		return finding{}
	case r.TLS && r.HTTP:
		return about("a port carries tls or http: leave one of the words out")
	case r.Direct && looks:
		return about("direct is past all that looks into a connection: leave it out, or what goes beside it")
	case r.Direct && r.Wildcard:
		return about("a wildcard can't be direct: name the host whose addresses are its own")
	case r.TLS && is(HTTP):
		return about("port 80 carries HTTP: name the port that carries TLS, as in host:8443 tls")
	case r.HTTP && is(HTTPS):
		return about("port 443 carries TLS: name the port that carries HTTP, as in host:8080 http")
	case r.Inspects() && r.Connect:
		return about("of a proxy, the broker could not look into what it asks for: leave connect out")
	case r.Inspects() && r.Upgrade:
		return about("upgrade is for connections that are not inspected: write websocket behind the requests that may become one")
	case r.Request != nil && r.Request.GraphQL != "" && r.Request.WebSocket:
		return about("of what a WebSocket carries, queries can't be told apart: leave websocket or graphql=query out")
	case r.Request != nil && r.Request.GraphQL != "" && r.Request.Path == "":
		return about("graphql=query is about one endpoint: name it, as in POST /graphql graphql=query")
	}
	return finding{}
}
