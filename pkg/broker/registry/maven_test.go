package registry

import (
	"crypto/sha1"
	"crypto/sha512"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/pkg/route"
)

const metadata = `<?xml version="1.0" encoding="UTF-8"?>
<metadata>
  <groupId>org.acme</groupId>
  <artifactId>pad</artifactId>
  <versioning>
    <latest>2.0</latest>
    <release>2.0</release>
    <versions>
      <version>1.0</version>
      <version>1.1</version>
      <version>2.0</version>
    </versions>
    <lastUpdated>20261119120000</lastUpdated>
  </versioning>
</metadata>
`

func mavenDocs() map[string]Document {
	docs := map[string]Document{
		"/org/acme/pad/maven-metadata.xml":  {Type: "text/xml", Body: []byte(metadata)},
		"/org/acme/maven-metadata.xml":      {Type: "text/xml", Body: []byte("<metadata><plugins><plugin/></plugins></metadata>")},
		"/org/acme/evil/maven-metadata.xml": {Type: "text/xml", Body: []byte("<!DOCTYPE x><metadata/>")},
		"/org/acme/odd/maven-metadata.xml":  {Type: "text/xml", Body: []byte("<metadata><versions><version>1</version>x</versions></metadata>")},
	}
	for v, days := range map[string]int{"1.0": 30, "1.1": 9, "2.0": 1, "3-Snapshot": 30, "SNAPSHOT": 30} {
		docs["/org/acme/pad/"+v+"/pad-"+v+".pom"] = Document{Modified: today.Add(-time.Duration(days) * 24 * time.Hour)}
	}
	docs["/org/acme/undated/1.0/undated-1.0.pom"] = Document{}
	return docs
}

func TestMaven(t *testing.T) {
	r := newRig(t, "maven", route.Packages{}, mavenDocs())
	for _, path := range []string{
		"/org/acme/pad/1.0/pad-1.0.jar", "/org/acme/pad/1.0/pad-1.0.jar.sha1", "/org/acme/pad/1.0-SNAPSHOT/pad-1.0-20260101.120000-1.jar",
		"/org/acme/pad/maven-metadata.xml", "/org/acme/pad/maven-metadata.xml.sha1", "/org/acme/pad/1.0-SNAPSHOT/maven-metadata.xml", "/junit/junit/4/junit-4.pom",
	} {
		r.want(path, "file "+path)
	}
	for _, path := range []string{"/", "/archetype-catalog.xml", "/org/acme/pad/1.0/other-1.0.jar", "/org/acme/pad/1.0/", "/.index/nexus.gz", "/org/acme/pad;x/1.0/pad-1.0.jar"} {
		r.want(path, "path: …")
	}
}

func TestMavenAge(t *testing.T) {
	r := newRig(t, "maven", days3(), mavenDocs())
	r.want("/org/acme/pad/1.0/pad-1.0.jar", "file /org/acme/pad/1.0/pad-1.0.jar")
	r.want("/org/acme/pad/2.0/pad-2.0.jar", "age: pad 2.0 was published at 2026-11-19T12:00:00Z…")
	r.want("/org/acme/pad/2.0/pad-2.0.pom.sha1", "age: …")
	r.want("/org/acme/pad/3.0/pad-3.0.pom", "age: org/acme/pad 3.0 has no POM in the repository (status 404)")
	r.want("/org/acme/undated/1.0/undated-1.0.jar", "age: the registry does not say…")
	r.want("/org/acme/pad/1.0-SNAPSHOT/pad-1.0-20260101.120000-1.jar", "age: …")
	r.want("/org/acme/pad/1.0-SNAPSHOT/maven-metadata.xml", "age: …")
	r.want("/org/acme/pad/3-Snapshot/pad-3-Snapshot.jar", "age: …")
	r.want("/org/acme/pad/SNAPSHOT/pad-SNAPSHOT.jar", "age: …")
	r.want("/org/acme/pad/SNAPSHOT/maven-metadata.xml", "age: …")
	got := r.get("/org/acme/pad/maven-metadata.xml")
	want := strings.NewReplacer("      <version>2.0</version>\n", "", ">2.0<", ">1.1<").Replace(metadata)
	if got != want {
		t.Errorf("metadata: %s", got)
	}
	r.want("/org/acme/pad/maven-metadata.xml.sha1", fmt.Sprintf("%x", sha1.Sum([]byte(want))))
	r.want("/org/acme/pad/maven-metadata.xml.sha512", fmt.Sprintf("%x", sha512.Sum512([]byte(want))))
	r.want("/org/acme/maven-metadata.xml", "<metadata><plugins>…")
	r.want("/org/acme/evil/maven-metadata.xml", "server: …")
	r.want("/org/acme/odd/maven-metadata.xml", "server: …")
	for _, asked := range r.asked {
		if strings.HasSuffix(asked, ".pom") && !strings.HasPrefix(asked, http.MethodHead) {
			t.Errorf("%s", asked)
		}
	}
}

func TestMavenLists(t *testing.T) {
	r := newRig(t, "maven", route.Packages{Allow: []string{"org.acme:*"}, Deny: []string{"org.acme:secret"}}, mavenDocs())
	r.want("/org/acme/pad/1.0/pad-1.0.jar", "file …")
	r.want("/org/acme/maven-metadata.xml", "file …")
	r.want("/org/acme/pad/maven-metadata.xml", "file …")
	r.want("/org/acme/secret/1.0/secret-1.0.jar", "package: org.acme:secret is denied…")
	r.want("/org/acme/Secret/maven-metadata.xml", "package: …")
	r.want("/org/evil/pad/1.0/pad-1.0.jar", "package: org.evil:pad is not in…")
	r.want("/org/evil/maven-metadata.xml", "package: …")
	r.want("/org/acmee/pad/1.0/pad-1.0.jar", "package: …")
}
