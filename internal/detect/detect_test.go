package detect

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/agent-init/agent-init/allowlist.d"
	"github.com/agent-init/agent-init/internal/mustrun"
	"github.com/agent-init/agent-init/pkg/policy"
)

// fixture is an image of a few files. Files are given as "PATH\nCONTENT".
func fixture(env string, files ...string) *image {
	m := fstest.MapFS{}
	for _, f := range files {
		name, data, _ := strings.Cut(f, "\n")
		m[strings.TrimPrefix(name, "/")] = &fstest.MapFile{Data: []byte(data), Mode: 0o755}
	}
	im := &image{files: m, env: map[string]string{}, dir: "/workspace/app", home: "/home/u"}
	for _, kv := range strings.Split(env, "\n") {
		if k, v, ok := strings.Cut(kv, "="); ok {
			im.env[k] = v
		}
	}
	im.tool = func(path string, args ...string) (string, error) {
		f, ok := m[strings.TrimPrefix(path, "/")]
		if !ok || len(f.Data) == 0 {
			return "", errors.New("exit status 1")
		}
		return string(f.Data), nil // a program's content is what it says
	}
	return im
}

// detected is what detect prints, without its first line, or what it complains of.
func detected(im *image, manager string) (string, error) {
	out, err := im.entries(manager, false)
	_, body, _ := strings.Cut(out, "\n")
	return body, err
}

type detectTest struct {
	name  string
	im    *image
	want  string // without the last line end
	fails string // part of the error
}

func runDetectTests(t *testing.T, manager string, tests []detectTest) {
	t.Helper()
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := detected(test.im, manager)
			if test.fails != "" {
				if err == nil || !strings.Contains(err.Error(), test.fails) {
					t.Fatalf("error %v, want %q", err, test.fails)
				}
				if got != "" {
					t.Errorf("an error, and still %q", got)
				}
				return
			}
			if err != nil || strings.TrimSuffix(got, "\n") != test.want {
				t.Errorf("%v\ngot\n%s\nwant\n%s", err, got, test.want)
			}
		})
	}
}

