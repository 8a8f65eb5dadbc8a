package keeper

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/agent-init/agent-init/internal/container"
	"github.com/agent-init/agent-init/internal/wire"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/route"
)

// credentials owns what the broker puts on. Nothing of it is shown: of each there is where it is from, and a fingerprint.
type credentials struct {
	environ map[string]string // what agent-init was started with
	hidden  bool              // the agent may look for files where they are: nobody but root may read them
	shown   map[string]string // the variables of the container, which the agent has, too

	mu    sync.Mutex
	never hindrance             // to all routes; zero: none
	held  map[string]credential // by all the places where one may be
	why   map[string]string     // of the routes that are absent
	to    map[string]string     // where each route leads
}

// credential is one that was read.
type credential struct {
	secret []byte
	source string // where from, as policies have it
	fault  string // why what is there now was not taken
	login  string // the file that it is in, if it is a login: the broker gives it back changed
	after  uint64 // the mark of the login that the broker gave this one for, 0 if a person did
}

// hindrance is why there can be no route, and what a person can do.
type hindrance struct{ why, remedy string }

// without has no further route: there is no broker to serve one.
func (c *credentials) without(h hindrance) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.never = h
}

// remedy is for a route whose credential is not there, or that can't be.
func (c *credentials) remedy() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return cmp.Or(c.never.remedy, "mount the file (docker run -v, mode 0400 and root's), or pass the variable (docker run -e); see docs/broker.md")
}

func newCredentials(b *base, never hindrance) *credentials {
	shown := map[string]string{}
	if b.mode == "up" { // others start the agent, and give it what the container has
		data, _ := os.ReadFile("/proc/1/environ")
		shown = container.Environ(strings.Split(string(data), "\x00"))
	}
	return &credentials{
		environ: b.config.Environ, hidden: !b.shared(), shown: shown, never: never,
		held: map[string]credential{}, why: map[string]string{}, to: map[string]string{},
	}
}

// places are the sources of a route, as policies have them.
func places(r route.Route) string {
	var all []string
	for _, s := range r.Credential {
		all = append(all, s.String())
	}
	return strings.Join(all, ", ")
}

// absent is for policy.NextWith: it reads the credentials of routes, and says which optional ones have none.
func (c *credentials) absent(routes []policy.PlacedRoute) (names []string, wrong policy.ErrorList) {
	loggedIn := map[string]string{} // by the file of the login
	for _, r := range routes {
		why, err := c.look(r.Route)
		login := ""
		if why == "" && err == nil && !r.Keyless {
			login = c.of(r.Route).login
		}
		if other := loggedIn[login]; other != "" {
			err = errors.New("the route " + other + " has the same login, and a token to refresh serves once: log in for each")
		}
		if login != "" {
			loggedIn[login] = r.Name
		}
		switch {
		case err != nil:
			wrong = append(wrong, policy.Error{Source: r.Source, Text: r.Name, Message: "the credential of this route can't be used: " + err.Error()})
		case why == "":
		case r.Optional:
			names = append(names, r.Name)
		default:
			wrong = append(wrong, policy.Error{Source: r.Source, Text: r.Name, Message: why + " (write optional: true to go on without this route)"})
		}
		c.mu.Lock()
		c.why[r.Name], c.to[r.Name] = why, r.To
		c.mu.Unlock()
	}
	return names, wrong
}

// look reads the credential of r, and says why there is none; an error is about one that is there.
func (c *credentials) look(r route.Route) (why string, err error) {
	c.mu.Lock()
	never := c.never.why
	c.mu.Unlock()
	if never != "" {
		return never, nil
	}
	if why := elsewhere(r, c.environ); why != "" {
		return why, nil
	}
	if r.Keyless {
		return "", nil
	}
	found, err := c.read(r)
	return c.take(r, found, err)
}

