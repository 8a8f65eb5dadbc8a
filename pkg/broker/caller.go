package broker

import (
	"crypto/subtle"
	"encoding/base64"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// asked says whether a request names this server, over a connection to server. A page that has a browser ask us under a
// name of its own (DNS rebinding) can't say so, and shows its origin besides.
func asked(r *http.Request, server netip.AddrPort) (fault string) {
	port := server.Port()
	names := []string{
		server.String(),
		netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port).String(),
		netip.AddrPortFrom(netip.IPv6Loopback(), port).String(),
		strings.Replace(netip.AddrPortFrom(netip.IPv4Unspecified(), port).String(), "0.0.0.0", "localhost", 1),
	}
	switch {
	case r.Method == http.MethodConnect || !strings.HasPrefix(r.RequestURI, "/"):
		return "the broker is no proxy: ask it for http://" + server.String() +
			"/ROUTE/… (no CONNECT, no absolute address)"
	case !r.ProtoAtLeast(1, 1):
		return "the broker speaks HTTP/1.1"
	case !slices.Contains(names, strings.ToLower(r.Host)):
		return "the broker is not the host that the request names"
	case r.Header["Origin"] != nil:
		return "the broker answers no web page (header Origin)"
	}
	return ""
}

// shows says whether a request has token wherever one of the known APIs has its key. What a client's shape of a key
// puts in front of it (sk-ant-, the head of a JWT) counts for nothing.
func shows(token string, r *http.Request, query string) bool {
	var keys []string
	for _, name := range []string{"X-Api-Key", "X-Goog-Api-Key", "Api-Key"} {
		keys = append(keys, r.Header[name]...)
	}
	for _, v := range r.Header["Authorization"] {
		scheme, key, _ := strings.Cut(v, " ")
		switch strings.ToLower(scheme) {
		case "bearer":
			keys = append(keys, strings.TrimSpace(key))
		case "basic": // as git has it: the user counts for nothing
			if plain, err := base64.StdEncoding.DecodeString(key); err == nil {
				keys = append(keys, string(plain))
			}
		}
	}
	for parameter := range strings.SplitSeq(query, "&") {
		if key, ok := strings.CutPrefix(parameter, "key="); ok {
			keys = append(keys, key)
		}
	}
	shown := 0
	for _, key := range keys {
		if len(key) >= len(token) {
			shown |= subtle.ConstantTimeCompare([]byte(key[len(key)-len(token):]), []byte(token))
		}
	}
	return token != "" && shown == 1
}

// withoutKey is a query without the caller's key.
func withoutKey(query string) string {
	parameters := strings.Split(query, "&")
	return strings.Join(slices.DeleteFunc(parameters, func(s string) bool { return strings.HasPrefix(s, "key=") }), "&")
}

// upgrades says whether a request wants another protocol than HTTP. Clients that offer HTTP/2 in this way (curl,
// Java's) do without.
func upgrades(h http.Header) bool {
	return httpguts.HeaderValuesContainsToken(h["Connection"], "upgrade") &&
		!httpguts.HeaderValuesContainsToken(h["Upgrade"], "h2c")
}

// ends are the two ends of a connection.
func ends(c net.Conn) (client, server netip.AddrPort) {
	of := func(a net.Addr) netip.AddrPort {
		if t, ok := a.(*net.TCPAddr); ok {
			p := t.AddrPort()
			return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
		}
		return netip.AddrPort{}
	}
	return of(c.RemoteAddr()), of(c.LocalAddr())
}
