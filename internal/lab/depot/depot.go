// Package depot has registries of packages for tests: of npm, Python, Go, crates and Maven. Each has one package, of
// versions that are old and one that is young.
package depot

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Versions of each package, with how old they are.
const (
	Older = "1.0.0"
	Old   = "1.1.0"
	Young = "1.2.0"
)

var ages = []struct {
	version string
	age     time.Duration
}{{Older, 400 * 24 * time.Hour}, {Old, 100 * 24 * time.Hour}, {Young, time.Hour}}

// Depot is all registries, by their hosts.
type Depot struct {
	files map[string]file // by HOST/PATH
}

type file struct {
	kind string
	data []byte
	made time.Time
}

// New makes the registries. Their package is pad, of Go example.com/pad, and of Maven org.acme:pad.
func New() *Depot {
	d := &Depot{files: map[string]file{}}
	now := time.Now().UTC().Truncate(time.Second)
	for _, add := range []func(time.Time){d.npm, d.pypi, d.golang, d.crates, d.maven} {
		add(now)
	}
	return d
}

// Hosts are those that the registries have.
func Hosts() []string {
	return []string{
		"registry.npmjs.org", "pypi.org", "files.pythonhosted.org", "proxy.golang.org", "index.crates.io", "static.crates.io",
		"repo.maven.apache.org",
	}
}

