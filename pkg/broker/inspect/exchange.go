package inspect

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/agent-init/agent-init/pkg/broker/judge"
	"github.com/agent-init/agent-init/pkg/broker/onward"
	"github.com/agent-init/agent-init/pkg/broker/room"
	"github.com/agent-init/agent-init/pkg/route"
)

// exchange is one request and its answer.
type exchange struct {
	server *Server
	conn   *conn
	table  *table
	entry  *route.Inspected
	asked  *http.Request // is only read
	began  time.Time
	ctx    context.Context
	cancel context.CancelCauseFunc
	event  Event

	key      *key // nil: nothing is put on
	admitted *judge.Admitted
	proxied  bool // it is asked of a proxy
	hold     *room.Hold
	body     *body
	control  *http.ResponseController
	silence  *silence
	entered  bool // it counts
	known    *known
}

// ServeHTTP judges a request and sends it on, or refuses it.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := r.Context().Value(connKey{}).(*conn)
	c.requests.Add(1)
	c.head.Over()
	x := &exchange{server: s, conn: c, asked: r, began: time.Now(), control: http.NewResponseController(w)}
	x.event = Event{Name: c.name, Port: c.port, UID: c.uid, Method: r.Method}
	x.ctx, x.cancel = context.WithCancelCause(r.Context())
	x.hold = s.config.Room.Hold(func() { x.cancel(full) })
	n := s.enter(x)
	defer s.leave(x)
	path, query, _ := strings.Cut(r.RequestURI, "?")
	x.event.Path = path
	var out *http.Request
	if n == nil {
		out, n = x.judge(path, query)
	}
	if n != nil {
		x.refuse(w, n)
		return
	}
	x.forward(w, out)
}

// enter counts a request that begins.
func (s *Server) enter(x *exchange) *no {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all.Add(1)
	x.conn.under++
	switch {
	case s.ended:
		return refusal(gone, "the broker ends")
	case s.flows.Len() >= maxUnder, s.users[x.conn.uid].requests >= maxUnderOfUser:
		return refusal("busy", "too many requests to inspected names at once")
	}
	x.entered = true
	s.uses(x.conn.uid, 0, 1)
	x.table = s.flows.Begin(x)
	return nil
}

// leave records a request that is over.
func (s *Server) leave(x *exchange) {
	if x.asked.Context().Err() != nil && x.event.FirstByte == 0 {
		x.conn.takenBack()
	}
	x.cancel(nil)
	if x.body != nil {
		x.body.tell(&x.event)
	}
	x.hold.End()
	s.flows.Over(x)
	s.mu.Lock()
	if x.entered {
		s.uses(x.conn.uid, 0, -1)
	}
	x.conn.under--
	x.conn.since = time.Now()
	s.mu.Unlock()
	x.event.Took = time.Since(x.began)
	s.config.Record(x.event)
	s.all.Done()
}

// judge says whether a request may go on, and makes the one that does.
func (x *exchange) judge(path, query string) (*http.Request, *no) {
	if x.entry = x.table.find(x.conn.place); x.entry == nil {
		return nil, refusal("authority", "the policy has changed: "+x.conn.name+" is not inspected any more; connect anew")
	}
	if n := x.addressed(); n != nil {
		return nil, n
	}
	if x.hold.Take(x.ctx, room.Head(x.asked)) != nil {
		return nil, full
	}
	r := x.asked
	admitted, refused := x.table.rules[x.entry].Judge(r.Method, path, query, r.Header)
	if refused != nil {
		return nil, refused
	}
	x.admitted, x.event.Rule = admitted, admitted.Rule
	if o := admitted.Observed; o != nil {
		x.event.Observed = o.What + ": " + o.Text
		if x.event.Rule == "" {
			x.event.Rule = o.Rule
		}
	}
	switch {
	case admitted.WebSocket && r.ProtoMajor != 1:
		return nil, refusal("websocket", "a WebSocket is one of HTTP/1.1 here")
	case admitted.WebSocket && (r.Method != http.MethodGet || r.ContentLength != 0): // RFC 6455, section 4.1
		return nil, refusal("websocket", "a WebSocket is asked for by GET, without a body")
	}
	// What comes behind the body is judged as the head is: servers take it for a part of it.
	if len(r.Trailer) > 0 {
		if _, refused := x.table.rules[x.entry].Judge(r.Method, path, query, r.Trailer); refused != nil {
			return nil, refused
		}
	}
	header := judge.Onward(r.Header, admitted.WebSocket)
	if admitted.WebSocket && admitted.MaxUpload != 0 {
		delete(header, "Sec-Websocket-Extensions") // what is packed would not be counted as it is
	}
	asked := query
	query, shown, n := x.putOn(header, query)
	if n != nil {
		return nil, n
	}
	if x.body, n = x.takeBody(header, query); n != nil {
		return nil, n
	}
	if n := x.learn(&known{x: x, path: path, query: asked, onward: query, shown: shown, packed: header["Sec-Websocket-Extensions"] != nil}); n != nil {
		return nil, n
	}
	return x.request(header, path, query)
}

