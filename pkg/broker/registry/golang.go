package registry

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/agent-init/agent-init/internal/lazy"
	"github.com/agent-init/agent-init/pkg/broker/judge"
)

// https://go.dev/ref/mod#goproxy-protocol, and #checksum-database. A version's time is that of its commit.

const (
	// maxTimes is of how many versions in a list it is asked when they were published, from the highest on. Of the others
	// each is asked when it is fetched.
	maxTimes = 300

	atOnce = 8 // questions
)

var (
	goPath = lazy.Pattern(`^/(.+)/@(?:(latest)|v/(list)|v/([^/]+)\.(info|mod|zip))$`)
	goSums = lazy.Pattern(`^/sumdb/([a-z0-9.-]+)(/supported|/latest|/lookup/.+|/tile/.+)$`)
)

func (q *inquiry) golang() (*Answer, error) {
	if parts := goSums().FindStringSubmatch(q.Path); parts != nil {
		return q.sums(parts[1], parts[2])
	}
	parts := goPath().FindStringSubmatch(q.Path)
	if parts == nil {
		return nil, q.unknown()
	}
	module, latest, list, version, kind := parts[1], parts[2], parts[3], parts[4], parts[5]
	name, ok := unescaped(module)
	if !ok {
		return nil, q.unknown()
	}
	if err := q.admit(name); err != nil {
		return nil, err
	}
	if q.rules.MinAge == 0 {
		return file("", q.Path)
	}
	switch {
	case list != "":
		versions, other, err := q.goVersions(module)
		if err != nil || other != nil {
			return other, err
		}
		return document("text/plain; charset=utf-8", []byte(strings.Join(append(versions, ""), "\n")))
	case latest != "":
		return q.goLatest(module)
	case kind == "info":
		return q.goInfo(module, version)
	}
	exact, ok := unescaped(version)
	switch {
	case !ok:
		return nil, q.unknown()
	case q.old.has(module, exact):
		return file("", q.Path)
	}
	if other, err := q.goInfo(module, version); err != nil || other.Status != 200 {
		return other, err
	}
	if !q.old.has(module, exact) { // a branch, which may be another version by now
		return nil, refuse(missing, "%s has no version %s", name, exact)
	}
	return file("", q.Path)
}

// sums asks a database of checksums, or a mirror for it. Its answers are signed. What it does not know yet it fetches
// from wherever the module's name leads, so that is one that there is.
func (q *inquiry) sums(name, path string) (*Answer, error) {
	if asked, ok := strings.CutPrefix(path, "/lookup/"); ok {
		module, version, _ := strings.Cut(asked, "@")
		plain, ok := unescaped(module)
		if _, exact := unescaped(version); !ok || !exact || module == "" || version == "" {
			return nil, q.unknown()
		}
		if err := q.admit(plain); err != nil {
			return nil, err
		}
	}
	for _, p := range q.places {
		if p.to == "" || p.host() != name {
			continue
		}
		if path == "/supported" {
			return document("text/plain; charset=utf-8")
		}
		return file(p.to, path)
	}
	return file("", q.Path)
}

// unescaped is a module's path, or a version: in front of what is an upper-case letter stands an exclamation mark
// (https://go.dev/ref/mod#goproxy-protocol).
func unescaped(s string) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '!' && i+1 < len(s) && 'a' <= s[i+1] && s[i+1] <= 'z':
			i++
			b.WriteByte(s[i] - 'a' + 'A')
		case c == '!' || c == '%' || c == '@' || 'A' <= c && c <= 'Z':
			return "", false
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), true
}

// escapedVersion is a version as a path has it. It is not ok if that is none.
func escapedVersion(v string) (string, bool) {
	var b strings.Builder
	for _, c := range []byte(v) {
		switch {
		case 'A' <= c && c <= 'Z':
			b.Write([]byte{'!', c - 'A' + 'a'})
		case 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || strings.IndexByte(".+-_~", c) >= 0:
			b.WriteByte(c)
		default:
			return "", false
		}
	}
	return b.String(), v != ""
}

