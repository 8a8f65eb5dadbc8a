package registry

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// TestHostileSizes holds that what a registry answers takes memory and time by its length alone: a document of some size
// has 120 times that allocated, most of which is free at once, or is refused before.
func TestHostileSizes(t *testing.T) {
	const size, most = 4 << 20, 120
	fill := func(head, item, tail string) []byte {
		return []byte(head + strings.Repeat(item, size/len(item)) + tail)
	}
	var fields strings.Builder
	for i := range 1 << 7 {
		fmt.Fprintf(&fields, `,"%x":1`, i)
	}
	const links, many = `<a href="/f">T</a>`, "can't be read: it has too many values"
	for name, tt := range map[string]struct {
		kind, path, want string
		doc              Document
	}{
		"versions of Go":     {"go", "/x.test/m/@v/list", many, Document{Body: fill("", "v\n", "")}},
		"versions of Maven":  {"maven", "/g/a/maven-metadata.xml", "can't be read", Document{Body: fill("<versions>", "<version>1</version>", "</versions>")}},
		"latest of Maven":    {"maven", "/g/b/maven-metadata.xml", "can't be read", Document{Body: fill("", "<latest></latest>", "<versions><version>1</version></versions>")}},
		"lines of an index":  {"crates", "/cr/at/crate", many, Document{Body: fill("", `{"vers":"1"}`+"\n", "")}},
		"links":              {"pypi", "/simple/p/", many, Document{Type: "text/html", Body: fill("", links, "")}},
		"links, not as many": {"pypi", "/simple/q/", "does not say when", Document{Type: "text/html", Body: []byte(strings.Repeat(links, maxMembers))}},
		"attributes":         {"pypi", "/simple/p/", "can't be read", Document{Type: "text/html", Body: fill("<a ", `x `, "")}},
		"fields of files":    {"pypi", "/simple/p/", many, Document{Type: pypiJSON, Body: []byte(`{"files":[{}` + strings.Repeat(`,{"y":1`+fields.String()+`}`, maxFields/128) + `]}`)}},
		"files":              {"pypi", "/simple/p/", many, Document{Type: pypiJSON, Body: fill(`{"files":[{}`, `,{}`, "]}")}},
		"names of templates": {"crates", "/config.json", "can't be read", Document{Body: fill(`{"dl":"https://static.crates.io/`, "{crate}", `"}`)}},
		"dots of a version":  {"npm", "/p", "p 1.0.0-...", Document{Body: fill(`{"dist-tags":{},"time":{"1.0.0-`, `.`, `":"`+ago(0)+`"},"versions":{"1.0.0-`+strings.Repeat(".", size)+`":{"dist":{"tarball":"https://x/p/-/p"}}}}`)}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, tt.kind, days3(), map[string]Document{tt.path: tt.doc})
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			got := r.get(tt.path)
			runtime.ReadMemStats(&after)
			if took := (after.TotalAlloc - before.TotalAlloc) / uint64(len(tt.doc.Body)); took > most {
				t.Errorf("%d bytes for each of the document's", took)
			}
			if !strings.Contains(got, tt.want) || len(got) > 2*maxReason {
				t.Errorf("the answer has %d bytes: %.300q", len(got), got)
			}
		})
	}
}

// TestLongVersions holds that what is longer than a version may be is none: it would be taken apart at each dot.
func TestLongVersions(t *testing.T) {
	if _, ok := parseVersion("1.0.0-" + strings.Repeat(".", maxVersion)); ok {
		t.Error("it is a version")
	}
}

// TestHostileWords holds that a reason is one line, whatever a registry names.
func TestHostileWords(t *testing.T) {
	r := newRig(t, "go", days3(), map[string]Document{"/x.test/m/@v/v1.0.0.info": {Body: []byte(`{"Version":"v1\u001b[2J\n\u202e","Time":"` + ago(0) + `"}`)}})
	r.want("/x.test/m/@v/v1.0.0.mod", "age: x.test/m@v1?[2J?? was published…")
}
