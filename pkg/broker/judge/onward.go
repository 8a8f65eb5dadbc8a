package judge

import (
	"net/http"
	"strings"
)

// ofConnection are the headers that are said of one connection, or that each hop makes anew (RFC 9110, section 7.6.1).
var ofConnection = []string{
	"connection", "proxy-*", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "http2-settings", "content-length", "host",
}

// elsewhere are headers by which a server, or a proxy before it, is told of another host, path or caller than the
// request's own (Envoy, Next.js, IIS), where files are (Rack), or which proxy to ask (what runs as CGI). Rules are about
// what the request says.
var elsewhere = []string{
	"x-override-url", "x-envoy-original-*", "x-matched-path", "x-invoke-*", "x-http-destination*", "proxy", "x-accel-*", "x-sendfile*",
	"forwarded", "x-forwarded*", "via", "x-real-ip", "x-host*", "x-http-host*", "x-original-*", "x-rewrite-*", "x-proxy-*", "alt-used", "early-data",
}

// connectionOptions are what a client may say of its connection. A header that it names there would be judged, and not
// go on.
var connectionOptions = map[string]bool{
	"close": true, "keep-alive": true, "upgrade": true, "http2-settings": true, "te": true, "trailer": true, "proxy-connection": true,
}

// Onward are the headers of a request to an inspected name that go on. Its credentials are among them.
func Onward(h http.Header, webSocket bool) http.Header {
	pass := make(http.Header, len(h)+2)
	for name, values := range h {
		lower := underscored(name)
		if !listed(ofConnection, lower) && !listed(elsewhere, lower) && (webSocket || !strings.HasPrefix(lower, "sec-websocket-")) {
			pass[name] = values
		}
	}
	if webSocket {
		pass["Connection"], pass["Upgrade"] = []string{"Upgrade"}, []string{"websocket"}
	}
	if names(h["Te"], "trailers") {
		pass["Te"] = []string{"trailers"} // gRPC asks for it
	}
	return pass
}

// ofSession are headers of an answer by which a server begins or goes on with a session, besides those that OfCredential
// knows.
var ofSession = []string{"set-cookie*", "authentication-info", "authentication-control"}

// Back are the headers of an answer that go back. None says that the server is elsewhere as well (Alt-Svc): the client
// would try there. With made, a credential of the broker's was used there: what it made is not the client's. A signature of
// the server's opens nothing.
func Back(h http.Header, made bool) http.Header {
	pass := make(http.Header, len(h))
	for name, values := range h {
		lower := strings.ToLower(name)
		if listed(ofConnection, lower) || lower == "alt-svc" || names(h["Connection"], lower) ||
			made && (listed(ofSession, underscored(name)) || OfCredential(strings.ReplaceAll(lower, "signature", ""))) {
			continue
		}
		pass[name] = values
	}
	return pass
}

// names says whether the lines of a header that is a list name something.
func names(lines []string, what string) bool {
	for _, line := range lines {
		for token := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(token), what) {
				return true
			}
		}
	}
	return false
}

// oddConnection refuses a header Connection that takes others away.
func oddConnection(lines []string) *Refusal {
	for _, line := range lines {
		for token := range strings.SplitSeq(line, ",") {
			if token = strings.TrimSpace(token); token != "" && !connectionOptions[strings.ToLower(token)] {
				return refuse("header", "header Connection names %s, which would be judged and not go on", quote(token, 64))
			}
		}
	}
	return nil
}
