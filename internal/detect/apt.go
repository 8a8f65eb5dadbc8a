package detect

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// detectApt reads what sources.list(5) describes, in both formats, from where
// apt's own configuration says that it is.
func detectApt(im *image) ([]origin, error) {
	config, err := aptConfig(im)
	if err != nil {
		return nil, err
	}
	etc := aptPath("/"+config["dir"].value, config["dir::etc"].value, "etc/apt")
	list := aptPath(etc, config["dir::etc::sourcelist"].value, "sources.list")
	parts := aptPath(etc, config["dir::etc::sourceparts"].value, "sources.list.d")

	files := []string{list}
	entries, err := fs.ReadDir(im.files, strings.TrimPrefix(parts, "/"))
	if err != nil && !isNotExist(err) {
		return nil, err
	}
	for _, e := range entries {
		if name := e.Name(); aptReads(name) {
			files = append(files, path.Join(parts, name))
		}
	}
	var origins []origin
	for _, file := range files {
		data, _, err := im.read(file)
		if err != nil {
			return nil, err
		}
		parse := parseSourcesList
		if strings.HasSuffix(file, ".sources") {
			parse = parseDeb822
		}
		found, err := parse(file, data)
		if err != nil {
			return nil, err
		}
		for _, o := range found {
			expanded, err := aptMirrors(im, o)
			if err != nil {
				return nil, err
			}
			origins = append(origins, expanded...)
		}
	}
	if len(origins) == 0 {
		return nil, fmt.Errorf("no source of packages is in %s or %s", list, parts)
	}
	return append(origins, aptProxies(config)...), nil
}

// aptReads says whether apt reads a file of sources.list.d, by its name.
func aptReads(name string) bool {
	stem, ok := strings.CutSuffix(name, ".list")
	if !ok {
		stem, ok = strings.CutSuffix(name, ".sources")
	}
	return ok && strings.IndexFunc(stem, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-.", r))
	}) < 0
}

func aptPath(base, value, otherwise string) string {
	if value == "" {
		value = otherwise
	}
	if path.IsAbs(value) {
		return path.Clean(value)
	}
	return path.Join(base, value)
}

// aptConfig is what "apt-config dump" says, by key in lower case; apt's keys have no case.
func aptConfig(im *image) (map[string]setting, error) {
	tool, ok := im.find("/usr/bin/apt-config")
	if !ok {
		return nil, fmt.Errorf("apt-config is not there: this image has no apt")
	}
	out, err := im.tool(tool, "dump", "--no-empty")
	if err != nil {
		return nil, fmt.Errorf("ask apt for its settings: %w", err)
	}
	config := map[string]setting{}
	for _, line := range strings.Split(out, "\n") {
		key, value, ok := strings.Cut(strings.TrimSuffix(strings.TrimSpace(line), ";"), " ")
		if ok {
			config[strings.ToLower(key)] = setting{strings.Trim(value, `"`), "apt-config dump: " + key}
		}
	}
	return config, nil
}

// aptProxies are the proxies of apt.conf: for a scheme, or for one host of it.
func aptProxies(config map[string]setting) []origin {
	var origins []origin
	for key, s := range config {
		rest, ok := strings.CutPrefix(key, "acquire::")
		_, what, isProxy := strings.Cut(rest, "::")
		if !ok || !isProxy || s.value == "" || strings.EqualFold(s.value, "DIRECT") || s.value == "false" {
			continue
		}
		switch {
		case what == "proxy" || strings.HasPrefix(what, "proxy::"):
			origins = append(origins, origin{url: s.value, what: "proxy", from: s.from, proxy: true})
		case what == "proxy-auto-detect" || what == "proxyautodetect":
			origins = append(origins, origin{note: true, what: "a program chooses a proxy", from: s.from})
		}
	}
	slices.SortFunc(origins, func(a, b origin) int { return strings.Compare(a.from, b.from) })
	return origins
}

