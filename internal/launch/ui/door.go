package ui

import (
	"crypto/rand"
	"crypto/subtle"
	"net/http"
	"slices"
	"sync"
)

// door knows who may come in. The link that a terminal shows holds a token, which is good for once. Whoever brings it
// gets two secrets, and needs both with each request that tells or does something:
//   - A cookie, which no script can read (HttpOnly), and which no request from another site carries (SameSite=Strict).
//   - A key, which the page keeps and sends in a header.
//
// The cookie alone would not do. Cookies don't know ports (RFC 6265, section 8.5): a browser sends ours to whatever
// else listens on 127.0.0.1, such as a server that the agent shows on a published port. The page's storage does know
// them.
type door struct {
	mu     sync.Mutex
	token  string // of the newest link; "" once it was used
	inside []pass // oldest first
}

// pass is what a browser has that came in.
type pass struct{ cookie, key string }

// maxInside bounds the browsers that are inside; the oldest has to go.
const maxInside = 8

// link makes a token. The one before it is of no use any more.
func (d *door) link() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.token = secret()
	return d.token
}

// enter takes the token for a pass, once.
func (d *door) enter(token string) (pass, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.token == "" || !equal(token, d.token) {
		return pass{}, false
	}
	p := pass{secret(), secret()}
	d.token = ""
	d.inside = append(d.inside, p)
	d.inside = d.inside[max(0, len(d.inside)-maxInside):]
	return p, true
}

// knows says whether both halves are of one pass.
func (d *door) knows(p pass) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.ContainsFunc(d.inside, func(q pass) bool {
		return equal(p.cookie, q.cookie) && equal(p.key, q.key)
	})
}

// equal takes as long wherever two secrets differ.
func equal(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// secret has 260 random bits. A text of rand's has 130 (crypto/rand.Text).
func secret() string { return rand.Text() + rand.Text() }

// cookieName has the port, so that two servers of one person don't take each other's place.
func cookieName(port string) string { return "agent-init-" + port }

// cookieOf finds a cookie. A server on another port may have set one of the same name for a longer path, which comes
// first then: with two, nobody is let in by guessing.
func cookieOf(r *http.Request, name string) string {
	if list := r.CookiesNamed(name); len(list) == 1 {
		return list[0].Value
	}
	return ""
}
