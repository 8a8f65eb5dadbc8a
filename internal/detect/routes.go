package detect

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/agent-init/agent-init/allowlist.d"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/route"
)

// routed are the routes of the broker for package managers.
var routed = map[string]string{"npm": "npm", "pip": "pypi", "go": "go", "cargo": "crates"}

// Routed are the managers for which Routes knows a route.
func Routed(manager string) bool { return routed[manager] != "" }

// Routes returns the section broker of a policy with a route for each of the managers that are Routed, to where this
// image fetches packages from. What a URL holds of a credential is left out.
func Routes(ctx context.Context, env map[string]string, dir string, managers []string, private bool) (string, error) {
	im := newImage(ctx, env, dir)
	var out strings.Builder
	out.WriteString("broker:\n")
	for _, m := range managers {
		lines, err := im.route(m, private)
		if err != nil {
			return "", fmt.Errorf("%s: %w", m, err)
		}
		out.WriteString(lines)
	}
	p, err := policy.Parse(&policy.Bundle{Files: []policy.File{{Name: "policy.yaml", Data: []byte(out.String())}}}, allowlist.Files)
	var list policy.ErrorList
	switch {
	case errors.As(err, &list):
		return "", errors.New(list[0].Message)
	case err != nil:
		return "", err
	case len(p.Routes()) != len(managers):
		return "", errors.New("a manager is named twice")
	}
	return out.String(), nil
}

// route is the line of one manager, and comments on what it does not cover.
func (im *image) route(manager string, private bool) (string, error) {
	origins, err := detectors()[manager](im)
	if err != nil {
		return "", err
	}
	var line, notes string
	for _, o := range origins {
		switch {
		case o.kind == note:
			notes += "  " + noteLine + o.reason() + "\n"
		case o.what == "GOSUMDB" && strings.TrimSuffix(o.url, "/") == "https://sum.golang.org":
		case line != "" || o.kind == proxy:
			notes += "  " + noteLine + "not by this route: " + o.reason() + "\n"
		default:
			if line, err = o.route(routed[manager], private); err != nil {
				return "", fmt.Errorf("%s: %w", text.Clean(o.from), err)
			}
		}
	}
	if line == "" {
		return "", errors.New("nothing is fetched from a registry")
	}
	return line + notes, nil
}

// route is the line of a registry.
func (o origin) route(name string, private bool) (string, error) {
	usual, _ := route.Builtin(name)
	if o.kind == preset {
		return fmt.Sprintf("  %s: {}  # %s\n", name, o.reason()), nil
	}
	u, err := url.Parse(strings.TrimPrefix(strings.TrimSpace(o.url), "sparse+"))
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return "", errors.New("no route leads there: it is no registry over HTTP")
	}
	secret := ""
	if u.User != nil {
		u.User, secret = nil, ", whose credential is left out: write credential: file:/run/secrets/"+name
	}
	if u.RawQuery, u.Fragment = "", ""; sameRegistry(u, usual.To) {
		return fmt.Sprintf("  %s: {}  # %s\n", name, o.reason()), nil
	}
	also := ""
	if private || u.Scheme == "http" {
		also = ", private: true"
	}
	return fmt.Sprintf("  %s: {to: %q%s}  # %s%s\n", name, u.String(), also, o.reason(), secret), nil
}

// sameRegistry says whether a URL is a built-in route's, with or without the path that its clients add.
func sameRegistry(u *url.URL, to string) bool {
	trim := func(s string) string { return strings.TrimSuffix(strings.TrimSuffix(s, "/"), "/simple") }
	return strings.EqualFold(trim(u.String()), trim(to))
}
