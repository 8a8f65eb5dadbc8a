package judge

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
)

const jsonType = "application/json; charset=utf-8"

func inJSON(document string) []byte {
	body, err := json.Marshal(map[string]any{"query": document})
	if err != nil {
		panic(err)
	}
	return body
}

// TestQueriesPass are documents that read, in all of the language.
func TestQueriesPass(t *testing.T) {
	for _, document := range []string{
		"{a}", "query{a}", "query Q{a}", "query mutation{mutation}", "\ufeff{a}", "{ subscription: mutation(query: mutation) { query } }",
		`query($a:Int!=1 @d,$b:[[String!]!]! = [["x"]] $c:I={a:{b:[1 -0 2.5e+3,E,null,true,$a]}}){f(a:$a b:{}, c:[]){...F ...on T@x{a}... {b} ... @include(if: true) {c}}}` +
			"fragment F on T @d(a:1){b}",
		"{a} # mutation {b}\r\n# \"\"\"\n", `{a(b:"mutation {x} # \" \\ \u0022 é\/ ")}`, "{a(b:\"\"\"\r\n mutation {b}\n # \"\"\")}",
		"query A{a} query B{b} {c}", "query Q @defer(if:true) {a @stream(initialCount:1)}", "fragment F on T{a} {...F}", "{on fragment query}",
	} {
		if refusal := GraphQL(jsonType, "", inJSON(document)); refusal != nil {
			t.Errorf("%s: %s", document, refusal.Text)
		}
		if refusal := GraphQL("", "query="+url.QueryEscape(document)+"&operationName=A&variables=%7B%7D", nil); refusal != nil {
			t.Errorf("by GET, %s: %s", document, refusal.Text)
		}
	}
}

