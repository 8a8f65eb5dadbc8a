// Package registry says what of a registry of packages there is for who asks: no package that the policy denies, and no
// version younger than it wants. It opens no socket: whoever uses it asks the registry's servers in its place.
//
// What a registry answers decides only about its own packages. A document that can't be read whole is no answer.
package registry

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/broker/judge"
	"github.com/agent-init/agent-init/pkg/route"
)

// MaxDocument bounds a document that is read whole, unpacked. The largest of npm's, with all versions of a package,
// have some 40 MiB.
const MaxDocument = 64 << 20

// Registry answers for one route.
type Registry struct {
	name   string
	rules  route.Packages
	places []place
	old    aged
	now    func() time.Time

	mu        sync.Mutex
	downloads template // of crates
}

// place is a server that the route leads to.
type place struct {
	to           string // of an endpoint; "": the route's own
	origin, path string
}

// New is the registry that a route leads to.
func New(r *route.Route) *Registry {
	g := &Registry{name: r.Name, rules: r.Packages, now: time.Now}
	add := func(to, leads string) {
		u, err := url.Parse(leads)
		known := slices.ContainsFunc(g.places, func(p place) bool { return p.to == to })
		if err == nil && !known {
			g.places = append(g.places, place{to, u.Scheme + "://" + u.Host, strings.TrimSuffix(u.EscapedPath(), "/")})
		}
	}
	add("", r.To)
	for _, e := range r.Endpoints {
		if e.To != "" {
			add(e.To, e.To)
		}
	}
	return g
}

// Request is what is asked of the registry, by GET or HEAD.
type Request struct {
	Path   string // canonical, below the route
	Base   string // what the client has in front of it
	Accept string
	Agent  string
}

// Question is what the registry's servers are asked.
type Question struct {
	Method string // GET, or HEAD
	To     string // of an endpoint; "": the route's own
	Path   string // below it, escaped
	Accept string
}

// Document is an answer of theirs that was read whole.
type Document struct {
	Status   int
	Type     string
	Modified time.Time // zero: it doesn't say
	Body     []byte
}

// Ask asks a server. It may be called from several goroutines at once.
type Ask func(context.Context, Question) (*Document, error)

// Answer is a file that passes as its server sends it, or a document.
type Answer struct {
	File *Question

	Status int
	Type   string
	Body   [][]byte // one behind the other
}

// inquiry is one request under way.
type inquiry struct {
	*Registry
	Request
	ctx context.Context
	ask Ask
}

// Answer says what a request gets. Its errors are refusals, or ask's.
func (g *Registry) Answer(ctx context.Context, r Request, ask Ask) (*Answer, error) {
	q := &inquiry{g, r, ctx, ask}
	switch g.rules.Registry {
	case "npm":
		return q.npm()
	case "pypi":
		return q.pypi()
	case "go":
		return q.golang()
	case "crates":
		return q.crates()
	case "maven":
		return q.maven()
	}
	return nil, refuse("path", "no rules judge a registry of the kind %q", g.rules.Registry)
}

// Spelled is the path of a request in the one spelling that Answer reads. The clients of npm's registry send a scope's
// slash escaped, in either case.
func (g *Registry) Spelled(path string) string {
	if g.rules.Registry != "npm" || !strings.HasPrefix(path, "/@") {
		return path
	}
	if i := strings.IndexAny(path[1:], "/%") + 1; i > 0 && len(path) > i+2 && strings.EqualFold(path[i:i+3], "%2f") {
		return path[:i] + "/" + path[i+3:]
	}
	return path
}

const (
	denied  = "package" // 403
	missing = "age"     // 404
	unread  = "server"  // 403
)

// refuse gives a reason, in which may stand what a registry has sent: it is of one line, and not a long one.
func refuse(what, format string, args ...any) error {
	said := fmt.Sprintf(format, args...)
	said = strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return '?'
		}
		return c
	}, said[:min(len(said), maxReason)])
	return &judge.Refusal{What: what, Text: said}
}

const maxReason = 1024