func TestDetectNpm(t *testing.T) {
	runDetectTests(t, "npm", []detectTest{
		{name: "default", im: fixture("", "/usr/bin/npm\nhttps://npm.example/\n"),
			want: "npm.example  # registry, npm config get registry"},
		{name: "not installed", im: fixture(""), fails: "not installed"},
		{name: "npm fails", im: fixture("", "/usr/bin/npm\n"), fails: "ask npm"},
		{name: "npm says nonsense", im: fixture("", "/usr/bin/npm\nundefined\n"), fails: "registry: not a URL"},
		{name: "precedence", im: fixture("",
			"/workspace/app/.npmrc\n; mine\nregistry=https://project.example/\n",
			"/home/u/.npmrc\nregistry=https://user.example/\n@corp:registry=https://user.example:8443/npm/\n",
			"/usr/local/bin/node\n", "/usr/local/etc/npmrc\n@corp:registry=https://late.example/\n@other:registry=http://other.example\n",
			"/etc/npmrc\n@last:registry = \"https://last.example/\"\n"),
			want: "project.example  # registry, /workspace/app/.npmrc:2\n" +
				"user.example:8443  # registry of @corp, /home/u/.npmrc:2\n" +
				"last.example  # registry of @last, /etc/npmrc:1\n" +
				"other.example  # registry of @other, /usr/local/etc/npmrc:2"},
		{name: "environment first", im: fixture("NPM_CONFIG_REGISTRY=https://env.example\nnpm_config_@corp:registry=https://corp.example",
			"/home/u/.npmrc\nregistry=https://user.example/\n"),
			want: "env.example  # registry, variable NPM_CONFIG_REGISTRY\ncorp.example  # registry of @corp, variable npm_config_@corp:registry"},
		{name: "project above", im: fixture("", "/workspace/package.json\n{}", "/workspace/.npmrc\nregistry=https://above.example\n",
			"/workspace/app/.npmrc\nregistry=https://below.example\n"),
			want: "above.example  # registry, /workspace/.npmrc:1"},
		{name: "other files", im: fixture("NPM_CONFIG_USERCONFIG=/x/user\nnpm_config_globalconfig=/x/global",
			"/x/user\n@a:registry=https://a.example\n", "/x/global\nregistry=https://g.example\n", "/home/u/.npmrc\nregistry=https://no.example\n"),
			want: "g.example  # registry, /x/global:1\na.example  # registry of @a, /x/user:1"},
		{name: "credentials", im: fixture("", "/home/u/.npmrc\nregistry=https://user:s3cret@npm.example/\n//npm.example/:_authToken=s3cret\n"),
			want: "npm.example  # registry, /home/u/.npmrc:1"},
		{name: "credentials in what is wrong", im: fixture("", "/home/u/.npmrc\nregistry=https://user:s3cret@np m.example/\n"), fails: "not a URL"},
		{name: "variables", im: fixture("HOST=npm.example", "/home/u/.npmrc\nregistry=https://${HOST}/${NONE?}\n"),
			want: "npm.example  # registry, /home/u/.npmrc:1"},
		{name: "unset variable", im: fixture("", "/home/u/.npmrc\nregistry=https://${HOST}/\n"), fails: "/home/u/.npmrc:1: registry: the variable HOST is not set"},
		{name: "section", im: fixture("", "/home/u/.npmrc\n[x]\nregistry=https://no.example/\n"), fails: "not installed"},
		{name: "loopback", im: fixture("", "/home/u/.npmrc\nregistry=http://localhost:4873\n"), want: "# note: nothing to allow: registry, /home/u/.npmrc:1"},
		{name: "loopback address", im: fixture("", "/home/u/.npmrc\nregistry=http://127.0.0.2:4873\n@a:registry=http://[::ffff:127.0.0.1]/\n"),
			want: "# note: nothing to allow: registry, /home/u/.npmrc:1\n# note: nothing to allow: registry of @a, /home/u/.npmrc:2"},
		{name: "too large", im: fixture("", "/home/u/.npmrc\n"+strings.Repeat("#", maxDetectFile+1)), fails: "larger than"},
		{name: "address", im: fixture("", "/home/u/.npmrc\nregistry=http://10.1.2.3:4873\n@v6:registry=http://[2001:db8::1]:4873\n"),
			want: "10.1.2.3:4873  # registry, /home/u/.npmrc:1\n[2001:db8::1]:4873  # registry of @v6, /home/u/.npmrc:2"},
		{name: "proxy", im: fixture("http_proxy=proxy.example:3128", "/home/u/.npmrc\nregistry=https://npm.example\nhttps-proxy=http://p.example:3128/\nproxy=null\n"),
			want: "npm.example  # registry, /home/u/.npmrc:1\n# p.example:3128  # proxy, /home/u/.npmrc:2\n# proxy.example:3128  # proxy, variable http_proxy"},
		{name: "bad port", im: fixture("", "/home/u/.npmrc\nregistry=https://npm.example:70000\n"), fails: "port"},
		{name: "no port", im: fixture("", "/home/u/.npmrc\nregistry=https://npm.example:/\n"), fails: "port"},
		{name: "other scheme", im: fixture("", "/home/u/.npmrc\nregistry=s3://bucket/\n"), fails: `scheme "s3"`},
		{name: "public suffix", im: fixture("", "/home/u/.npmrc\nregistry=https://*.com/\n"), fails: "no host name"},
		{name: "metadata", im: fixture("", "/home/u/.npmrc\nregistry=http://169.254.169.254/\n"), fails: "/home/u/.npmrc:1: "},
	})
}

