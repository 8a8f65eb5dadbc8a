package inspect

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/broker/judge"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/route"
)

// requests is what entries say of the requests to an inspected name.
type requests struct {
	Observe bool           `json:"observe,omitempty"` // what no entry allows passes, and is recorded
	Allow   []requestEntry `json:"allow"`
	Deny    []requestEntry `json:"deny"`
	Within  []requestEntry `json:"within,omitempty"` // the ceiling: what passes is one of these, too
	Route   string         `json:"route,omitempty"`  // that puts a credential onto them
	Source  string         `json:"source,omitempty"`
	Asked   []asked        `json:"asked,omitempty"` // what was asked about, by any method that was not said
}

// requestEntry is one that is about requests.
type requestEntry struct {
	Requests string `json:"requests"` // as behind the name in an entry
	Rule     string `json:"rule"`     // file:line
}

// asked is what becomes of a request.
type asked struct {
	Method  string `json:"method"`
	Path    string `json:"path"`
	Allowed bool   `json:"allowed"`
	Rule    string `json:"rule,omitempty"`
	If      string `json:"if,omitempty"`     // what it has to be besides
	Reason  string `json:"reason,omitempty"` // why it is refused, or would be
}

// request is the one that is asked about: of a URL with a path.
type request struct {
	method, path, query string // without a method, any
	scheme              string
}

// web says whether it is one of HTTP.
func (q request) web() bool {
	return q.path != "" && slices.Contains([]string{"http", "https", "ws", "wss"}, q.scheme)
}

// socket says whether it asks for a WebSocket.
func (q request) socket() bool { return q.scheme == "ws" || q.scheme == "wss" }

// plain says whether it goes without TLS.
func (q request) plain() bool { return q.scheme == "http" || q.scheme == "ws" }

// commonMethods are those that are tried if none is said.
var commonMethods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"}

// judgeRequests says what entries say of requests to s on port, and of the one that is asked about; nil if none does.
func judgeRequests(p *policy.Policy, s subject, port policy.Port) *requests {
	i := route.FindInspected(p.Settings.Inspected, s.name, port.Number)
	if i == nil || p.Way(s.name, port) != policy.Inspected {
		return nil
	}
	r := requestsOf(i)
	for _, e := range p.RouteEntries() {
		if e.Inspects == s.name+":"+strconv.Itoa(int(port.Number)) && !e.Absent {
			r.Route, r.Source = e.Name, e.Source
		}
	}
	if s.request.path == "" {
		return r
	}
	methods := commonMethods
	if s.request.method != "" {
		methods = []string{s.request.method}
	}
	for _, method := range methods {
		r.Asked = append(r.Asked, s.request.judged(i, method))
	}
	return r
}

func requestsOf(i *route.Inspected) *requests {
	r := &requests{Observe: i.Observe, Allow: requestEntries(i.Allow), Deny: requestEntries(i.Deny)}
	if i.Within != nil {
		r.Within = requestEntries(i.Within)
	}
	return r
}

func requestEntries(list []route.Request) []requestEntry {
	entries := []requestEntry{}
	for _, q := range list {
		entries = append(entries, requestEntry{cmp.Or(q.String(), "any request"), q.Rule})
	}
	return entries
}

// judged asks the broker's own rules.
func (q request) judged(i *route.Inspected, method string) asked {
	h := http.Header{}
	if q.socket() {
		h = http.Header{"Upgrade": {"websocket"}, "Connection": {"Upgrade"}}
	}
	a := asked{Method: method, Path: q.path}
	if carries := map[bool]string{true: "http", false: "https"}[i.Plain]; q.plain() != i.Plain {
		a.Reason = fmt.Sprintf("port %d carries %s, and this is %s", i.Port, carries, q.scheme)
		return a
	}
	admitted, refusal := judge.Inspected(i, method, q.path, q.query, h)
	if refusal == nil && admitted.Observed != nil {
		refusal = admitted.Observed
	}
	if refusal != nil {
		a.Rule, a.Reason = refusal.Rule, refusal.Text
		return a
	}
	a.Allowed, a.Rule = true, admitted.Rule
	var conditions []string
	if admitted.GraphQL != "" {
		conditions = append(conditions, "if it is a GraphQL query")
	}
	switch limit := (&route.Request{MaxUpload: admitted.MaxUpload}).String(); {
	case admitted.MaxUpload < 0:
		conditions = append(conditions, "without a body")
	case limit != "":
		conditions = append(conditions, "with a body of "+strings.TrimPrefix(limit, "max_upload=")+" at most")
	}
	a.If = strings.Join(conditions, ", ")
	return a
}

// refused returns what was asked about if nothing of it passes, nil else.
func (r *requests) refused() *asked {
	if r == nil || r.Observe || len(r.Asked) == 0 || slices.ContainsFunc(r.Asked, func(a asked) bool { return a.Allowed }) {
		return nil
	}
	return &r.Asked[0]
}

