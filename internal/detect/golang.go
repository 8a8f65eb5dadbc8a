package detect

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
)

var goNames = []string{"GOPROXY", "GOSUMDB", "GONOPROXY", "GOPRIVATE"}

// detectGo reads what go would read: the environment, the file that GOENV names, and
// the toolchain's go.env. It asks "go env", where go is installed, for the rest.
func detectGo(im *image) ([]origin, error) {
	c := config{}
	for _, name := range goNames {
		if v := im.env[name]; v != "" {
			c[name] = setting{v, "variable " + name}
		}
	}
	file := im.env["GOENV"]
	if file == "" && im.home != "" {
		file = path.Join(cmp.Or(im.env["XDG_CONFIG_HOME"], path.Join(im.home, ".config")), "go/env")
	}
	root := cmp.Or(im.env["GOROOT"], "/usr/local/go")
	for _, f := range []string{file, path.Join(root, "go.env")} {
		if f == "" || f == "off" {
			continue
		}
		if err := im.readInto(c, f, goEnv); err != nil {
			return nil, err
		}
	}
	if tool, ok := im.find(path.Join(root, "bin/go"), "/usr/local/bin/go", "/usr/bin/go"); ok {
		said, err := askGo(im, tool)
		if err != nil {
			return nil, err
		}
		c.merge(said)
	}
	if c["GOPROXY"].value == "" {
		return nil, errors.New("no file and no variable sets GOPROXY, and go, which knows its default, is not installed")
	}
	return goOrigins(c)
}

func goEnv(found config, from, line string) error {
	if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && value != "" {
		found.merge(config{name: {value, from}}) // the first line counts
	}
	return nil
}

func askGo(im *image, tool string) (config, error) {
	out, err := im.tool(tool, append([]string{"env", "-json"}, goNames...)...)
	if err != nil {
		return nil, fmt.Errorf("ask go for its settings: %w", err)
	}
	var values map[string]string
	if err := json.Unmarshal([]byte(out), &values); err != nil {
		return nil, fmt.Errorf("go env -json: %w", err)
	}
	said := config{}
	for _, name := range goNames {
		if values[name] != "" {
			said[name] = setting{values[name], "go env " + name}
		}
	}
	return said, nil
}

// goOrigins reads the values, as in "go help module-private" and "go help goproxy".
func goOrigins(c config) ([]origin, error) {
	var origins []origin
	proxy := c["GOPROXY"]
	for _, p := range strings.FieldsFunc(proxy.value, func(r rune) bool { return r == ',' || r == '|' }) {
		switch p = strings.TrimSpace(p); p {
		case "":
		case "off":
			origins = append(origins, origin{note: true, what: "GOPROXY ends with off: nothing is fetched but from the proxies before it", from: proxy.from})
		case "direct":
			origins = append(origins, origin{note: true,
				what: "GOPROXY holds direct: what no proxy has is fetched from the host in the module's name; allow those hosts", from: proxy.from})
		default:
			origins = append(origins, origin{url: withScheme("https", p), what: "GOPROXY", from: proxy.from})
		}
	}
	if sum := c["GOSUMDB"]; sum.value != "" && sum.value != "off" {
		fields := strings.Fields(sum.value) // NAME[+KEY] [URL]
		if len(fields) > 2 {
			return nil, fmt.Errorf("%s: GOSUMDB has more than a name and a URL", sum.from)
		}
		name, _, _ := strings.Cut(fields[0], "+")
		origins = append(origins, origin{url: withScheme("https", append(fields[1:], name)[0]), what: "GOSUMDB", from: sum.from})
	}
	name, private := "GONOPROXY", c["GONOPROXY"]
	if private.value == "" {
		name, private = "GOPRIVATE", c["GOPRIVATE"]
	}
	if private.value == "none" {
		return origins, nil
	}
	for _, pattern := range strings.Split(private.value, ",") {
		host, _, _ := strings.Cut(strings.TrimSpace(pattern), "/")
		if host == "" {
			continue
		}
		if strings.ContainsAny(strings.TrimPrefix(host, "*."), `*?[\`) {
			return nil, fmt.Errorf("%s: %s holds a pattern of hosts that no entry can express", private.from, name)
		}
		host, wildcard := strings.CutPrefix(host, "*.")
		origins = append(origins, origin{url: "https://" + host, wildcard: wildcard, what: name + ": fetched directly", from: private.from})
	}
	return origins, nil
}
