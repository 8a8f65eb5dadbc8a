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
	if err := im.readInto(c, true, pipFiles(im)...); err != nil {
		return nil, err
	}
	places := []string{"index-url", "extra-index-url", "find-links", "proxy"}
	sections := []string{"global", "install", "download", "wheel"}
	for _, key := range append(places, "no-index") {
		name := "PIP_" + strings.ToUpper(strings.ReplaceAll(key, "-", "_"))
		if v := im.env[name]; v != "" {
			for _, section := range sections {
				delete(c, section+"."+key)
			}
			c["global."+key] = setting{v, "variable " + name}
		}
	}
	_, installed := im.find("/usr/local/bin/pip", "/usr/local/bin/pip3", "/usr/bin/pip", "/usr/bin/pip3", below(im.env["VIRTUAL_ENV"], "bin/pip"))
	if len(c) == 0 && !installed {
		return nil, errors.New("no file and no variable sets an index, and pip is not installed")
	}
	isTrue := func(s setting) bool {
		return slices.Contains([]string{"1", "y", "yes", "t", "true", "on"}, strings.ToLower(s.value))
	}
	var origins []origin
	no := c["global.no-index"]
	if isTrue(no) {
		origins = append(origins, origin{kind: note, what: "no index is used", from: no.from})
	} else if _, ok := c["global.index-url"]; !ok {
		origins = append(origins, origin{preset, "@pypi", "index", "pip's default: nothing sets another"})
	}
	for _, section := range sections {
		none := cmp.Or(c[section+".no-index"], no)
		for _, key := range places {
			if isTrue(none) && strings.HasSuffix(key, "index-url") {
				continue
			}
			s := c[section+"."+key]
			for _, v := range strings.Fields(s.value) {
				o := origin{place, v, strings.ReplaceAll(key, "-", " "), s.from}
				switch {
				case key == "proxy":
					o.kind = proxy
				case key == "find-links" && !strings.Contains(v, "://"):
					o.url = "file:///" // a path
				}
				origins = append(origins, o)
			}
		}
	}
	return origins, nil
}

// pipFiles are pip's files, the most important first.
func pipFiles(im *image) []string {
	named := im.env["PIP_CONFIG_FILE"]
	if named == "/dev/null" {
		return nil // pip reads no file at all then
	}
	files := []string{named, below(im.env["VIRTUAL_ENV"], "pip.conf"), im.userConfig("pip/pip.conf"), below(im.home, ".pip/pip.conf"), "/etc/pip.conf"}
	for dir := range strings.SplitSeq(cmp.Or(im.env["XDG_CONFIG_DIRS"], "/etc/xdg"), ":") {
		files = append(files, path.Join("/", dir, "pip/pip.conf"))
	}
	return files
}
