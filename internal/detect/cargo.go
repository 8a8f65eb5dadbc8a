package detect

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// detectCargo reads what cargo reads, https://doc.rust-lang.org/cargo/reference/config.html: .cargo/config.toml
// here and in each directory above, then that of CARGO_HOME; the nearest wins, key by key.
func detectCargo(im *image) ([]origin, error) {
	home := cmp.Or(im.env["CARGO_HOME"], below(im.home, ".cargo"))
	c := config{}
	for name, value := range im.env {
		rest, ok := strings.CutPrefix(name, "CARGO_REGISTRIES_")
		if registry, isIndex := strings.CutSuffix(rest, "_INDEX"); ok && isIndex {
			c.merge(config{"registries." + strings.ToLower(strings.ReplaceAll(registry, "_", "-")) + ".index": {value, "variable " + name}})
		}
	}
	dirs := im.upwards()
	for i := range dirs {
		dirs[i] = path.Join(dirs[i], ".cargo")
	}
	for _, dir := range append(dirs, home) { // if it is one of them, it adds nothing
		// Without the suffix is the older name, and wins if both are there.
		file, ok := im.find(below(dir, "config"), below(dir, "config.toml"))
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
			var wrong toml.ParseError // what it says may quote a password
			if errors.As(err, &wrong) {
				file = fmt.Sprintf("%s:%d", file, wrong.Position.Line)
			}
			return nil, fmt.Errorf("%s: not TOML", file)
		}
		if _, ok := found["include"]; ok {
			return nil, fmt.Errorf("%s: include is not understood", file)
		}
		cargoSettings(c, file, "", found)
	}
	_, installed := im.find(path.Join("/", home, "bin/cargo"), "/usr/local/cargo/bin/cargo", "/usr/bin/cargo", "/usr/local/bin/cargo")
	if len(c) == 0 && !installed {
		return nil, errors.New("there is no configuration of cargo, and cargo is not installed")
	}
	first, err := cargoReplaced(c)
	if err != nil {
		return nil, err
	}
	origins := []origin{first}
	for _, key := range slices.Sorted(maps.Keys(c)) {
		s := c[key]
		name, isIndex := strings.CutSuffix(key, ".index")
		registry, isRegistry := strings.CutPrefix(name, "registries.")
		switch {
		case isIndex && isRegistry:
			origins = append(origins, origin{place, s.value, "registry " + registry, s.from})
		case key == "http.proxy":
			origins = append(origins, origin{proxy, s.value, "proxy", s.from})
		}
	}
	return origins, nil
}

// cargoSettings merges the strings of a file into c, by dotted key.
func cargoSettings(c config, file, table string, values map[string]any) {
	for name, v := range values {
		switch key := table + name; v := v.(type) {
		case string:
			c.merge(config{key: {v, file + ": " + key}})
		case map[string]any:
			cargoSettings(c, file, key+".", v)
		}
	}
}

// maxTOMLNests bounds how deep arrays and tables may be nested: the library has no bound,
// and takes a gigabyte for a megabyte of brackets.
const maxTOMLNests = 1 << 12

// cargoReplaced follows the replacement of crates.io to its end.
func cargoReplaced(c config) (origin, error) {
	name, from := "crates-io", "cargo's default: nothing replaces it"
	for hops := 0; ; hops++ {
		next, ok := c["source."+name+".replace-with"]
		if !ok {
			break
		}
		if name, from = next.value, next.from; hops > 16 {
			return origin{}, fmt.Errorf("%s: sources replace each other in a circle", from)
		}
	}
	source := "source." + name
	for _, key := range []string{source + ".registry", source + ".git", "registries." + name + ".index"} {
		if s, ok := c[key]; ok {
			return origin{place, s.value, "source " + name, s.from}, nil
		}
	}
	if s := cmp.Or(c[source+".directory"], c[source+".local-registry"]); s.value != "" {
		return origin{kind: note, what: "source " + name + " is a directory", from: s.from}, nil
	}
	if name == "crates-io" {
		return origin{preset, "@crates", "crates.io", from}, nil
	}
	return origin{}, fmt.Errorf("%s: the source %q is nowhere defined", from, name)
}
