package detect

import (
	"cmp"
	"errors"
	"path"
	"slices"
	"strings"
)

// detectPip reads pip's files in pip's order, https://pip.pypa.io/en/stable/topics/configuration/:
// system, user, virtual environment, PIP_CONFIG_FILE, and then the environment.
// Later ones win, key by key; a section of a command wins over [global].
func detectPip(im *image) ([]origin, error) {
	c := config{} // by SECTION.KEY
	for _, file := range slices.Backward(pipFiles(im)) {
		if err := im.readInto(c, file, pipConf()); err != nil {
			return nil, err
		}
	}
	sections := []string{"global", "install", "download", "wheel"}
	for _, key := range append(pipPlaces, "no-index") {
		name := "PIP_" + strings.ToUpper(strings.ReplaceAll(key, "-", "_"))
		if v := im.env[name]; v != "" {
			for _, section := range sections[1:] {
				delete(c, section+"."+key)
			}
			c["global."+key] = setting{v, "variable " + name}
		}
	}

	_, installed := im.find("/usr/local/bin/pip", "/usr/local/bin/pip3", "/usr/bin/pip", "/usr/bin/pip3", path.Join("/", im.env["VIRTUAL_ENV"], "bin/pip"))
	if len(c) == 0 && !installed {
		return nil, errors.New("no file and no variable sets an index, and pip is not installed")
	}
	var origins []origin
	no := c["global.no-index"]
	if pipTrue(no.value) {
		origins = append(origins, origin{note: true, what: "no index is used", from: no.from})
	} else if _, ok := c["global.index-url"]; !ok {
		origins = append(origins, origin{url: "@pypi", what: "index", from: "pip's default: nothing sets another"})
	}
	for _, section := range sections {
		none := no
		if s, ok := c[section+".no-index"]; ok {
			none = s
		}
		for _, key := range pipPlaces {
			s := c[section+"."+key]
			if pipTrue(none.value) && strings.HasSuffix(key, "index-url") {
				continue
			}
			for _, v := range strings.Fields(s.value) {
				o := origin{url: v, what: strings.ReplaceAll(key, "-", " "), from: s.from, proxy: key == "proxy"}
				if key == "find-links" && !strings.Contains(v, "://") {
					o.url = "file:///" // a path
				}
				origins = append(origins, o)
			}
		}
	}
	return origins, nil
}

// pipPlaces are the settings that name a place.
var pipPlaces = []string{"index-url", "extra-index-url", "find-links", "proxy"}

func pipTrue(s string) bool {
	return slices.Contains([]string{"1", "y", "yes", "t", "true", "on"}, strings.ToLower(s))
}

func pipFiles(im *image) []string {
	named := im.env["PIP_CONFIG_FILE"]
	if named == "/dev/null" {
		return nil // pip reads no file at all then
	}
	var files []string
	dirs := strings.Split(cmp.Or(im.env["XDG_CONFIG_DIRS"], "/etc/xdg"), ":")
	for _, dir := range slices.Backward(dirs) { // the first of them is the most important
		files = append(files, path.Join("/", dir, "pip/pip.conf"))
	}
	files = append(files, "/etc/pip.conf")
	if im.home != "" {
		own := cmp.Or(im.env["XDG_CONFIG_HOME"], path.Join(im.home, ".config"))
		files = append(files, path.Join(im.home, ".pip/pip.conf"), path.Join(own, "pip/pip.conf"))
	}
	if venv := im.env["VIRTUAL_ENV"]; venv != "" {
		files = append(files, path.Join(venv, "pip.conf"))
	}
	if named != "" {
		files = append(files, named)
	}
	return files
}

// pipConf returns what reads one file in the format of Python's configparser: sections,
// KEY = VALUE or KEY: VALUE, and further lines of a value indented.
func pipConf() func(found config, from, line string) error {
	section, key := "", ""
	return func(found config, from, line string) error {
		text := strings.TrimSpace(line)
		switch at := strings.IndexAny(text, "=:"); {
		case line[0] == ' ' || line[0] == '\t':
			if key == "" {
				return errors.New("a line continues nothing")
			}
			found[key] = setting{strings.TrimSpace(found[key].value + " " + text), found[key].from}
		case text[0] == '[':
			end := strings.IndexByte(text, ']')
			if end < 0 {
				return errors.New("a section without ]")
			}
			section, key = text[1:end], ""
		case at < 0 || section == "":
			return errors.New("neither a section nor a setting of one")
		default:
			key = section + "." + strings.ReplaceAll(strings.ToLower(strings.TrimSpace(text[:at])), "_", "-")
			found[key] = setting{strings.TrimSpace(text[at+1:]), from}
		}
		return nil
	}
}
