package policy

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// Every word of an entry is in one table, and none is lost on the way through a line,
// a report and a policy that is built again: this walks the fields of Rule.
func TestFlagsAreComplete(t *testing.T) {
	known := map[string]bool{"Deny": true, "Wildcard": true} // what is no word
	of := reflect.TypeFor[Rule]()
	for i := range of.NumField() {
		f := of.Field(i)
		if f.Type.Kind() != reflect.Bool || known[f.Name] {
			continue
		}
		word := strings.ToLower(f.Name)
		entry := "a.example " + word
		p := parse(t, "f", entry)
		if len(p.rules) != 1 || !reflect.ValueOf(*p.rules[0]).Field(i).Bool() || p.rules[0].String() != entry {
			t.Errorf("%s: read as %+v", word, p.rules)
			continue
		}
		var report []ReportRule
		p.EachRule(func(r ReportRule) { report = append(report, r) })
		text, err := json.Marshal(report)
		if err != nil || !strings.Contains(string(text), `"`+word+`":true`) {
			t.Errorf("%s is not reported: %s, %v", word, text, err)
		}
		again, err := Rebuild(report, nil)
		if err != nil || again.rules[0].String() != entry {
			t.Errorf("%s is lost: %v, %v", word, again, err)
		}
		known[f.Name] = true
	}
	if len(known)-2 != len(flags) {
		t.Errorf("%d words are in the table, %d fields in Rule", len(flags), len(known)-2)
	}
}
