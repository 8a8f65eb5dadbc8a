package detect

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"
)

var goNames = []string{"GOPROXY", "GOSUMDB", "GONOPROXY", "GOPRIVATE"}

// detectGo asks "go env" where it is installed; else it reads what go would read: the
// environment, the file that GOENV names, and the toolchain's go.env.
func detectGo(im *image) ([]origin, error) {
	config := map[string]setting{}
	for _, name := range goNames {
		if v := im.env[name]; v != "" {
			config[name] = setting{v, "variable " + name}
		}
	}
	file := im.env["GOENV"]
	if file == "" && im.home != "" {
		file = path.Join(im.home, ".config/go/env")
		if x := im.env["XDG_CONFIG_HOME"]; x != "" {
			file = path.Join(x, "go/env")
		}
	}
	root := im.env["GOROOT"]
	if root == "" {
		root = "/usr/local/go"
	}
	for _, f := range []string{file, path.Join(root, "go.env")} {
		if f == "" || f == "off" {
			continue
		}
		data, _, err := im.read(f)
		if err != nil {
			return nil, err
		}
		for i, line := range strings.Split(data, "\n") {
			name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
			if _, had := config[name]; ok && !had && value != "" {
				config[name] = setting{value, fmt.Sprintf("%s:%d", f, i+1)}
			}
		}
	}
	if err := askGo(im, root, config); err != nil {
		return nil, err
	}
	if config["GOPROXY"].value == "" {
		return nil, fmt.Errorf("no file and no variable sets GOPROXY, and go, which knows its default, is not installed")
	}
	return goOrigins(config)
}

// askGo fills in what no file and no variable said.
func askGo(im *image, root string, config map[string]setting) error {
	tool, ok := im.find(path.Join(root, "bin/go"), "/usr/local/bin/go", "/usr/bin/go")
	if !ok {
		return nil
	}
	out, err := im.tool(tool, append([]string{"env", "-json"}, goNames...)...)
	if err != nil {
		return fmt.Errorf("ask go for its settings: %w", err)
	}
	var said map[string]string
	if err := json.Unmarshal([]byte(out), &said); err != nil {
		return fmt.Errorf("go env -json: %w", err)
	}
	for _, name := range goNames {
		if _, ok := config[name]; !ok && said[name] != "" {
			config[name] = setting{said[name], "go env " + name}
		}
	}
	return nil
}

// goOrigins reads the values, as in "go help module-private" and "go help goproxy".
func goOrigins(config map[string]setting) ([]origin, error) {
	var origins []origin
	proxy := config["GOPROXY"]
	for _, p := range strings.FieldsFunc(proxy.value, func(r rune) bool { return r == ',' || r == '|' }) {
		switch p = strings.TrimSpace(p); p {
		case "":
		case "off":
			origins = append(origins, origin{note: true, what: "GOPROXY ends with off: nothing is fetched but from the proxies before it", from: proxy.from})
		case "direct":
			origins = append(origins, origin{note: true,
				what: "GOPROXY holds direct: what no proxy has is fetched from the host in the module's name; allow those hosts", from: proxy.from})
		default:
			if !strings.Contains(p, "://") {
				p = "https://" + p
			}
			origins = append(origins, origin{url: p, what: "GOPROXY", from: proxy.from})
		}
	}
	if sum := config["GOSUMDB"]; sum.value != "" && sum.value != "off" {
		// NAME[+KEY] [URL]
		fields := strings.Fields(sum.value)
		name, _, _ := strings.Cut(fields[0], "+")
		u := "https://" + name
		if len(fields) == 2 {
			u = fields[1]
		}
		if len(fields) > 2 {
			return nil, fmt.Errorf("%s: GOSUMDB has more than a name and a URL", sum.from)
		}
		if !strings.Contains(u, "://") {
			u = "https://" + u
		}
		origins = append(origins, origin{url: u, what: "GOSUMDB", from: sum.from})
	}
	name, private := "GONOPROXY", config["GONOPROXY"]
	if private.value == "" {
		name, private = "GOPRIVATE", config["GOPRIVATE"]
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
		o := origin{url: "https://" + host, what: name + ": fetched directly", from: private.from}
		if strings.HasPrefix(host, "*.") {
			o.url, o.wildcard = "https://"+host[2:], true
		}
		origins = append(origins, o)
	}
	return origins, nil
}
