package registry

import (
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/pkg/route"
)

func cratesDocs() map[string]Document {
	line := func(name, version, more string) string {
		return `{"name":"` + name + `","vers":"` + version + `","deps":[],"cksum":"x","features":{},"yanked":false` + more + "}\n"
	}
	at := func(days float64) string { return `,"pubtime":"` + ago(days)[:19] + `Z"` }
	return map[string]Document{
		"/config.json":   {Body: []byte(`{"dl":"https://static.crates.io/crates","api":"https://crates.io"}`)},
		"/se/rd/serde":   {Body: []byte(line("serde", "1.0.0", at(30)) + line("serde", "1.0.1", at(1)) + line("serde", "1.0.2+build", at(9)))},
		"/3/c/cfg":       {Body: []byte(line("cfg", "0.1.0", ""))},
		"/1/b":           {Body: []byte(line("b", "0.1.0", `,"pubtime":null`))},
		"/1/c":           {Body: []byte(line("c", "0.1.0", `,"pubtime":"long ago"`))},
		"/1/a":           {Body: []byte(line("a", "0.1.0", at(9)))},
		"/in/fl/inflect": {Body: []byte(line("Inflect", "0.1.0", at(9)))},
		"/br/ok/broken":  {Body: []byte("{\"name\":\"broken\"}\n")},
	}
}

func TestCrates(t *testing.T) {
	r := newRig(t, "crates", route.Packages{}, cratesDocs())
	r.want("/config.json", `{"dl":"http://127.0.0.1:8137/crates/dl"}`)
	r.want("/se/rd/serde", string(cratesDocs()["/se/rd/serde"].Body))
	r.want("/3/c/cfg", `{"name":"cfg"…`)
	r.want("/dl/serde/1.0.2+build/download", "file https://static.crates.io/crates/serde/1.0.2+build/download")
	r.want("/br/ok/broken", "server: the index has a line about broken that can't be read")
	for _, path := range []string{"/se/rd/cfg", "/2/a", "/api/v1/crates/new", "/dl/serde/1.0.0", "/dl/../x/download", "/me"} {
		r.want(path, "path: …")
	}
	for dl, want := range map[string]string{
		"https://static.crates.io/{prefix}/{crate}/{version}.crate": "file https://static.crates.io/se/rd/Serde/1.0.0.crate",
		"https://index.crates.io/api/dl/":                           "file /api/dl/Serde/1.0.0/download",
		"https://evil.example/x":                                    "server: the index says that crates are at https://evil.example/x, to which…",
		"https://static.crates.io/{sha256-checksum}":                "server: …",
		"https://static.crates.io/{crate}/../{version}":             "server: …",
		"": "server: the index's config.json can't be read",
	} {
		r := newRig(t, "crates", route.Packages{}, map[string]Document{"/config.json": {Body: []byte(`{"dl":"` + dl + `"}`)}})
		r.want("/dl/Serde/1.0.0/download", want)
	}
}

func TestCratesAge(t *testing.T) {
	r := newRig(t, "crates", days3(), cratesDocs())
	if got := r.get("/se/rd/serde"); strings.Contains(got, "1.0.1") || strings.Count(got, "\n") != 2 {
		t.Errorf("the index: %s", got)
	}
	r.want("/dl/serde/1.0.0/download", "file https://static.crates.io/crates/serde/1.0.0/download")
	r.want("/dl/serde/1.0.1/download", "age: serde 1.0.1 was published at 2026-11-19T12:00:00Z…")
	r.want("/dl/serde/7.0.0/download", "age: serde has no version 7.0.0")
	r.want("/dl/Inflect/0.1.0/download", "file https://static.crates.io/crates/Inflect/0.1.0/download")
	r.want("/3/c/cfg", `{"name":"cfg"…`) // crates.io's own: it is older than the times in the index
	r.want("/dl/cfg/0.1.0/download", "file https://static.crates.io/crates/cfg/0.1.0/download")
	r.want("/1/b", "age: the registry does not say when b 0.1.0…")
	r.want("/1/c", "age: the registry does not say when c 0.1.0…")
	r.rules.MinAge = 3 * 365 * 24 * time.Hour
	r.want("/dl/cfg/0.1.0/download", "file …") // was found to be old enough
	r.old = aged{}
	r.want("/dl/cfg/0.1.0/download", "age: cfg 0.1.0 was published at 2026-01-01…")
}

func TestCratesOfAMirror(t *testing.T) {
	r := newMirror(t, "crates", "https://crates.corp.example/index/", days3(), cratesDocs())
	r.want("/3/c/cfg", "age: the registry does not say when cfg 0.1.0…")
}

func TestCratesLists(t *testing.T) {
	r := newRig(t, "crates", route.Packages{Allow: []string{"serde*", "a"}, Deny: []string{"serde_json"}}, cratesDocs())
	r.want("/se/rd/serde", `{"name":…`)
	r.want("/se/rd/serde-json", "package: serde-json is denied…")
	r.want("/dl/Serde_JSON/1.0.0/download", "package: …")
	r.want("/3/c/cfg", "package: cfg is not in…")
	r.want("/dl/cfg/0.1.0/download", "package: …")
}
