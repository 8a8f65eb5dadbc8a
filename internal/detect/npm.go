package detect

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// detectNpm follows npm's order: the environment, then the .npmrc of the project,
// of the user and of the prefix, and last what npm itself says, which knows its
// default.
func detectNpm(im *image) ([]origin, error) {
	c := npmEnvironment(im.env)
	files := []string{npmProject(im)}
	if s, ok := c["userconfig"]; ok {
		files = append(files, s.value)
	} else if im.home != "" {
		files = append(files, path.Join(im.home, ".npmrc"))
	}
	for range 2 { // those may say where the files of all users are
		for _, file := range files {
			if err := im.readInto(c, file, npmrc(im.env)); err != nil {
				return nil, err
			}
		}
		files = npmGlobal(im, c)
	}

	if _, ok := c["registry"]; !ok {
		npm, installed := im.find("/usr/local/bin/npm", "/usr/bin/npm", "/opt/node/bin/npm")
		if !installed {
			return nil, errors.New("no file and no variable sets a registry, and npm, which knows its default, is not installed")
		}
		out, err := im.tool(npm, "config", "get", "registry")
		if err != nil {
			return nil, fmt.Errorf("ask npm for its registry: %w", err)
		}
		c["registry"] = setting{strings.TrimSpace(out), "npm config get registry"}
	}
	origins := []origin{{url: c["registry"].value, what: "registry", from: c["registry"].from}}
	for _, key := range sortedKeys(c) {
		s := c[key]
		if scope, ok := strings.CutSuffix(key, ":registry"); ok && strings.HasPrefix(scope, "@") {
			origins = append(origins, origin{url: s.value, what: "registry of " + scope, from: s.from})
		}
		if (key == "proxy" || key == "https-proxy") && s.value != "" && s.value != "null" && s.value != "false" {
			origins = append(origins, origin{url: s.value, what: "proxy", from: s.from, proxy: true})
		}
	}
	return origins, nil
}

// npmEnvironment is what npm_config_* sets; npm takes the prefix in either case.
func npmEnvironment(env map[string]string) config {
	c := config{}
	for _, name := range sortedKeys(env) {
		if len(name) < 11 || !strings.EqualFold(name[:11], "npm_config_") || env[name] == "" {
			continue
		}
		key := name[11:]
		if !strings.HasPrefix(key, "@") {
			key = strings.ToLower(strings.ReplaceAll(key, "_", "-"))
		}
		c[key] = setting{env[name], "variable " + name}
	}
	return c
}

// npmProject is the .npmrc of the nearest directory that holds a package.json or
// node_modules, else of the working directory.
func npmProject(im *image) string {
	dirs := im.upwards()
	for _, dir := range dirs {
		if _, ok := im.find(path.Join(dir, "package.json"), path.Join(dir, "node_modules", ".package-lock.json")); ok {
			return path.Join(dir, ".npmrc")
		}
	}
	return path.Join(dirs[0], ".npmrc")
}

// npmGlobal are the files of all users: that of the prefix, which is the directory
// above node's own unless it is set, and Debian's.
func npmGlobal(im *image, c config) []string {
	if s, ok := c["globalconfig"]; ok {
		return []string{s.value}
	}
	var files []string
	if s, ok := c["prefix"]; ok {
		files = append(files, path.Join(s.value, "etc/npmrc"))
	} else if node, ok := im.find("/usr/local/bin/node", "/usr/bin/node", "/opt/node/bin/node"); ok {
		files = append(files, path.Join(path.Dir(path.Dir(node)), "etc/npmrc"))
	}
	return append(files, "/etc/npmrc")
}

// npmrc returns what reads one .npmrc, npmrc(5): KEY = VALUE, and ${NAME} in values.
// Keys of a section are not npm's settings.
func npmrc(env map[string]string) func(found config, from, line string) error {
	section := false
	return func(found config, from, line string) error {
		line = strings.TrimSpace(line)
		section = section || line[0] == '['
		key, value, ok := strings.Cut(line, "=")
		key = strings.Trim(strings.TrimSpace(key), `"'`)
		if !ok || section || key != "registry" && !strings.HasSuffix(key, ":registry") &&
			!slices.Contains([]string{"proxy", "https-proxy", "prefix", "globalconfig"}, key) {
			return nil
		}
		value, err := npmValue(strings.TrimSpace(value), env)
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		found[key] = setting{value, from}
		return nil
	}
}

// npmValue takes off quotes and a comment, and puts variables in. One that is not
// set is an error, except as ${NAME?}, which stands for nothing then.
func npmValue(value string, env map[string]string) (string, error) {
	if n := len(value); n >= 2 && (value[0] == '"' || value[0] == '\'') && value[n-1] == value[0] {
		value = value[1 : n-1]
	} else if i := strings.IndexAny(value, ";#"); i >= 0 {
		value = strings.TrimSpace(value[:i])
	}
	var b strings.Builder
	for {
		before, rest, ok := strings.Cut(value, "${")
		b.WriteString(before)
		if !ok {
			return b.String(), nil
		}
		name, after, ok := strings.Cut(rest, "}")
		if !ok {
			return "", errors.New("${ without }")
		}
		name, optional := strings.CutSuffix(name, "?")
		v, set := env[name]
		if !set && !optional {
			return "", fmt.Errorf("the variable %s is not set", name)
		}
		b.WriteString(v)
		value = after
	}
}
