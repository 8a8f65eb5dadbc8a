// Package onward has how requests go on from the broker: the credentials that are put on, connections to servers that
// prove their names, and what is said of one that can't be reached.
package onward

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"html"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/agent-init/agent-init/pkg/route"
)

// Credential is how the requests of a route get theirs. The zero value puts nothing on.
type Credential struct {
	header, value string // a whole line of the head
	query, key    string // or a parameter of the query
	add           []route.Header

	secret  string
	repeats []string // what a header that repeats it contains

	Fingerprint string // see route.Fingerprint
}

var (
	errNoCredential  = errors.New("it has no credential")
	errBadCredential = errors.New("its credential has bytes that no header may have")
)

// NewCredential has secret go where r says.
func NewCredential(r *route.Route, secret []byte) (Credential, error) {
	if r.Keyless {
		return Credential{}, nil
	}
	if len(secret) == 0 {
		return Credential{}, errNoCredential
	}
	in := r.Inject
	c := Credential{secret: string(secret), Fingerprint: route.Fingerprint(secret)}
	if !httpguts.ValidHeaderFieldValue(c.secret) {
		return Credential{}, errBadCredential
	}
	for _, p := range in.ByPrefix {
		if strings.HasPrefix(c.secret, p.Prefix) {
			in, c.add = route.Inject{Header: p.Header, Value: p.Value}, p.Append
			break
		}
	}
	switch {
	case in.Header != "":
		c.header, c.value = http.CanonicalHeaderKey(in.Header), strings.ReplaceAll(in.Value, "{}", c.secret)
	case in.Basic != "":
		c.header = "Authorization"
		c.value = "Basic " + base64.StdEncoding.EncodeToString([]byte(in.Basic+":"+c.secret))
	case in.Query != "":
		c.query, c.key = in.Query, c.secret
	default:
		return Credential{}, errors.New("nothing says where its credential goes")
	}
	c.repeats = spellings(c.secret)
	return c, nil
}

// Secret says whether there is one.
func (c *Credential) Secret() bool { return c.secret != "" }

// spellings are a secret as it is, in hex, and in base64 at each of the three places where it can begin there.
func spellings(secret string) []string {
	all := []string{secret, hex.EncodeToString([]byte(secret))}
	for shift := range 3 {
		padded := append(make([]byte, shift), secret...)
		// Characters at the ends carry bits of what stands beside the secret.
		from, to := (shift*8+5)/6, len(padded)*8/6
		for _, e := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			if s := e.EncodeToString(padded)[from:to]; s != "" && !slices.Contains(all, s) {
				all = append(all, s)
			}
		}
	}
	return all
}

// Put adds the credential to the head and the query of a request.
func (c *Credential) Put(h http.Header, query url.Values) {
	if c.header != "" {
		h[c.header] = []string{c.value}
	}
	if c.query != "" {
		query.Set(c.query, c.key)
	}
	for _, a := range c.add {
		name := http.CanonicalHeaderKey(a.Name)
		if !httpguts.HeaderValuesContainsToken(h[name], a.Value) {
			h[name] = []string{strings.Join(append(slices.Clone(h[name]), a.Value), ",")}
		}
	}
}

// In says whether a header of an answer has the secret in it, also as addresses, pages and JSON spell it.
func (c *Credential) In(name, value string) bool {
	if c.secret == "" {
		return false
	}
	for v, left := value, 4; left > 0; left-- { // what is escaped again and again
		for _, plain := range []string{v, html.UnescapeString(v), unquoted(v)} {
			for _, s := range c.repeats {
				if strings.Contains(plain, s) {
					return true
				}
			}
		}
		v = unescaped(v)
	}
	return strings.Contains(strings.ToLower(value), c.repeats[1]) ||
		strings.Contains(strings.ToLower(name), strings.ToLower(c.secret))
}

// unescaped is s without the escapes of an address, as far as they are some.
func unescaped(s string) string {
	var b strings.Builder
	for ; s != ""; s = s[1:] {
		if n, err := hex.DecodeString(s[min(1, len(s)):min(3, len(s))]); s[0] == '%' && len(s) > 2 && err == nil {
			b.WriteByte(n[0])
			s = s[2:]
			continue
		}
		b.WriteByte(s[0])
	}
	return b.String()
}

// unquoted is s without the escapes of JSON.
func unquoted(s string) (plain string) {
	_ = json.Unmarshal([]byte(`"`+strings.ReplaceAll(s, `"`, "")+`"`), &plain) // if it has others, it is none of JSON's
	return plain
}

const blank = `{"error":{"message":"what the server says besides its status is not passed on: it may repeat the key, which ` +
	`stands in the address (agent-init: inject: {query: ...})"}}` + "\n"

// Blank takes the body of an answer that may repeat the credential, where it has one of 300 and above: what a server says of
// an address that it can't serve, or that leads elsewhere, has the query in it as a routine.
func (c *Credential) Blank(method string, resp *http.Response) {
	if c.query == "" || resp.StatusCode < 300 || method == http.MethodHead || resp.StatusCode == http.StatusNotModified {
		return
	}
	resp.Body.Close()
	resp.Body, resp.ContentLength, resp.Trailer = io.NopCloser(strings.NewReader(blank)), int64(len(blank)), nil
	for _, of := range []string{"Content-Encoding", "Content-Range", "Content-Md5", "Content-Digest", "Digest", "Repr-Digest", "Etag", "Trailer"} {
		delete(resp.Header, of)
	}
	resp.Header["Content-Type"] = []string{"application/json"}
	resp.Header["Content-Length"] = []string{strconv.Itoa(len(blank))}
}
