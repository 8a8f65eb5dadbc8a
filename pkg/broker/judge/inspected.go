package judge

import (
	"net/http"
	"slices"
	"strings"

	"github.com/agent-init/agent-init/pkg/route"
)

// Admitted is what a request of an inspected connection may be, and what its body has to keep to.
type Admitted struct {
	Rule      string // that lets it pass, as FILE:LINE
	GraphQL   string // as in route.Request: the body is read whole, and judged by GraphQL
	MaxUpload int64  // as in route.Request
	WebSocket bool   // it asks for one, and may have it
	Form      bool   // the body is shown to a Form as it goes by

	Observed *Refusal // why it would not pass, if the name were not one that is observed only
}

// Rules are those of an inspected name, read once.
type Rules struct {
	of          *route.Inspected
	allow, deny []pattern
	paths       bool   // a rule is about paths; if none is, a path may be spelled in any way
	methods     bool   // a denial is about methods
	within      *Rules // of the ceiling; nil: none is about this name
}

// NewRules reads the rules of an inspected name, which is not changed from then on.
func NewRules(of *route.Inspected) *Rules {
	r := &Rules{of: of, allow: make([]pattern, len(of.Allow)), deny: make([]pattern, len(of.Deny))}
	for i, rule := range of.Allow {
		r.allow[i] = newPattern(rule.Path)
		r.paths = r.paths || rule.Path != ""
	}
	for i, rule := range of.Deny {
		r.deny[i] = newPattern(rule.Path)
		r.paths = r.paths || rule.Path != ""
		r.methods = r.methods || len(rule.Methods) > 0
	}
	if of.Within != nil {
		r.within = NewRules(&route.Inspected{Name: of.Name, Allow: of.Within})
	}
	return r
}

// Inspected judges one request by the rules of a name.
func Inspected(i *route.Inspected, method, rawPath, rawQuery string, h http.Header) (*Admitted, *Refusal) {
	return NewRules(i).Judge(method, rawPath, rawQuery, h)
}

// Judge judges the head of a request. rawPath is the path as it was sent, and rawQuery what follows the question mark.
// Who calls has compared the authority: it is none of the rules' business.
//
// What can't be passed on as one request is refused even where a name is only observed.
func (r *Rules) Judge(method, rawPath, rawQuery string, h http.Header) (*Admitted, *Refusal) {
	if refusal := passable(method, rawPath, rawQuery, h); refusal != nil {
		return nil, refusal
	}
	asks := names(h["Upgrade"], "websocket") // RFC 6455, section 4.1
	admitted, refusal := r.admit(method, rawPath, asks)
	if refusal == nil && r.within != nil {
		refusal = r.within.bound(admitted, method, rawPath, asks)
	}
	if refusal == nil {
		refusal = r.destined(method, h)
	}
	if refusal == nil && admitted.Form {
		refusal = overridden(rawQuery, h)
	}
	switch {
	case refusal == nil:
		admitted.Form = admitted.Form && method == http.MethodPost
		return admitted, nil
	case r.of.Observe:
		return &Admitted{WebSocket: asks, Observed: refusal}, nil
	}
	return nil, refusal
}

// admit finds the rule that decides: any denial that fits, else the first that allows.
func (r *Rules) admit(method, rawPath string, asks bool) (*Admitted, *Refusal) {
	path, refusal := rawPath, (*Refusal)(nil)
	if r.paths {
		if path, refusal = spelled(rawPath); refusal != nil {
			return nil, refusal
		}
	}
	said := func() string { return quote(method, maxMethod) + " " + quote(rawPath, 100) }
	if i := r.denial(method, path); i >= 0 {
		by := r.of.Deny[i].Rule
		return nil, &Refusal{What: "denied", Text: said() + " is denied by " + by, Rule: by}
	}
	segments := strings.Split(path, "/")
	var elsewhere *route.Request // it allows the path by other methods
	for i := range r.allow {
		rule := &r.of.Allow[i]
		if !r.allow[i].allows(segments) {
			continue
		}
		if len(rule.Methods) > 0 && !slices.Contains(rule.Methods, method) {
			elsewhere = rule
			continue
		}
		if asks && !rule.WebSocket {
			return nil, &Refusal{What: "websocket", Rule: rule.Rule,
				Text: said() + " asks for a WebSocket, and " + rule.Rule + " has not the word websocket"}
		}
		if asks && rule.GraphQL != "" {
			return nil, &Refusal{What: "websocket", Rule: rule.Rule,
				Text: said() + " asks for a WebSocket, and " + rule.Rule + " allows queries of GraphQL, which nobody tells apart there"}
		}
		return &Admitted{
			Rule: rule.Rule, GraphQL: rule.GraphQL, MaxUpload: mostUploaded(rule, method, asks), WebSocket: asks,
			// Where any method may be used, it does not matter which one the server takes it for.
			Form: len(rule.Methods) > 0 || r.methods,
		}, nil
	}
	if elsewhere != nil {
		return nil, refuse("method", "%s is not allowed: %s allows this path by %s alone", said(), elsewhere.Rule, strings.Join(elsewhere.Methods, ", "))
	}
	return nil, refuse("path", "%s is allowed by no rule of %s (see: agent-init explain)", said(), quote(r.of.Name, 255))
}

// bound judges by the ceiling what a rule of the policy has admitted. What both say of the body counts.
func (r *Rules) bound(a *Admitted, method, rawPath string, asks bool) *Refusal {
	top, refusal := r.admit(method, rawPath, asks)
	if refusal != nil {
		refusal.Text = "above the ceiling: " + refusal.Text
		return refusal
	}
	if a.GraphQL == "" {
		a.GraphQL = top.GraphQL
	}
	if a.MaxUpload == 0 || top.MaxUpload != 0 && top.MaxUpload < a.MaxUpload { // -1 is none, and 0 no limit
		a.MaxUpload = top.MaxUpload
	}
	a.Form = a.Form || top.Form
	return nil
}

// mostUploaded is what a body may have. What only reads has none, unless the rule says how large it may be: nobody gives
// it a meaning (RFC 9110, section 9.3.1), so it would be a way out. Of a WebSocket, the bound is one of its frames.
func mostUploaded(rule *route.Request, method string, webSocket bool) int64 {
	reads := method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions && onlyReads(rule)
	if reads && !webSocket && rule.MaxUpload == 0 && rule.GraphQL == "" {
		return -1
	}
	return rule.MaxUpload
}

// onlyReads says whether all methods of a rule read. Where others may be used, a version control system asks by OPTIONS
// with a body (RFC 3253, section 13), as Subversion does.
func onlyReads(rule *route.Request) bool {
	return len(rule.Methods) > 0 && !slices.ContainsFunc(rule.Methods, func(m string) bool { return !slices.Contains(route.Reading(), m) })
}

// denial is the place of a denial that has the request, or -1.
func (r *Rules) denial(method, path string) int {
	var read [][]string
	for i, rule := range r.of.Deny {
		if !deniesMethod(rule.Methods, method) {
			continue
		}
		if read == nil && rule.Path != "" {
			read = readings(path)
		}
		if r.deny[i].denies(read) {
			return i
		}
	}
	return -1
}

// deniesMethod says whether a denial is about a method. HEAD tells of what GET gets, so who denies GET denies it as well.
func deniesMethod(methods []string, method string) bool {
	return len(methods) == 0 || slices.Contains(methods, method) ||
		method == http.MethodHead && slices.Contains(methods, http.MethodGet)
}
