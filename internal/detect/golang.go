package detect

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"strings"
)

// detectGo reads what go would read: the environment, the file that GOENV names, and
// the toolchain's go.env. It asks "go env", where go is installed, for the rest.
func detectGo(im *image) ([]origin, error) {
	names := []string{"GOPROXY", "GOSUMDB", "GONOPROXY", "GOPRIVATE"}
	c := config{}
	for _, name := range names {
		c.merge(config{name: {im.env[name], "variable " + name}})
	}
	file := cmp.Or(im.env["GOENV"], im.userConfig("go/env"))
	if file == "off" {
		file = ""
	}
	root := cmp.Or(im.env["GOROOT"], "/usr/local/go")
	if err := im.readInto(c, false, file, path.Join(root, "go.env")); err != nil {
		return nil, err
	}
	programs := []string{path.Join(root, "bin/go"), "/usr/local/bin/go", "/usr/bin/go"}
	out, _, err := im.ask("go for its settings", programs, append([]string{"env"}, names...)...)
	if err != nil {
		return nil, err
	}
	said := strings.Split(out, "\n") // a line for each
	for i, name := range names[:min(len(names), len(said))] {
		c.merge(config{name: {said[i], "go env " + name}})
	}
	if c["GOPROXY"].value == "" {
		return nil, errors.New("no file and no variable sets GOPROXY, and go, which knows its default, is not installed")
	}
	return goOrigins(c)
}

// goOrigins reads the values, as in "go help module-private" and "go help goproxy".
func goOrigins(c config) ([]origin, error) {
	var origins []origin
	add := func(kind kind, url, what, from string) { origins = append(origins, origin{kind, url, what, from}) }
	from := c["GOPROXY"].from
	for _, p := range strings.FieldsFunc(c["GOPROXY"].value, func(r rune) bool { return r == ',' || r == '|' }) {
		switch p = strings.TrimSpace(p); p {
		case "":
		case "off":
			add(note, "", "GOPROXY ends with off: nothing is fetched but from the proxies before it", from)
		case "direct":
			add(note, "", "GOPROXY holds direct: what no proxy has is fetched from the host in the module's name; allow those hosts", from)
		default:
			add(place, withScheme("https", p), "GOPROXY", from)
		}
	}
	if sum := c["GOSUMDB"]; sum.value != "" && sum.value != "off" {
		fields := strings.Fields(sum.value) // NAME[+KEY] [URL]
		if len(fields) > 2 {
			return nil, fmt.Errorf("%s: GOSUMDB has more than a name and a URL", sum.from)
		}
		name, _, _ := strings.Cut(fields[0], "+")
		add(place, withScheme("https", append(fields[1:], name)[0]), "GOSUMDB", sum.from)
	}
	name := "GONOPROXY"
	if _, ok := c[name]; !ok {
		name = "GOPRIVATE"
	}
	private := c[name]
	if private.value == "none" {
		return origins, nil
	}
	for _, pattern := range strings.Split(private.value, ",") {
		host, _, _ := strings.Cut(strings.TrimSpace(pattern), "/")
		host, wildcard := strings.CutPrefix(host, "*.")
		switch {
		case strings.ContainsAny(host, `*?[\`):
			return nil, fmt.Errorf("%s: %s holds a pattern of hosts that no entry can express", private.from, name)
		case wildcard:
			add(allBelow, "https://"+host, name+": fetched directly", private.from)
		case host != "":
			add(place, "https://"+host, name+": fetched directly", private.from)
		}
	}
	return origins, nil
}
