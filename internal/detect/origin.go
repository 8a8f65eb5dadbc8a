package detect

import (
	"cmp"
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

type origin struct {
	kind kind
	url  string // as configured. May hold credentials
	what string // "registry of @corp"
	from string // what said so: "/etc/npmrc:3"
}

type kind int

const (
	place    kind = iota
	allBelow      // of which every host below is meant as well
	preset        // the name of one, with @
	proxy         // that packages come through, rather than from it
	note          // empty: there is nothing to allow, and what it says is printed as a comment
)

const (
	noteLine   = "# note: "
	maxReasons = 8 // that are given for one entry
)

// lines are the entries for origins, each once, or what is wrong with one of them.
// Values are never part of an error: they may hold a password.
func lines(manager string, origins []origin, private bool) (string, error) {
	reasons := map[string][]string{}
	var order []string
	for _, o := range origins {
		line, err := o.line(private)
		if _, ok := reasons[line]; err == nil && !ok {
			order = append(order, line)
			err = valid(line)
		}
		if err != nil {
			return "", fmt.Errorf("%s: %s: %w", text.Clean(o.from), text.Clean(o.what), err)
		}
		if have := reasons[line]; len(have) < maxReasons && !slices.Contains(have, o.reason()) {
			reasons[line] = append(have, o.reason())
		}
	}
	var out strings.Builder
	out.WriteString("# agent-init detect " + manager + "\n")
	for _, line := range order {
		if !strings.HasPrefix(line, noteLine) {
			line += "  # " + strings.Join(reasons[line], "; ")
		}
		out.WriteString(line + "\n")
	}
	return out.String(), nil
}

// valid says why no policy would take an entry.
func valid(line string) error {
	if line[0] == '#' {
		return nil
	}
	_, err := policy.ParseLine(line, allowlist.Files)
	var list policy.ErrorList
	if errors.As(err, &list) {
		return errors.New(list[0].Message)
	}
	return err
}

func (o origin) reason() string { return text.Clean(o.what + ", " + o.from) }

func (o origin) line(private bool) (string, error) {
	switch o.kind {
	case note:
		return noteLine + o.reason(), nil
	case preset:
		return o.url, nil
	case proxy:
		o.url = withScheme("http", o.url)
	}
	host, err := hostPort(o.url)
	switch {
	case err != nil:
		return "", err
	case host == "":
		return noteLine + "nothing to allow: " + o.reason(), nil
	case o.kind == proxy:
		return "# " + host, nil
	case o.kind == allBelow:
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
// without one means it. A file, or the loopback, needs none: "".
func hostPort(address string) (string, error) {
	u, err := url.Parse(strings.TrimSpace(address))
	if err != nil || u.Scheme == "" {
		return "", errors.New("not a URL") // what the parser says may quote a password
	}
	scheme := strings.NewReplacer("sparse+", "", "git+", "", "registry+", "").Replace(strings.ToLower(u.Scheme))
	if scheme == "file" || scheme == "copy" || scheme == "cdrom" {
		return "", nil
	}
	usual, ok := defaultPorts[scheme]
	host, port := u.Hostname(), cmp.Or(u.Port(), usual)
	n, err := strconv.ParseUint(port, 10, 16)
	a, _ := netip.ParseAddr(host)
	switch {
	case !ok:
		return "", fmt.Errorf("URLs of scheme %q are not understood", scheme)
	case host == "" || strings.ContainsAny(host, "*!@# \t") || strings.IndexFunc(host, unicode.IsControl) >= 0:
		return "", errors.New("the URL has no host name that an entry can have")
	case err != nil || n == 0 || strings.HasSuffix(u.Host, ":"):
		return "", errors.New("the URL's port is not a number from 1 to 65535")
	case a.Unmap().IsLoopback(), strings.EqualFold(strings.TrimSuffix(host, "."), "localhost"):
		return "", nil
	case a.Is6():
		host = "[" + host + "]"
	}
	if port == usual && (port == "443" || port == "80") {
		return host, nil
	}
	return host + ":" + port, nil
}