// TestDocumentsAreRefused are documents that write, that wait, or that another reader reads in another way.
func TestDocumentsAreRefused(t *testing.T) {
	for _, document := range []string{
		"mutation{a}", "mutation M{a}", " ,\n\tmutation{a}", "query Q{a} mutation M{b}", "mutation M{b} query Q{a}", "{a} mutation{b}",
		"subscription{a}", "query Q{a} subscription S{a}", "fragment F on Mutation{a} mutation{...F}", "#\nmutation{a}", "#{\r\nmutation{a}",
		"# a\rmutation{b}\n{c}", "{a} # \u2028 mutation{b}", "{a} # \u0085mutation{b}", "{a} #\x00", "{a}\u2028{b}", "{a}\u00a0{b}", "{a}\v{b}",
		`{a(x:[""" " ])} mutation M{z} query Q{b(y:[" """])}`, `{a(b:"""\"""} mutation{c} {d(e:""")}`, `{a(b:"""x"""")}`, "{a(b:\"\"\"\r x\"\"\")}",
		`{a(b:"x` + "\n" + `y")}`, `{a(b:"\q")}`, `{a(b:"\`, `{a(b:"`, `{a(b:"""`, `"""d""" {a}`, `"d" mutation {a}`, "{a(b:\"x\u2028\")}",
		"", " ", "#", "{", "{}", "{a", "{a}}", "{a}{", "{a{}}", "query", "query Q", "query Q(){a}", "{a()}", "{a(b)}", "{a(b:)}", "{a(b:c d)}",
		"fragment F on T{a}", "fragment on on T{a}", "fragment F{a} {b}", "Mutation{a}", "QUERY{a}", "type Query{a:Int}", "extend type T{a:I} {a}",
		"schema{mutation:M}", "{a}; {b}", "{a & b}", "{a | b}", "{a(b:01)}", "{a(b:1.)}", "{a(b:.5)}", "{a(b:1x)}", "{a(b:1e)}", "{a(b:-)}", "{a(b:+1)}",
		"{a(b:1.2.3)}", "{..F}", "{... on {a}}", "{a:}", "{a:b:c}", "{$a}", "{a@}", "query($a){b}", "query($a:[I){b}", "query(a:I){b}",
		"query($a:" + strings.Repeat("[", 99) + "I" + strings.Repeat("]", 99) + "){b}", "{a\xff}", "q\u0075ery{a} mut\\u0061tion{b}", "quеry{a}",
		strings.Repeat("{a", 100) + strings.Repeat("}", 100), "{a(b:" + strings.Repeat("[", 100) + strings.Repeat("]", 100) + ")}",
		"{" + strings.Repeat("a ", maxTokens) + "}",
	} {
		if refusal := graphQLDocument(document); refusal == nil || refusal.What != "graphql" {
			t.Errorf("%.100q: %+v", document, refusal)
		}
	}
}

// TestGraphQLRefuses are requests whose document is not all that counts.
func TestGraphQLRefuses(t *testing.T) {
	const fine = `"query":"{a}"`
	for _, c := range []struct{ kind, query, body string }{
		{jsonType, "query={a}", `{` + fine + `}`}, {jsonType, "x=1", `{` + fine + `}`}, {jsonType, "query=mutation{a}", `{` + fine + `}`},
		{"application/graphql", "", "{a}"}, {"", "", `{` + fine + `}`}, {"text/plain", "", `{` + fine + `}`},
		{"multipart/form-data; boundary=x", "", `{` + fine + `}`}, {"application/json; charset=utf-16", "", `{` + fine + `}`},
		{"application/json; charset=utf-8; x=y", "", `{` + fine + `}`}, {"application/json;;", "", `{` + fine + `}`},
		{"application/x-www-form-urlencoded", "", `{"query":"{a}","operationName":"&query=mutation{b}&"}`},
		{"application/x-www-form-urlencoded", "", `{"query":"{a}","operationName":";query=mutation{b}"}`},
		{"application/x-www-form-urlencoded", "", `query={a}`},
		{jsonType, "", `{` + fine + `,"query":"mutation{a}"}`}, {jsonType, "", `{"query":"mutation{a}",` + fine + `}`},
		{jsonType, "", `{` + fine + `,"\u0071uery":"mutation{a}"}`}, {jsonType, "", `{` + fine + `,"Query":"mutation{a}"}`},
		{jsonType, "", `{"query":"mut\u0061tion{a}"}`}, {jsonType, "", `{"query":["{a}"]}`}, {jsonType, "", `{"query":null}`}, {jsonType, "", `{}`},
		{jsonType, "", `{"documentId":"1"}`}, {jsonType, "", `{` + fine + `,"id":"1"}`}, {jsonType, "", `{` + fine + `,"doc_id":"1"}`},
		{jsonType, "", `{` + fine + `,"extensions":{"persistedQuery":{"version":1,"sha256Hash":"x"}}}`}, {jsonType, "", `{"extensions":{"persistedQuery":{}}}`},
		{jsonType, "", `{` + fine + `,"extensions":[]}`}, {jsonType, "", `{` + fine + `,"variables":"{}"}`}, {jsonType, "", `{` + fine + `,"operationName":1}`},
		{jsonType, "", `[]`}, {jsonType, "", `[{` + fine + `},{"query":"mutation{a}"}]`}, {jsonType, "", `[[{` + fine + `}]]`}, {jsonType, "", `["{a}"]`},
		{jsonType, "", `[` + strings.Repeat(`{`+fine+`},`, maxGraphQL) + `{` + fine + `}]`}, {jsonType, "", `"{a}"`}, {jsonType, "", `{` + fine + `}{`},
		{jsonType, "", `{` + fine + "}\n{\"query\":\"mutation{a}\"}"}, {jsonType, "", "\ufeff{" + fine + "}"}, {jsonType, "", `{` + fine},
		{"", "", ""}, {"", "a=b", ""}, {"", "query=mutation{a}", ""}, {"", "query={a}&query=mutation{b}", ""}, {"", "query={a}&%71uery=mutation{b}", ""},
		{"", "query={a}&Query=mutation{b}", ""}, {"", "query={a};query=mutation{b}", ""}, {"", "query=%zz", ""}, {"", "query={a}&extensions={\"persistedQuery\":{}}", ""},
		{"", "query={a}&variables=[]", ""}, {"", "query={a}&extensions=x", ""}, {"", "extensions={}", ""}, {"", "query={a}&id=1", ""}, {"", "query={a}&", ""},
	} {
		if refusal := GraphQL(c.kind, c.query, []byte(c.body)); refusal == nil || refusal.What != "graphql" {
			t.Errorf("%+v: %+v", c, refusal)
		}
	}
}

// TestGraphQLPasses are the ways in which clients send a query.
func TestGraphQLPasses(t *testing.T) {
	for _, c := range []struct{ kind, query, body string }{
		{"application/json", "", `{"query":"query Q($a:Int){b}","variables":{"a":[1,{"b":null}]},"operationName":"Q"}`},
		{"Application/JSON; Charset=UTF-8", "", ` {"query":"{a}","variables":null,"operationName":null,"extensions":null}`},
		{"application/json", "", `{"query":"{a}","extensions":{"clientLibrary":{"name":"@apollo/client","version":"4.0.0"}}}`},
		{"application/json", "", `[{"query":"{a}"},{"query":"query Q{b}"}]`},
		{"application/x-www-form-urlencoded", "", `{"query":"query { viewer { login }}"}`}, // curl -d, as GitHub's documentation has it
		{"", "query=%7Ba%7D&variables=&extensions=%7B%7D", ""},
	} {
		if refusal := GraphQL(c.kind, c.query, []byte(c.body)); refusal != nil {
			t.Errorf("%+v: %s", c, refusal.Text)
		}
	}
}
