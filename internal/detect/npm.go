package detect

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// detectNpm follows npm's order: the environment, then the .npmrc of the project, of the user and of the prefix, and
// last what npm itself says, which knows its default.
func detectNpm(im *image) ([]origin, error) {
	c := config{}
	for _, name := range slices.Sorted(maps.Keys(im.env)) {
		if len(name) > 11 && strings.EqualFold(name[:11], "npm_config_") && im.env[name] != "" {
			key := name[11:]
			if key[0] != '@' {
				key = strings.ToLower(strings.ReplaceAll(key, "_", "-"))
			}
			c[key] = setting{im.env[name], "variable " + name} // npm takes it in either case
		}
	}
	dirs := im.upwards()
	nearest := slices.IndexFunc(dirs, func(dir string) bool {
		_, ok := im.find(path.Join(dir, "package.json"), path.Join(dir, "node_modules/.package-lock.json"))
		return ok
	})
	user := below(im.home, ".npmrc")
	if s, ok := c["userconfig"]; ok {
		user = s.value
	}
	if err := im.readInto(c, false, path.Join(dirs[max(nearest, 0)], ".npmrc"), user); err != nil {
		return nil, err
	}
	// The file of all users: that of the prefix, which is the directory above node's own unless it is set, and Debian's.
	prefix, err := im.npmValue(c, "prefix")
	if node, ok := im.find("/usr/local/bin/node", "/usr/bin/node", "/opt/node/bin/node"); ok && prefix == "" {
		prefix = path.Dir(path.Dir(node))
	}
	files := []string{below(prefix, "etc/npmrc"), "/etc/npmrc"}
	global, globalErr := im.npmValue(c, "globalconfig")
	if global != "" {
		files = []string{global}
	}
	if err := errors.Join(err, globalErr, im.readInto(c, false, files...)); err != nil {
		return nil, err
	}

	if _, ok := c["registry"]; !ok {
		programs := []string{"/usr/local/bin/npm", "/usr/bin/npm", "/opt/node/bin/npm"}
		out, installed, err := im.ask("npm for its registry", programs, "config", "get", "registry")
		switch {
		case err != nil:
			return nil, err
		case !installed:
			return nil, errors.New("no file and no variable sets a registry, and npm, which knows its default, is not installed")
		}
		c["registry"] = setting{strings.TrimSpace(out), "npm config get registry"}
	}
	origins := []origin{{what: "registry"}}
	for _, key := range slices.Sorted(maps.Keys(c)) {
		scope, isRegistry := strings.CutSuffix(key, ":registry")
		isProxy := key == "proxy" || key == "https-proxy"
		if !isProxy && key != "registry" && !(isRegistry && strings.HasPrefix(scope, "@")) {
			continue
		}
		value, err := im.npmValue(c, key)
		switch from := c[key].from; {
		case err != nil:
			return nil, err
		case key == "registry":
			origins[0].url, origins[0].from = value, from
		case !isProxy:
			origins = append(origins, origin{place, value, "registry of " + scope, from})
		case value != "" && value != "null" && value != "false":
			origins = append(origins, origin{proxy, value, "proxy", from})
		}
	}
	return origins, nil
}

// npmValue is a setting as npmrc(5) has it: without quotes and a comment, and with variables put in. One
// that is not set is an error, except as ${NAME?}, which stands for nothing then.
func (im *image) npmValue(c config, key string) (string, error) {
	value := c[key].value
	if n := len(value); n >= 2 && (value[0] == '"' || value[0] == '\'') && value[n-1] == value[0] {
		value = value[1 : n-1]
	} else if i := strings.IndexAny(value, ";#"); i >= 0 {
		value = strings.TrimSpace(value[:i])
	}
	var err error
	value = regexp.MustCompile(`\$\{[^}]*\}`).ReplaceAllStringFunc(value, func(variable string) string {
		name, optional := strings.CutSuffix(variable[2:len(variable)-1], "?")
		v, set := im.env[name]
		if !set && !optional {
			err = fmt.Errorf("%s: %s: the variable %s is not set", c[key].from, key, name)
		}
		return v
	})
	return value, err
}
