package detect

import "testing"

// TestRoutes: a registry that the image is set to becomes a route, and a credential in its URL becomes nobody's.
func TestRoutes(t *testing.T) {
	for _, c := range []struct {
		manager, want string
		private       bool
		im            *image
	}{
		{"npm", "  npm: {}  # registry, variable npm_config_registry\n", false, fixture("npm_config_registry=https://registry.npmjs.org/")},
		{
			"npm", "  npm: {to: \"https://npm.corp.example/repository/npm/\", private: true}  # registry, /etc/npmrc:1\n" +
				"  # note: not by this route: registry of @corp, /etc/npmrc:2\n", true,
			fixture("", "/etc/npmrc\nregistry=https://npm.corp.example/repository/npm/\n@corp:registry=https://other.example/"),
		},
		{
			"pip", "  pypi: {to: \"https://pypi.corp.example/simple\"}  # index url, variable PIP_INDEX_URL, whose credential is left out: write credential: file:/run/secrets/pypi\n",
			false, fixture("PIP_INDEX_URL=https://me:secret@pypi.corp.example/simple"),
		},
		{"pip", "  pypi: {}  # index, pip's default: nothing sets another\n", false, fixture("", "/usr/bin/pip\n")},
		{
			"go", "  go: {}  # GOPROXY, variable GOPROXY\n  # note: GOPROXY holds direct: what no proxy has is fetched from the host in the module's name; allow those hosts, variable GOPROXY\n",
			false, fixture("GOPROXY=https://proxy.golang.org,direct\nGOSUMDB=sum.golang.org"),
		},
		{"cargo", "  crates: {to: \"https://crates.corp.example/index/\"}  # source corp, /home/u/.cargo/config.toml: source.corp.registry\n", false,
			fixture("", "/home/u/.cargo/config.toml\n[source.crates-io]\nreplace-with = \"corp\"\n[source.corp]\nregistry = \"sparse+https://crates.corp.example/index/\"\n")},
	} {
		got, err := c.im.route(c.manager, c.private)
		if err != nil || got != c.want {
			t.Errorf("%s:\n got %s (%v)\nwant %s", c.manager, got, err, c.want)
		}
	}
	for _, im := range []*image{
		fixture("PIP_INDEX_URL=file:///srv/x"), fixture("PIP_NO_INDEX=1", "/usr/bin/pip\n"), fixture("PIP_INDEX_URL=:secret:"),
	} {
		if got, err := im.route("pip", false); err == nil {
			t.Errorf("a route of %v: %s", im.env, got)
		}
	}
}
