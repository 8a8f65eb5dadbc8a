package policy

import (
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/pkg/route"
)

// Every word of an entry is in one table, and none is lost on the way through a line,
// a report and a policy that is built again: this walks the fields of Flags.
func TestFlagsAreComplete(t *testing.T) {
	docs, err := os.ReadFile("../../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(docs), "```text\n")
	example, _, _ = strings.Cut(example, "```")
	schema, err := os.ReadFile("policy.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	of := reflect.TypeFor[Flags]()
	for i := range of.NumField() {
		word := strings.ToLower(of.Field(i).Name)
		entry := "a.example " + word
		p := parse(t, "f", entry)
		if !regexp.MustCompile(`(?m)^[^#\s]+ .*\b`+word+`\b.*#`).MatchString(example) || !strings.Contains(string(schema), "["+word+"]") {
			t.Errorf("%s is in no example of docs/policy.md, or not in policy.schema.json", word)
		}
		if len(p.rules) != 1 || !reflect.ValueOf(p.rules[0].Flags).Field(i).Bool() || p.rules[0].String() != entry {
			t.Errorf("%s: read as %+v", word, p.rules)
			continue
		}
		text, err := json.Marshal(p.Report().Rules)
		if err != nil || !strings.Contains(string(text), `"`+word+`":true`) {
			t.Errorf("%s is not reported: %s, %v", word, text, err)
		}
		again, err := Rebuild([]Entry{p.rules[0].Entry()}, nil, Resolv{}, nil, route.Proxy{}, nil)
		if err != nil || again.rules[0].String() != entry {
			t.Errorf("%s is lost: %v, %v", word, again, err)
		}
	}
	if of.NumField() != len(flags) {
		t.Errorf("%d words are in the table, %d fields in Flags", len(flags), of.NumField())
	}
}
