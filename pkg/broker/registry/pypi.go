package registry

import (
	"net/url"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agent-init/agent-init/internal/lazy"
)

// https://packaging.python.org/en/latest/specifications/simple-repository-api/, which has PEP 503 (HTML), 691 (JSON),
// 700 (upload-time) and 658 (a file's .metadata).

const pypiJSON = "application/vnd.pypi.simple.v1+json"

var (
	pypiIndex = lazy.Pattern(`^/simple/([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)/?$`)
	pypiFile  = lazy.Pattern(`^/files/([a-z0-9](?:[a-z0-9-]*[a-z0-9])?)/([^/]+)(/.+)$`)
	separator = lazy.Pattern(`[-_.]+`)
)

// projectName is the one spelling of a project's name.
func projectName(s string) string { return strings.ToLower(separator().ReplaceAllString(s, "-")) }

func (q *inquiry) pypi() (*Answer, error) {
	if parts := pypiFile().FindStringSubmatch(q.Path); parts != nil {
		return q.pypiFile(parts[1], parts[2], parts[3])
	}
	parts := pypiIndex().FindStringSubmatch(q.Path)
	if parts == nil {
		return nil, q.unknown()
	}
	project := projectName(parts[1])
	if err := q.admit(project); err != nil {
		return nil, err
	}
	index, other, err := q.pypiIndex(project)
	if err != nil || other != nil {
		return other, err
	}
	if strings.Contains(q.Accept, pypiJSON) {
		return document(pypiJSON, index.json()...)
	}
	return document("text/html; charset=utf-8", index.html())
}

// pypiFile is a file that the index of the project has, or what goes with it.
func (q *inquiry) pypiFile(project, host, path string) (*Answer, error) {
	if err := q.admit(project); err != nil {
		return nil, err
	}
	listed := "/" + host + strings.TrimSuffix(path, ".metadata")
	for _, p := range q.places {
		if p.host() != host {
			continue
		}
		if !q.old.has(project, listed) { // also without rules: a mirror's host may have more than packages
			index, other, err := q.pypiIndex(project)
			if err != nil || other != nil {
				return other, err
			}
			if err := index.young[listed]; err != nil {
				return nil, err
			}
			if !q.old.has(project, listed) {
				return nil, refuse(missing, "the index of %s has no such file", project)
			}
		}
		return file(p.to, path)
	}
	return nil, refuse("path", "route %s does not lead to %s", q.name, host)
}

// simple is a project's index. What does not exist is taken out of it.
type simple struct {
	project string
	all     []member // but for the files
	files   []indexed
	young   map[string]error // why a file does not exist, by /HOST/PATH
}

// indexed is a file in an index, as JSON has it.
type indexed struct {
	fields []member
}

func (q *inquiry) pypiIndex(project string) (*simple, *Answer, error) {
	path := "/simple/" + project + "/"
	d, other, err := q.get("", path, pypiJSON+", text/html;q=0.1")
	if err != nil || other != nil {
		return nil, other, err
	}
	s := &simple{project: project, young: map[string]error{}}
	var files []indexed
	if strings.HasPrefix(d.Type, "text/html") {
		s.all = []member{
			{name: "meta", quote: quoted("meta"), value: []byte(`{"api-version":"1.0"}`)},
			{name: "name", quote: quoted("name"), value: quoted(project)},
		}
		files, err = anchors(d.Body)
	} else {
		files, err = s.read(d.Body)
	}
	if err != nil {
		return nil, nil, refuse(unread, "the index of %s can't be read: it %v", project, err)
	}
	if err := q.pypiFiles(s, files, path); err != nil {
		return nil, nil, err
	}
	return s, nil, nil
}

// read reads the form of PEP 691. Its list of versions is of no use to installers, and would name those that do not
// exist.
func (s *simple) read(body []byte) ([]indexed, error) {
	all, err := members(body, '{')
	if err != nil {
		return nil, err
	}
	for _, m := range all {
		if m.name != "files" && m.name != "versions" {
			s.all = append(s.all, m)
		}
	}
	items, err := members(find(all, "files").value, '[')
	if err != nil {
		return nil, err
	}
	var files []indexed
	sum := 0
	for _, item := range items {
		fields, err := members(item.value, '{')
		if err != nil {
			return nil, err
		}
		if sum += len(fields); sum > maxFields {
			return nil, errMany
		}
		files = append(files, indexed{fields})
	}
	return files, nil
}

// pypiFiles keeps the files that exist, and points them to the route.
func (q *inquiry) pypiFiles(s *simple, files []indexed, index string) error {
	own, err := url.Parse(q.places[0].origin + q.places[0].path + index)
	if err != nil {
		return err
	}
	elsewhere := ""
	var last error
	for _, f := range files {
		u, err := own.Parse(find(f.fields, "url").text())
		if err != nil {
			return refuse(unread, "the index of %s has a file without a URL", s.project)
		}
		hash := u.EscapedFragment()
		u.Fragment, u.RawFragment = "", ""
		p, path, ok := q.leads(u)
		if !ok {
			elsewhere = u.Host
			continue
		}
		listed := "/" + p.host() + path
		published, _ := time.Parse(time.RFC3339, find(f.fields, "upload-time").text())
		if err := q.young(s.project+" ("+path[strings.LastIndexByte(path, '/')+1:]+")", published); err != nil {
			s.young[listed], last = err, err
			continue
		}
		q.old.add(s.project, listed)
		at := q.Base + "/files/" + s.project + listed
		if hash != "" {
			at += "#" + hash
		}
		for i := range f.fields {
			if f.fields[i].name == "url" {
				f.fields[i].value = quoted(at)
			}
		}
		s.files = append(s.files, f)
	}
	switch {
	case len(s.files) > 0 || len(files) == 0:
		return nil
	case last != nil:
		return last
	}
	return refuse(unread, "the files of %s are on %s, to which route %s does not lead", s.project, elsewhere, q.name)
}

func (s *simple) json() [][]byte {
	out := [][]byte{[]byte("{")}
	for _, m := range s.all {
		out = append(out, m.quote, []byte(":"), m.value, []byte(","))
	}
	out = append(out, []byte(`"files":[`))
	for i, f := range s.files {
		if i > 0 {
			out = append(out, []byte(","))
		}
		out = append(out, object(f.fields)...)
	}
	return append(out, []byte("]}"))
}

// html is the form of PEP 503.
func (s *simple) html() []byte {
	var b strings.Builder
	b.WriteString("<!DOCTYPE html>\n<html><head><meta name=\"pypi:repository-version\" content=\"1.0\"></head><body>\n")
	attribute := func(name, value string) { b.WriteString(" " + name + "=\"" + escaped.Replace(value) + "\"") }
	for _, f := range s.files {
		at := find(f.fields, "url").text()
		if hashes, err := members(find(f.fields, "hashes").value, '{'); err == nil && !strings.Contains(at, "#") {
			if sum := find(hashes, "sha256").text(); sum != "" {
				at += "#sha256=" + sum
			}
		}
		b.WriteString("<a")
		attribute("href", at)
		if python := find(f.fields, "requires-python").text(); python != "" {
			attribute("data-requires-python", python)
		}
		switch yanked := find(f.fields, "yanked").value; {
		case len(yanked) > 0 && jsontext.Kind(yanked[0]) == '"':
			attribute("data-yanked", unquoted(yanked))
		case string(yanked) == "true":
			attribute("data-yanked", "")
		}
		b.WriteString(">" + escaped.Replace(find(f.fields, "filename").text()) + "</a><br>\n")
	}
	b.WriteString("</body></html>\n")
	return []byte(b.String())
}

var escaped = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;")
