package judge

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/agent-init/agent-init/pkg/route"
)

// These words make the name of a header or a parameter one of a credential. testdata/credentials.txt lists APIs and their
// names, testdata/clients.txt what their clients send besides. Names are compared in lower case, with a hyphen for
// everything that is no letter. Words may be joined, as in hapikey.
var (
	secretParts = []string{
		"token", "secret", "passw", "passhash", "passphrase", "passcode", "jwt", "bearer", "credential", "macaroon",
		"assertion", "cookie", "authorization", "authorisation", "authentication", "authenticated", "signature",
	}
	secretEnds  = []string{"key", "auth", "pwd", "apikeys"}
	secretWords = []string{"pass", "sig", "sign", "hmac", "sid", "wsse"}
	secretLast  = []string{"session", "api"}

	// Some vendors' names do not say what they are: API keys of Honeycomb, HERE, IBM, MyAnimeList and OpenWeather, sessions
	// of VMware, Veeam, Java and PHP, tokens of Tenable and QRadar, and Google's parameter that holds headers.
	secretPhrases = []string{
		"honeycomb-team", "app-code", "ibm-client-id", "mal-client-id", "api-session-id", "svcsessionid", "jsessionid",
		"phpsessid", "securitycenter", "httpheaders",
	}
	secretNames = []string{"appid", "sec"}
)

// Some tokens, keys and sessions open nothing. The word before them says so: they page through a list, prove that a page of
// the server's was read (CSRF), or name a thing. An attribute behind a credential describes it, and is none itself.
const (
	ofPages   = `page|paging|pagination|next|continuation|continue|starting|sync|delta|skip`
	ofForgery = `csrf|xsrf|forgery|middleware|prevention|authenticity|request|request-?verification|atlassian`
	ofThings  = `issue|project|space|component|repo|repository|file|lookup|shard|metric|rule|flag|field|column|` +
		`property|config|label|plan|object`
	ofTokens = ofPages + `|` + ofForgery + `|idempotency|version|lock|offline`
	ofKeys   = ofPages + `|` + ofThings + `|idempotency|websocket|cache|surrogate|sort|order|group|partition|row|` +
		`primary|foreign|start|end|last`
	ofSessions = `kubectl|npm|opencode`

	attributed = `token|key|auth|authori[sz]ation|authentication|secret|password|credentials?|signature`
	attributes = `types?|ids?|identifiers?|names?|counts?|limits?|methods?|schemes?|algorithms?|versions?|expiry|expires|` +
		`expiration|ttl|scopes?|status|urls?|format|enabled|required|marker|affinity|flows?|sha|md`

	others = `tokens\b|tokeni[sz]\w*|secretar\w*|(?:mon|don|tur|hoc|joc|whis|hot)key\b|allow-credentials\b`
)

// harmless matches the parts of a name that are about no credential.
var harmless = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(others + `|\b(?:(?:` + ofTokens + `)-?)+token\b|\b(?:(?:` + ofKeys + `)-?)+key\b|` +
		`\b(?:` + ofSessions + `)-session\b|(?:(?:` + attributed + `)-?)+(?:` + attributes + `)\b`)
})

// OfCredential reports whether a header or a parameter of this name may carry a credential. A parameter's name is unescaped.
func OfCredential(name string) bool {
	for range 3 { // some servers unescape it again
		if ofCredential(name) {
			return true
		}
		again, err := url.QueryUnescape(name)
		if err != nil || again == name {
			break
		}
		name = again
	}
	return false
}

func ofCredential(name string) bool {
	name, _, _ = strings.Cut(name, "\x00") // PHP ends a name here
	// Both, since servers that ignore case take letters such as the Kelvin sign for ASCII's.
	name = strings.Map(lettered, strings.ToLower(strings.ToUpper(name)))
	return saysSecret(name) && saysSecret(harmless().ReplaceAllString(name, "-.-"))
}

