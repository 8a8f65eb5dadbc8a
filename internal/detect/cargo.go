package detect

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// detectCargo reads what cargo reads, https://doc.rust-lang.org/cargo/reference/config.html: .cargo/config.toml
// here and in each directory above, then that of CARGO_HOME; the nearest wins, key by key.
func detectCargo(im *image) ([]origin, error) {
	home := im.env["CARGO_HOME"]
	if home == "" && im.home != "" {
		home = path.Join(im.home, ".cargo")
	}
	var dirs []string
	for _, dir := range im.upwards() {
		dirs = append(dirs, path.Join(dir, ".cargo"))
	}
	if home != "" && !slices.Contains(dirs, path.Clean(home)) {
		dirs = append(dirs, home)
	}
	c := config{}
	for name, value := range im.env {
		rest, ok := strings.CutPrefix(name, "CARGO_REGISTRIES_")
		if registry, isIndex := strings.CutSuffix(rest, "_INDEX"); ok && isIndex && value != "" {
			key := "registries." + strings.ToLower(strings.ReplaceAll(registry, "_", "-")) + ".index"
			c[key] = setting{value, "variable " + name}
		}
	}
	for _, dir := range dirs {
		// Without the suffix is the older name, and wins if both are there.
		file, ok := im.find(path.Join(dir, "config"), path.Join(dir, "config.toml"))
		if !ok {
			continue
		}
		data, _, err := im.read(file)
		if err != nil {
			return nil, err
		}
		if strings.Count(data, "[")+strings.Count(data, "{") > maxTOMLNests {
			return nil, fmt.Errorf("%s: more than %d tables and arrays", file, maxTOMLNests)
		}
		var found map[string]any
		if _, err := toml.Decode(data, &found); err != nil {
			return nil, fmt.Errorf("%s: not TOML", tomlFault(file, err)) // what it says may quote a password
		}
		if _, ok := found["include"]; ok {
			return nil, fmt.Errorf("%s: include is not understood", file)
		}
		later := config{}
		cargoSettings(later, file, "", found)
		c.merge(later)
	}
	_, installed := im.find(path.Join("/", home, "bin/cargo"), "/usr/local/cargo/bin/cargo", "/usr/bin/cargo", "/usr/local/bin/cargo")
	if len(c) == 0 && !installed {
		return nil, errors.New("there is no configuration of cargo, and cargo is not installed")
	}
	return cargoOrigins(c)
}

// cargoSettings adds the strings of a file by dotted key.
func cargoSettings(c config, file, table string, values map[string]any) {
	for name, v := range values {
		switch key := table + name; v := v.(type) {
		case string:
			c[key] = setting{v, file + ": " + key}
		case map[string]any:
			cargoSettings(c, file, key+".", v)
		}
	}
}

// tomlFault is the place of what is wrong.
func tomlFault(file string, err error) string {
	var wrong toml.ParseError
	if errors.As(err, &wrong) {
		return fmt.Sprintf("%s:%d", file, wrong.Position.Line)
	}
	return file
}

// maxTOMLNests bounds how deep arrays and tables may be nested: the library has no bound,
// and takes a gigabyte for a megabyte of brackets.
const maxTOMLNests = 1 << 12

func cargoOrigins(c config) ([]origin, error) {
	first, err := cargoReplaced(c)
	if err != nil {
		return nil, err
	}
	origins := []origin{first}
	for _, key := range sortedKeys(c) {
		s := c[key]
		name, isIndex := strings.CutSuffix(key, ".index")
		registry, isRegistry := strings.CutPrefix(name, "registries.")
		switch {
		case isIndex && isRegistry:
			origins = append(origins, origin{url: s.value, what: "registry " + registry, from: s.from})
		case key == "registry.index":
			origins = append(origins, origin{url: s.value, what: "registry", from: s.from})
		case key == "http.proxy" && s.value != "":
			origins = append(origins, origin{url: s.value, what: "proxy", from: s.from, proxy: true})
		}
	}
	return origins, nil
}

// cargoReplaced follows the replacement of crates.io to its end.
func cargoReplaced(c config) (origin, error) {
	name, from := "crates-io", ""
	for hops := 0; ; hops++ {
		next, ok := c["source."+name+".replace-with"]
		if !ok {
			break
		}
		if name, from = next.value, next.from; hops > 16 {
			return origin{}, fmt.Errorf("%s: sources replace each other in a circle", from)
		}
	}
	for _, key := range []string{"source." + name + ".registry", "source." + name + ".git", "registries." + name + ".index"} {
		if s, ok := c[key]; ok {
			return origin{url: s.value, what: "source " + name, from: s.from}, nil
		}
	}
	for _, key := range []string{"directory", "local-registry"} {
		if s, ok := c["source."+name+"."+key]; ok {
			return origin{note: true, what: "source " + name + " is a directory", from: s.from}, nil
		}
	}
	if name == "crates-io" {
		if from == "" {
			from = "cargo's default: nothing replaces it"
		}
		return origin{url: "@crates", what: "crates.io", from: from}, nil
	}
	return origin{}, fmt.Errorf("%s: the source %q is nowhere defined", from, name)
}
