package detect

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// detectPip reads pip's files in pip's order, https://pip.pypa.io/en/stable/topics/configuration/:
// system, user, virtual environment, PIP_CONFIG_FILE, and then the environment.
// Later ones win, key by key; a section of a command wins over [global].
func detectPip(im *image) ([]origin, error) {
	config := map[string]setting{} // by SECTION.KEY
	for _, file := range pipFiles(im) {
		data, _, err := im.read(file)
		if err != nil {
			return nil, err
		}
		found, err := parsePipConf(file, data)
		if err != nil {
			return nil, err
		}
		for key, s := range found {
			config[key] = s
		}
	}
	sections := []string{"global", "install", "download", "wheel"}
	for name, key := range map[string]string{"PIP_INDEX_URL": "index-url", "PIP_EXTRA_INDEX_URL": "extra-index-url",
		"PIP_FIND_LINKS": "find-links", "PIP_NO_INDEX": "no-index", "PIP_PROXY": "proxy"} {
		if v := im.env[name]; v != "" {
			for _, section := range sections[1:] {
				delete(config, section+"."+key)
			}
			config["global."+key] = setting{v, "variable " + name}
		}
	}

	_, installed := im.find("/usr/local/bin/pip", "/usr/local/bin/pip3", "/usr/bin/pip", "/usr/bin/pip3", path.Join("/", im.env["VIRTUAL_ENV"], "bin/pip"))
	if len(config) == 0 && !installed {
		return nil, fmt.Errorf("no file and no variable sets an index, and pip is not installed")
	}
	var origins []origin
	if no := config["global.no-index"]; pipTrue(no.value) {
		origins = append(origins, origin{note: true, what: "no index is used", from: no.from})
	} else if _, ok := config["global.index-url"]; !ok {
		origins = append(origins, origin{url: "@pypi", what: "index", from: "pip's default: nothing sets another"})
	}
	for _, section := range sections {
		none := pipTrue(config["global.no-index"].value)
		if s, ok := config[section+".no-index"]; ok {
			none = pipTrue(s.value)
		}
		for _, key := range []string{"index-url", "extra-index-url", "find-links", "proxy"} {
			s, ok := config[section+"."+key]
			if !ok || none && strings.HasSuffix(key, "index-url") {
				continue
			}
			for _, v := range strings.Fields(s.value) {
				o := origin{url: v, what: strings.ReplaceAll(key, "-", " "), from: s.from, proxy: key == "proxy"}
				if key == "find-links" && !strings.Contains(v, "://") {
					o.url = "file:///" // a path
				}
				if o.proxy && !strings.Contains(v, "://") {
					o.url = "http://" + v
				}
				origins = append(origins, o)
			}
		}
	}
	return origins, nil
}

func pipTrue(s string) bool {
	return slices.Contains([]string{"1", "y", "yes", "t", "true", "on"}, strings.ToLower(s))
}

func pipFiles(im *image) []string {
	named := im.env["PIP_CONFIG_FILE"]
	if named == "/dev/null" {
		return nil // pip reads no file at all then
	}
	var files []string
	dirs := im.env["XDG_CONFIG_DIRS"]
	if dirs == "" {
		dirs = "/etc/xdg"
	}
	all := strings.Split(dirs, ":")
	slices.Reverse(all) // the first of them is the most important
	for _, dir := range all {
		files = append(files, path.Join("/", dir, "pip/pip.conf"))
	}
	files = append(files, "/etc/pip.conf")
	if im.home != "" {
		config := im.env["XDG_CONFIG_HOME"]
		if config == "" {
			config = path.Join(im.home, ".config")
		}
		files = append(files, path.Join(im.home, ".pip/pip.conf"), path.Join(config, "pip/pip.conf"))
	}
	if venv := im.env["VIRTUAL_ENV"]; venv != "" {
		files = append(files, path.Join(venv, "pip.conf"))
	}
	if named != "" {
		files = append(files, named)
	}
	return files
}

// parsePipConf reads the format of Python's configparser: sections, KEY = VALUE or
// KEY: VALUE, comments on lines of their own, and further lines of a value indented.
func parsePipConf(file, data string) (map[string]setting, error) {
	config := map[string]setting{}
	section, key := "", ""
	for i, line := range strings.Split(data, "\n") {
		from := fmt.Sprintf("%s:%d", file, i+1)
		text := strings.TrimSpace(line)
		switch {
		case text == "" || text[0] == '#' || text[0] == ';':
			continue
		case line[0] == ' ' || line[0] == '\t':
			if key == "" {
				return nil, fmt.Errorf("%s: a line continues nothing", from)
			}
			s := config[key]
			s.value = strings.TrimSpace(s.value + " " + text)
			if s.from == "" {
				s.from = from
			}
			config[key] = s
		case text[0] == '[':
			end := strings.IndexByte(text, ']')
			if end < 0 {
				return nil, fmt.Errorf("%s: a section without ]", from)
			}
			section, key = text[1:end], ""
		default:
			at := strings.IndexAny(text, "=:")
			if at < 0 || section == "" {
				return nil, fmt.Errorf("%s: neither a section nor a setting of one", from)
			}
			key = section + "." + strings.ReplaceAll(strings.ToLower(strings.TrimSpace(text[:at])), "_", "-")
			config[key] = setting{strings.TrimSpace(text[at+1:]), from}
		}
	}
	return config, nil
}