// parseSourcesList reads the one-line format: TYPE [OPTIONS] URI SUITE [COMPONENT…].
func parseSourcesList(file, data string) ([]origin, error) {
	var origins []origin
	for i, line := range strings.Split(data, "\n") {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		from := fmt.Sprintf("%s:%d", file, i+1)
		if fields[0] != "deb" && fields[0] != "deb-src" {
			return nil, fmt.Errorf("%s: a line begins with neither deb nor deb-src", from)
		}
		rest := strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), fields[0]))
		if strings.HasPrefix(rest, "[") {
			_, after, ok := strings.Cut(rest, "]")
			if !ok {
				return nil, fmt.Errorf("%s: options without ]", from)
			}
			rest = strings.TrimSpace(after)
		}
		uri := rest
		if strings.HasPrefix(rest, "cdrom:[") { // the only URI that holds blanks
			uri = "cdrom:/"
		} else if fields = strings.Fields(rest); len(fields) >= 2 {
			uri = strings.Trim(fields[0], `"`)
		} else {
			return nil, fmt.Errorf("%s: a source needs a URI and a suite", from)
		}
		origins = append(origins, origin{url: uri, what: "packages", from: from})
	}
	return origins, nil
}

// parseDeb822 reads stanzas of fields, deb822(5).
func parseDeb822(file, data string) ([]origin, error) {
	var origins []origin
	var uris []origin
	var enabled, inURIs, typed bool
	begin := func() { uris, enabled, inURIs, typed = nil, true, false, false }
	end := func() error {
		if enabled {
			if typed && len(uris) == 0 {
				return fmt.Errorf("%s: a stanza has no URIs", file)
			}
			origins = append(origins, uris...)
		}
		begin()
		return nil
	}
	begin()
	for i, line := range strings.Split(data, "\n") {
		from := fmt.Sprintf("%s:%d", file, i+1)
		line = strings.TrimSuffix(line, "\r")
		switch {
		case strings.HasPrefix(line, "#"):
			continue
		case strings.TrimSpace(line) == "":
			if err := end(); err != nil {
				return nil, err
			}
			continue
		case line[0] != ' ' && line[0] != '\t':
			name, value, ok := strings.Cut(line, ":")
			if !ok {
				return nil, fmt.Errorf("%s: neither a field nor its continuation", from)
			}
			name = strings.ToLower(name)
			inURIs = name == "uris"
			typed = typed || name == "types"
			if name == "enabled" && slices.Contains([]string{"no", "false", "without", "off", "disable"}, strings.ToLower(strings.TrimSpace(value))) {
				enabled = false
			}
			line = value
		}
		if inURIs {
			for _, uri := range strings.Fields(line) {
				uris = append(uris, origin{url: uri, what: "packages", from: from})
			}
		}
	}
	if err := end(); err != nil {
		return nil, err
	}
	return origins, nil
}

// aptMirrors puts the mirrors of a list in the place of the list, apt-transport-mirror(1).
// One that is itself fetched from a server can't be read here.
func aptMirrors(im *image, o origin) ([]origin, error) {
	scheme, rest, _ := strings.Cut(o.url, ":")
	scheme = strings.ToLower(scheme)
	inner, ok := strings.CutPrefix(scheme, "mirror+")
	switch {
	case scheme == "mirror" || ok && inner != "file":
		return nil, fmt.Errorf("%s: the mirrors are named by a server, which is not asked", o.from)
	case !ok:
		return []origin{o}, nil
	}
	file := path.Clean("/" + strings.TrimLeft(rest, "/"))
	data, there, err := im.read(file)
	switch {
	case err != nil:
		return nil, err
	case !there:
		return nil, fmt.Errorf("%s: the list of mirrors %s is missing", o.from, file)
	}
	var origins []origin
	for i, line := range strings.Split(data, "\n") {
		line, _, _ = strings.Cut(line, "#")
		if fields := strings.Fields(line); len(fields) > 0 { // URI, then its properties
			origins = append(origins, origin{url: fields[0], what: o.what, from: fmt.Sprintf("%s:%d", file, i+1)})
		}
	}
	if len(origins) == 0 {
		return nil, fmt.Errorf("%s: the list of mirrors %s is empty", o.from, file)
	}
	return origins, nil
}
