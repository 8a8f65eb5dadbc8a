package ui

import (
	"net/http"
	"strings"
)

// keyHeader carries the key. A page of another origin can't send it without asking first (CORS), and is never allowed.
const keyHeader = "X-Agent-Init-Key"

// refusal is why a request is not answered.
type refusal struct {
	status int
	why    string
}

// judgeOrigin says whether a request may come from where it comes from. Any page that the person opens can make their
// browser send requests to loopback:
//   - Under a name of its own that it let point to 127.0.0.1 (DNS rebinding). The Host header tells.
//   - By a form, an image or fetch. Origin and Sec-Fetch-Site tell, which no script can set
//     (https://fetch.spec.whatwg.org/#forbidden-request-header, https://www.w3.org/TR/fetch-metadata/).
//
// Another port on 127.0.0.1 is the same site for a browser, and another origin.
func (s *Server) judgeOrigin(r *http.Request) *refusal {
	origins, site := r.Header["Origin"], r.Header.Get("Sec-Fetch-Site")
	inside := isAPI(r)
	switch {
	case r.Host != s.host:
		return &refusal{http.StatusMisdirectedRequest, "this is http://" + s.host + "/ alone"}
	case len(origins) > 1 || len(origins) == 1 && origins[0] != "http://"+s.host:
		return &refusal{http.StatusForbidden, "another page may not ask here"}
	case len(origins) == 0 && inside && (r.Method != http.MethodGet || isUpgrade(r)):
		return &refusal{http.StatusForbidden, "a page says its origin"}
	case site == "" || site == "same-origin":
		return nil
	case inside:
		return &refusal{http.StatusForbidden, "another page may not ask here"}
	case site == "none": // typed, or from a terminal
		return nil
	case r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document":
		return nil // a link that was clicked elsewhere shows a page that knows nothing
	}
	return &refusal{http.StatusForbidden, "another page may not ask here"}
}

// judgePass says whether a request is of somebody who came in.
func (s *Server) judgePass(r *http.Request) *refusal {
	key := r.Header.Get(keyHeader)
	if isUpgrade(r) { // a page can set no header of a WebSocket's but this one
		key = keyOfProtocols(r)
	}
	if !s.door.knows(pass{cookieOf(r, cookieName(s.port)), key}) {
		return &refusal{http.StatusUnauthorized, "open the address that agent-init launch --ui shows"}
	}
	return nil
}

func isAPI(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/api/") }

// keyOfProtocols is the key among the protocols that a page offers for a WebSocket.
func keyOfProtocols(r *http.Request) string {
	for _, p := range headerList(r.Header, "Sec-Websocket-Protocol") {
		if key, ok := strings.CutPrefix(p, "key."); ok {
			return key
		}
	}
	return ""
}

// headerList are the words of a header that has a list of them.
func headerList(h http.Header, name string) (out []string) {
	for _, line := range h[name] {
		for word := range strings.SplitSeq(line, ",") {
			out = append(out, strings.TrimSpace(word))
		}
	}
	return out
}

// harden sets what each answer has. The page has no script and no style inside of itself, so that nothing that
// a container says can become one, should it ever get into the page as markup. No string can become markup in a browser
// that knows trusted types. styles are where a document may take styles from.
func (s *Server) harden(h http.Header, styles string) {
	h.Set("Content-Security-Policy", strings.Join([]string{
		"default-src 'none'", "script-src 'self'", "style-src " + styles, "img-src 'self'",
		"connect-src 'self' ws://" + s.host, // not each browser takes ws: for 'self'
		"base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
		"require-trusted-types-for 'script'", "trusted-types 'none'",
	}, "; "))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), microphone=(), geolocation=(), payment=(), usb=(), serial=(), hid=()")
	h.Set("Cache-Control", "no-store")
}
