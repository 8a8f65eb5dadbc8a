package registry

import (
	"net/url"
	"strings"
	"time"

	"github.com/agent-init/agent-init/internal/lazy"
)

// https://github.com/npm/registry/blob/main/docs/REGISTRY-API.md and docs/responses/package-metadata.md there.

const (
	npmShort = "application/vnd.npm.install-v1+json"
	npmFull  = "application/json"

	// npmDefault is what npm writes into lockfiles, and takes for "the registry that is configured": the setting
	// replace-registry-host, https://docs.npmjs.com/cli/v11/using-npm/config.
	npmDefault = "https://registry.npmjs.org"
)

var npmPath = lazy.Pattern(`^/((?:@[A-Za-z0-9~][A-Za-z0-9._~-]*/)?[A-Za-z0-9~_][A-Za-z0-9._~-]*)(/-/[^/].*|/[^/]+)?$`)

func (q *inquiry) npm() (*Answer, error) {
	if q.Path == "/-/ping" || q.Path == "/-/npm/v1/keys" {
		return file("", q.Path)
	}
	parts := npmPath().FindStringSubmatch(q.Path)
	if parts == nil {
		return nil, q.unknown()
	}
	name, rest := parts[1], parts[2]
	if err := q.admit(name); err != nil {
		return nil, err
	}
	tarball := strings.HasPrefix(rest, "/-/")
	if tarball && (!q.judged() || q.old.has(name, rest)) {
		return file("", q.Path)
	}
	p, other, err := q.packument(name)
	switch {
	case err != nil || other != nil:
		return other, err
	case tarball:
		return q.npmTarball(p, rest)
	case rest != "":
		return q.npmManifest(p, rest[1:])
	}
	return document(p.kind, p.write()...)
}

// npmTarball is the file of a version that exists.
func (q *inquiry) npmTarball(p *packument, path string) (*Answer, error) {
	for _, v := range p.versions {
		if v.file == path {
			return file("", q.Path)
		}
	}
	if err := p.young["/"+path]; err != nil {
		return nil, err
	}
	return nil, refuse(missing, "no version of %s has the file %s", p.name, path)
}

// npmManifest is a version, by its number or by a tag.
func (q *inquiry) npmManifest(p *packument, which string) (*Answer, error) {
	for _, t := range p.tags {
		if t.name == which {
			which = t.text()
			break
		}
	}
	for _, v := range p.versions {
		if v.name == which {
			return document(npmFull, v.pieces...)
		}
	}
	if err := p.young[which]; err != nil {
		return nil, err
	}
	return nil, refuse(missing, "%s has no version %s", p.name, which)
}

// packument is a document about a package. What does not exist is taken out of it.
type packument struct {
	name, kind string
	all        []member
	tags       []member
	times      map[string]time.Time
	versions   []npmVersion
	young      map[string]error // why a version, or "/" with a file, does not exist
}

type npmVersion struct {
	member
	pieces [][]byte // of its value, which stands in the document that was read
	file   string   // /-/FILE
}

// packument asks for the document about a package. The short one has no times.
func (q *inquiry) packument(name string) (*packument, *Answer, error) {
	accept := npmFull
	if q.rules.MinAge == 0 && strings.Contains(q.Accept, npmShort) {
		accept = npmShort + "; q=1.0, " + npmFull + "; q=0.8"
	}
	d, other, err := q.get("", "/"+strings.Replace(name, "/", "%2f", 1), accept)
	if err != nil || other != nil {
		return nil, other, err
	}
	p := &packument{name: name, kind: npmFull, young: map[string]error{}, times: map[string]time.Time{}}
	if strings.HasPrefix(d.Type, npmShort) {
		p.kind = npmShort
	}
	if err := q.readPackument(p, d.Body); err != nil {
		return nil, nil, err
	}
	return p, nil, nil
}

