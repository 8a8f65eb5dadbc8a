package ui

import (
	"embed"
	"net/http"
	"strconv"
)

//go:embed page xterm/*.gz
var tree embed.FS

// file is one file of the page's. They hold no secret, and whoever can reach the port may read them.
type file struct {
	kind   string
	data   []byte
	zipped bool
}

// allFiles are the page's, by pattern. The terminal is a document of its own: xterm.js writes styles, which the page
// with the answers needs not allow.
func allFiles() map[string]file {
	return map[string]file{
		"/{$}":       page("index.html", "text/html"),
		"/terminal":  page("terminal.html", "text/html"),
		"/icon.svg":  page("icon.svg", "image/svg+xml"),
		"/page.css":  page("page.css", "text/css"),
		"/page.js":   page("page.js", "text/javascript"),
		"/ask.js":    page("ask.js", "text/javascript"),
		"/show.js":   page("show.js", "text/javascript"),
		"/attach.js": page("attach.js", "text/javascript"),
		"/xterm.js":  vendored("xterm.mjs", "text/javascript"),
		"/fit.js":    vendored("addon-fit.mjs", "text/javascript"),
		"/xterm.css": vendored("xterm.css", "text/css"),
	}
}

// stylesOf is where a document may take styles from (style-src).
func stylesOf(path string) string {
	if path == "/terminal" {
		return "'self' 'unsafe-inline'"
	}
	return "'self'"
}

func page(name, kind string) file { return file{kind: kind, data: read("page/" + name)} }

func vendored(name, kind string) file {
	return file{kind: kind, data: read("xterm/" + name + ".gz"), zipped: true}
}

func read(path string) []byte {
	data, err := tree.ReadFile(path)
	if err != nil {
		panic(err) // go:embed has it
	}
	return data
}

func (f file) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h.Set("Content-Type", f.kind+"; charset=utf-8")
	if f.zipped { // which each browser can read
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("Content-Length", strconv.Itoa(len(f.data)))
	w.Write(f.data)
}
