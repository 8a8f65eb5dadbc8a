package scorecard

import (
	"fmt"
	"strings"

	"github.com/agent-init/agent-init/internal/lab"
)

// ruled is a name of which a policy allows some requests alone, and ruledEntries what does so.
const ruled = "forge.test"

var ruledEntries = []string{
	ruled + " GET,HEAD /repos/my-org/**", ruled + " POST /graphql graphql=query", ruled + " POST /notes max_upload=4KiB", "!" + ruled + " * /repos/my-org/kept/**",
}

// ruledAddrs are where it is.
var ruledAddrs = []string{"45.35.0.1", "2a0f:35::1"}

// Ruled is the part of a policy.yaml that allows them.
func Ruled() string {
	out := "domains:\n"
	for _, e := range ruledEntries {
		out += "  - \"" + e + "\"\n"
	}
	return out
}

// RuledWhole is an entry of an allowlist that allows all requests.
func RuledWhole() string { return ruled + "\n" }

// maxNote is what a request may bring along.
const maxNote = 4 << 10

// ruleBodies are what requests have inside, as those of bodies.
func ruleBodies() map[string]string {
	return map[string]string{
		"q-method":   `{"_method":"DELETE","of":"BAD"}`,
		"q-mutation": `{"query":"mutation{a(b:\"BAD\")}"}`, "q-second": `{"query":"query Q{a} mutation M{b(c:\"BAD\")}","operationName":"M"}`,
		"q-batch": `[{"query":"{a}"},{"query":"mutation{a(c:\"BAD\")}"}]`, "q-comment": `{"query":"#\r\nmutation{a(c:\"BAD\")}"}`,
		"q-twice": `{"query":"{a}","query":"mutation{a(c:\"BAD\")}"}`, "q-stored": `{"documentId":"BAD"}`, "q-subscription": `{"query":"subscription{a(c:\"BAD\")}"}`,
		"q-persisted": `{"query":"{a}","extensions":{"persistedQuery":{"version":1,"sha256Hash":"BAD"}}}`, "q-bare": `mutation{a(b:"BAD")}`,
	}
}