func (q *inquiry) readPackument(p *packument, body []byte) error {
	var versions []member
	var err error
	if p.all, err = members(body, '{'); err == nil {
		versions, err = members(find(p.all, "versions").value, '{')
	}
	if err == nil {
		p.tags, err = members(find(p.all, "dist-tags").value, '{')
	}
	if err != nil {
		return refuse(unread, "the registry's document about %s can't be read: it %v", p.name, err)
	}
	if q.rules.MinAge > 0 {
		times, err := members(find(p.all, "time").value, '{')
		if err != nil {
			return refuse(unread, "the registry's document about %s says of no version when it was published, and min_age "+
				"of route %s wants to know", p.name, q.name)
		}
		for _, t := range times {
			p.times[t.name], _ = time.Parse(time.RFC3339, t.text())
		}
	}
	var last error
	for _, m := range versions {
		v, err := q.npmVersion(p.name, m)
		if err == nil {
			if err = q.young(p.name+" "+m.name, p.times[m.name]); err == nil {
				p.versions = append(p.versions, v)
				q.old.add(p.name, v.file)
				continue
			}
			p.young["/"+v.file] = err
		}
		p.young[m.name], last = err, err
	}
	if len(p.versions) == 0 && last != nil {
		return last
	}
	p.retag()
	return nil
}

// npmVersion points the file of a version to where the client looks for it.
func (q *inquiry) npmVersion(name string, m member) (npmVersion, error) {
	v := npmVersion{member: m}
	bad := refuse(unread, "the registry's document about %s has no file for version %s", name, m.name)
	all, err := members(m.value, '{')
	if err != nil {
		return v, bad
	}
	dist := find(all, "dist")
	inner, err := members(dist.value, '{')
	if err != nil {
		return v, bad
	}
	tarball := find(inner, "tarball")
	u, err := url.Parse(tarball.text())
	if err != nil {
		return v, bad
	}
	i := strings.LastIndex(u.Path, "/"+name+"/-/")
	if i < 0 {
		return v, bad
	}
	path := u.Path[i:]
	if !npmPath().MatchString(path) || !plain(path) || strings.ContainsAny(path, "%?#") {
		return v, bad
	}
	base := q.Base
	if strings.HasPrefix(q.Agent, "npm/") {
		base = npmDefault
	}
	at := dist.at + tarball.at
	v.pieces = [][]byte{m.value[:at], quoted(base + path), m.value[at+len(tarball.value):]}
	v.file = path[len(name)+1:]
	return v, nil
}

// retag leads the tags to versions that exist.
func (p *packument) retag() {
	exists := map[string]bool{}
	var names []string
	for _, v := range p.versions {
		exists[v.name] = true
		names = append(names, v.name)
	}
	var kept []member
	for _, t := range p.tags {
		if !exists[t.text()] {
			if t.name != "latest" {
				continue
			}
			best := highest(names, t.text())
			if best == "" {
				continue
			}
			t.value = quoted(best)
		}
		kept = append(kept, t)
	}
	p.tags = kept
}

func (p *packument) write() [][]byte {
	exists := map[string]bool{"created": true, "modified": true}
	versions := [][]byte{[]byte("{")}
	for i, v := range p.versions {
		exists[v.name] = true
		if i > 0 {
			versions = append(versions, []byte(","))
		}
		versions = append(append(versions, v.quote, []byte(":")), v.pieces...)
	}
	versions = append(versions, []byte("}"))
	var out [][]byte
	for i, m := range p.all {
		sep := ","
		if i == 0 {
			sep = "{"
		}
		out = append(out, []byte(sep), m.quote, []byte(":"))
		switch m.name {
		case "versions":
			out = append(out, versions...)
		case "dist-tags":
			out = append(out, object(p.tags)...)
		case "time":
			times, err := members(m.value, '{')
			if err != nil {
				times = nil
			}
			var kept []member
			for _, t := range times {
				if exists[t.name] {
					kept = append(kept, t)
				}
			}
			out = append(out, object(kept)...)
		default:
			out = append(out, m.value)
		}
	}
	return append(out, []byte("}"))
}
