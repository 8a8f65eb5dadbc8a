package judge

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// tables are those of all APIs.
var tables = map[string]func() *table{
	"anthropic": anthropic, "openai": openai, "gemini": gemini, "bedrock": bedrock, "batch": batch,
}

// TestTablesAreWhole: what a table names, there is, and each rule is somebody's.
func TestTablesAreWhole(t *testing.T) {
	roots := "request invoke common chat responses generate count converse batch marks client turn calls plugged"
	for name, read := range tables {
		used := map[string]bool{}
		for _, root := range strings.Fields(roots) {
			used[root] = true
		}
		bases := map[string]bool{}
		for rule := range read().objects {
			base, _, _ := strings.Cut(rule, ":")
			bases[base] = true
		}
		for rule, r := range read().objects {
			for member, k := range r.members {
				for _, a := range k.any {
					used[a.of] = true
					if _, ok := scalars[a.of]; !ok && !bases[a.of] {
						t.Errorf("%s: %s of %s is %s, which there is not", name, member, rule, a.of)
					}
				}
			}
		}
		for base := range bases {
			if !used[base] {
				t.Errorf("%s: nothing is %s", name, base)
			}
		}
	}
}

// freely are the places in which a client may write what it likes, as the requests below have them: schemas, what a tool
// was called with and has given, and maps of metadata. A * is any name, and [] any item.
var freely = strings.Fields(`
	tools.[].input_schema  messages.[].content.[].input
	tools.[].parameters  input.[].tools.[].tools.[].parameters  tools.[].tools.[].parameters
	tools.[].function.parameters
	tools.[].functionDeclarations.[].parameters  tools.[].functionDeclarations.[].parametersJsonSchema
	tools.functionDeclarations.[].parametersJsonSchema
	contents.[].parts.[].functionCall.args  contents.[].parts.[].functionResponse.response
	client_metadata`)

// TestUnknownIsRefused puts a member that no rule knows into every object of every request that a client has sent, with
// values of all kinds.
func TestUnknownIsRefused(t *testing.T) {
	objects, free, tried := 0, map[string]int{}, map[string]bool{}
	for _, s := range clients(t) {
		a := asked{route: s.Route, path: s.Path}
		r, e, path := a.endpoint(t)
		try := func(root any) *Refusal {
			body, err := json.Marshal(root)
			if err != nil {
				t.Fatal(err)
			}
			_, refusal := Body(r, e, path, body)
			return refusal
		}
		root := second(t, s.Body)
		if refusal := try(root); refusal != nil {
			t.Fatalf("%s is refused: %s", s.Client, refusal.Text)
		}
		eachObject(root, nil, func(at []string, object map[string]any) {
			place := strings.Join(at, ".")
			for _, f := range freely {
				if place == f || strings.HasPrefix(place, f+".") {
					free[f]++
					return
				}
			}
			kind, _ := object["type"].(string)
			if at := fmt.Sprint(s.Client, s.Route, place, kind); tried[at] {
				return // as another one of this client's
			} else {
				tried[at] = true
			}
			objects++
			for _, value := range []string{`"x"`, `1`, `true`, `{}`, `[]`, `{"a":{"b":[1]}}`, `["a"]`, `"https://example.org"`} {
				object["x_of_2028"] = second(t, []byte(value))
				if refusal := try(root); refusal == nil {
					t.Errorf("%s by %s: %s with a member %s passes", s.Client, s.Route, place, value)
				}
			}
			delete(object, "x_of_2028")
		})
	}
	for _, f := range freely {
		if free[f] == 0 {
			t.Errorf("no request has %s", f)
		}
	}
	t.Logf("%d objects", objects)
	if objects < 200 {
		t.Errorf("only %d objects", objects)
	}
}

// eachObject visits each object below a value, and the value itself.
func eachObject(v any, at []string, visit func(at []string, object map[string]any)) {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			eachObject(item, append(at, "[]"), visit)
		}
	case map[string]any:
		visit(at, v)
		for name, member := range v {
			eachObject(member, append(at, name), visit)
		}
	}
}

func TestAddresses(t *testing.T) {
	for text, want := range map[string]bool{
		"http://a": true, "HTTPS://a": true, " \t\nhttps:a": true, "//a": true, "gs://b/x": true, "s3://b/x": true, "file:///x": true, "wss://a": true,
		"": false, "data:,x": false, "see http://a": false, "low": false, "12:30": false, "a//b": false,
	} {
		if got := remote([]byte(text)); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}