// addressed says whether a request is one to the name that the connection is for. Others could be judged by the wrong
// rules, or would show us to be an open proxy.
func (x *exchange) addressed() *no {
	r := x.asked
	hosts := append([]string{r.Host}, r.Header["Host"]...) // HTTP/2 has it in two places (RFC 9113, section 8.3.1)
	for _, host := range hosts {
		host = strings.ToLower(host)
		if host != x.conn.name && host != x.conn.place.String() {
			return refusal("authority", "the request is for another name than its connection, which is for "+x.conn.name)
		}
	}
	switch {
	case !r.ProtoAtLeast(1, 1) || r.ProtoAtLeast(3, 0):
		return refusal("version", "the broker speaks HTTP/1.1 and HTTP/2")
	case r.Method == http.MethodConnect:
		return refusal("method", "CONNECT is refused for all inspected names")
	case !strings.HasPrefix(r.RequestURI, "/"):
		return refusal("path", "what is asked for is not a path")
	case (r.TLS == nil) != x.entry.Plain: // the policy has changed
		return refusal("authority", "the request is of another scheme than its connection")
	}
	return nil
}

// putOn puts on what a route has for this name.
func (x *exchange) putOn(h http.Header, query string) (out string, shown bool, n *no) {
	k := x.table.keys[x.conn.place]
	if k == nil {
		return query, false, nil
	}
	shown, query, n = k.judge(x.server.config.Token, h, x.asked.Trailer, query)
	if n != nil {
		return "", false, n
	}
	x.key = k
	if shown {
		x.event.Route, x.event.Fingerprint = k.route.Name, k.credential.Fingerprint
		if n := x.server.config.Fits(x.ctx, &k.route, 0); n != nil {
			return "", false, n
		}
	}
	return k.put(shown, h, query), shown, nil
}

// Fits asks whether a request that holds so many tokens fits the limits of a route.
func (c *Config) Fits(ctx context.Context, rt *route.Route, hold int64) *no {
	if rt.Limits == (route.Limits{}) {
		return nil
	}
	why, err := c.Spend(ctx, rt.Name, hold)
	switch {
	case err != nil:
		return refusal("busy", "the limits of this route cannot be checked now")
	case why != "":
		return refusal("budget", why)
	}
	return nil
}

// request is what the server is asked. Its path is, byte for byte, the one that was judged.
func (x *exchange) request(h http.Header, path, query string) (*http.Request, *no) {
	scheme, usual := "https", uint16(443)
	if x.entry.Plain {
		scheme, usual = "http", 80
	}
	host := x.conn.name
	if x.conn.port != usual {
		host = x.conn.place.String()
	}
	out := onward.NewRequest(x.asked.Method, scheme, x.conn.place.String(), path, h)
	if out == nil {
		return nil, refusal("path", "the path has a character that has to be escaped")
	}
	out.Host, out.URL.RawQuery, out.URL.ForceQuery = host, query, strings.HasSuffix(x.asked.RequestURI, "?")
	x.body.onto(out)
	return out, nil
}
