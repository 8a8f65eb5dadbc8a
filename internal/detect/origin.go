package detect

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/agent-init/agent-init/allowlist.d"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/policy"
)

// origin is a place that packages come from.
type origin struct {
	url  string // as configured, or a preset: "@pypi". May hold credentials
	what string // "registry of @corp"
	from string // what said so: "/etc/npmrc:3"
	// proxy says that packages come through it, rather than from it.
	proxy bool
	// wildcard says that every host below the URL's is meant as well.
	wildcard bool
	// note says that there is nothing to allow: what is printed as a comment.
	note bool
}

// lines are the entries for origins, each once, or what is wrong with one of them.
// Values are never part of an error: they may hold a password.
func lines(manager string, origins []origin, private bool) (string, error) {
	reasons := map[string][]string{}
	var order []string
	for _, o := range origins {
		line, err := o.line(private)
		if err != nil {
			return "", fmt.Errorf("%s: %s: %w", text.Clean(o.from), text.Clean(o.what), err)
		}
		if _, ok := reasons[line]; !ok {
			order = append(order, line)
		}
		if have := reasons[line]; len(have) < maxReasons && !slices.Contains(have, o.reason()) {
			reasons[line] = append(have, o.reason())
		}
	}
	var body strings.Builder
	for _, line := range order {
		if !strings.HasPrefix(line, noteLine) {
			line += "  # " + strings.Join(reasons[line], "; ")
		}
		body.WriteString(line + "\n")
	}
	if line, err := badEntry(body.String()); err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(reasons[order[line-1]], "; "), err)
	}
	return "# agent-init detect " + manager + "\n" + body.String(), nil
}

// badEntry finds the first line of entries that no policy would take.
func badEntry(text string) (line int, err error) {
	_, err = policy.Parse(&policy.Bundle{Files: []policy.File{{Name: "detected", Data: []byte(text)}}}, allowlist.Files)
	var list policy.ErrorList
	if errors.As(err, &list) && len(list) > 0 && list[0].Source.Line > 0 {
		return list[0].Source.Line, errors.New(list[0].Message)
	}
	return 1, err
}

const (
	noteLine   = "# note: "
	maxReasons = 8 // that are given for one entry
)

func (o origin) reason() string { return text.Clean(o.what + ", " + o.from) }

func (o origin) line(private bool) (string, error) {
	switch {
	case o.note:
		return noteLine + o.reason(), nil
	case strings.HasPrefix(o.url, "@"):
		return o.url, nil
	case o.proxy:
		o.url = withScheme("http", o.url)
	}
	host, local, err := hostPort(o.url)
	switch {
	case err != nil:
		return "", err
	case local:
		return noteLine + "nothing to allow: " + o.reason(), nil
	case o.proxy:
		return "# " + host, nil
	}
	if o.wildcard {
		host = "*." + host
	}
	if private {
		host += " private"
	}
	return host, nil
}

// withScheme completes a URL that may go without its scheme.
func withScheme(scheme, url string) string {
	if strings.Contains(url, "://") {
		return url
	}
	return scheme + "://" + url
}

// defaultPorts of the schemes that packages are fetched by.
var defaultPorts = map[string]string{"https": "443", "http": "80", "ssh": "22", "git": "9418", "ftp": "21"}

// hostPort is the entry for a URL: its host, and the port unless an entry
// without one means it. A file, or the loopback, needs no entry.
func hostPort(address string) (entry string, local bool, err error) {
	u, err := url.Parse(strings.TrimSpace(address))
	if err != nil || u.Scheme == "" {
		return "", false, fmt.Errorf("not a URL")
	}
	scheme := strings.ToLower(u.Scheme)
	for _, prefix := range []string{"sparse+", "git+", "registry+"} {
		scheme = strings.TrimPrefix(scheme, prefix)
	}
	if scheme == "file" || scheme == "copy" || scheme == "cdrom" {
		return "", true, nil
	}
	port, ok := defaultPorts[scheme]
	if !ok {
		return "", false, fmt.Errorf("URLs of scheme %q are not understood", scheme)
	}
	host := u.Hostname()
	if host == "" || strings.ContainsAny(host, "*!@# \t") || strings.IndexFunc(host, unicode.IsControl) >= 0 {
		return "", false, fmt.Errorf("the URL has no host name that an entry can have")
	}
	named := u.Port()
	if named == "" && strings.HasSuffix(u.Host, ":") || named != "" && !validPort(named) {
		return "", false, fmt.Errorf("the URL's port is not a number from 1 to 65535")
	}
	if a, err := netip.ParseAddr(host); err == nil {
		if a.Unmap().IsLoopback() {
			return "", true, nil
		}
		if a.Is6() {
			host = "[" + host + "]"
		}
	} else if strings.EqualFold(strings.TrimSuffix(host, "."), "localhost") {
		return "", true, nil
	}
	if named == "" {
		named = port
	}
	if named == port && (port == "443" || port == "80") {
		return host, false, nil
	}
	return host + ":" + named, false, nil
}

func validPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}

// proxies are those that the environment sets for every program.
func proxies(env map[string]string) []origin {
	var origins []origin
	for _, name := range []string{"https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"} {
		if v := env[name]; v != "" {
			origins = append(origins, origin{url: v, what: "proxy", from: "variable " + name, proxy: true})
		}
	}
	return origins
}
