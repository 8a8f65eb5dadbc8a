package registry

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"hash"
	"slices"
	"strings"

	"github.com/agent-init/agent-init/internal/lazy"
)

// https://maven.apache.org/repositories/layout.html and https://maven.apache.org/repositories/metadata.html. When a
// version was published is said by the date of its POM (Last-Modified).

var (
	mavenPath     = lazy.Pattern(`^/(?:[A-Za-z0-9_.+-]+/)+[A-Za-z0-9_.+-]+$`)
	mavenMetadata = lazy.Pattern(`^maven-metadata\.xml(|\.sha1|\.md5|\.sha256|\.sha512)$`)
)

// changes says whether a version is one that does: ArtifactUtils.isSnapshot of Maven's.
func changes(version string) bool { return strings.HasSuffix(strings.ToUpper(version), "SNAPSHOT") }

func (q *inquiry) maven() (*Answer, error) {
	if !mavenPath().MatchString(q.Path) {
		return nil, q.unknown()
	}
	segments := strings.Split(q.Path[1:], "/")
	n := len(segments)
	if parts := mavenMetadata().FindStringSubmatch(segments[n-1]); parts != nil {
		return q.metadata(segments[:n-1], parts[1])
	}
	if n < 4 {
		return nil, q.unknown()
	}
	group, artifact, version := strings.Join(segments[:n-3], "."), segments[n-3], segments[n-2]
	if !strings.HasPrefix(segments[n-1], artifact+"-") {
		return nil, q.unknown()
	}
	if err := q.admit(group + ":" + artifact); err != nil {
		return nil, err
	}
	if q.rules.MinAge > 0 && changes(version) {
		return nil, refuse(missing, "%s:%s:%s changes, and min_age of route %s wants versions that don't", group, artifact, version, q.name)
	}
	if err := q.pom(strings.Join(segments[:n-2], "/"), version); err != nil {
		return nil, err
	}
	return file("", q.Path)
}

// pom asks when a version was published. A version without a POM is let be missing by whoever asks for its file.
func (q *inquiry) pom(below, version string) error {
	if q.rules.MinAge == 0 || q.old.has(below, version) {
		return nil
	}
	artifact := below[strings.LastIndexByte(below, '/')+1:]
	path := "/" + below + "/" + version + "/" + artifact + "-" + version + ".pom"
	d, err := q.ask(q.ctx, Question{Method: "HEAD", Path: path, Accept: "*/*"})
	if err != nil {
		return err
	}
	if d.Status != 200 {
		return refuse(missing, "%s %s has no POM in the repository (status %d)", below, version, d.Status)
	}
	if err := q.young(artifact+" "+version, d.Modified); err != nil {
		return err
	}
	q.old.add(below, version)
	return nil
}

// metadata are of a group's plugins, of an artifact, or of a snapshot.
func (q *inquiry) metadata(segments []string, sum string) (*Answer, error) {
	n := len(segments)
	last := segments[n-1]
	if n >= 3 && changes(last) {
		if err := q.admit(strings.Join(segments[:n-2], ".") + ":" + segments[n-2]); err != nil {
			return nil, err
		}
		if q.rules.MinAge > 0 {
			return nil, refuse(missing, "%s changes, and min_age of route %s wants versions that don't", last, q.name)
		}
		return file("", q.Path)
	}
	// A path may be that of a group as well as that of an artifact.
	artifact := refuse(denied, "there is no artifact in %s", last)
	if n > 1 {
		artifact = q.admit(strings.Join(segments[:n-1], ".") + ":" + last)
	}
	if artifact != nil && q.admit(strings.Join(segments, ".")+":") != nil {
		return nil, artifact
	}
	if q.rules.MinAge == 0 {
		return file("", q.Path)
	}
	d, other, err := q.get("", "/"+strings.Join(segments, "/")+"/maven-metadata.xml", "*/*")
	if err != nil || other != nil {
		return other, err
	}
	m, err := q.readMetadata(strings.Join(segments, "/"), d.Body)
	if err != nil {
		return nil, err
	}
	if sum == "" {
		return document("text/xml", m)
	}
	h := checksums[sum]()
	h.Write(m)
	return document("text/plain", hex.AppendEncode(nil, h.Sum(nil)))
}

var checksums = map[string]func() hash.Hash{".md5": md5.New, ".sha1": sha1.New, ".sha256": sha256.New, ".sha512": sha512.New}

// readMetadata takes versions that do not exist out of an artifact's metadata. That of a group's plugins names none.
func (q *inquiry) readMetadata(below string, xml []byte) ([]byte, error) {
	bad := refuse(unread, "the metadata of %s can't be read", below)
	if bytes.Contains(xml, []byte("<!")) {
		return nil, bad
	}
	head, rest, some := bytes.Cut(xml, []byte("<versions>"))
	if !some {
		if bytes.Contains(xml, []byte("<version")) || !bytes.Contains(xml, []byte("<plugins")) {
			return nil, bad
		}
		return xml, nil
	}
	list, tail, ended := bytes.Cut(rest, []byte("</versions>"))
	if !ended || bytes.Contains(tail, []byte("<versions")) || bytes.Count(list, []byte("<version>")) > maxMembers {
		return nil, bad
	}
	for _, element := range []string{"<latest>", "<release>"} {
		if bytes.Count(xml, []byte(element)) > 1 { // each gets the name of a version
			return nil, bad
		}
	}
	var versions []string
	for len(bytes.TrimSpace(list)) > 0 {
		item, ok := bytes.CutPrefix(bytes.TrimSpace(list), []byte("<version>"))
		v, after, closed := bytes.Cut(item, []byte("</version>"))
		name := strings.TrimSpace(string(v))
		if !ok || !closed || !mavenPath().MatchString("/x/"+name) {
			return nil, bad
		}
		versions, list = append(versions, name), after
	}
	slices.Reverse(versions) // the highest stand last
	young, err := q.each(versions, func(ctx context.Context, v string) (bool, error) {
		own := *q
		own.ctx = ctx
		return false, own.pom(below, v)
	})
	if err != nil {
		return nil, err
	}
	before := len(versions)
	versions = slices.DeleteFunc(versions, func(v string) bool { return young[v] || changes(v) })
	if len(versions) == 0 {
		return nil, refuse(missing, "every version of %s is younger than min_age of route %s", below, q.name)
	}
	if len(versions) == before {
		return xml, nil
	}
	slices.Reverse(versions)
	latest := versions[len(versions)-1]
	var b strings.Builder
	b.Write(retold(head, latest))
	b.WriteString("<versions>\n")
	for _, v := range versions {
		b.WriteString("      <version>" + v + "</version>\n")
	}
	b.WriteString("    </versions>")
	b.Write(retold(tail, latest))
	return []byte(b.String()), nil
}

var latestElement = lazy.Pattern(`<(latest|release)>[^<]*</(latest|release)>`)

// retold names the latest version, and the latest release, by that.
func retold(xml []byte, latest string) []byte {
	return latestElement().ReplaceAll(xml, []byte("<$1>"+latest+"</$1>"))
}