func TestDetectGo(t *testing.T) {
	const tool = "/usr/local/go/bin/go\n" + `https://p.example,direct` + "\nsum.example\n\n\n"
	const direct = "# note: GOPROXY holds direct: what no proxy has is fetched from the host in the module's name; allow those hosts, "
	runDetectTests(t, "go", []detectTest{
		{name: "go env", im: fixture("", tool),
			want: "p.example  # GOPROXY, go env GOPROXY\n" + direct + "go env GOPROXY\nsum.example  # GOSUMDB, go env GOSUMDB"},
		{name: "environment", im: fixture("GOPROXY=https://u:s3cret@corp.example:8443/x|off\nGOSUMDB=off", tool),
			want: "corp.example:8443  # GOPROXY, variable GOPROXY\n# note: GOPROXY ends with off: nothing is fetched but from the proxies before it, variable GOPROXY"},
		{name: "GOENV and go.env without go", im: fixture("", "/home/u/.config/go/env\nGOPROXY=corp.example\n", "/usr/local/go/go.env\n# x\nGOPROXY=https://no.example\nGOSUMDB=sum.example+abc https://db.example/x\n"),
			want: "corp.example  # GOPROXY, /home/u/.config/go/env:1\ndb.example  # GOSUMDB, /usr/local/go/go.env:3"},
		{name: "private", im: fixture("GOPROXY=https://p.example\nGOSUMDB=off\nGOPRIVATE=git.corp.example/*,*.int.example,git.corp.example/x"),
			want: "p.example  # GOPROXY, variable GOPROXY\ngit.corp.example  # GOPRIVATE: fetched directly, variable GOPRIVATE\n*.int.example  # GOPRIVATE: fetched directly, variable GOPRIVATE"},
		{name: "GONOPROXY wins", im: fixture("GOPROXY=https://p.example\nGOSUMDB=off\nGOPRIVATE=git.corp.example\nGONOPROXY=none"),
			want: "p.example  # GOPROXY, variable GOPROXY"},
		{name: "pattern", im: fixture("GOPROXY=https://p.example\nGOPRIVATE=git?.corp.example"), fails: "no entry can express"},
		{name: "everything private", im: fixture("GOPROXY=https://p.example\nGOPRIVATE=*"), fails: "no entry can express"},
		{name: "file", im: fixture("GOPROXY=file:///srv/mod\nGOSUMDB=off"), want: "# note: nothing to allow: GOPROXY, variable GOPROXY"},
		{name: "nothing", im: fixture(""), fails: "not installed"},
		{name: "go fails", im: fixture("", "/usr/bin/go\n"), fails: "ask go"},
		{name: "sum with too much", im: fixture("GOPROXY=off\nGOSUMDB=a b c"), fails: "more than a name"},
	})
}

func TestDetectApt(t *testing.T) {
	const config = "/usr/bin/apt-config\nDir \"/\";\n"
	runDetectTests(t, "apt", []detectTest{
		{name: "sources", im: fixture("", config, "/usr/bin/apt-get\n/etc/apt/sources.list:2 http://deb.example/debian/\n/etc/apt/sources.list:2 http://deb.example/debian/\n"+
			"/etc/apt/sources.list.d/a.sources:1 https://u:s3cret@deb.example:8443/debian/\n/etc/apt/sources.list:4 cdrom://[Debian GNU/Linux 12]/\n"),
			want: "deb.example  # packages, /etc/apt/sources.list:2\ndeb.example:8443  # packages, /etc/apt/sources.list.d/a.sources:1\n# note: nothing to allow: packages, /etc/apt/sources.list:4"},
		{name: "mirrors of a file", im: fixture("", config, "/usr/bin/apt-get\n/s:1 mirror+file:/etc/apt/m.list/\n", "/etc/apt/m.list\nhttps://one.example/\tpriority:1\nhttps://two.example/ arch:amd64\n"),
			want: "one.example  # packages, /etc/apt/m.list:1\ntwo.example  # packages, /etc/apt/m.list:2"},
		{name: "mirrors of a server", im: fixture("", config, "/usr/bin/apt-get\n/s:1 mirror+http://m.example/list/\n"), fails: "named by a server"},
		{name: "missing mirrors", im: fixture("", config, "/usr/bin/apt-get\n/s:1 mirror+file:/m/\n"), fails: "is missing"},
		{name: "proxies", im: fixture("", config+"Acquire::http::Proxy \"http://u:s3cret@proxy.example:3142\";\nAcquire::http::Proxy::deb.example \"DIRECT\";\nAcquire::http::Proxy-Auto-Detect \"/bin/x\";\n",
			"/usr/bin/apt-get\n/s:1 http://deb.example/\n"),
			want: "deb.example  # packages, /s:1\n# proxy.example:3142  # proxy, apt-config dump: Acquire::http::Proxy\n# note: a program chooses a proxy, apt-config dump: Acquire::http::Proxy-Auto-Detect"},
		{name: "no apt", im: fixture("", "/etc/apt/sources.list\ndeb http://a.example x\n"), fails: "no apt"},
		{name: "wrong sources", im: fixture("", config, "/usr/bin/apt-get\n"), fails: "ask apt for its sources"},
		{name: "no source", im: fixture("", config, "/usr/bin/apt-get\n\n"), fails: "no source of packages"},
		{name: "tor", im: fixture("", config, "/usr/bin/apt-get\n/s:1 tor+http://a.example/\n"), fails: "/s:1: packages: URLs of scheme"},
	})
}

