package judge

import (
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/agent-init/agent-init/pkg/route"
)

const (
	maxPath  = 2048
	maxQuery = 4096
)

// canonical refuses a path that two servers could read in two ways (RFC 3986, section 6.2.2): each character has one
// spelling, and none leads to another segment.
func canonical(path string, identifier bool) *Refusal {
	if !strings.HasPrefix(path, "/") {
		return refuse("path", "what is asked for is not a path")
	}
	if len(path) > maxPath {
		return refuse("path", "the path has more than %d bytes", maxPath)
	}
	for rest := path; rest != ""; {
		c, size := rest[0], 1
		if c == '%' {
			if c, size = unescape(rest); !escapedInPath(c) && !(identifier && (c == ':' || c == '/')) {
				return refuse("path", "the path has an escape that is not needed, or that could end a segment")
			}
		} else if c != '/' && !plainInPath(c) {
			return refuse("path", "the path has a character that is not allowed in it")
		}
		rest = rest[size:]
	}
	decoded, err := url.PathUnescape(path) // a slash in an identifier must not lead elsewhere either
	if err != nil || !utf8.ValidString(decoded) {
		return refuse("path", "the path is not in UTF-8")
	}
	segments := strings.Split(decoded[1:], "/")
	for i, s := range segments {
		if s == "" && i < len(segments)-1 || s == "." || s == ".." {
			return refuse("path", "the path has an empty segment, or one of dots")
		}
	}
	return nil
}

// unescape is the byte that an escape at the start of s stands for, and the escape's length. What is no escape in upper
// case is taken for NUL, which may stand nowhere.
func unescape(s string) (byte, int) {
	const digits = "0123456789ABCDEF"
	if len(s) < 3 {
		return 0, len(s)
	}
	high, low := strings.IndexByte(digits, s[1]), strings.IndexByte(digits, s[2])
	if high < 0 || low < 0 {
		return 0, len(s)
	}
	return byte(high<<4 | low), 3
}

// plainInPath are the characters that stand for themselves: pchar of RFC 3986, section 3.3, without the semicolon, behind
// which some servers cut a segment off.
func plainInPath(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		strings.IndexByte("-._~!$&'()*+,=:@", c) >= 0
}

// escapedInPath are those that have to be escaped. No server takes them for the end of a segment or of the path.
func escapedInPath(c byte) bool {
	return c >= utf8.RuneSelf || strings.IndexByte(" \"<>[]^`{|}", c) >= 0
}

// judgeQuery refuses parameters that are not listed: by the endpoint, or by an own route for all its endpoints.
func judgeQuery(r *route.Route, e *route.Endpoint, raw string) *Refusal {
	if raw == "" {
		return nil
	}
	if len(raw) > maxQuery {
		return refuse("query", "the query has more than %d bytes", maxQuery)
	}
	own := slices.Contains(e.Query, "*")
	seen := map[string]bool{}
	for part := range strings.SplitSeq(raw, "&") {
		escaped, _, _ := strings.Cut(part, "=")
		name, err := url.QueryUnescape(part)
		if err == nil {
			name, err = url.QueryUnescape(escaped)
		}
		taken := r.Inject.Query != "" && injected(r, name)
		switch listed := slices.Contains(e.Query, escaped) || slices.Contains(e.Query, part); {
		case err != nil || name == "" || strings.ContainsFunc(part, oddInQuery):
			return refuse("query", "the query has a part that is not one parameter")
		case seen[name] && !own:
			return refuse("query", "parameter %s stands twice in the query", quote(name, 64))
		case listed && !taken, own && !taken && passesParameter(r, name):
		case own && !taken && ofParameter(name):
			return Stranger(r, "query", name)
		case own && !taken:
			return unlisted(r, name)
		default:
			return refuse("query", "parameter %s is not on the list of %s %s of route %s",
				quote(name, 64), e.Method, e.Path, r.Name)
		}
		seen[name] = true
	}
	return nil
}

// unlisted refuses a parameter that an own route does not list, and names the list. A list has names without brackets.
func unlisted(r *route.Route, name string) *Refusal {
	refusal := refuse("query", "parameter %s is not on the list of route %s", quote(name, 64), r.Name)
	if base, _, _ := strings.Cut(name, "["); nameable(base) {
		refusal.Text += ", which lets it pass with query: [" + strings.ToLower(base) + "]"
	}
	return refusal
}

// oddInQuery are the characters that may not stand in a query, or that some servers take for another &.
func oddInQuery(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune("\"#;<>\\^`{|}", c) }
