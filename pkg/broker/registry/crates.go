package registry

import (
	"bytes"
	"net/url"
	"strings"
	"time"

	"github.com/agent-init/agent-init/internal/lazy"
)

// https://doc.rust-lang.org/cargo/reference/registry-index.html. pubtime is said by crates.io.

var (
	crateIndex    = lazy.Pattern(`^/(?:[123]|[a-z0-9_-]{2})/(?:.*/)?([a-z0-9][a-z0-9_-]*)$`)
	crateDownload = lazy.Pattern(`^/dl/([A-Za-z0-9][A-Za-z0-9_-]*)/([0-9][0-9A-Za-z.+-]*)/download$`)
)

// template is where crates are downloaded from, as the index's config.json has it.
type template struct {
	dl    string
	until time.Time
}

const (
	templateTime = 10 * time.Minute
	maxTemplate  = 2048 // the name of a crate may stand in it more than once
)

func (q *inquiry) crates() (*Answer, error) {
	if q.Path == "/config.json" {
		if _, other, err := q.template(); err != nil || other != nil {
			return other, err
		}
		// Without "api", cargo has nowhere to publish to.
		return document("application/json", []byte(`{"dl":`), quoted(q.Base+"/dl"), []byte("}"))
	}
	if parts := crateDownload().FindStringSubmatch(q.Path); parts != nil {
		return q.crate(parts[1], parts[2])
	}
	parts := crateIndex().FindStringSubmatch(q.Path)
	if parts == nil || q.Path != indexPath(parts[1]) {
		return nil, q.unknown()
	}
	if err := q.admit(parts[1]); err != nil {
		return nil, err
	}
	lines, _, other, err := q.crateLines(parts[1])
	if err != nil || other != nil {
		return other, err
	}
	return document("text/plain; charset=utf-8", lines...)
}

// indexPath is where the index has a crate.
func indexPath(name string) string {
	name = strings.ToLower(name)
	switch len(name) {
	case 1, 2:
		return "/" + string('0'+byte(len(name))) + "/" + name
	case 3:
		return "/3/" + name[:1] + "/" + name
	}
	return "/" + name[:2] + "/" + name[2:4] + "/" + name
}

// crateLines are those of the versions that exist, and why others don't.
func (q *inquiry) crateLines(name string) (lines [][]byte, young map[string]error, other *Answer, err error) {
	d, other, err := q.get("", indexPath(name), "text/plain")
	if err != nil || other != nil {
		return nil, nil, other, err
	}
	if bytes.Count(d.Body, []byte("\n")) > maxMembers {
		return nil, nil, nil, refuse(unread, "what the index has of %s can't be read: it %v", name, errMany)
	}
	young = map[string]error{}
	var last error
	for line := range bytes.Lines(d.Body) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		all, err := members(line, '{')
		version := find(all, "vers").text()
		if err != nil || version == "" {
			return nil, nil, nil, refuse(unread, "the index has a line about %s that can't be read", name)
		}
		published := q.published(find(all, "pubtime"))
		if err := q.young(name+" "+version, published); err != nil {
			young[version], last = err, err
			continue
		}
		q.old.add(strings.ToLower(name), version)
		lines = append(lines, line)
	}
	if len(lines) == 0 && last != nil {
		return nil, nil, nil, last
	}
	return lines, young, nil, nil
}

// Before crates.io wrote down when a version was published. It does so since the end of 2025, for each new one, and
// then for the older ones of that crate as well: https://github.com/rust-lang/cargo/issues/15491. What it says nothing of
// is older than that.
var undated = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// published is when a version was, by its line in the index. Of another registry's, nobody knows what it leaves out.
func (q *inquiry) published(pubtime member) time.Time {
	if pubtime.value == nil && q.places[0].origin == "https://index.crates.io" {
		return undated
	}
	t, _ := time.Parse(time.RFC3339, pubtime.text())
	return t
}

// crate is the file of a version that exists.
func (q *inquiry) crate(name, version string) (*Answer, error) {
	if err := q.admit(name); err != nil {
		return nil, err
	}
	if q.rules.MinAge > 0 && !q.old.has(strings.ToLower(name), version) {
		_, young, other, err := q.crateLines(name)
		if err != nil || other != nil {
			return other, err
		}
		if err := young[version]; err != nil {
			return nil, err
		}
		if !q.old.has(strings.ToLower(name), version) {
			return nil, refuse(missing, "%s has no version %s", name, version)
		}
	}
	t, other, err := q.template()
	if err != nil || other != nil {
		return other, err
	}
	at := t.dl
	if !strings.Contains(at, "{") {
		at += "/{crate}/{version}/download"
	}
	prefix := strings.TrimSuffix(indexPath(name)[1:], "/"+strings.ToLower(name))
	at = strings.NewReplacer("{crate}", name, "{version}", url.PathEscape(version), "{prefix}", prefix, "{lowerprefix}", prefix).Replace(at)
	if u, err := url.Parse(at); err == nil && !strings.ContainsAny(at, "{}") {
		if p, path, ok := q.leads(u); ok {
			return file(p.to, path)
		}
	}
	return nil, refuse(unread, "the index says that crates are at %s, to which route %s does not lead", t.dl, q.name)
}

// template asks the index where its crates are.
func (q *inquiry) template() (template, *Answer, error) {
	q.mu.Lock()
	t := q.downloads
	q.mu.Unlock()
	if t.until.After(q.now()) {
		return t, nil, nil
	}
	d, other, err := q.get("", "/config.json", "application/json")
	if err != nil || other != nil {
		return t, other, err
	}
	all, err := members(d.Body, '{')
	if t.dl = strings.TrimSuffix(find(all, "dl").text(), "/"); err != nil || t.dl == "" || len(t.dl) > maxTemplate {
		return t, nil, refuse(unread, "the index's config.json can't be read")
	}
	t.until = q.now().Add(templateTime)
	q.mu.Lock()
	q.downloads = t
	q.mu.Unlock()
	return t, nil, nil
}