func (d *Depot) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f, ok := d.files[r.Host+r.URL.Path]
	if !ok || r.Method != http.MethodGet && r.Method != http.MethodHead {
		http.Error(w, "there is no "+r.URL.Path, http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", f.kind)
	http.ServeContent(w, r, "", f.made, bytes.NewReader(f.data))
}

func (d *Depot) put(path, kind string, data []byte, made time.Time) {
	d.files[path] = file{kind, data, made}
}

func (d *Depot) npm(now time.Time) {
	versions, times := map[string]any{}, map[string]string{}
	for _, v := range ages {
		made := now.Add(-v.age)
		tgz := tarball(map[string]string{
			"package/package.json": `{"name":"pad","version":"` + v.version + `","main":"index.js"}`,
			"package/index.js":     `module.exports = "` + v.version + `"`,
		})
		sum := sha512.Sum512(tgz)
		name := "/pad/-/pad-" + v.version + ".tgz"
		d.put("registry.npmjs.org"+name, "application/octet-stream", tgz, made)
		versions[v.version] = map[string]any{"name": "pad", "version": v.version, "main": "index.js", "dist": map[string]string{
			"tarball": "https://registry.npmjs.org" + name, "integrity": "sha512-" + base64.StdEncoding.EncodeToString(sum[:]),
		}}
		times[v.version] = made.Format(time.RFC3339)
	}
	d.put("registry.npmjs.org/pad", "application/json", encode(map[string]any{
		"name": "pad", "dist-tags": map[string]string{"latest": Young}, "versions": versions, "time": times,
	}), now)
}

func (d *Depot) pypi(now time.Time) {
	var files []any
	for _, v := range ages {
		info := "pad-" + v.version + ".dist-info/"
		wheel := zipped([][2]string{
			{"pad/__init__.py", "version = '" + v.version + "'\n"},
			{info + "METADATA", "Metadata-Version: 2.1\nName: pad\nVersion: " + v.version + "\n"},
			{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: depot\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
			{info + "RECORD", "pad/__init__.py,,\n" + info + "METADATA,,\n" + info + "WHEEL,,\n" + info + "RECORD,,\n"},
		})
		sum := sha256.Sum256(wheel)
		name := "pad-" + v.version + "-py3-none-any.whl"
		at := "/packages/" + hex.EncodeToString(sum[:1]) + "/" + hex.EncodeToString(sum[1:]) + "/" + name
		d.put("files.pythonhosted.org"+at, "application/octet-stream", wheel, now.Add(-v.age))
		files = append(files, map[string]any{
			"filename": name, "url": "https://files.pythonhosted.org" + at, "hashes": map[string]string{"sha256": hex.EncodeToString(sum[:])},
			"upload-time": now.Add(-v.age).Format(time.RFC3339Nano), "yanked": false,
		})
	}
	d.put("pypi.org/simple/pad/", "application/vnd.pypi.simple.v1+json", encode(map[string]any{
		"meta": map[string]string{"api-version": "1.1"}, "name": "pad", "versions": []string{Older, Old, Young}, "files": files,
	}), now)
}

func (d *Depot) golang(now time.Time) {
	list := ""
	for _, v := range ages {
		version, mod := "v"+v.version, "module example.com/pad\n\ngo 1.20\n"
		at := "proxy.golang.org/example.com/pad/@v/" + version
		info := encode(map[string]string{"Version": version, "Time": now.Add(-v.age).Format(time.RFC3339)})
		d.put(at+".info", "application/json", info, now)
		d.put(at+".mod", "text/plain", []byte(mod), now)
		prefix := "example.com/pad@" + version + "/"
		d.put(at+".zip", "application/zip", zipped([][2]string{
			{prefix + "go.mod", mod}, {prefix + "pad.go", "package pad\n\nconst Version = \"" + version + "\"\n"},
		}), now)
		list += version + "\n"
		d.put("proxy.golang.org/example.com/pad/@latest", "application/json", info, now)
	}
	d.put("proxy.golang.org/example.com/pad/@v/list", "text/plain", []byte(list), now)
}

func (d *Depot) crates(now time.Time) {
	var index bytes.Buffer
	for _, v := range ages {
		top := "pad-" + v.version + "/"
		crate := tarball(map[string]string{
			top + "Cargo.toml": "[package]\nname = \"pad\"\nversion = \"" + v.version + "\"\nedition = \"2018\"\n",
			top + "src/lib.rs": "pub const VERSION: &str = \"" + v.version + "\";\n",
		})
		sum := sha256.Sum256(crate)
		d.put("static.crates.io/crates/pad/"+v.version+"/download", "application/gzip", crate, now)
		index.Write(encode(map[string]any{
			"name": "pad", "vers": v.version, "deps": []any{}, "features": map[string]any{}, "yanked": false,
			"cksum": hex.EncodeToString(sum[:]), "pubtime": now.Add(-v.age).Format(time.RFC3339),
		}))
		index.WriteByte('\n')
	}
	d.put("index.crates.io/3/p/pad", "text/plain", index.Bytes(), now)
	d.put("index.crates.io/config.json", "application/json", []byte(`{"dl":"https://static.crates.io/crates","api":"https://crates.io"}`), now)
}

func (d *Depot) maven(now time.Time) {
	const at = "repo.maven.apache.org/maven2/org/acme/pad/"
	list := ""
	for _, v := range ages {
		pom := `<project><modelVersion>4.0.0</modelVersion><groupId>org.acme</groupId><artifactId>pad</artifactId><version>` +
			v.version + `</version><packaging>pom</packaging><name>pad ` + v.version + `</name></project>`
		name := at + v.version + "/pad-" + v.version
		d.put(name+".pom", "text/xml", []byte(pom), now.Add(-v.age))
		d.put(name+".jar", "application/java-archive", zipped([][2]string{{"META-INF/MANIFEST.MF", "Manifest-Version: 1.0\n"}}), now.Add(-v.age))
		list += "      <version>" + v.version + "</version>\n"
	}
	d.put(at+"maven-metadata.xml", "text/xml", fmt.Appendf(nil, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<metadata>\n"+
		"  <groupId>org.acme</groupId>\n  <artifactId>pad</artifactId>\n  <versioning>\n    <latest>%s</latest>\n    <release>%[1]s</release>\n"+
		"    <versions>\n%s    </versions>\n  </versioning>\n</metadata>\n", Young, list), now)
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("depot: " + err.Error()) // maps of texts can always be written
	}
	return b
}

func tarball(files map[string]string) []byte {
	var b bytes.Buffer
	packed := gzip.NewWriter(&b)
	w := tar.NewWriter(packed)
	for name, text := range files {
		w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text)), ModTime: time.Unix(1e9, 0)})
		io.Copy(w, strings.NewReader(text))
	}
	w.Close()
	packed.Close()
	return b.Bytes()
}

func zipped(files [][2]string) []byte {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, f := range files {
		if to, err := w.Create(f[0]); err == nil {
			io.WriteString(to, f[1])
		}
	}
	w.Close()
	return b.Bytes()
}
