package registry

import (
	"strings"
	"testing"

	"github.com/agent-init/agent-init/pkg/route"
)

func npmVersions(of string, all ...string) string {
	var b strings.Builder
	for i, v := range all {
		if i > 0 {
			b.WriteString(",")
		}
		short := of[strings.LastIndexByte(of, '/')+1:]
		b.WriteString(`"` + v + `": {"name":"` + of + `","version":"` + v + `","dist":{"shasum":"x","tarball":"https://registry.npmjs.org/` + of + `/-/` + short + `-` + v + `.tgz"}}`)
	}
	return b.String()
}

func npmDocs() map[string]Document {
	return map[string]Document{
		"/pad": {Type: "application/json", Body: []byte(`{"name":"pad","_rev":"1","dist-tags":{"latest":"2.0.0","next":"3.0.0-rc.1","old":"1.0.0"},
			"versions":{` + npmVersions("pad", "1.0.0", "1.9.0", "1.10.0", "2.0.0", "3.0.0-rc.1", "1.2.0-beta") + `},
			"time":{"created":"` + ago(90) + `","modified":"` + ago(1) + `","1.0.0":"` + ago(90) + `","1.9.0":"` + ago(50) + `","1.10.0":"` + ago(4) + `","2.0.0":"` + ago(1) + `","3.0.0-rc.1":"` + ago(2) + `","1.2.0-beta":"` + ago(40) + `","0.9.0":"` + ago(1) + `"},
			"readme":"half a pair: \ud83d"}`)},
		"/@corp%2fpad": {Type: npmShort, Body: []byte(`{"name":"@corp/pad","dist-tags":{"latest":"1.0.0"},"versions":{` + npmVersions("@corp/pad", "1.0.0") + `}}`)},
		"/fresh":       {Type: "application/json", Body: []byte(`{"dist-tags":{"latest":"1.0.0"},"versions":{` + npmVersions("fresh", "1.0.0") + `},"time":{"1.0.0":"` + ago(0.5) + `"}}`)},
		"/undated":     {Type: "application/json", Body: []byte(`{"dist-tags":{"latest":"1.0.0"},"versions":{` + npmVersions("undated", "1.0.0") + `},"time":{}}`)},
		"/timeless":    {Type: "application/json", Body: []byte(`{"dist-tags":{"latest":"1.0.0"},"versions":{` + npmVersions("timeless", "1.0.0") + `}}`)},
		"/twice":       {Type: "application/json", Body: []byte(`{"versions":{},"versions":{}}`)},
		"/page":        {Type: "text/html", Body: []byte(`<html>`)},
		"/elsewhere":   {Type: "application/json", Body: []byte(`{"dist-tags":{},"versions":{"1.0.0":{"dist":{"tarball":"https://evil.example/elsewhere/-/../../x.tgz"}}},"time":{"1.0.0":"` + ago(9) + `"}}`)},
	}
}

func TestNPM(t *testing.T) {
	r := newRig(t, "npm", route.Packages{}, npmDocs())
	const base = "http://127.0.0.1:8137/npm"
	for _, path := range []string{"/@corp%2fpad", "/@corp%2Fpad", "/@corp/pad"} {
		r.want(path, `{"name":"@corp/pad","dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{"name":"@corp/pad","version":"1.0.0","dist":{"shasum":"x","tarball":"`+base+`/@corp/pad/-/pad-1.0.0.tgz"}}}}`, npmShort)
	}
	if got := r.get("/@corp/pad", "npm/11.0.0 node/v20"); !strings.Contains(got, `"https://registry.npmjs.org/@corp/pad/-/pad-1.0.0.tgz"`) || strings.Contains(got, base) {
		t.Errorf("npm gets %s", got)
	}
	r.want("/pad/-/pad-9.9.9.tgz", "file /pad/-/pad-9.9.9.tgz")
	r.want("/pad/latest", `{"name":"pad","version":"2.0.0",…`)
	r.want("/pad/7.0.0", "age: pad has no version 7.0.0")
	r.want("/@corp/pad/latest", `{"name":"@corp/pad","version":"1.0.0",…`)
	r.want("/none", "404 not found")
	r.want("/twice", "server: the registry's document about twice can't be read: it …")
	r.want("/page", "server: the registry's document about page can't be read: it …")
	r.want("/elsewhere", "server: the registry's document about elsewhere has no file for version 1.0.0")
	r.want("/-/ping", "file /-/ping")
	for _, path := range []string{"/-/all", "/-/v1/search", "/-/user/org.couchdb.user:x", "/-/package/pad/dist-tags", "/pad/-rev/1", "/pad/-/", "/@corp", "/@corp/pad/-/@corp%2fx", "/.hidden", "/pad/1.0.0/x", "/@corp%2fpad%2fx"} {
		if got := r.get(path); !strings.HasPrefix(got, "path: ") && path != "/@corp/pad/-/@corp%2fx" && path != "/pad/-rev/1" {
			t.Errorf("%s gets %s", path, got)
		}
	}
}

