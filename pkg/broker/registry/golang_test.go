package registry

import (
	"strings"
	"testing"

	"github.com/agent-init/agent-init/pkg/route"
)

func goDocs() map[string]Document {
	docs := map[string]Document{}
	info := func(module, query, version string, days float64) {
		docs["/"+module+query] = Document{Type: "application/json", Body: []byte(`{"Version":"` + version + `","Time":"` + ago(days) + `"}`)}
	}
	const toml = "github.com/!burnt!sushi/toml"
	docs["/"+toml+"/@v/list"] = Document{Type: "text/plain", Body: []byte("v1.9.0\nv1.10.0\nv1.2.0\nv2.0.0+incompatible\nv0.1.0\n")}
	info(toml, "/@v/v1.9.0.info", "v1.9.0", 30)
	info(toml, "/@v/v1.10.0.info", "v1.10.0", 1)
	info(toml, "/@v/v1.2.0.info", "v1.2.0", 100)
	info(toml, "/@v/v2.0.0+incompatible.info", "v2.0.0+incompatible", 2)
	info(toml, "/@v/master.info", "v1.10.1-0.20261119120000-abcdefabcdef", 1)
	info(toml, "/@v/old.info", "v1.0.1-0.20250101000000-abcdefabcdef", 600)
	info(toml, "/@latest", "v1.10.0", 1)
	docs["/upper.example/m/@v/list"] = Document{Body: []byte("v1.0.0-RC1\n")}
	info("upper.example/m", "/@v/v1.0.0-!r!c1.info", "v1.0.0-RC1", 30)
	docs["/twice.example/m/@v/v1.0.0.info"] = Document{Body: []byte(`{"Version":"v1.0.0","Time":"` + ago(30) + `","version":"v2.0.0"}`)}
	docs["/timeless.example/m/@v/v1.0.0.info"] = Document{Body: []byte(`{"Version":"v1.0.0"}`)}
	return docs
}

func TestGo(t *testing.T) {
	r := newRig(t, "go", route.Packages{}, goDocs())
	const toml = "/github.com/!burnt!sushi/toml"
	for _, path := range []string{toml + "/@v/list", toml + "/@v/v1.9.0.zip", toml + "/@latest", "/example.com/m/v2/@v/v2.0.0.mod"} {
		r.want(path, "file "+path)
	}
	r.want("/sumdb/sum.golang.org/supported", "")
	r.want("/sumdb/sum.golang.org/lookup/example.com/m@v1.0.0", "file https://sum.golang.org/lookup/example.com/m@v1.0.0")
	r.want("/sumdb/sum.golang.org/tile/8/0/x000/001", "file https://sum.golang.org/tile/8/0/x000/001")
	r.want("/sumdb/other.example/supported", "file /sumdb/other.example/supported")
	for _, path := range []string{"/", "/example.com/m", "/example.com/m/@v/v1.0.0.exe", "/github.com/BurntSushi/toml/@v/list", "/!/x/@latest", "/sumdb/sum.golang.org/x"} {
		r.want(path, "path: …")
	}
}

func TestGoAge(t *testing.T) {
	r := newRig(t, "go", days3(), goDocs())
	const toml = "/github.com/!burnt!sushi/toml"
	r.want(toml+"/@v/list", "v1.2.0\nv1.9.0\n")
	r.want(toml+"/@latest", `{"Version":"v1.9.0",…`)
	r.want(toml+"/@v/v1.9.0.info", `{"Version":"v1.9.0",…`)
	asked := len(r.asked)
	r.want(toml+"/@v/v1.9.0.zip", "file "+toml+"/@v/v1.9.0.zip")
	if len(r.asked) != asked {
		t.Errorf("asked again: %q", r.asked[asked:])
	}
	for _, kind := range []string{"info", "mod", "zip"} {
		r.want(toml+"/@v/v1.10.0."+kind, "age: github.com/BurntSushi/toml@v1.10.0 was published…")
		r.want(toml+"/@v/master."+kind, "age: …")
	}
	r.want(toml+"/@v/old.info", `{"Version":"v1.0.1-0.20250101000000-abcdefabcdef",…`)
	r.want(toml+"/@v/old.zip", "age: github.com/BurntSushi/toml has no version old")
	r.want(toml+"/@v/v7.0.0.zip", "404 not found")
	r.want("/upper.example/m/@v/list", "v1.0.0-RC1\n")
	r.want("/upper.example/m/@v/v1.0.0-!r!c1.zip", "file /upper.example/m/@v/v1.0.0-!r!c1.zip")
	r.want("/upper.example/m/@v/v1.0.0-RC1.zip", "path: …")
	r.want("/twice.example/m/@v/v1.0.0.info", "server: …")
	r.want("/timeless.example/m/@v/v1.0.0.mod", "age: the registry does not say…")
	if n := strings.Count(strings.Join(r.asked, "\n"), ".zip"); n > 0 {
		t.Errorf("%d files were read", n)
	}
}

func TestGoLists(t *testing.T) {
	r := newRig(t, "go", route.Packages{Allow: []string{"github.com/BurntSushi/*", "example.com/*"}, Deny: []string{"example.com/secret*"}}, goDocs())
	r.want("/github.com/!burnt!sushi/toml/@v/list", "file …")
	r.want("/github.com/burntsushi/toml/@v/list", "package: github.com/burntsushi/toml is not in…")
	r.want("/example.com/!secret/x/@latest", "package: example.com/Secret/x is denied…")
	r = newRig(t, "go", route.Packages{Deny: []string{"github.com/evil/x", "example.com/secret.git/*"}}, nil)
	for _, path := range []string{"github.com/evil/x", "github.com/evil/x.git", "github.com/!evil/x.!git", "example.com/secret/y", "example.com/secret.git/y"} {
		r.want("/"+path+"/@v/v1.0.0.zip", "package: …") // what git calls the same repository
	}
	r.want("/github.com/evil/x.gitter/@latest", "file …")
	r = newRig(t, "go", route.Packages{Allow: []string{"github.com/good/x"}}, nil)
	r.want("/github.com/good/x.git/@latest", "package: …")
}

// TestGoSums: a database of checksums fetches a module that it does not know, from wherever its name leads.
func TestGoSums(t *testing.T) {
	r := newRig(t, "go", route.Packages{Allow: []string{"github.com/BurntSushi/*"}, Deny: []string{"github.com/BurntSushi/evil"}}, nil)
	for _, base := range []string{"sum.golang.org", "other.example"} {
		r.want("/sumdb/"+base+"/lookup/github.com/!burnt!sushi/toml@v1.9.0", "file …")
		r.want("/sumdb/"+base+"/lookup/github.com/!burnt!sushi/evil@v1.9.0", "package: …")
		r.want("/sumdb/"+base+"/lookup/stolen-bytes.attacker.example/m@v1.0.0", "package: stolen-bytes.attacker.example/m is not in…")
		for _, odd := range []string{"github.com/BurntSushi/toml@v1.9.0", "github.com/!burnt!sushi/toml", "github.com/!burnt!sushi/toml@", "a@b@v1.0.0", "@v1.0.0"} {
			r.want("/sumdb/"+base+"/lookup/"+odd, "path: …")
		}
		r.want("/sumdb/"+base+"/tile/8/0/x000/001", "file …")
		r.want("/sumdb/"+base+"/latest", "file …")
	}
}
