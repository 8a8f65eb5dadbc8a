package judge

import (
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"

	"github.com/agent-init/agent-init/pkg/route"
)

// tricks are ways to write a path that some server takes for TARGET, a path without its first slash.
var tricks = []string{
	"/TARGET", "//TARGET", "/./TARGET", "/%2e/TARGET", "/x/../TARGET", "/x/%2e%2e/TARGET", "/x/%2E%2E%2FTARGET", "/x/..%2fTARGET",
	"/(S(x))/TARGET", "/%28a%28x%29%29/TARGET", "/(F(x)A(y))TARGET", "/x/.%2e/TARGET", "/x/%252e%252e/TARGET", "/x/%25%32%65%25%32%65/TARGET", "/x/..%252fTARGET", "/x/..%c0%afTARGET", "/x/..%e0%80%afTARGET",
	"/x/%c0%ae%c0%ae/TARGET", "/x/..%u2215TARGET", "/x/%u002e%u002e/TARGET", `/x\..\TARGET`, "/x%5c..%5cTARGET", "/x%5C..%5CTARGET",
	"/x/..;/TARGET", "/x/..;a=b/TARGET", "/x/..%3bTARGET", "/x/..%3B/TARGET", "/;/TARGET", "/;a/TARGET", "/TARGET;", "/TARGET;a=b", "/TARGET%3b",
	"/TARGET/", "/TARGET//", "/TARGET/.", "/TARGET/x/..", "/TARGET%2f", "/TARGET%2F.", "/TARGET.", "/TARGET..", "/TARGET%20", "/TARGET%2e", "/TARGET%20.",
	"/TARGET.json", "/TARGET.xml", "/TARGET.json/", "/TARGET%2ejson", "/TARGET%00", "/TARGET%00.png", "/TARGET%0a", "/TARGET%09", "/TARGET%0d%0aHost:x",
	"/TARGET%3f", "/TARGET%3Fa=b", "/TARGET%23", "/TARGET%23x", "/TARGET#", "/TARGET#/../../x", "/x%23/../TARGET", "/x%3f/../TARGET", "/x#/../TARGET",
	"http://api.forge.example/TARGET", "https://x@evil.example/TARGET", "TARGET", "*", "", "/ TARGET", "/TARGET ", "/\tTARGET", "/TARGET\x00", "/TARGET\r\n",
	"/%2FTARGET", "/%2fTARGET", "%2FTARGET", "/x%2F..%2FTARGET", "/x%2f%2e%2e%2fTARGET", "/.%0d./TARGET", "/x/.%20./TARGET", "/x/..%20/TARGET",
	"/x/.../TARGET", "/x/.. /TARGET", "/x/..%00/TARGET", "/x/..%09/TARGET", "/x/%ef%bc%8e%ef%bc%8e/TARGET", "/x/..%ef%bc%8fTARGET", "/x/..%ef%bc%bcTARGET",
	"/x/%e2%80%a4%e2%80%a4/TARGET", "/x/%e2%80%a5/TARGET", "/x/..%e2%88%95TARGET", "/x/..%e2%81%84TARGET", "/x/..%ef%b9%a8TARGET", "/x%e2%88%95..%e2%88%95TARGET",
	"/TAR%C2%ADGET", "/TARGET%E2%80%8B", "/%EF%BB%BFTARGET", "/TARGET\xff", "/TARGET%ff", "/TARGET%", "/TARGET%2", "/TARGET%zz", "/%%32%65%%32%65/TARGET",
	"/x/..%25%35%63TARGET", "/x/%uff0e%uff0e/TARGET", "/x/%u0025%u0032TARGET", "/x/%26%2346;%26%2346;/TARGET", "///TARGET", "/.//TARGET", "/x//../TARGET",
	"/x/..//TARGET", "/x/../;/TARGET", "/x/;/../TARGET", "/x;/../TARGET", "/x;%2f../TARGET", "/x/%2e%2e;/TARGET", "/x/%2e;a%2e/TARGET",
}