// elsewhere says why an optional route, as the images come with, is not meant: a person has the agent ask another server,
// whose key must not go to this one, or ask through a proxy, which the broker does not.
func elsewhere(r route.Route, environ map[string]string) string {
	if !r.Optional {
		return ""
	}
	to, err := url.Parse(r.To)
	if err != nil {
		return "it leads to no address"
	}
	for _, name := range slices.Sorted(maps.Keys(r.Env)) {
		if !strings.HasPrefix(r.Env[name], "{base}") || environ[name] == "" {
			continue
		}
		if asked, err := url.Parse(environ[name]); err != nil || asked.Hostname() != to.Hostname() {
			return "the variable " + name + " names another server than " + to.Hostname() + ", and the credential may be for that one"
		}
	}
	// Clients would ask one for http for the broker, too.
	for _, name := range container.ProxyVariables(environ) {
		return "the variable " + name + " names a proxy, and the broker asks through none"
	}
	return ""
}

// take takes what was read for r. What was good before goes on where that is nothing, or no good.
func (c *credentials) take(r route.Route, found credential, bad error) (why string, err error) {
	at := places(r)
	if bad == nil && found.secret == nil {
		why = "there is no credential at " + at
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	old, had := c.held[at]
	switch {
	case why == "" && bad == nil:
		c.held[at] = found
	case had:
		old.fault = cmp.Or(why, fmt.Sprint(bad))
		c.held[at] = old
	default:
		return why, bad
	}
	return "", nil
}

// read reads the first credential that is there, nil if none is.
func (c *credentials) read(r route.Route) (credential, error) {
	for _, s := range r.Credential {
		var data []byte
		var err error
		switch value := c.environ[s.Env]; {
		case s.Login != "":
			data, err = policy.ReadLogin(s.Login, c.hidden)
		case s.File != "":
			data, err = policy.ReadSecret(s.File, c.hidden)
		case value == "":
			err = fs.ErrNotExist
		case c.shown[s.Env] != "":
			err = fmt.Errorf("the variable %s is one of the container's, so the agent has it, too: use a file", s.Env)
		default:
			if bad := policy.CheckSecret([]byte(value)); bad != "" {
				err = fmt.Errorf("the variable %s: %s", s.Env, bad)
			}
			data = []byte(value)
		}
		if err == nil {
			return credential{secret: kept(data), source: s.String(), login: s.Login}, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return credential{}, err
		}
	}
	return credential{}, nil
}

// kept moves data to where secrets are.
func kept(data []byte) []byte {
	s := wire.Secret(len(data))
	copy(s, data)
	clear(data)
	return s
}

// of is the credential of a route that was looked at.
func (c *credentials) of(r route.Route) credential {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held[places(r)]
}

// absence is why a route is absent, and where it would lead.
func (c *credentials) absence(name string) (why, to string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.why[name], c.to[name]
}

// settling is how long what is new must stay as it is before it is taken: it may be half written.
const settling = 50 * time.Millisecond

// changed looks at the credentials of routes again, and says whether one is another, and whether there is news of any.
func (c *credentials) changed(routes []route.Route) (another, news bool) {
	var moved []route.Route
	first := map[string]credential{}
	for _, r := range routes {
		if r.Keyless {
			continue
		}
		was := c.of(r)
		found, err := c.read(r)
		if first[r.Name] = found; err != nil || !bytes.Equal(found.secret, was.secret) || found.source != was.source || was.fault != "" {
			moved = append(moved, r)
		}
	}
	if moved == nil {
		return false, false
	}
	time.Sleep(settling)
	for _, r := range moved {
		was := c.of(r)
		found, err := c.read(r)
		if !bytes.Equal(found.secret, first[r.Name].secret) {
			continue // it is looked at again
		}
		_, _ = c.take(r, found, err) // its error is in what is held
		is := c.of(r)
		another = another || !bytes.Equal(was.secret, is.secret)
		news = news || was.fault != is.fault || was.source != is.source
	}
	return another, news || another
}
