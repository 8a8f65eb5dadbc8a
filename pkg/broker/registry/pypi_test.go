package registry

import (
	"strings"
	"testing"

	"github.com/agent-init/agent-init/pkg/route"
)

const pythonhosted = "https://files.pythonhosted.org"

func pypiDocs() map[string]Document {
	entry := func(name, url, uploaded string) string {
		return `{"filename":"` + name + `","url":"` + url + name + `","hashes":{"sha256":"abc"},"requires-python":">=3.8","yanked":false,"core-metadata":true` + uploaded + `}`
	}
	at := func(days float64) string { return `,"upload-time":"` + ago(days) + `"` }
	return map[string]Document{
		"/simple/my-pad/": {Type: pypiJSON, Body: []byte(`{"meta":{"api-version":"1.1"},"name":"my-pad","versions":["1.0","2.0"],"files":[` +
			entry("my_pad-1.0-py3-none-any.whl", pythonhosted+"/packages/aa/bb/cc/", at(9)) + `,` +
			entry("my_pad-2.0-py3-none-any.whl", pythonhosted+"/packages/dd/ee/ff/", at(1)) + `,` +
			entry("my_pad-1.1.tar.gz", "../../packages/own/", at(8)) + `,` +
			entry("my_pad-1.2.tar.gz", "https://evil.example/packages/", at(8)) + `,` +
			entry("my_pad-1.3.tar.gz", pythonhosted+"/packages/../../", at(8)) + `]}`)},
		"/simple/undated/": {Type: pypiJSON, Body: []byte(`{"files":[` + entry("undated-1.0.tar.gz", pythonhosted+"/p/", "") + `]}`)},
		"/simple/away/":    {Type: pypiJSON, Body: []byte(`{"files":[` + entry("away-1.0.tar.gz", "https://evil.example/p/", "") + `]}`)},
		"/simple/html/": {Type: "text/html; charset=utf-8", Body: []byte(`<!DOCTYPE html><html><head><title>Links for html</title></head><body><h1>Links</h1>
			<a href="` + pythonhosted + `/p/html-1.0.tar.gz#sha256=abc" data-requires-python="&gt;=3.8">html-1.0.tar.gz</a><br/>
			<A HREF='../../p/html-1.1.tar.gz' data-yanked="">html-1.1.tar.gz</A><br></body></html>`)},
		"/simple/script/": {Type: "text/html", Body: []byte(`<script>x</script><a href="x">y</a>`)},
		"/simple/broken/": {Type: pypiJSON, Body: []byte(`{"files":[{]}`)},
	}
}

func TestPyPI(t *testing.T) {
	r := newRig(t, "pypi", route.Packages{}, pypiDocs())
	const base = "http://127.0.0.1:8137/pypi/files/my-pad/"
	for _, path := range []string{"/simple/my-pad/", "/simple/my-pad", "/simple/My__Pad/", "/simple/my.pad/"} {
		got := r.get(path, pypiJSON)
		for _, there := range []string{`"url":"` + base + `files.pythonhosted.org/packages/aa/bb/cc/my_pad-1.0-py3-none-any.whl"`, `"url":"` + base + `pypi.org/packages/own/my_pad-1.1.tar.gz"`, `"api-version":"1.1"`} {
			if !strings.Contains(got, there) {
				t.Errorf("%s: %s is not in %s", path, there, got)
			}
		}
		if strings.Contains(got, "evil") || strings.Contains(got, "..") {
			t.Errorf("%s gets %s", path, got)
		}
	}
	html := r.get("/simple/my-pad/", "text/html")
	if !strings.Contains(html, `<a href="`+base+`files.pythonhosted.org/packages/aa/bb/cc/my_pad-1.0-py3-none-any.whl#sha256=abc" data-requires-python="&gt;=3.8">my_pad-1.0-py3-none-any.whl</a>`) {
		t.Errorf("in HTML: %s", html)
	}
	own := r.get("/simple/html/", pypiJSON)
	if !strings.Contains(own, `"hashes":{"sha256":"abc"},"requires-python":">=3.8"`) || !strings.Contains(own, `/files/html/pypi.org/p/html-1.1.tar.gz","hashes":{},"yanked":true`) {
		t.Errorf("of HTML: %s", own)
	}
	r.want("/files/my-pad/pypi.org/packages/own/my_pad-1.1.tar.gz", "file /packages/own/my_pad-1.1.tar.gz")
	r.want("/files/my-pad/pypi.org/legacy/x", "age: the index of my-pad has no such file")
	if asked := len(r.asked); asked != 7 {
		t.Errorf("a file that the index had is asked about again: %q", r.asked)
	}
	r.want("/files/my-pad/evil.example/x", "path: route pypi does not lead to evil.example")
	r.want("/simple/away/", "server: the files of away are on evil.example, to which route pypi does not lead")
	r.want("/simple/script/", "server: the index of script can't be read…")
	r.want("/simple/broken/", "server: the index of broken can't be read…")
	for _, path := range []string{"/simple/", "/simple/-x/", "/simple/a/b/", "/pypi/my-pad/json", "/legacy/", "/files/My-Pad/pypi.org/x", "/files/my-pad"} {
		r.want(path, "path: …")
	}
}

func TestPyPIAge(t *testing.T) {
	r := newRig(t, "pypi", days3(), pypiDocs())
	if got := r.get("/simple/my-pad/", pypiJSON); strings.Contains(got, "2.0") || !strings.Contains(got, "my_pad-1.0-py3") {
		t.Errorf("the index: %s", got)
	}
	const files = "/files/my-pad/files.pythonhosted.org/packages/"
	for _, suffix := range []string{"", ".metadata"} {
		r.want(files+"aa/bb/cc/my_pad-1.0-py3-none-any.whl"+suffix, "file "+pythonhosted+"/packages/aa/bb/cc/my_pad-1.0-py3-none-any.whl"+suffix)
		r.want(files+"dd/ee/ff/my_pad-2.0-py3-none-any.whl"+suffix, "age: my-pad (my_pad-2.0-py3-none-any.whl) was published…")
	}
	r.want(files+"other-1.0.tar.gz", "age: the index of my-pad has no such file")
	r.want("/simple/undated/", "age: the registry does not say…")
	r.want("/simple/html/", "age: the registry does not say…")
}

func TestPyPILists(t *testing.T) {
	r := newRig(t, "pypi", route.Packages{Allow: []string{"My_*", "html"}, Deny: []string{"my-secret"}}, pypiDocs())
	r.want("/simple/MY.PAD/", `<!DOCTYPE html>…`)
	r.want("/simple/other/", "package: other is not in packages.allow of route pypi")
	r.want("/simple/My.Secret/", "package: my-secret is denied…")
	r.want("/files/other/files.pythonhosted.org/p/x", "package: …")
	r.want("/files/my-pad/files.pythonhosted.org/p/other-1.0.tar.gz", "age: the index of my-pad has no such file")
}
