package broker

import (
	"errors"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/agent-init/agent-init/pkg/broker/judge"
	"github.com/agent-init/agent-init/pkg/broker/onward"
)

var errUnclear = errors.New("the address could be read in two ways")

// request makes what the API is asked: from what was judged, the route's own, and its credential. Nothing else of the
// caller's goes on.
func (x *exchange) request(r *http.Request) (*http.Request, error) {
	h := judge.PassHeaders(&x.way.route, r.Header)
	x.goal = x.way.to(x.endpoint.To)
	out, err := x.goal.request(r.Method, x.path, x.query, h)
	if err != nil {
		return nil, err
	}
	if ticketed(x.endpoint) {
		if n := x.redeem(out); n != nil {
			return nil, n
		}
	}
	if n := len(x.body.data); n > 0 {
		out.ContentLength, out.GetBody = int64(n), x.body.reader
		if out.Body, err = x.body.reader(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// request is one without a body. It takes h over.
func (g *goal) request(method, path, rawQuery string, h http.Header) (*http.Request, error) {
	to := g.up.place
	out := onward.NewRequest(method, to.scheme, to.authority(), g.prefix+path, h)
	query, err := url.ParseQuery(rawQuery)
	if err != nil || out == nil {
		return nil, errUnclear
	}
	h.Set("Accept-Encoding", "identity") // so that the usage can be read
	for _, a := range g.add {
		h.Set(a.Name, a.Value)
	}
	g.key.Put(h, query)
	out.URL.RawQuery = query.Encode()
	return out, nil
}

// authority is what the server is called in a request.
func (p place) authority() string {
	if p.scheme == "https" && p.port == 443 || p.scheme == "http" && p.port == 80 {
		if strings.Contains(p.host, ":") {
			return "[" + p.host + "]"
		}
		return p.host
	}
	return net.JoinHostPort(p.host, strconv.Itoa(int(p.port)))
}