// letterings are ways to write a path so that its letters are other bytes.
var letterings = []func(string) string{
	func(s string) string { return s },
	strings.ToUpper,
	strings.ToTitle,
	func(s string) string { return escapeAll(s, "%%%02x") },
	func(s string) string { return escapeAll(s, "%%%02X") },
	func(s string) string { return escapeAll(s, "%%25%02X") },
	func(s string) string { return strings.ReplaceAll(s, "s", "%C5%BF") },                            // ſ
	func(s string) string { return strings.ReplaceAll(s, "k", "%E2%84%AA") },                         // the sign for kelvin
	func(s string) string { return strings.ReplaceAll(s, "g", "%EF%BD%87") },                         // a wide g
	func(s string) string { return strings.ReplaceAll(s, "i", "%C4%B1") },                            // a dotless i
	func(s string) string { return strings.ReplaceAll(s, "s", "s%E2%80%8D") },                        // a joiner without width
	func(s string) string { return strings.ReplaceAll(s, "/", "%2F") },                               // its slashes escaped
	func(s string) string { return strings.Replace(s, "/", "%2f", 1) },                               // one of them
	func(s string) string { return strings.ReplaceAll(s, "/", "%252F") },                             // twice
	func(s string) string { return strings.ReplaceAll(s, "/", "//") },                                // doubled
	func(s string) string { return strings.ReplaceAll(s, "/", "/./") },                               // with a dot
	func(s string) string { return strings.ReplaceAll(s, "/", ";/") },                                // with a parameter
	func(s string) string { return strings.ReplaceAll(s, "/", "%20/") },                              // with a blank
	func(s string) string { return strings.ReplaceAll(s, "/", "./") },                                // with a dot at the end
	func(s string) string { return strings.ReplaceAll(s, "/", `\`) },                                 // Windows's own
	func(s string) string { return strings.ReplaceAll(s, "/", "%5C") },                               // escaped
	func(s string) string { return strings.ReplaceAll(s, "o", "%6F") },                               // one letter escaped
	func(s string) string { return strings.ReplaceAll(strings.ReplaceAll(s, "e", "E"), "t", "%54") }, // in odd case
}

func escapeAll(s, how string) string {
	const digits = "0123456789abcdef"
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '/' {
			b.WriteByte('/')
			continue
		}
		e := "%" + string(digits[s[i]>>4]) + string(digits[s[i]&15])
		if strings.Contains(how, "X") {
			e = strings.ToUpper(e)
		}
		if strings.Contains(how, "%%25") {
			e = "%25" + e[1:]
		}
		b.WriteString(e)
	}
	return b.String()
}

// servers are the paths that servers make of one that they are sent. They share no code with the judge.
func servers(raw string) []string {
	all := []string{raw}
	grow := func(read func(string) string) {
		for _, p := range slices.Clone(all) {
			if q := read(p); !slices.Contains(all, q) {
				all = append(all, q)
			}
		}
	}
	cut := func(chars string) func(string) string {
		return func(p string) string {
			if i := strings.IndexAny(p, chars); i >= 0 {
				return p[:i]
			}
			return p
		}
	}
	decode := func(p string) string {
		if q, err := url.PathUnescape(p); err == nil {
			return q
		}
		return p
	}
	grow(func(p string) string { // without parameters, before decoding
		parts := strings.Split(p, "/")
		for i := range parts {
			parts[i] = cut(";")(parts[i])
		}
		return strings.Join(parts, "/")
	})
	grow(decode)
	grow(cut("\x00?#"))
	grow(decode)
	grow(func(p string) string { return strings.ReplaceAll(p, `\`, "/") })
	grow(norm.NFKC.String)
	grow(func(p string) string { // Windows, which takes no notice of blanks at the end
		return strings.ReplaceAll(strings.TrimRight(p, " "), " /", "/")
	})
	grow(func(p string) string { // nor of dots
		parts := strings.Split(p, "/")
		for i, s := range parts {
			if s != "." && s != ".." {
				parts[i] = strings.TrimRight(s, ". ")
			}
		}
		return strings.Join(parts, "/")
	})
	grow(func(p string) string {
		parts := strings.Split(p, "/")
		for i := range parts {
			parts[i] = cut(";")(parts[i])
		}
		return strings.Join(parts, "/")
	})
	grow(func(p string) string { return cookieless.ReplaceAllString(p, "") })
	grow(func(p string) string { return path.Clean("/" + p) })
	return all
}

// cookieless is what ASP.NET takes out of a path: its sessions without cookies.
var cookieless = regexp.MustCompile(`(?i)\((?:[afs]\([^()/]*\))+\)`)

// onlyBelow is a name where one subtree may be read, but for a part, and butFor one where all may but one.
var (
	onlyBelow = route.Inspected{Name: "a", Allow: []route.Request{to(get, "/repos/my-org/**"), to(get, "/users/*")},
		Deny: []route.Request{to(nil, "/repos/my-org/kept/**")}}
	butFor = route.Inspected{Name: "b", Allow: []route.Request{to(nil, "/**")}, Deny: []route.Request{to(nil, "/gists/**"), to(nil, "/repos/*/kept")}}
)

// wrongly says what a server would do that the rules of onlyBelow or butFor forbid.
func wrongly(i *route.Inspected, raw string) string {
	for _, p := range servers(raw) {
		low := strings.ToLower(strings.ToUpper(p))
		low = strings.TrimRight(low, "/")
		parts := strings.Split(low, "/")
		last := len(parts) - 1
		bare := strings.TrimRight(parts[last], ". ")
		if dot := strings.LastIndexByte(bare, '.'); dot > 0 {
			bare = bare[:dot]
		}
		if i == &butFor {
			if len(parts) > 1 && (parts[1] == "gists" || last == 1 && bare == "gists") ||
				len(parts) == 4 && parts[1] == "repos" && (parts[3] == "kept" || bare == "kept") {
				return p
			}
			continue
		}
		below := p == "/repos/my-org" || strings.HasPrefix(p, "/repos/my-org/")
		user := strings.HasPrefix(p, "/users/") && strings.Count(p, "/") == 2
		kept := len(parts) > 3 && parts[1] == "repos" && parts[2] == "my-org" && (parts[3] == "kept" || last == 3 && bare == "kept")
		if !below && !user || kept {
			return p
		}
	}
	return ""
}

// TestTricks tries each way to write a path with each way to write its letters, in front of what may be read and behind.
// Whatever passes is what the rules allow to each of the servers.
func TestTricks(t *testing.T) {
	tried, passed := 0, 0
	for _, i := range []*route.Inspected{&onlyBelow, &butFor} {
		rules := NewRules(i)
		for _, target := range []string{
			"gists", "gists/1", "repos/other/kept", "repos/my-org/kept", "repos/my-org/kept/x", "admin", "users/x/keys", "repos/my-org/../other",
		} {
			for _, spell := range letterings {
				for _, trick := range tricks {
					for _, before := range []string{"", "/repos/my-org/x", "/users/x"} {
						raw := before + strings.ReplaceAll(strings.ReplaceAll(trick, "TARGET", spell(target)), "TAR%C2%ADGET", spell(target)+"%C2%AD")
						tried++
						if _, refusal := rules.Judge("GET", raw, "", nil); refusal != nil {
							continue
						}
						passed++
						if p := wrongly(i, raw); p != "" {
							t.Errorf("%s passes for %s, and a server takes it for %q", raw, i.Name, p)
						}
					}
				}
			}
		}
	}
	t.Logf("%d requests, of which %d may pass", tried, passed)
	if passed == 0 || passed > tried/5 {
		t.Errorf("%d of %d pass", passed, tried)
	}
}

// TestMethodTricks are ways to have a server take a request for one of another method.
func TestMethodTricks(t *testing.T) {
	for _, method := range []string{
		"get", "Get", "GeT", "GET ", " GET", "GET\t", "G\u00c9T", "GET\x00", "", "DELETE", "delete", "HEAD", "OPTIONS", "QUERY", "SEARCH", "PROPFIND", "LOCK", "CONNECT", "TRACE", "TRACK",
		"PRI", "DEBUG", "GET,DELETE", "GET/DELETE", "X-GET", strings.Repeat("A", 64), "GET\r\nDELETE", "Ǵet",
	} {
		if a, refusal := Inspected(&onlyBelow, method, "/users/x", "", nil); refusal == nil {
			t.Errorf("%q passes: %+v", method, a)
		}
	}
	for _, name := range []string{
		"X-Http-Method-Override", "X-Http-Method", "X-Method-Override", "X_http_method_override", "X-Http_method-Override", "X-HTTP-METHOD", "x-method",
	} {
		if _, refusal := Inspected(&onlyBelow, "GET", "/users/x", "", http.Header{name: {"DELETE"}}); refusal == nil || refusal.What != "header" {
			t.Errorf("%s passes: %+v", name, refusal)
		}
	}
	for _, query := range []string{
		"_method=DELETE", "a=b&_method=DELETE", "a=b;_method=DELETE", "%5Fmethod=DELETE", "_METHOD=x", "_method[]=x", "_method", "+_method=x", "$httpMethod=DELETE", "%24httpMethod=DELETE",
		"$httpHeaders=X-HTTP-Method-Override:DELETE", "X-HTTP-Method-Override=PUT", "x_http_method_override=PUT", "_method%5B%5D=x", "%_method=x", "a#_method=x", "a=b c", "a=\r\nx",
	} {
		if _, refusal := Inspected(&onlyBelow, "GET", "/users/x", query, nil); refusal == nil {
			t.Errorf("?%s passes", query)
		}
	}
	// Where any method may be used, none is another.
	if _, refusal := Inspected(&butFor, "POST", "/x", "_method=PUT", http.Header{"X-Http-Method-Override": {"PUT"}}); refusal != nil {
		t.Errorf("%+v", refusal)
	}
}

// TestHeaderTricks are heads that the next reader takes for others.
func TestHeaderTricks(t *testing.T) {
	for _, h := range []http.Header{
		{"X": {"a\r\nHost: evil"}}, {"X": {"a\nb"}}, {"X": {"a\x00b"}}, {"X": {"a\x7f"}}, {"X": {"a\x0bb"}}, {"Authorization": {"a", "b"}}, {"Content-Type": {"application/json", "text/plain"}},
		{"Content-Type": {"a"}, "Content_type": {"b"}}, {"Connection": {"Content-Type"}}, {"Connection": {"close, Authorization"}}, {"Connection": {"keep-alive", "x-http-method-override"}},
		{"Upgrade": {"websocket"}}, {"Upgrade": {"websocket", "h2c"}}, {"Upgrade": {"WEBSOCKET , h2c"}},
	} {
		if a, refusal := Inspected(&onlyBelow, "GET", "/users/x", "", h); refusal == nil {
			t.Errorf("%q passes: %+v", h, a)
		}
	}
	for _, h := range []http.Header{
		{"Connection": {"Upgrade, HTTP2-Settings"}, "Upgrade": {"h2c"}, "Http2-Settings": {"AAM"}}, {"Cookie": {"a=b", "c=d"}}, {"X": {"a\tb\xe4"}}, {"Te": {"trailers"}, "Connection": {"TE"}},
	} {
		if _, refusal := Inspected(&onlyBelow, "GET", "/users/x", "", h); refusal != nil {
			t.Errorf("%q: %+v", h, refusal)
		}
	}
}

// FuzzInspected holds that no path passes which one of the servers takes for what the rules forbid.
func FuzzInspected(f *testing.F) {
	for _, trick := range tricks {
		f.Add(strings.ReplaceAll("/repos/my-org/x"+trick, "TARGET", "gists"))
		f.Add(strings.ReplaceAll(trick, "TARGET", "repos/my-org/kept"))
	}
	f.Fuzz(func(t *testing.T, raw string) {
		if len(raw) > 200 {
			return // the servers take long
		}
		for _, i := range []*route.Inspected{&onlyBelow, &butFor} {
			if _, refusal := Inspected(i, "GET", raw, "", nil); refusal != nil {
				continue
			}
			if p := wrongly(i, raw); p != "" {
				t.Errorf("%q passes for %s, and a server takes it for %q", raw, i.Name, p)
			}
		}
	})
}