func ruleAttacks() []Attack {
	const honest = "http -insecure https://{ruled}/repos/my-org/honest"
	attack := func(id, title string, try []string, tests ...string) Attack {
		return Attack{ID: id, Title: title, Try: append([]string{honest}, try...), Judge: unruly, Tests: tests}
	}
	each := func(format string, all ...string) (ops []string) {
		for _, s := range all {
			ops = append(ops, strings.ReplaceAll(format, "WHAT", s))
		}
		return ops
	}
	ask := `speak -esc 'WHAT HTTP/1.1\r\nHost: {ruled}\r\nConnection: close\r\n\r\n' {ruled}`
	note := func(head, body string) string {
		return `speak -esc 'POST /notes HTTP/1.1\r\nHost: {ruled}\r\n` + head + `\r\n\r\n` + body + `' {ruled}`
	}
	query := func(body string) string {
		return `http -insecure -method POST -header 'Content-Type: application/json' -body '{` + body + `}' https://{ruled}/graphql`
	}
	frames := func(fields ...string) string {
		return "frames -field '" + strings.Join(fields, "' -field '") + "' {ruled}"
	}
	const method, scheme, authority, path = ":method: GET", ":scheme: https", ":authority: {ruled}", ":path: /repos/my-org/{bad}"
	return []Attack{
		attack("R01", "a method that no rule allows",
			append(each("http -insecure -method WHAT https://{ruled}/repos/my-org/{bad}", "DELETE", "PUT", "PATCH", "POST", "PROPFIND"),
				each(strings.ReplaceAll(ask, "WHAT", "WHAT /repos/my-org/{bad}"), "get", "Get", "GeT", "DELETE", "TRACE", "QUERY")...), "TestMethodTricks", "TestInspected"),
		attack("R02", "a method inside of another one",
			append(each("http -insecure -header 'WHAT: DELETE' https://{ruled}/repos/my-org/{bad}", "X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override", "X_HTTP_Method_Override"),
				"http -insecure https://{ruled}/repos/my-org/{bad}?_method=DELETE", "http -insecure https://{ruled}/repos/my-org/{bad}?%5Fmethod=DELETE",
				"http -insecure -method POST -header 'Content-Type: application/x-www-form-urlencoded' -body '_method=DELETE&of={bad}' https://{ruled}/notes",
				"http -insecure -method POST -header 'Content-Type: application/json' -body '{q-method}' https://{ruled}/notes"), "TestMethodTricks", "TestForms", "FuzzForm"),
		attack("R03", "another path in the spelling of one that is allowed",
			each(strings.ReplaceAll(ask, "WHAT", "GET WHAT"), "/{bad}", "/repos/other/{bad}", "/repos/my-org/../{bad}", "/repos/my-org/%2e%2e/{bad}", "/repos/my-org/..%2f{bad}", "/repos/my-org/%252e%252e/{bad}",
				"//repos/my-org/{bad}", "/repos/my-org/..;/{bad}", "/repos/my-org\\\\..\\\\{bad}", "/repos/my-org%2f{bad}", "/REPOS/MY-ORG/{bad}", "/repos/my-org/x/./{bad}", "/repos/my-org/%c0%ae%c0%ae/{bad}",
				"/repos/my-org%00/{bad}", "/repos/my-org;/{bad}"), "TestTricks", "FuzzInspected"),
		attack("R04", "what is denied, in another spelling",
			each(strings.ReplaceAll(ask, "WHAT", "GET WHAT"), "/repos/my-org/kept/{bad}", "/repos/my-org/KEPT/{bad}", "/repos/my-org/%6bept/{bad}", "/repos/my-org/kept%2f{bad}", "/repos/my-org/kept;a=b/{bad}",
				"/repos/my-org/kept./{bad}", "/repos/my-org/kept%20/{bad}", "/repos/my-org/x/../kept/{bad}", "/repos/my-org//kept/{bad}", "/repos/my-org/%EF%BD%8Bept/{bad}"), "TestTricks", "FuzzInspected"),
		attack("R05", "a mutation among queries of GraphQL",
			append(each(query("WHAT"), "q-mutation", "q-second", "q-batch", "q-comment", "q-twice", "q-stored", "q-subscription", "q-persisted"),
				"http -insecure -method POST -header 'Content-Type: application/graphql' -body '{q-bare}' https://{ruled}/graphql",
				"http -insecure -method POST https://{ruled}/graphql?query=mutation%7B{bad}%7D"), "TestDocumentsAreRefused", "TestGraphQLRefuses", "FuzzDocument"),
		attack("R06", "more than may be uploaded",
			[]string{"http -insecure -method POST -size 5000 https://{ruled}/notes", "http -insecure -h1 -method POST -size 5000 https://{ruled}/notes",
				note("Transfer-Encoding: chunked", `1388\r\n`+strings.Repeat("y", 5000)+`\r\n0\r\n\r\n`)}, "TestInspectedHostile"),
		attack("R07", "another host inside of the connection",
			[]string{"http -insecure -host {bad} https://{ruled}/repos/my-org/x", "http -insecure -h1 -host {bad} https://{ruled}/repos/my-org/x",
				`speak -esc 'GET https://{bad}/repos/my-org/x HTTP/1.1\r\nHost: {ruled}\r\nConnection: close\r\n\r\n' {ruled}`,
				`speak -esc 'GET /repos/my-org/x HTTP/1.1\r\nHost: {ruled}\r\nHost: {bad}\r\nConnection: close\r\n\r\n' {ruled}`,
				frames(method, scheme, authority, ":path: /repos/my-org/x", "host: {bad}"), frames(method, scheme, ":authority: {bad}", ":path: /repos/my-org/x", "host: {ruled}"),
				frames(method, scheme, authority, ":authority: {bad}", ":path: /repos/my-org/x"), frames(method, scheme, authority, ":path: https://{bad}/repos/my-org/x"),
				"http -insecure -header 'X-Forwarded-Host: {bad}' https://{ruled}/repos/my-org/x", "http -insecure -header 'X-Original-URL: /{bad}' https://{ruled}/repos/my-org/x"}, "TestInspectedHostile"),
		attack("R08", "a request hidden in another",
			[]string{note(`Content-Length: 0`, `DELETE /{bad} HTTP/1.1\r\nHost: {ruled}\r\n\r\n`), note(`Content-Length: 4\r\nTransfer-Encoding: chunked`, `0\r\n\r\nDELETE /{bad} HTTP/1.1\r\nHost: {ruled}\r\n\r\n`),
				note(`Transfer-Encoding: chunked\r\nTransfer-Encoding: identity`, `0\r\n\r\nDELETE /{bad} HTTP/1.1\r\nHost: {ruled}\r\n\r\n`),
				note(`Content-Length: 0\r\nContent-Length: 40`, `DELETE /{bad} HTTP/1.1\r\nHost: {ruled}\r\n\r\n`), note(`Transfer-Encoding:\x0bchunked`, `0\r\n\r\nDELETE /{bad} HTTP/1.1\r\nHost: {ruled}\r\n\r\n`),
				note(`Transfer-Encoding: xchunked`, `0\r\n\r\nDELETE /{bad} HTTP/1.1\r\nHost: {ruled}\r\n\r\n`), note(`Transfer-Encoding : chunked`, `0\r\n\r\nDELETE /{bad} HTTP/1.1\r\nHost: {ruled}\r\n\r\n`),
				frames(method, scheme, authority, ":path: /repos/my-org/x HTTP/1.1\\r\\nHost: x\\r\\n\\r\\nDELETE /{bad}"), frames(method, scheme, authority, ":path: /repos/my-org/x", "x: y\\r\\n\\r\\nDELETE /{bad} HTTP/1.1"),
				frames(method, scheme, authority, ":path: /repos/my-org/x", "transfer-encoding: chunked", "x-{bad}: y"),
				"frames -field ':method: POST' -field ':scheme: https' -field ':authority: {ruled}' -field ':path: /notes' -field 'content-length: 0' -esc 'DELETE /{bad} HTTP/1.1' {ruled}"}, "TestInspectedHostile"),
		attack("R09", "what leaves HTTP: a WebSocket, h2c, a tunnel, other protocols",
			[]string{`speak -esc 'GET /repos/my-org/x HTTP/1.1\r\nHost: {ruled}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n{bad}' {ruled}`,
				`speak -esc 'CONNECT {ruled}:443 HTTP/1.1\r\nHost: {ruled}\r\n\r\n{bad}' {ruled}`, `speak -esc 'SSH-2.0-{bad}\r\n' {ruled}`, `speak -esc 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n{bad}' {ruled}`,
				frames(":method: CONNECT", ":protocol: websocket", scheme, authority, path), `tcp -esc 'GET /{bad} HTTP/1.1\r\nHost: {ruled}\r\n\r\n' {ruled4}:443`, "http http://{ruled}/{bad}"}, "TestInspectedHostile"),
		{ID: "R10", Title: "floods of frames and of heads", Why: "a load", Tests: []string{"TestInspectedFloods", "TestInspectedUnread"}},
		{ID: "R11", Title: "the authority's key, and certificates for other names", Why: "by other programs", Tests: []string{"TestInspectedKeys", "TestPeerClients"}},
		{ID: "R12", Title: "a push of git's to another ref, or another repository", Why: "by other programs", Tests: []string{"TestGit", "TestPush", "TestUploads", "FuzzPush"}},
	}
}

// unruly finds what has arrived that no rule allows. Without an honest request that arrives, nothing is proved.
func unruly(e *Evidence) []string {
	var out []string
	honest := false
	bad := e.Attack.bad().name
	for _, r := range e.Setting.Lab.Web.Requests(ruled) {
		honest = honest || r.URI == "/repos/my-org/honest"
		if text := r.Method + " " + r.Host + " " + r.URI + heads(r) + string(r.Body); strings.Contains(text, bad) || len(r.Body) > maxNote {
			out = append(out, fmt.Sprintf("%s %.80s, with %d bytes", r.Method, r.URI, len(r.Body)))
		}
	}
	if !honest {
		e.lack("an honest request did not arrive")
	}
	return out
}

func heads(r lab.Request) string {
	out := ""
	for name, values := range r.Header {
		out += " " + name + ": " + strings.Join(values, ", ")
	}
	return out
}
