package route

// Routes to registries of packages: what reads packages passes, and nothing that publishes, logs in, tags or searches.
// The public ones want no credential. Which packages and versions there are is judged by package registry of the broker.

// Registries are the kinds of registries.
func Registries() []string { return []string{"npm", "pypi", "go", "crates", "maven"} }

// registryOf is a route to a registry.
func registryOf(kind, to string) Route {
	return Route{
		Name: kind, To: to, Keyless: true, Inject: bearer(), Open: true, Shape: TextShape,
		Packages: Packages{Registry: kind}, Env: map[string]string{},
	}
}

// npm, https://github.com/npm/registry/blob/main/docs/REGISTRY-API.md. Of npm and pnpm any variable of the name
// NPM_CONFIG_… is a setting, in either case; yarn 1 reads them, too. What npm would audit is sent to nobody.
func npm() Route {
	r := registryOf("npm", "https://registry.npmjs.org/")
	r.Shape = NPMShape
	r.Endpoints = []Endpoint{
		get("/-/ping"), get("/-/npm/v1/keys"),
		get("/*"), get("/*/*"), get("/*/-/*"), get("/@*/*/*"), get("/@*/*/-/*"), get("/@*/*/-/@*/*"),
	}
	r.Harmless = []Endpoint{
		{Method: "POST", Path: "/-/npm/v1/security/advisories/bulk"},
		{Method: "POST", Path: "/-/npm/v1/security/audits/quick"},
	}
	r.Env = map[string]string{
		"NPM_CONFIG_REGISTRY":        "{base}/",
		"NPM_CONFIG_AUDIT":           "false",
		"COREPACK_NPM_REGISTRY":      "{base}",
		"BUN_CONFIG_REGISTRY":        "{base}/",
		"YARN_NPM_REGISTRY_SERVER":   "{base}", // of yarn 2 and later, which asks for the other one besides
		"YARN_UNSAFE_HTTP_WHITELIST": "127.0.0.1",
	}
	return r
}

// pypi, https://packaging.python.org/en/latest/specifications/simple-repository-api/. The broker's paths of files are
// /files/PROJECT/HOST/PATH.
func pypi() Route {
	r := registryOf("pypi", "https://pypi.org/")
	r.Inject = Inject{Basic: "__token__"}
	r.Headers = []string{"range", "if-range"} // uv reads the end of a wheel
	for _, method := range []string{"GET", "HEAD"} {
		r.Endpoints = append(r.Endpoints,
			Endpoint{Method: method, Path: "/simple/*"},
			Endpoint{Method: method, Path: "/simple/*/"},
			Endpoint{Method: method, Path: "/files/**", To: "https://files.pythonhosted.org"})
	}
	r.Env = map[string]string{
		"PIP_INDEX_URL":      "{base}/simple/",
		"UV_DEFAULT_INDEX":   "{base}/simple/",
		"PDM_PYPI_URL":       "{base}/simple/",
		"PIPENV_PYPI_MIRROR": "{base}/simple/",
	}
	return r
}

// golang, https://go.dev/ref/mod#goproxy-protocol. Go asks a proxy for the database of checksums, too.
func golang() Route {
	r := registryOf("go", "https://proxy.golang.org/")
	r.Endpoints = []Endpoint{
		{Method: "GET", Path: "/sumdb/sum.golang.org/**", To: "https://sum.golang.org"},
		get("/**"),
	}
	r.Env = map[string]string{"GOPROXY": "{base}"}
	return r
}

// crates, https://doc.rust-lang.org/cargo/reference/registry-index.html. No variable names a source that replaces
// crates.io: the image has a link to the file.
func crates() Route {
	r := registryOf("crates", "https://index.crates.io/")
	r.Inject = Inject{Header: "authorization", Value: "{}"} // RFC 3139
	r.Endpoints = []Endpoint{
		get("/config.json"),
		get("/1/*"), get("/2/*"), get("/3/*/*"), get("/*/*/*"),
		{Method: "GET", Path: "/dl/*/*/download", To: "https://static.crates.io"},
	}
	r.Files = []File{{Name: "cargo.toml", Text: "[source.crates-io]\nreplace-with = \"agent-init\"\n\n" +
		"[source.agent-init]\nregistry = \"sparse+{base}/\"\n"}}
	return r
}

// maven, https://maven.apache.org/repositories/layout.html. MAVEN_ARGS is read by Maven 3.9 and later; an older one needs
// a link to the file, or -gs.
func maven() Route {
	r := registryOf("maven", "https://repo.maven.apache.org/maven2/")
	r.Inject = Inject{Basic: "agent"}
	for _, method := range []string{"GET", "HEAD"} {
		r.Endpoints = append(r.Endpoints, Endpoint{Method: method, Path: "/**"})
	}
	r.Files = []File{{Name: "maven-settings.xml", Text: "<settings>\n  <mirrors>\n    <mirror>\n      <id>agent-init</id>\n" +
		"      <mirrorOf>central</mirrorOf>\n      <url>{base}/</url>\n    </mirror>\n  </mirrors>\n</settings>\n"}}
	r.Env = map[string]string{"MAVEN_ARGS": "-gs {dir}/maven-settings.xml"}
	return r
}
