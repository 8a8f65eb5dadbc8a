package inspect

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/agent-init/agent-init/pkg/broker/tunnel"
)

// Plain HTTP may go by a proxy that takes requests with whole URLs (RFC 9112, section 3.2.2), and no CONNECT to such a
// port. Each request is made anew from what was judged, and shows the credential. A connection to the proxy serves
// requests for one name alone: what one server, or the proxy, answers too much is no answer of another's.

type proxiedKey struct{}

// ofProxy stands before the host of what net/http takes for the address of a proxy, which is that of the name. No name has
// it. So connections to the proxy are never taken for such to the server, which would see the credential, or the other
// way round, whatever policy comes meanwhile.
const ofProxy = "~"

// byProxy has a request sent to the proxy, if its name is asked for there. A WebSocket takes a connection of its own.
func (x *exchange) byProxy(out *http.Request) *http.Request {
	if x.server.config.Proxy == nil || !x.entry.Plain || x.admitted.WebSocket {
		return out
	}
	authorization, is := x.server.config.Proxy(x.conn.name, x.conn.port)
	if !is {
		return out
	}
	delete(out.Header, "Max-Forwards") // by which it would answer by itself
	if authorization != "" {
		out.Header["Proxy-Authorization"] = []string{authorization}
	}
	x.proxied = true
	return out.WithContext(context.WithValue(out.Context(), proxiedKey{}, true))
}

// proxyOf is http.Transport's Proxy.
func proxyOf(r *http.Request) (*url.URL, error) {
	if r.Context().Value(proxiedKey{}) == nil {
		return nil, nil
	}
	return &url.URL{Scheme: "http", Host: ofProxy + r.URL.Host}, nil
}

// connect connects to the server of an inspected name, or to the proxy for it.
func (s *Server) connect(ctx context.Context, host string, port uint16) (net.Conn, place, error) {
	name, proxied := strings.CutPrefix(host, ofProxy)
	dial := s.config.Dial
	if proxied {
		dial = s.config.DialProxy
	}
	c, err := dial(ctx, name, port)
	return c, place{name, port}, err
}

// refusedByProxy is the refusal of an answer that is the proxy's, and not the server's. It does not go on: a page of a
// proxy's may have in it what it was asked, and so the credential.
func (x *exchange) refusedByProxy(resp *http.Response) *no {
	if !x.proxied || resp.StatusCode != http.StatusProxyAuthRequired && resp.Header["X-Squid-Error"] == nil {
		return nil
	}
	n := refusal("server", "by the upstream proxy: "+tunnel.Refusal(resp.StatusCode).Error())
	if resp.StatusCode > 500 { // it was not reached
		n.What = "upstream"
	}
	return n
}