// goInfo is what the registry says of a version that exists, or of a branch or commit by its name.
func (q *inquiry) goInfo(module, version string) (*Answer, error) {
	d, other, err := q.get("", "/"+module+"/@v/"+version+".info", "application/json")
	if err != nil || other != nil {
		return other, err
	}
	return q.goJudge(module, d.Body)
}

func (q *inquiry) goJudge(module string, info []byte) (*Answer, error) {
	name, _ := unescaped(module)
	all, err := members(info, '{')
	if err != nil {
		return nil, refuse(unread, "what the registry says of a version of %s can't be read: it %v", name, err)
	}
	for _, m := range all { // go takes any case, and of two the last
		for _, known := range []string{"Version", "Time"} {
			if strings.EqualFold(m.name, known) && m.name != known {
				return nil, refuse(unread, "what the registry says of a version of %s has %s for %s", name, m.name, known)
			}
		}
	}
	version := find(all, "Version").text()
	published, _ := time.Parse(time.RFC3339, find(all, "Time").text())
	if err := q.young(name+"@"+version, published); err != nil {
		return nil, err
	}
	q.old.add(module, version)
	return document("application/json", info)
}

// goVersions are those of a list that exist.
func (q *inquiry) goVersions(module string) ([]string, *Answer, error) {
	d, other, err := q.get("", "/"+module+"/@v/list", "text/plain")
	if err != nil || other != nil {
		return nil, other, err
	}
	if bytes.Count(d.Body, []byte("\n")) > maxMembers {
		name, _ := unescaped(module)
		return nil, nil, refuse(unread, "the list of versions of %s can't be read: it %v", name, errMany)
	}
	var versions []string
	for _, line := range strings.Split(string(d.Body), "\n") {
		v, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if _, ok := escapedVersion(v); ok {
			versions = append(versions, v)
		}
	}
	slices.SortFunc(versions, func(a, b string) int {
		v, _ := parseVersion(strings.TrimPrefix(a, "v"))
		w, _ := parseVersion(strings.TrimPrefix(b, "v"))
		return w.compare(v)
	})
	young, err := q.each(versions, func(ctx context.Context, v string) (bool, error) {
		if q.old.has(module, v) {
			return false, nil
		}
		own := *q
		own.ctx = ctx
		at, _ := escapedVersion(v)
		d, other, err := own.get("", "/"+module+"/@v/"+at+".info", "application/json")
		if err != nil || other != nil {
			return true, err
		}
		_, refused := own.goJudge(module, d.Body) // also of what can't be read
		return refused != nil, nil
	})
	if err != nil {
		return nil, nil, err
	}
	versions = slices.DeleteFunc(versions, func(v string) bool { return young[v] })
	slices.Reverse(versions)
	return versions, nil, nil
}

// each says of which versions without is true. The first of them are asked, maxTimes at most.
func (q *inquiry) each(of []string, without func(context.Context, string) (bool, error)) (map[string]bool, error) {
	var mu sync.Mutex
	found := map[string]bool{}
	group, ctx := errgroup.WithContext(q.ctx)
	group.SetLimit(atOnce)
	for _, v := range of[:min(len(of), maxTimes)] {
		group.Go(func() error {
			no, err := without(ctx, v)
			var refused *judge.Refusal
			if errors.As(err, &refused) && refused.What == missing {
				no, err = true, nil
			}
			mu.Lock()
			found[v] = no
			mu.Unlock()
			return err
		})
	}
	return found, group.Wait()
}

// goLatest is what the registry calls so, or the highest version that exists.
func (q *inquiry) goLatest(module string) (*Answer, error) {
	d, other, err := q.get("", "/"+module+"/@latest", "application/json")
	if err != nil || other != nil {
		return other, err
	}
	answer, young := q.goJudge(module, d.Body)
	if young == nil {
		return answer, nil
	}
	versions, other, err := q.goVersions(module)
	if err != nil || other != nil {
		return other, err
	}
	for i, v := range versions {
		versions[i] = strings.TrimPrefix(v, "v")
	}
	best := highest(versions, "")
	if best == "" {
		return nil, young
	}
	at, _ := escapedVersion("v" + best)
	return q.goInfo(module, at)
}
