package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/pkg/route"
)

// fuzzed is a registry of a kind that wants three days.
func fuzzed(kind string) *Registry {
	r, _ := route.Builtin(kind)
	r.Packages.MinAge = 72 * time.Hour
	g := New(&r)
	g.now = func() time.Time { return today }
	return g
}

// asks answers one request, where the servers say doc to all.
func asks(g *Registry, path, accept string, doc Document) (*Answer, error) {
	return g.Answer(context.Background(), Request{Path: path, Base: "http://base", Accept: accept}, func(context.Context, Question) (*Document, error) {
		d := doc
		d.Body = bytes.Clone(doc.Body)
		return &d, nil
	})
}

// FuzzNPM holds that what is made of a document is JSON, in which no version is young and no file is another's.
func FuzzNPM(f *testing.F) {
	for _, d := range npmDocs() {
		f.Add(d.Body)
	}
	f.Add([]byte(`{"dist-tags":{"latest":"1"},"versions":{"1":{"dist":{"tarball":"https://x/p/-/p-1.tgz"},"dist\u0000":{}}},"time":{"1":"2026-01-01T00:00:00Z","1 ":"x"}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		a, err := asks(fuzzed("npm"), "/pad", "", Document{Status: 200, Type: npmFull, Body: body})
		if err != nil {
			return
		}
		var doc struct {
			Versions map[string]struct {
				Dist struct{ Tarball string }
			}
			Time map[string]string
			Tags map[string]string `json:"dist-tags"`
		}
		if err := json.Unmarshal(joined(a.Body), &doc); err != nil {
			if _, typed := err.(*json.UnmarshalTypeError); !typed {
				t.Fatalf("not JSON: %v", err)
			}
			return
		}
		for v, version := range doc.Versions {
			at, err := time.Parse(time.RFC3339, doc.Time[v])
			if err != nil || today.Sub(at) < 72*time.Hour {
				t.Errorf("version %q of %q", v, doc.Time[v])
			}
			if !strings.HasPrefix(version.Dist.Tarball, "http://base/pad/-/") || strings.Contains(version.Dist.Tarball, "/..") {
				t.Errorf("a file at %q", version.Dist.Tarball)
			}
		}
		for tag, v := range doc.Tags {
			if _, ok := doc.Versions[v]; !ok {
				t.Errorf("tag %q leads to %q", tag, v)
			}
		}
	})
}

// FuzzPyPI holds that an index, of either form, has only files below the route, and no young ones.
func FuzzPyPI(f *testing.F) {
	for _, d := range pypiDocs() {
		f.Add(d.Body, strings.HasPrefix(d.Type, "text/html"), true)
		f.Add(d.Body, strings.HasPrefix(d.Type, "text/html"), false)
	}
	f.Add([]byte(`<a href=x>y</a><a href="z" href="w" data-yanked>v</a><!-- <a> -->`), true, false)
	f.Fuzz(func(t *testing.T, body []byte, markup, dated bool) {
		g := fuzzed("pypi")
		if !dated {
			g.rules.MinAge = 0
		}
		kind := pypiJSON
		if markup {
			kind = "text/html"
		}
		a, err := asks(g, "/simple/pad/", pypiJSON, Document{Status: 200, Type: kind, Body: body})
		if err != nil {
			return
		}
		all, err := members(joined(a.Body), '{')
		if err != nil {
			t.Fatalf("not JSON: %v in %s", err, joined(a.Body))
		}
		files, err := members(find(all, "files").value, '[')
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range files {
			fields, err := members(m.value, '{')
			if err != nil {
				t.Fatal(err)
			}
			at, _ := time.Parse(time.RFC3339, find(fields, "upload-time").text())
			if u := find(fields, "url").text(); !strings.HasPrefix(u, "http://base/files/pad/") || dated && today.Sub(at) < 72*time.Hour {
				t.Errorf("a file at %q of %v", u, at)
			}
		}
		if a, err = asks(g, "/simple/pad/", "text/html", Document{Status: 200, Type: kind, Body: body}); err != nil {
			t.Fatalf("in one form only: %v", err)
		}
		again, err := anchors(joined(a.Body))
		if err != nil || len(again) != len(files) {
			t.Errorf("of %d files, HTML has %d (%v): %s", len(files), len(again), err, joined(a.Body))
		}
	})
}

// FuzzCrates holds that an index has only lines that the server's has, of versions that are old.
func FuzzCrates(f *testing.F) {
	for _, d := range cratesDocs() {
		f.Add(d.Body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		a, err := asks(fuzzed("crates"), "/3/p/pad", "", Document{Status: 200, Body: body})
		if err != nil {
			return
		}
		for line := range bytes.Lines(joined(a.Body)) {
			all, err := members(line, '{')
			pubtime := find(all, "pubtime")
			at, parsed := time.Parse(time.RFC3339, pubtime.text())
			if err != nil || parsed != nil && pubtime.value != nil || parsed == nil && today.Sub(at) < 72*time.Hour || !bytes.Contains(body, bytes.TrimRight(line, "\n")) {
				t.Errorf("%v: %s", err, line)
			}
		}
	})
}

// FuzzMaven holds that no metadata have more elements than they had, and none of a version that is not there.
func FuzzMaven(f *testing.F) {
	for _, d := range mavenDocs() {
		f.Add(d.Body)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		g := fuzzed("maven")
		for _, modified := range []time.Time{today.AddDate(0, 0, -9), today} {
			a, err := asks(g, "/org/acme/pad/maven-metadata.xml", "", Document{Status: 200, Modified: modified, Body: body})
			if err != nil {
				continue
			}
			out := joined(a.Body)
			if bytes.Count(out, []byte("<")) > bytes.Count(body, []byte("<")) || bytes.Contains(out, []byte("<!")) {
				t.Errorf("made %s", out)
			}
			if modified.Equal(today) && bytes.Contains(out, []byte("<versions>")) && !bytes.Equal(out, body) {
				t.Errorf("young versions are there: %s", out)
			}
			g = fuzzed("maven")
		}
	})
}

// FuzzPaths holds that no path of a package that is denied passes in any spelling, of any kind of registry, and that what
// the servers are asked has no segment that leads elsewhere.
func FuzzPaths(f *testing.F) {
	for _, path := range []string{
		"/evil", "/evil/-/evil-1.0.0.tgz", "/@evil%2fx", "/simple/Evil/", "/files/evil/pypi.org/x", "/evil.example/m/@v/list", "/!evil/@latest",
		"/sumdb/sum.golang.org/tile/1", "/ev/il/evil", "/dl/evil/1.0.0/download", "/org/evil/1.0/evil-1.0.jar", "/org/evil/maven-metadata.xml", "/config.json",
	} {
		for kind := range 5 {
			f.Add(path, kind)
		}
	}
	f.Fuzz(func(t *testing.T, path string, kind int) {
		name := route.Registries()[uint(kind)%5]
		r, _ := route.Builtin(name)
		r.Packages.Deny = []string{"*evil*"}
		g := New(&r)
		path = g.Spelled(path)
		if len(path) < 2 || path[0] != '/' || !plain(strings.TrimSuffix(path, "/")) {
			return // judge refuses it
		}
		var asked []string
		a, err := g.Answer(context.Background(), Request{Path: path, Base: "http://base"}, func(_ context.Context, q Question) (*Document, error) {
			asked = append(asked, q.Path)
			return &Document{Status: 404}, nil
		})
		if err == nil && a.File != nil {
			asked = append(asked, a.File.Path)
		}
		for _, p := range asked {
			folded := strings.ToLower(p)
			if strings.Contains(folded, "evil") && !strings.HasPrefix(path, "/sumdb/") && !(name == "maven" && strings.Contains(folded[strings.LastIndexByte(folded, '/'):], "evil")) && !fileOnly(name, folded) {
				t.Errorf("%s: %q asks for %q", name, path, p)
			}
			if !plain(strings.ReplaceAll(strings.TrimSuffix(p, "/"), "%2f", "/")) {
				t.Errorf("%s: %q asks for %q", name, path, p)
			}
		}
	})
}

// fileOnly says whether a path has the word in what is no package's name: a version, or the name of a file.
func fileOnly(kind, path string) bool {
	switch kind {
	case "npm":
		before, _, _ := strings.Cut(path, "/-/")
		return !strings.Contains(before, "evil")
	case "go":
		before, _, ok := strings.Cut(path, "/@v/")
		return ok && !strings.Contains(before, "evil")
	case "crates":
		parts := strings.Split(path, "/")
		return len(parts) == 5 && !strings.Contains(parts[2], "evil")
	case "maven":
		parts := strings.Split(path, "/")
		return len(parts) > 4 && !strings.Contains(strings.Join(parts[:len(parts)-2], ""), "evil")
	}
	return false
}
