package policy

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
)

// The schema has the keys that the parser has, and the same defaults.
func TestSchema(t *testing.T) {
	type section = key // which the loop below has another by that name of
	type node struct {
		Properties map[string]json.RawMessage
		Default    any

		AdditionalProperties any
	}
	data, err := os.ReadFile("policy.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var root node
	if err := json.Unmarshal(data, &root); err != nil {
		t.Fatal(err)
	}
	var found []string
	sections := map[string][]key{}
	for _, k := range newParser(nil).keys() {
		sections[k.name] = k.keys
	}
	for key, raw := range root.Properties {
		found = append(found, key)
		var sub node
		if err := json.Unmarshal(raw, &sub); err != nil {
			t.Fatal(err)
		}
		if sub.Properties == nil {
			continue
		}
		for name, raw := range sub.Properties {
			var leaf node
			if err := json.Unmarshal(raw, &leaf); err != nil {
				t.Fatal(err)
			}
			if leaf.Properties != nil { // a section within it
				inner := sections[key][slices.IndexFunc(sections[key], func(k section) bool { return k.name == name })].keys
				if got, want := slices.Sorted(maps.Keys(leaf.Properties)), slices.Sorted(slices.Values(names(inner))); !slices.Equal(got, want) {
					t.Errorf("%s.%s: the schema has %q, the parser %q", key, name, got, want)
				}
				continue
			}
			value := "[]"
			if leaf.AdditionalProperties != nil { // a map
				value = "{}"
			}
			if leaf.Default != nil {
				value = fmt.Sprint(leaf.Default)
				if f, ok := leaf.Default.(float64); ok {
					value = fmt.Sprint(int(f))
				}
			}
			p := parse(t, "p.yaml", fmt.Sprintf("%s: {%s: %s}\n", key, name, value))
			if got, want := fmt.Sprintf("%+v", p.Settings), fmt.Sprintf("%+v", defaults()); got != want {
				t.Errorf("%s.%s: the schema's default %s gives %s, not %s", key, name, value, got, want)
			}
		}
		if got, want := slices.Sorted(maps.Keys(sub.Properties)), slices.Sorted(slices.Values(names(sections[key]))); !slices.Equal(got, want) {
			t.Errorf("%s: the schema has %q, the parser %q", key, got, want)
		}
	}
	slices.Sort(found)
	if want := slices.Sorted(slices.Values(names(newParser(nil).keys()))); !slices.Equal(found, want) {
		t.Errorf("the schema has %q, the parser %q", found, want)
	}
}

// The schema has the words of a route that the parser has.
func TestSchemaOfRoutes(t *testing.T) {
	type node struct{ Properties map[string]node }
	var root struct {
		Defs map[string]node `json:"$defs"`
	}
	data, err := os.ReadFile("policy.schema.json")
	if err == nil {
		err = json.Unmarshal(data, &root)
	}
	if err != nil {
		t.Fatal(err)
	}
	var compare func(at string, n node, keys []key)
	compare = func(at string, n node, keys []key) {
		if got, want := slices.Sorted(maps.Keys(n.Properties)), slices.Sorted(slices.Values(names(keys))); !slices.Equal(got, want) {
			t.Errorf("%s: the schema has %q, the parser %q", at, got, want)
		}
		for _, k := range keys {
			if k.keys != nil {
				compare(at+"."+k.name, n.Properties[k.name], k.keys)
			}
		}
	}
	compare("route", root.Defs["route"], newParser(nil).routeKeys(&written{}))
}