// TestAptSays: the real apt answers so, without having fetched anything, of every kind of source.
func TestAptSays(t *testing.T) {
	if _, err := os.Stat("/usr/bin/apt-get"); err != nil {
		mustrun.Lacks(t, "needs apt")
	}
	dir := t.TempDir()
	lists := "deb http://deb.example/debian bookworm main\ndeb [arch=amd64] https://deb.example:8443/debian bookworm main # x\n" +
		"deb cdrom:[Debian GNU/Linux 12]/ bookworm main\ndeb mirror+file:/m.list x y\ndeb http://flat.example/ ./\n"
	stanzas := "Types: deb\nEnabled: no\nURIs: http://off.example\nSuites: s\nComponents: main\n\nTYPES: deb\nuris: http://c.example\n http://d.example\nSuites: s\nComponents: main\n"
	for name, data := range map[string]string{"sources.list": lists, "parts/a.sources": stanzas, "parts/b.list.save": "deb http://no.example x y\n", "lists/partial/x": ""} {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(data), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	options := []string{"-o", "Dir::Etc::sourcelist=" + dir + "/sources.list", "-o", "Dir::Etc::sourceparts=" + dir + "/parts", "-o", "Dir::State::lists=" + dir + "/lists"}
	im := newImage(t.Context(), map[string]string{}, "/")
	out, err := im.tool("/usr/bin/apt-get", append(aptTargets(), options...)...)
	if err != nil {
		t.Fatal(err)
	}
	got := slices.Compact(slices.Sorted(strings.Lines(out)))
	list, parts := dir+"/sources.list:", dir+"/parts/a.sources:2 "
	want := []string{parts + "http://c.example/\n", parts + "http://d.example/\n", list + "1 http://deb.example/debian/\n", list + "2 https://deb.example:8443/debian/\n",
		list + "3 cdrom://[Debian GNU/Linux 12]/\n", list + "4 mirror+file:/m.list/\n", list + "5 http://flat.example/\n"}
	if !slices.Equal(got, want) {
		t.Errorf("apt says\n%q\nwant\n%q", got, want)
	}
	if err := os.WriteFile(dir+"/sources.list", []byte("deb http://u:s3cret@a.example\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err = im.tool("/usr/bin/apt-get", append(aptTargets(), options...)...)
	if said := complaint(err); strings.Contains(said, "s3cret") || !strings.Contains(said, "sources.list") {
		t.Errorf("of what is wrong: %v%s", err, said)
	}
}

func TestDetectPip(t *testing.T) {
	runDetectTests(t, "pip", []detectTest{
		{name: "default", im: fixture("", "/usr/bin/pip3\n"), want: "@pypi  # index, pip's default: nothing sets another"},
		{name: "not installed", im: fixture(""), fails: "not installed"},
		{name: "precedence", im: fixture("VIRTUAL_ENV=/venv", "/etc/pip.conf\n[global]\nindex-url = https://system.example/simple\nextra-index-url =\n    https://one.example/simple\n    https://u:s3cret@two.example:8443/simple\n",
			"/home/u/.config/pip/pip.conf\n[global]\nindex_url: https://user.example/\n", "/venv/pip.conf\n[install]\nindex-url=https://venv.example\n"),
			want: "user.example  # index url, /home/u/.config/pip/pip.conf:2\none.example  # extra index url, /etc/pip.conf:3\ntwo.example:8443  # extra index url, /etc/pip.conf:3\nvenv.example  # index url, /venv/pip.conf:2"},
		{name: "environment wins", im: fixture("PIP_INDEX_URL=https://env.example\nPIP_EXTRA_INDEX_URL=https://a.example https://b.example", "/etc/pip.conf\n[install]\nindex-url = https://no.example\n"),
			want: "env.example  # index url, variable PIP_INDEX_URL\na.example  # extra index url, variable PIP_EXTRA_INDEX_URL\nb.example  # extra index url, variable PIP_EXTRA_INDEX_URL"},
		{name: "system directories", im: fixture("XDG_CONFIG_DIRS=/first:/second", "/first/pip/pip.conf\n[global]\nindex-url = https://first.example\n", "/second/pip/pip.conf\n[global]\nindex-url = https://no.example\n"),
			want: "first.example  # index url, /first/pip/pip.conf:2"},
		{name: "config file", im: fixture("PIP_CONFIG_FILE=/x.conf", "/x.conf\n[global]\nindex-url = https://x.example\n", "/home/u/.pip/pip.conf\n[global]\nindex-url = https://no.example\n"),
			want: "x.example  # index url, /x.conf:2"},
		{name: "no files", im: fixture("PIP_CONFIG_FILE=/dev/null", "/usr/bin/pip\n", "/etc/pip.conf\n[global]\nindex-url = https://no.example\n"),
			want: "@pypi  # index, pip's default: nothing sets another"},
		{name: "no index", im: fixture("", "/etc/pip.conf\n[global]\nno-index = true\nindex-url = https://no.example\nfind-links = /wheels https://links.example/\n"),
			want: "# note: no index is used, /etc/pip.conf:2\n# note: nothing to allow: find links, /etc/pip.conf:4\nlinks.example  # find links, /etc/pip.conf:4"},
		{name: "proxy", im: fixture("", "/etc/pip.conf\n[global]\nindex-url = https://a.example\nproxy = u:s3cret@p.example:3128\n"),
			want: "a.example  # index url, /etc/pip.conf:2\n# p.example:3128  # proxy, /etc/pip.conf:3"},
		{name: "no section", im: fixture("", "/etc/pip.conf\nindex-url = https://a.example\n"), fails: "/etc/pip.conf:1: neither"},
		{name: "continues nothing", im: fixture("", "/etc/pip.conf\n[global]\n  x\n"), fails: "continues nothing"},
		{name: "no URL", im: fixture("", "/etc/pip.conf\n[global]\nindex-url = a.example\n"), fails: "not a URL"},
	})
}

func TestDetectCargo(t *testing.T) {
	runDetectTests(t, "cargo", []detectTest{
		{name: "default", im: fixture("", "/usr/bin/cargo\n"), want: "@crates  # crates.io, cargo's default: nothing replaces it"},
		{name: "not installed", im: fixture(""), fails: "not installed"},
		{name: "replaced", im: fixture("", "/home/u/.cargo/config.toml\n[source.crates-io]\nreplace-with = 'a'\n[source.\"a\"]\nreplace-with = \"b\"\n[source.b]\nregistry = \"sparse+https://u:s3cret@mirror.example:8443/index/\"\n"),
			want: "mirror.example:8443  # source b, /home/u/.cargo/config.toml: source.b.registry"},
		{name: "nearest wins", im: fixture("CARGO_HOME=/cargo", "/workspace/.cargo/config.toml\n[registries]\nour = { index = \"https://near.example/git\" }\n",
			"/cargo/config.toml\nregistries.our.index = \"https://far.example\"\nregistries.far.index = \"ssh://git@git.example/index\"\n"),
			want: "@crates  # crates.io, cargo's default: nothing replaces it\ngit.example:22  # registry far, /cargo/config.toml: registries.far.index\nnear.example  # registry our, /workspace/.cargo/config.toml: registries.our.index"},
		{name: "environment", im: fixture("CARGO_REGISTRIES_MY_REG_INDEX=sparse+https://env.example/"),
			want: "@crates  # crates.io, cargo's default: nothing replaces it\nenv.example  # registry my-reg, variable CARGO_REGISTRIES_MY_REG_INDEX"},
		{name: "replaced by a registry", im: fixture("", "/home/u/.cargo/config.toml\nsource.crates-io.replace-with=\"r\"\n[registries.r]\nindex=\"sparse+https://r.example/\"\n"),
			want: "r.example  # source r, /home/u/.cargo/config.toml: registries.r.index; registry r, /home/u/.cargo/config.toml: registries.r.index"},
		{name: "vendored", im: fixture("", "/workspace/app/.cargo/config.toml\n[source.crates-io]\nreplace-with = \"v\"\n[source.v]\ndirectory = \"vendor\"\n"),
			want: "# note: source v is a directory, /workspace/app/.cargo/config.toml: source.v.directory"},
		{name: "proxy", im: fixture("", "/home/u/.cargo/config\n[http]\nproxy = \"p.example:3128\"\n"),
			want: "@crates  # crates.io, cargo's default: nothing replaces it\n# p.example:3128  # proxy, /home/u/.cargo/config: http.proxy"},
		{name: "other values", im: fixture("", "/home/u/.cargo/config.toml\n# x\n[build]\njobs = 4 # y\nrustflags = [\n  \"-C\", # z\n  'a]b',\n]\n[env]\nA = \"\"\"\nx\n\"y\" \\\n  z\"\"\"\nB = { value = \"b\", force = true }\n[[x]]\na = 1979-05-27\n[[x]]\na = 1\n[registries.\"q.r\"]\nindex = \"https://\\u0071.example\"\n"),
			want: "@crates  # crates.io, cargo's default: nothing replaces it\nq.example  # registry q.r, /home/u/.cargo/config.toml: registries.q.r.index"},
		{name: "replaced thrice", im: fixture("", "/home/u/.cargo/config.toml\nsource.crates-io.replace-with=\"a\"\nsource.a.replace-with=\"b\"\nsource.b.replace-with=\"c\"\nsource.c.registry=\"https://c.example\"\n"),
			want: "c.example  # source c, /home/u/.cargo/config.toml: source.c.registry"},
		{name: "marks at the end", im: fixture("", "/home/u/.cargo/config.toml\na = \"\"\"x\"\"\"\"\"\nb = '''y''''\nhttp.proxy = \"p.example\"\n"),
			want: "@crates  # crates.io, cargo's default: nothing replaces it\n# p.example  # proxy, /home/u/.cargo/config.toml: http.proxy"},
		{name: "circle", im: fixture("", "/home/u/.cargo/config.toml\nsource.crates-io.replace-with=\"a\"\nsource.a.replace-with=\"crates-io\"\n"), fails: "circle"},
		{name: "undefined", im: fixture("", "/home/u/.cargo/config.toml\nsource.crates-io.replace-with=\"a\"\n"), fails: "nowhere defined"},
		{name: "include", im: fixture("", "/home/u/.cargo/config.toml\ninclude = \"x.toml\"\n"), fails: "include"},
		{name: "password in what is wrong", im: fixture("", "/home/u/.cargo/config.toml\n[http]\nproxy = s3cret\n"), fails: "config.toml:2: not TOML"},
		{name: "deep", im: fixture("", "/home/u/.cargo/config.toml\na = "+strings.Repeat("[", maxDetectFile-10)), fails: "tables and arrays"},
		{name: "not TOML", im: fixture("", "/home/u/.cargo/config.toml\n[http\n"), fails: "/home/u/.cargo/config.toml:2: not TOML"},
		{name: "open string", im: fixture("", "/home/u/.cargo/config.toml\n[http]\nproxy = \"a\n"), fails: "config.toml:2: not TOML"},
		{name: "twice", im: fixture("", "/home/u/.cargo/config.toml\n[http]\nproxy = \"a\"\nproxy = \"b\"\n"), fails: "config.toml:3: not TOML"},
	})
}

func TestDetectGitHubMeta(t *testing.T) {
	runDetectTests(t, "github-meta", []detectTest{{name: "preset", im: fixture(""), want: "@github-meta  # git over SSH, the addresses of this release"}})
}

// A long configuration takes a time in proportion to its length.
func TestDetectMuch(t *testing.T) {
	var many strings.Builder
	for i := range 40000 {
		fmt.Fprintf(&many, "/etc/apt/sources.list:%d http://a.example/\n", i)
	}
	got, err := detected(fixture("", "/usr/bin/apt-config\nDir \"/\";\n", "/usr/bin/apt-get\n"+many.String()), "apt")
	if err != nil || strings.Count(got, "a.example") != 1 || strings.Count(got, "; packages") != maxReasons-1 {
		t.Errorf("%v, %d bytes", err, len(got))
	}
}

func TestDetectPrivate(t *testing.T) {
	im := fixture("npm_config_registry=https://a.example", "/usr/bin/pip\n")
	for manager, want := range map[string]string{
		"npm": "# agent-init detect npm\na.example private  # registry, variable npm_config_registry\n",
		"pip": "# agent-init detect pip\n@pypi  # index, pip's default: nothing sets another\n",
	} {
		if got, err := im.entries(manager, true); err != nil || got != want {
			t.Errorf("%v\ngot\n%s\nwant\n%s", err, got, want)
		}
	}
}

// Whatever a configuration holds, detect prints valid entries and comments, or
// complains; and it never tells a password.
func FuzzDetect(f *testing.F) {
	files := []string{"/home/u/.npmrc", "/home/u/.config/go/env", "/usr/bin/apt-get", "/usr/bin/apt-config", "/etc/pip.conf", "/home/u/.cargo/config.toml"}
	managers := []string{"npm", "go", "apt", "apt", "pip", "cargo"}
	for i, seed := range []string{
		"registry=https://u:s3cret@a.example:8443/\n@b:registry=${HOST?}\n", "GOPROXY=https://a.example|direct\nGOPRIVATE=*.b.example/x\n",
		"/s:1 http://a.example:80/x/\n/s:2 mirror+file:/m/\n", "Acquire::http::Proxy \"http://u:s3cret@b.example:3142\";\n",
		"[global]\nindex-url=https://a.example\nextra-index-url=\n  https://b.example\n",
		"[source.crates-io]\nreplace-with=\"a\"\n[source.'a']\nregistry='''sparse+https://a.example'''\n[x]\ny=[{a=1},2]\nz=\"\\u0041\\\\\"\n",
		"registry=https://a.example\rb\n", "[registries]\n\"\\n!evil\" = {index=\"https://a.example\"}\n",
	} {
		f.Add(uint8(i), seed)
	}
	f.Fuzz(func(t *testing.T, which uint8, data string) {
		i := int(which) % len(files)
		im := fixture("", "/usr/bin/apt-config\nDir \"/\";\n", "/usr/bin/apt-get\n/s:1 http://deb.example/\n", "/usr/bin/pip\n", "/usr/bin/cargo\n", files[i]+"\n"+data)
		got, err := detected(im, managers[i])
		if err != nil {
			got += err.Error()
		} else if _, bad := policy.Parse(&policy.Bundle{Files: []policy.File{{Name: "detected", Data: []byte(got)}}}, allowlist.Files); bad != nil {
			t.Errorf("not valid: %v\n%s", bad, got)
		}
		if err == nil {
			for _, line := range strings.Split(strings.TrimSuffix(got, "\n"), "\n") {
				if line != "" && line[0] != '#' && !strings.Contains(line, "  # ") {
					t.Errorf("a line without a reason: %q", line)
				}
				if strings.HasPrefix(line, "!") {
					t.Errorf("a denial: %q", line)
				}
			}
		}
		if strings.Contains(data, "//u:s3cret@") && strings.Count(data, "s3cret") == 1 && strings.Contains(got, "s3cret") {
			t.Errorf("tells the password: %s", got)
		}
	})
}

// TestManagers: what help names is what is known.
func TestManagers(t *testing.T) {
	names := strings.Split(Managers, "|")
	for _, name := range names {
		if !Known(name) {
			t.Errorf("%s is not known", name)
		}
	}
	if n := len(detectors()); n != len(names) {
		t.Errorf("%d are known, and %d are named", n, len(names))
	}
}
