package inspect

import (
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/agent-init/agent-init/pkg/broker/judge"
	"github.com/agent-init/agent-init/pkg/broker/onward"
	"github.com/agent-init/agent-init/pkg/route"
)

// key is what a route puts onto the requests of a name.
type key struct {
	route      route.Route
	credential onward.Credential
	takes      bool     // the only credential that may go to this name
	headers    []string // where it stands, whatever else may
	query      string
}

func newKey(r route.Route, secret []byte) (*key, error) {
	k := &key{route: r}
	if r.Keyless {
		return k, nil
	}
	if len(secret) > 0 { // else it can't be had now, and no other may go in its place
		var err error
		if k.credential, err = onward.NewCredential(&k.route, secret); err != nil {
			return nil, err
		}
	}
	k.takes, k.query = true, judge.ParameterName(r.Inject.Query)
	for _, name := range append([]string{r.Inject.Header}, prefixed(r.Inject.ByPrefix)...) {
		if name != "" {
			k.headers = append(k.headers, hyphened(name))
		}
	}
	return k, nil
}

func prefixed(all []route.Prefixed) (headers []string) {
	for _, p := range all {
		headers = append(headers, p.Header)
	}
	return headers
}

// judge is take, for a request with what comes behind its body.
func (k *key) judge(token string, h, trailer http.Header, rawQuery string) (shown bool, query string, n *no) {
	for name := range trailer {
		if k.inHeader(name) || k.adds(name) {
			return false, "", refusal("credential", "a credential, or what the route puts on, stands behind the body")
		}
	}
	return k.take(token, h, rawQuery)
}

// take takes the agent's token out of a head and a query, wherever it stands. What is there besides is another
// credential.
func (k *key) take(token string, h http.Header, rawQuery string) (shown bool, query string, n *no) {
	for name, values := range h {
		if !k.inHeader(name) {
			continue
		}
		for _, v := range values {
			switch cookie := hyphened(name) == "Cookie" || hyphened(name) == "Cookie2"; {
			case shows(token, v):
				shown = true
			case cookie: // a server's, which the client has kept: its jar must not end what it asks
			default:
				return false, "", judge.Stranger(&k.route, "headers", name)
			}
		}
		delete(h, name)
	}
	if k.takes && protocolShows(h["Sec-Websocket-Protocol"]) {
		return false, "", refusal("credential", "header Sec-WebSocket-Protocol has what could be a credential: show the token in another one")
	}
	if rawQuery == "" {
		return shown, "", k.missing(shown)
	}
	if k.behindSemicolon(rawQuery) {
		return false, "", refusal("credential", "the query has a credential behind a semicolon")
	}
	var rest []string
	for part := range strings.SplitSeq(rawQuery, "&") {
		name, value, _ := strings.Cut(part, "=")
		name, err := url.QueryUnescape(name)
		if err != nil {
			return false, "", refusal("query", "the query has a part that is not one parameter")
		}
		if !k.inQuery(name) {
			rest = append(rest, part)
			continue
		}
		value, err = url.QueryUnescape(value)
		if err != nil || !shows(token, value) {
			return false, "", judge.Stranger(&k.route, "query", name)
		}
		shown = true
	}
	return shown, strings.Join(rest, "&"), k.missing(shown)
}

// inHeader says whether a header may have a credential.
func (k *key) inHeader(name string) bool {
	name = hyphened(name)
	return k.takes && (slices.Contains(k.headers, name) || judge.CredentialHeader(&k.route, name))
}

// inQuery says whether a parameter may be one, which is unescaped.
func (k *key) inQuery(name string) bool {
	return k.takes && (k.query != "" && judge.ParameterName(name) == k.query || judge.CredentialParameter(&k.route, name))
}

// maxProtocol is longer than a protocol over WebSockets is called, and not longer than keys are.
const maxProtocol = 39

// protocolShows says whether a list of protocols has a credential: in a browser it is the only header that can be set.
func protocolShows(lines []string) bool {
	for protocol := range strings.SplitSeq(strings.ToLower(strings.Join(lines, ",")), ",") {
		protocol = strings.TrimSpace(protocol)
		if len(protocol) > maxProtocol || judge.OfCredential(protocol) {
			return true
		}
	}
	return false
}

// adds says whether a header is one that the route has.
func (k *key) adds(name string) bool {
	return slices.ContainsFunc(k.route.Add, func(a route.Header) bool { return hyphened(a.Name) == hyphened(name) })
}

// hyphened is the name of a header as what is behind CGI and its like knows it, to whom an underscore is a hyphen.
func hyphened(name string) string { return http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-")) }

// behindSemicolon says whether a query has a credential where some servers end a parameter, and others do not.
func (k *key) behindSemicolon(rawQuery string) bool {
	for part := range strings.SplitSeq(rawQuery, "&") {
		_, behind, _ := strings.Cut(part, ";")
		for one := range strings.SplitSeq(behind, ";") {
			name, _, _ := strings.Cut(one, "=")
			if name, err := url.QueryUnescape(name); err == nil && k.inQuery(name) {
				return true
			}
		}
	}
	return false
}

// missing refuses to put on what is not there.
func (k *key) missing(shown bool) *no {
	if !shown || k.credential.Secret() {
		return nil
	}
	return refusal("busy", "the credential of route "+k.route.Name+" can't be had now")
}

// put puts on what the route has: the credential if the token was shown, and what it adds in any case.
func (k *key) put(shown bool, h http.Header, rawQuery string) (query string) {
	for name := range h {
		if k.adds(name) {
			delete(h, name)
		}
	}
	for _, a := range k.route.Add {
		h[http.CanonicalHeaderKey(a.Name)] = []string{a.Value}
	}
	if !shown {
		return rawQuery
	}
	added := url.Values{}
	k.credential.Put(h, added)
	switch own := added.Encode(); {
	case own == "":
		return rawQuery
	case rawQuery == "":
		return own
	default:
		return rawQuery + "&" + own
	}
}

// shows says whether a value is the token, behind a scheme, a user of Basic authentication, or what a client's shape of
// a key puts in front of it.
func shows(token, value string) bool {
	scheme, rest, ok := strings.Cut(value, " ")
	if ok {
		value = strings.TrimSpace(rest)
		if strings.EqualFold(scheme, "basic") {
			plain, err := base64.StdEncoding.DecodeString(value)
			if err != nil {
				return false
			}
			value = string(plain)
		}
	}
	return token != "" && len(value) >= len(token) &&
		subtle.ConstantTimeCompare([]byte(value[len(value)-len(token):]), []byte(token)) == 1
}
