package detect

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// setting is a value with the place that it was found in.
type setting struct{ value, from string }

// detectNpm follows npm's order: the environment, then the .npmrc of the project,
// of the user and of the prefix, and last what npm itself says, which knows its
// default. A key that was found is not replaced by a later file.
func detectNpm(im *image) ([]origin, error) {
	config := npmEnvironment(im.env)
	add := func(file string) error {
		data, ok, err := im.read(file)
		if err != nil || !ok {
			return err
		}
		found, err := parseNpmrc(file, data, im.env)
		if err != nil {
			return err
		}
		for key, s := range found {
			if _, ok := config[key]; !ok {
				config[key] = s
			}
		}
		return nil
	}
	user := path.Join(im.home, ".npmrc")
	if s, ok := config["userconfig"]; ok {
		user = s.value
	}
	files := []string{npmProject(im)}
	if im.home != "" || config["userconfig"].value != "" {
		files = append(files, user)
	}
	for _, file := range files {
		if err := add(file); err != nil {
			return nil, err
		}
	}
	for _, file := range npmGlobal(im, config) {
		if err := add(file); err != nil {
			return nil, err
		}
	}

	npm, installed := im.find("/usr/local/bin/npm", "/usr/bin/npm", "/opt/node/bin/npm")
	if _, ok := config["registry"]; !ok {
		if !installed {
			return nil, fmt.Errorf("no file and no variable sets a registry, and npm, which knows its default, is not installed")
		}
		out, err := im.tool(npm, "config", "get", "registry")
		if err != nil {
			return nil, fmt.Errorf("ask npm for its registry: %w", err)
		}
		config["registry"] = setting{strings.TrimSpace(out), "npm config get registry"}
	}
	origins := []origin{{url: config["registry"].value, what: "registry", from: config["registry"].from}}
	for _, key := range sortedKeys(config) {
		s := config[key]
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
func npmEnvironment(env map[string]string) map[string]setting {
	config := map[string]setting{}
	for _, name := range sortedKeys(env) {
		if len(name) < 11 || !strings.EqualFold(name[:11], "npm_config_") || env[name] == "" {
			continue
		}
		key := strings.ToLower(strings.ReplaceAll(name[11:], "_", "-"))
		if scoped := name[11:]; strings.HasPrefix(scoped, "@") {
			key = scoped
		}
		config[key] = setting{env[name], "variable " + name}
	}
	return config
}

// npmProject is the .npmrc of the nearest directory that holds a package.json or
// node_modules, else of the working directory.
func npmProject(im *image) string {
	dirs := im.upwards()
	for _, dir := range dirs {
		_, isPackage := im.find(path.Join(dir, "package.json"))
		_, hasModules := im.find(path.Join(dir, "node_modules", ".package-lock.json"))
		if isPackage || hasModules {
			return path.Join(dir, ".npmrc")
		}
	}
	return path.Join(dirs[0], ".npmrc")
}

// npmGlobal are the files of all users: that of the prefix, which is the directory
// above node's own unless it is set, and Debian's.
func npmGlobal(im *image, config map[string]setting) []string {
	if s, ok := config["globalconfig"]; ok {
		return []string{s.value}
	}
	var files []string
	if s, ok := config["prefix"]; ok {
		files = append(files, path.Join(s.value, "etc/npmrc"))
	} else if node, ok := im.find("/usr/local/bin/node", "/usr/bin/node", "/opt/node/bin/node"); ok {
		files = append(files, path.Join(path.Dir(path.Dir(node)), "etc/npmrc"))
	}
	return append(files, "/etc/npmrc")
}

// parseNpmrc reads an .npmrc, npmrc(5): KEY = VALUE, comments with ; and #, ${NAME} in
// values. Keys of a section are not npm's settings.
func parseNpmrc(file, data string, env map[string]string) (map[string]setting, error) {
	config := map[string]setting{}
	for i, line := range strings.Split(data, "\n") {
		line = strings.TrimSpace(strings.TrimPrefix(line, "\ufeff"))
		if line == "" || line[0] == ';' || line[0] == '#' {
			continue
		}
		if line[0] == '[' {
			break
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			continue // a switch
		}
		key = strings.Trim(strings.TrimSpace(key), `"'`)
		if key != "registry" && !strings.HasSuffix(key, ":registry") &&
			!slices.Contains([]string{"proxy", "https-proxy", "prefix", "globalconfig"}, key) {
			continue
		}
		from := fmt.Sprintf("%s:%d", file, i+1)
		value, err := npmValue(strings.TrimSpace(value), env)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", from, key, err)
		}
		config[key] = setting{value, from}
	}
	return config, nil
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
			return "", fmt.Errorf("${ without }")
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
