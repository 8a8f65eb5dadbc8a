package container

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// fromMirror is what the one package of every registry holds.
const fromMirror = "a thing from the mirror"

// mirrors is a mirror for every package manager at once: it has one package, "thing" 1.0.0, in the form that each asks for.
// It doesn't look at the name that it is asked under.
type mirrors struct{ npm, wheel, module, crate []byte }

func newMirrors(t *testing.T) *mirrors {
	t.Helper()
	quoted := fmt.Sprintf("%q", fromMirror)
	return &mirrors{
		npm: tarball(t, map[string]string{
			"package/package.json": `{"name": "thing", "version": "1.0.0", "main": "index.js"}`,
			"package/index.js":     "module.exports = " + quoted + "\n",
		}),
		wheel: zipped(t, map[string]string{
			"thing.py":                       "said = " + quoted + "\n",
			"thing-1.0.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: thing\nVersion: 1.0.0\n",
			"thing-1.0.0.dist-info/WHEEL":    "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
			"thing-1.0.0.dist-info/RECORD":   "thing.py,,\nthing-1.0.0.dist-info/METADATA,,\nthing-1.0.0.dist-info/WHEEL,,\nthing-1.0.0.dist-info/RECORD,,\n",
		}),
		module: zipped(t, map[string]string{
			"example.com/thing@v1.0.0/go.mod":   "module example.com/thing\n",
			"example.com/thing@v1.0.0/thing.go": "package thing\n\nconst Said = " + quoted + "\n",
		}),
		crate: tarball(t, map[string]string{
			"thing-1.0.0/Cargo.toml": "[package]\nname = \"thing\"\nversion = \"1.0.0\"\nedition = \"2021\"\n",
			"thing-1.0.0/src/lib.rs": "pub const SAID: &str = " + quoted + ";\n",
		}),
	}
}

func (r *mirrors) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	at := "https://" + q.Host
	path := q.URL.Path
	debian, inDebian := strings.CutPrefix(path, "/debian/dists/bookworm/")
	if inDebian && strings.HasSuffix(debian, "/Packages") {
		debian = "Packages"
	}
	switch {
	case path == "/thing":
		sum := sha512.Sum512(r.npm)
		fmt.Fprintf(w, `{"name": "thing", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": {"name": "thing", "version": "1.0.0",
			"dist": {"tarball": "%s/thing/-/thing-1.0.0.tgz", "integrity": "sha512-%s"}}}}`, at, base64.StdEncoding.EncodeToString(sum[:]))
	case path == "/thing/-/thing-1.0.0.tgz":
		w.Write(r.npm)

	case path == "/simple/thing/":
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, `<!DOCTYPE html><a href="/files/thing-1.0.0-py3-none-any.whl">thing-1.0.0-py3-none-any.whl</a>`)
	case path == "/files/thing-1.0.0-py3-none-any.whl":
		w.Write(r.wheel)

	case path == "/example.com/thing/@v/v1.0.0.info":
		fmt.Fprint(w, `{"Version": "v1.0.0", "Time": "2026-01-02T03:04:05Z"}`)
	case path == "/example.com/thing/@v/v1.0.0.mod":
		fmt.Fprint(w, "module example.com/thing\n")
	case path == "/example.com/thing/@v/v1.0.0.zip":
		w.Write(r.module)

	case path == "/index/config.json":
		fmt.Fprintf(w, `{"dl": "%s/crates"}`, at)
	case path == "/index/th/in/thing":
		fmt.Fprintf(w, `{"name": "thing", "vers": "1.0.0", "deps": [], "cksum": "%x", "features": {}, "yanked": false}`+"\n", sha256.Sum256(r.crate))
	case path == "/crates/thing/1.0.0/download":
		w.Write(r.crate)

	case debian == "Packages":
		fmt.Fprint(w, debianPackages)
	case debian == "Release":
		fmt.Fprintf(w, "Codename: bookworm\nSuite: stable\nArchitectures: amd64 arm64\nComponents: main\nDate: Fri, 02 Jan 2026 03:04:05 UTC\nSHA256:\n")
		for _, arch := range []string{"amd64", "arm64"} {
			fmt.Fprintf(w, " %x %d main/binary-%s/Packages\n", sha256.Sum256([]byte(debianPackages)), len(debianPackages), arch)
		}

	default:
		http.NotFound(w, q)
	}
}

const debianPackages = "Package: thing\nVersion: 1.0.0\nArchitecture: all\nMaintainer: nobody <nobody@example.com>\n" +
	"Filename: pool/thing.deb\nSize: 1\nSHA256: " + "0000000000000000000000000000000000000000000000000000000000000000" + "\nDescription: " + fromMirror + "\n"

func tarball(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for name, text := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zipped(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, text := range files {
		w, err := z.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