// judged says whether any rule decides about packages.
func (g *Registry) judged() bool {
	return g.rules.MinAge > 0 || len(g.rules.Allow)+len(g.rules.Deny) > 0
}

// admit refuses a package that the policy denies. Whoever spells a denied name in another case gets it no more.
func (g *Registry) admit(name string) error {
	spelled := g.spell(name)
	for _, pattern := range g.rules.Deny {
		if route.Match([]string{g.fold(pattern)}, g.fold(name)) {
			return refuse(denied, "%s is denied by packages.deny (%s) of route %s", name, pattern, g.name)
		}
	}
	if len(g.rules.Allow) == 0 {
		return nil
	}
	for _, pattern := range g.rules.Allow {
		if route.Match([]string{g.spell(pattern)}, spelled) {
			return nil
		}
	}
	return refuse(denied, "%s is not in packages.allow of route %s", name, g.name)
}

// spell is the one spelling of names that the registry takes for the same.
func (g *Registry) spell(name string) string {
	switch g.rules.Registry {
	case "pypi":
		return projectName(name)
	case "crates":
		return strings.ReplaceAll(strings.ToLower(name), "_", "-")
	}
	return name
}

// fold is the one spelling of what leads to the same package in any way. A repository that Go fetches from may have .git
// behind its name, and be replaced by itself under that.
func (g *Registry) fold(name string) string {
	folded := strings.ToLower(g.spell(name))
	if g.rules.Registry == "go" {
		folded = strings.TrimSuffix(strings.ReplaceAll(folded+"/", ".git/", "/"), "/")
	}
	return folded
}

// young refuses a version by when it was published.
func (g *Registry) young(what string, published time.Time) error {
	switch {
	case g.rules.MinAge == 0:
		return nil
	case published.IsZero():
		return refuse(missing, "the registry does not say when %s was published, and min_age of route %s wants to know: "+
			"for this rule it does not exist", what, g.name)
	case g.now().Sub(published) < g.rules.MinAge:
		return refuse(missing, "%s was published at %s, and min_age of route %s is %s: it does not exist yet",
			what, published.UTC().Format(time.RFC3339), g.name, text.Days(g.rules.MinAge))
	}
	return nil
}

// get asks for a document. Any answer but 200 is the client's, too.
func (q *inquiry) get(to, path, accept string) (*Document, *Answer, error) {
	d, err := q.ask(q.ctx, Question{Method: "GET", To: to, Path: path, Accept: accept})
	switch {
	case err != nil:
		return nil, nil, err
	case d.Status != 200:
		return nil, &Answer{Status: d.Status, Type: d.Type, Body: [][]byte{d.Body}}, nil
	}
	return d, nil, nil
}

func file(to, path string) (*Answer, error) {
	return &Answer{File: &Question{To: to, Path: path}}, nil
}

func document(kind string, body ...[]byte) (*Answer, error) {
	return &Answer{Status: 200, Type: kind, Body: body}, nil
}

// unknown refuses a path that is none of the registry's.
func (q *inquiry) unknown() error {
	return refuse("path", "GET %s is not what packages are read by from a registry of the kind %s (route %s)",
		q.Path[:min(len(q.Path), 200)], q.rules.Registry, q.name)
}

// leads is the place of a URL, and the path below that.
func (g *Registry) leads(u *url.URL) (place, string, bool) {
	if u.User != nil || u.RawQuery != "" || u.Host == "" {
		return place{}, "", false
	}
	for _, p := range g.places {
		below, ok := strings.CutPrefix(u.EscapedPath(), p.path+"/")
		if ok && strings.EqualFold(u.Scheme+"://"+u.Host, p.origin) && plain("/"+below) {
			return p, "/" + below, true
		}
	}
	return place{}, "", false
}

// plain says whether a path has no segment that leads elsewhere.
func plain(path string) bool {
	for s := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		decoded, err := url.PathUnescape(s)
		if err != nil || decoded == "" || decoded == "." || decoded == ".." || strings.ContainsAny(decoded, "/\\\x00") {
			return false
		}
	}
	return true
}

// host is a place in a path.
func (p place) host() string { return p.origin[strings.Index(p.origin, "://")+3:] }