// saysSecret looks for the words of credentials.
func saysSecret(name string) bool {
	has := func(part string) bool { return strings.Contains(name, part) }
	if slices.ContainsFunc(secretParts, has) || slices.ContainsFunc(secretPhrases, has) ||
		slices.Contains(secretNames, strings.Trim(name, "-")) {
		return true
	}
	for word := range strings.SplitSeq(name, "-") {
		ends := func(end string) bool { return strings.HasSuffix(word, end) }
		if slices.ContainsFunc(secretEnds, ends) || slices.Contains(secretWords, word) {
			return true
		}
	}
	name = strings.TrimRight(name, "-")
	return slices.Contains(secretLast, name[strings.LastIndexByte(name, '-')+1:])
}

// lettered maps everything but a letter to a hyphen.
func lettered(c rune) rune {
	if 'a' <= c && c <= 'z' {
		return c
	}
	return '-'
}

// CredentialHeader reports whether a request header may carry a credential. Its exact name in the route's list of headers
// says that it does not, unless the name is one that no route lets pass.
func CredentialHeader(r *route.Route, name string) bool {
	name = underscored(name)
	return OfCredential(name) && (listed(neverHeaders, name) ||
		!slices.ContainsFunc(r.Headers, func(h string) bool { return underscored(h) == name }))
}

// CredentialParameter is CredentialHeader for a parameter, whose name is unescaped.
func CredentialParameter(r *route.Route, name string) bool {
	return ofParameter(name) && !slices.Contains(r.Query, strings.ToLower(name))
}

// ofParameter is OfCredential for the name in front of brackets, and for each in them. A key in brackets is any map's.
func ofParameter(name string) bool {
	base, inner, nested := strings.Cut(strings.TrimLeft(name, "[] "), "[")
	if !nested || !strings.Contains(inner, "]") { // PHP takes a bracket that is not closed for an underscore
		return OfCredential(name)
	}
	parts := strings.FieldsFunc(inner, func(c rune) bool { return c == '[' || c == ']' })
	return OfCredential(base) || slices.ContainsFunc(parts, func(s string) bool { return s != "key" && OfCredential(s) })
}

// passesParameter reports whether the parameters that an own route lists have this one. Its exact name on the list lets it
// pass whatever it may carry. A *, or the name in front of brackets, lets no credential pass.
func passesParameter(r *route.Route, name string) bool {
	name = strings.ToLower(name)
	base, _, _ := strings.Cut(name, "[")
	return slices.Contains(r.Query, name) || (listed(r.Query, name) || slices.Contains(r.Query, base)) &&
		!ofParameter(name) && !answerParameters[ParameterName(name)]
}

// Stranger refuses a header or a parameter that may carry somebody else's credential. list is the route's list that lets
// it pass: headers or query.
func Stranger(r *route.Route, list, name string) *Refusal {
	kind := map[string]string{"headers": "header", "query": "parameter"}[list]
	refusal := refuse("credential", "%s %s may be a credential, and route %s lets none of the agent's pass but its token",
		kind, quote(name, 64), r.Name)
	never := list == "headers" && listed(neverHeaders, underscored(name))
	if !never && !injected(r, name) && nameable(name) {
		refusal.Text += "; if it is none, the route lets it pass with " + list + ": [" + strings.ToLower(name) + "]"
	}
	return refusal
}

// nameable reports whether a policy can list a name.
func nameable(name string) bool {
	return len(name) <= 64 && !strings.ContainsFunc(strings.ToLower(name), func(c rune) bool {
		return lettered(c) != c && (c < '0' || c > '9') && !strings.ContainsRune("_.~$", c)
	})
}

// injected reports whether a header or a parameter is where the route puts its credential.
func injected(r *route.Route, name string) bool {
	places := []string{r.Inject.Header, r.Inject.Query}
	for _, p := range r.Inject.ByPrefix {
		places = append(places, p.Header)
	}
	is := func(place string) bool { return place != "" && ParameterName(place) == ParameterName(name) }
	return slices.ContainsFunc(places, is)
}