// TestNPMAge holds that what is too young is nowhere: not in the document, not behind a tag, not as a file.
func TestNPMAge(t *testing.T) {
	r := newRig(t, "npm", days3(), npmDocs())
	got := r.get("/pad", npmShort)
	for _, gone := range []string{"2.0.0", "rc.1", "0.9.0", `"next"`} {
		if strings.Contains(got, gone) {
			t.Errorf("%s is in %s", gone, got)
		}
	}
	for _, there := range []string{`"latest":"1.10.0"`, `"old":"1.0.0"`, `"readme":"half a pair: \ud83d"`, `"1.10.0":"` + ago(4)} {
		if !strings.Contains(got, there) {
			t.Errorf("%s is not in %s", there, got)
		}
	}
	asked := len(r.asked)
	r.want("/pad/-/pad-1.9.0.tgz", "file /pad/-/pad-1.9.0.tgz")
	if len(r.asked) != asked {
		t.Errorf("a file that is known to be old is asked about again: %q", r.asked[asked:])
	}
	r.want("/pad/-/pad-2.0.0.tgz", "age: pad 2.0.0 was published at 2026-11-19T12:00:00Z, and min_age of route npm is 3d: it does not exist yet")
	r.want("/pad/-/pad-2.0.1.tgz", "age: no version of pad has the file /-/pad-2.0.1.tgz")
	r.want("/pad/-/other-1.0.0.tgz", "age: no version of pad has…")
	r.want("/pad/latest", `{"name":"pad","version":"1.10.0",…`)
	r.want("/pad/2.0.0", "age: pad 2.0.0 was published…")
	r.want("/pad/next", "age: pad has no version next")
	r.want("/fresh", "age: fresh 1.0.0 was published at…")
	r.want("/undated", "age: the registry does not say when undated 1.0.0 was published…")
	r.want("/timeless", "server: the registry's document about timeless says of no version…")

	fresh := newRig(t, "npm", days3(), npmDocs())
	fresh.want("/pad/-/pad-1.9.0.tgz", "file /pad/-/pad-1.9.0.tgz")
	fresh.want("/pad/-/pad-2.0.0.tgz", "age: …")
}

func TestNPMLists(t *testing.T) {
	r := newRig(t, "npm", route.Packages{Allow: []string{"@corp/*", "pad"}, Deny: []string{"@corp/secret*"}}, npmDocs())
	r.want("/@corp%2fpad", `{"name":"@corp/pad",…`)
	r.want("/pad/-/pad-1.9.0.tgz", "file /pad/-/pad-1.9.0.tgz")
	r.want("/pad/-/evil-1.9.0.tgz", "age: …")
	for _, path := range []string{"/evil", "/evil/latest", "/evil/-/evil-1.0.0.tgz", "/PAD", "/@corpx/pad", "/corp"} {
		r.want(path, "package: "+strings.Split(path[1:], "/-")[0][:1]+"…")
	}
	r.want("/@corp/secret-one", "package: @corp/secret-one is denied by packages.deny (@corp/secret*) of route npm")
	r.want("/@CORP/Secret/-/Secret-1.tgz", "package: @CORP/Secret is denied…")
}

func TestSemver(t *testing.T) {
	order := []string{"0.9.0", "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta", "1.0.0-beta.2", "1.0.0-beta.11", "1.0.0-rc.1", "1.0.0", "1.9.0", "1.10.0", "99999999999999999999.0.0"}
	for i, a := range order {
		for j, b := range order {
			v, okV := parseVersion(a)
			w, okW := parseVersion(b)
			if got := v.compare(w); !okV || !okW || (got < 0) != (i < j) || (got > 0) != (i > j) {
				t.Errorf("%s against %s: %d", a, b, got)
			}
		}
	}
	for _, s := range []string{"", "1", "1.2", "1.2.3.4", "v1.2.3", "1..3", "a.b.c"} {
		if _, ok := parseVersion(s); ok {
			t.Errorf("%q is a version", s)
		}
	}
	for _, c := range []struct{ of, most, want string }{
		{"1.0.0 1.5.0 3.0.0", "2.0.0", "1.5.0"}, {"3.0.0 4.0.0", "2.0.0", "4.0.0"}, {"1.0.0-a 1.0.0-b", "2.0.0", "1.0.0-b"},
		{"1.0.0 2.0.0-rc", "2.0.0", "1.0.0"}, {"x", "1.0.0", ""}, {"1.0.0 2.0.0", "", "2.0.0"},
	} {
		if got := highest(strings.Fields(c.of), c.most); got != c.want {
			t.Errorf("highest of %s up to %s is %q, want %q", c.of, c.most, got, c.want)
		}
	}
}