// refuse has a verdict say that the request does not pass.
func (v *portVerdict) refuse() {
	a := v.Requests.refused()
	if a == nil {
		v.decided()
		return
	}
	v.Allowed, v.Rule, v.Text, v.Preset = false, "", "", ""
	v.Reason = "no entry allows such a request"
	if i := slices.IndexFunc(v.Requests.Deny, func(e requestEntry) bool { return e.Rule == a.Rule }); i >= 0 {
		v.Reason, v.Rule, v.Text = "denied by the policy", a.Rule, v.Requests.Deny[i].Requests
	}
}

// decided has a verdict name the entry by which the request passes, where one does for all methods that were tried.
func (v *portVerdict) decided() {
	if v.Requests == nil {
		return
	}
	rule := ""
	for _, a := range v.Requests.Asked {
		if a.Allowed && rule != "" && rule != a.Rule {
			return
		} else if a.Allowed {
			rule = a.Rule
		}
	}
	if i := slices.IndexFunc(v.Requests.Allow, func(e requestEntry) bool { return e.Rule == rule }); i >= 0 {
		v.Rule, v.Text, v.Preset = rule, v.Requests.Allow[i].Requests, ""
	}
}

// requestLine is the entry that would allow the request that is asked about, "" if none would.
func requestLine(p *policy.Policy, s subject, port policy.Port, a *asked) string {
	if i := route.FindInspected(p.Settings.Inspected, s.name, port.Number); i != nil && i.Plain != s.request.plain() {
		return "" // it is another port that is meant
	}
	entry := requestPlace{s.name, port, s.request.socket()}.entry(p, a.Method, a.Path)
	entry.HTTP = port != policy.HTTP && s.request.plain()
	return p.Tried(entry, netip.Addr{}, port)
}

// gate says what is looked at in connections that an entry allows.
func gate(p *policy.Policy, s subject, port policy.Port, by *policy.Rule) string {
	onward := ""
	if x := &p.Settings.UpstreamProxy; p.Proxied(s.name, port) {
		onward = "; onward by upstream_proxy, " + x.String()
		if x.ByName && p.Way(s.name, port) == policy.Inspected && p.Plain(s.name, port) {
			onward += ", by requests with whole URLs"
		}
	}
	return looked(p, s, port, by) + onward
}

// looked says what is looked at.
func looked(p *policy.Policy, s subject, port policy.Port, by *policy.Rule) string {
	switch way := p.Way(s.name, port); {
	case way == policy.Inspected && p.Plain(s.name, port):
		return "each request, by the broker; the port carries HTTP without TLS"
	case way == policy.Inspected:
		return "each request, by the broker, where TLS ends"
	case way == policy.Gated && !p.Plain(s.name, port):
		return "the server name in the TLS handshake, and that the address is leased to it"
	case way == policy.Gated && port == policy.HTTP && by != nil && by.Connect:
		return "the host of each request, and not what passes through a tunnel"
	case way == policy.Gated:
		return "the host of each request, and that the address is leased to it"
	}
	if r := p.Direct(s.name, port); r != nil {
		return "nothing: " + r.Source.String() + " says direct, so whatever else is at its addresses is reached as well"
	}
	return "nothing: on this port a leased address passes as it is; the word tls or http has the name inside looked at"
}

func (r *requests) write(w *text.Screen) {
	if r == nil {
		return
	}
	label := "requests"
	row := func(verdict string, entries []requestEntry) {
		for _, e := range entries {
			w.Row(label, "%s: %s  (%s)", verdict, e.Requests, e.Rule)
			label = ""
		}
	}
	row("allowed", r.Allow)
	row("denied", r.Deny)
	row("ceiling", r.Within)
	if r.Observe {
		w.Row(label, "observed: what no entry allows passes all the same, and is recorded")
	}
	if r.Route != "" {
		w.Row("credential", "put on by the route %s (%s), where a request shows the agent's token", r.Route, r.Source)
	}
	for i := 0; i < len(r.Asked); {
		a, methods := r.Asked[i], []string{}
		for ; i < len(r.Asked) && r.Asked[i].alike(a); i++ {
			methods = append(methods, r.Asked[i].Method)
		}
		a.write(w, strings.Join(methods, ", "), r.Observe)
	}
}

// alike says whether the same becomes of two requests.
func (a asked) alike(b asked) bool {
	return a.Allowed == b.Allowed && a.Rule == b.Rule && a.If == b.If &&
		strings.TrimPrefix(a.Reason, a.Method) == strings.TrimPrefix(b.Reason, b.Method)
}

func (a asked) write(w *text.Screen, methods string, observe bool) {
	becomes := "is refused"
	switch {
	case a.Allowed:
		becomes = "passes by " + a.Rule
	case observe:
		becomes = "passes, and is recorded"
	}
	if a.If != "" {
		becomes += ", " + a.If
	}
	if a.Reason != "" {
		becomes += ": " + a.Reason
	}
	w.Row("asked", "%s %s %s", methods, text.Clean(a.Path), text.Clean(becomes))
}
