package webpage

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/agent-init/agent-init/internal/grant"
	"github.com/agent-init/agent-init/internal/report"
	"github.com/agent-init/agent-init/pkg/audit"
)

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// aRun is what the data's own tests are made of.
const aRun = "../testdata/run"

func made(t testing.TB, dir string) []byte {
	t.Helper()
	r, err := report.Make(report.Options{Dir: dir, Version: "test", Now: noon})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := Write(&b, r); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// attacks are what an agent may call a name, a model, a path or a reason to be more than text on a page.
var attacks = []string{
	`<script>document.title="owned"</script>`, `"><img src=x onerror=document.title="owned">`, `'><svg onload=document.title="owned">`,
	`</style><script>document.title="owned"</script>`, `</title><script>document.title="owned"</script>`, `--></script><script>document.title="owned"</script>`,
	`<meta http-equiv=refresh content="0;url=http://evil.test/">`, `<base href="http://evil.test/">`, `<iframe src="http://evil.test/"></iframe>`,
	`javascript:document.title="owned"`, `<style>*{display:none}</style>`, `<link rel=stylesheet href=http://evil.test/x.css>`, `<form action=http://evil.test><input autofocus onfocus=document.title="owned">`,
	"a\u202egnp.exe", "\x1b]0;owned\x07", "x\x00y", "a\nb\r\nc", `&lt;script&gt;&#x3c;script>`, `<![CDATA[<script>document.title="owned"</script>]]>`, `<plaintext>`, `{{.}}${1}`, strings.Repeat("W", 900),
}

// hostile is a log in which each text that an agent may choose is each of the attacks.
func hostile(t testing.TB) (dir string) {
	t.Helper()
	dir = t.TempDir()
	var log bytes.Buffer
	seq := uint64(0)
	for i, a := range attacks {
		for _, kind := range []audit.Kind{audit.DNS, audit.Connect, audit.HTTP, audit.Drop, audit.Grant, audit.Policy, audit.SelfTest, audit.Guard, audit.Session, audit.Broker, audit.Kind(a)} {
			for _, verdict := range []audit.Verdict{audit.Allow, audit.Deny, audit.Fault, audit.Verdict(a)} {
				seq++
				e := audit.Event{Seq: seq, Time: noon.Add(time.Duration(seq) * time.Second), Kind: kind, Verdict: verdict, Name: a, IP: a, Port: 443, Proto: a, Rule: a, Reason: a,
					Comm: a, Route: a, Method: a, Path: a, Model: a, Key: a, TokensIn: 5, Out: 9}
				if i%2 == 0 {
					e.IP = "192.0.2.1"
				}
				log.Write(append(audit.Encode(e), '\n'))
			}
		}
	}
	if err := os.WriteFile(filepath.Join(dir, audit.FileName), log.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// inventory is which elements and attributes a page has.
func inventory(t testing.TB, page []byte) (found map[string]int) {
	t.Helper()
	doc, err := html.Parse(bytes.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	found = map[string]int{}
	for n := range doc.Descendants() {
		if n.Type == html.CommentNode {
			found["a comment"]++
		}
		if n.Type != html.ElementNode {
			continue
		}
		found[n.Data]++
		for _, a := range n.Attr {
			found[a.Key+"="]++
		}
	}
	return found
}

// ours are the elements and attributes that a page may have.
var ours = strings.Fields(`html head meta title style body header main footer div section p span b i small h1 h2 ul li svg path rect line title
	text table thead tbody tr th td code pre details summary time
	lang= charset= http-equiv= content= name= class= id= viewBox= aria-hidden= role= aria-label= d= x= y= width= height= x1= x2= y1= y2= text-anchor=
	open=`)

// TestInventory: nothing in a log becomes an element or an attribute, and none of ours runs or loads anything.
func TestInventory(t *testing.T) {
	for _, dir := range []string{aRun, hostile(t)} {
		page := made(t, dir)
		found := inventory(t, page)
		for what := range found {
			if !slices.Contains(ours, what) {
				t.Errorf("%s: there is %s", dir, what)
			}
		}
		if found["style"] != 1 || found["section"] < 8 {
			t.Errorf("%s: %v", dir, found)
		}
		for _, bad := range []string{"\u202e", "\x1b", "\x00", "\x7f"} {
			if bytes.Contains(page, []byte(bad)) {
				t.Errorf("%s: %q is in the page", dir, bad)
			}
		}
	}
}

// TestPolicy: the page's policy lets its own style be used, by its hash, and nothing else.
func TestPolicy(t *testing.T) {
	page := string(made(t, aRun))
	policy := regexp.MustCompile(`Content-Security-Policy" content="([^"]*)"`).FindStringSubmatch(page)
	style := regexp.MustCompile(`(?s)<style>(.*?)</style>`).FindStringSubmatch(page)
	if policy == nil || style == nil {
		t.Fatal("a part is missing")
	}
	want := "default-src 'none'; style-src '" + hash(style[1]) + "'; base-uri 'none'; form-action 'none'"
	if got := html.UnescapeString(policy[1]); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestSaysAll: what the data has is on the page, as text.
func TestSaysAll(t *testing.T) {
	page := html.UnescapeString(string(made(t, aRun)))
	for _, text := range []string{"was confined and proved", "registry.npmjs.org", "36.3 MB", "api.github.com POST /repos/acme/shop/issues/*/comments",
		"to share the stack trace <b>please</b>", "because: use the mirror", "claude-opus-5-5", "2,060,566", "*.docker.io", "never", "leaves no trace",
		"passed: 119 checks in 12ms", "agent started as agent", "docker inspect"} {
		if !strings.Contains(page, text) {
			t.Errorf("the page does not say %q", text)
		}
	}
}

// filled is a report in which each text is a or b.
func filled(a, b string) *report.Report {
	n := report.Note{Time: noon, Kind: audit.Kind(a), Verdict: audit.Verdict(b), Text: a, By: b, Count: 2}
	return &report.Report{
		Made: noon, Host: a, First: noon, Last: noon.Add(time.Hour), Now: &report.Now{Live: true, Agent: a, Backend: b, Why: []string{a}, Keys: []string{b}},
		Findings: []report.Finding{{Level: a, Text: b}}, Totals: report.Totals{TokensIn: 5, Refused: 3},
		Timeline: report.Timeline{Start: noon, Step: 60, Bins: []report.Bin{{Allowed: 3, Refused: 1}}},
		Contacts: []report.Contact{{Name: a, Ports: []string{b}, Ways: []string{a}, By: []string{b}, Rules: []string{a}, LetOut: 1, Out: 5}},
		Refusals: []report.Refusal{{What: a, Method: b, Path: a, Reason: b, Rule: a, Line: b, Meant: a, By: []string{b}}, {What: b, ByRule: true, Rule: a}, {What: a, Since: b}},
		Grants:   []report.Story{{Number: a, Target: b, Events: []report.Note{n}}}, Inbound: []report.Inbound{{From: []string{a}}},
		Standing:  []grant.Grant{{Number: 1, Target: b, Reason: a, Outcome: "granted", Decided: &grant.Decision{Reason: a}}},
		Routes:    []report.Route{{Name: a, To: b, Key: []string{a}, Models: []report.Model{{Name: b}}}},
		Policy:    &report.Policy{Dir: a, Entries: []report.Entry{{Rule: b, Source: a}, {Rule: a, Source: b, Used: 3}}, Unused: 1},
		SelfTests: []report.Note{n}, Notes: []report.Note{n}, Log: report.Log{File: a},
		Hashes: report.Hashes{Version: a, System: b, Rules: a, Program: &report.Hashed{Path: b, SHA256: a}, Files: []report.Hashed{{Path: a, SHA256: b}}},
	}
}

// FuzzWrite: whatever the texts of a report are, its page has elements of ours alone, and as many as with any others.
func FuzzWrite(f *testing.F) {
	write := func(t testing.TB, a, b string) map[string]int {
		var page bytes.Buffer
		if err := Write(&page, filled(a, b)); err != nil {
			t.Fatal(err)
		}
		return inventory(t, page.Bytes())
	}
	plain := write(f, "a", "b")
	for _, a := range attacks {
		f.Add(a, "b")
		f.Add("a", a)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if a == "" || b == "" { // what is empty is left out
			return
		}
		for what, n := range write(t, a, b) {
			if !slices.Contains(ours, what) || n > plain[what]+1 {
				t.Errorf("there is %s, %d times", what, n)
			}
		}
	})
}
