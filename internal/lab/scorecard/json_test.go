package scorecard

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// full is a column with every outcome.
func full() Column {
	results := make([]Result, len(Attacks()))
	for i := range results {
		results[i] = Result{Outcome: Outcome(i % 4), Tried: i % 3, Why: "takes minutes"}
		if results[i].Outcome == Leaked {
			results[i].Leaks = []string{`a "packet" <of> protocol 6`}
		}
	}
	image := Image{Name: "a & b", Ref: "x", Network: true, Options: []string{"--cap-add=NET_ADMIN"}, Setup: "y", User: "1000", Allowed: "z", Wildcard: "w", Ours: true, Proxy: "env:X", Wrap: []string{"p", "q"}}
	return Column{Title: "a & b", Ours: true, Works: true, Results: [][]Result{results},
		Subject: &Subject{Image: image, VersionFrom: "a", Version: "b", ID: "c", Settings: "d", Promises: "e", Source: "f"}}
}

// TestReport: the report says what the columns do, and the schema describes it.
func TestReport(t *testing.T) {
	empty := Column{Title: "empty", Results: [][]Result{make([]Result, len(Attacks()))}}
	data, err := NewReport("6.18 on x86_64", []Column{full(), empty}).JSON()
	if err != nil {
		t.Fatal(err)
	}
	var r Report
	var any any
	if err := errors.Join(json.Unmarshal(data, &r), json.Unmarshal(data, &any)); err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	for _, wrong := range schema(t).check("", any) {
		t.Error(wrong)
	}
	first := r.Subjects[0]
	if n := first.Totals; n.Tried+n.Untried != len(Attacks()) || n.Leaks != full().Count(Leaked) || n.OwnLeaks == 0 || n.OwnLeaks >= n.Leaks {
		t.Errorf("%+v", n)
	}
	if !reflect.DeepEqual(first.Subject, full().Subject) || len(first.Attacks) != len(Attacks()) || first.Attacks[3].Outcome != "leaks" || first.Attacks[0].Why == "" {
		t.Errorf("%+v", first)
	}
	if lines := bytes.Count(data, []byte("\n")); lines < 2*len(Attacks()) {
		t.Errorf("an attack has no line of its own: %d lines", lines)
	}
}

// TestSchemaNotices: what is no report is found, and the schema has each word of a report and no other.
func TestSchemaNotices(t *testing.T) {
	s := schema(t)
	for text, want := range map[string]string{
		`{"format": 1, "date": "x", "kernel": "x"}`:                                                         `: no "subjects"`,
		`{"format": 2, "date": "x", "kernel": "x", "subjects": []}`:                                         `/format: 2`,
		`{"format": 1, "date": "x", "kernel": 6, "subjects": []}`:                                           `/kernel: no string`,
		`{"format": 1, "date": "x", "kernel": "x", "subjects": [{"name": "y"}]}`:                            `/subjects/0: unknown "name"`,
		`{"format": 1, "date": "x", "kernel": "x", "subjects": [{"attacks": [{"id": "E1", "own": true}]}]}`: `/subjects/0/attacks/0/id: "E1"`,
	} {
		var v any
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Fatal(err)
		}
		if got := s.check("", v); !slices.ContainsFunc(got, func(g string) bool { return strings.HasPrefix(g, want) }) {
			t.Errorf("%s: %q", text, got)
		}
	}
	for name, v := range map[string]any{"verdict": Verdict{}, "subject": Subject{}, "totals": Totals{}, "trial": Trial{}} {
		if got, want := slices.Sorted(maps.Keys(s.Defs[name].Properties)), words(reflect.TypeOf(v)); !slices.Equal(got, want) {
			t.Errorf("%s: the schema has %q, the report %q", name, got, want)
		}
	}
}

// TestBadge: it is a picture, and says how many attacks leak in any of the columns.
func TestBadge(t *testing.T) {
	badge := Badge([]Column{full()})
	d := xml.NewDecoder(strings.NewReader(badge))
	for {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("%v\n%s", err, badge)
		}
	}
	if want := fmt.Sprintf(">%d of %d attacks leak<", full().Count(Leaked), len(Attacks())-full().Count(Untried)); !strings.Contains(badge, want) {
		t.Errorf("no %s in\n%s", want, badge)
	}
	at := regexp.MustCompile(`<svg [^>]*width="(\d+)"[^$]*<rect width="(\d+)"[^$]*<text x="([\d.]+)"[^$]*<text x="([\d.]+)"`).FindStringSubmatch(badge)
	var numbers [5]float64
	for i, text := range at {
		numbers[i], _ = strconv.ParseFloat(text, 64)
	}
	if all, left := numbers[1], numbers[2]; numbers[3] != left/2 || numbers[4] != (left+all)/2 {
		t.Errorf("the texts are not in the middle of their halves: %v", at)
	}
	held := Column{Results: [][]Result{slices.Repeat([]Result{{Outcome: Blocked}}, len(Attacks()))}}
	if badge := Badge([]Column{held, held}); !strings.Contains(badge, ">0 of ") || !strings.Contains(badge, "#1b6e34") {
		t.Error(badge)
	}
	if badge := Badge([]Column{held, full()}); !strings.Contains(badge, fmt.Sprintf(">%d of ", full().Count(Leaked))) || strings.Contains(badge, "#1b6e34") {
		t.Error(badge)
	}
}

// node is what docs/scorecard.schema.json uses of JSON Schema.
type node struct {
	Ref        string `json:"$ref"`
	Type       string
	Properties map[string]*node
	Required   []string
	Items      *node
	Enum       []any
	Const      any
	Pattern    string
	Additional *bool `json:"additionalProperties"`
	Minimum    *float64
	Defs       map[string]*node `json:"$defs"`

	Dialect, Title, Description, Format string // which check nothing

	root *node
}

func schema(t *testing.T) *node {
	t.Helper()
	data, err := os.ReadFile("../../../docs/scorecard.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	root := &node{}
	d := json.NewDecoder(strings.NewReader(strings.Replace(string(data), `"$schema"`, `"Dialect"`, 1)))
	d.DisallowUnknownFields() // a word that check knows nothing of
	if err := d.Decode(root); err != nil {
		t.Fatal(err)
	}
	root.root = root
	return root
}

// check says what of a value a schema does not allow.
func (n *node) check(at string, v any) (wrong []string) {
	add := func(format string, args ...any) { wrong = append(wrong, at+": "+fmt.Sprintf(format, args...)) }
	into := func(sub *node, name string, v any) {
		sub.root = n.root
		wrong = append(wrong, sub.check(at+name, v)...)
	}
	if name, is := strings.CutPrefix(n.Ref, "#/$defs/"); is {
		into(n.root.Defs[name], "", v)
		return wrong
	}
	if n.Const != nil && v != n.Const || n.Enum != nil && !slices.Contains(n.Enum, v) {
		add("%v", v)
	}
	number, numeric := v.(float64)
	text, textual := v.(string)
	list, listed := v.([]any)
	object, keyed := v.(map[string]any)
	_, logical := v.(bool)
	if is, known := map[string]bool{"": true, "string": textual, "integer": numeric && number == math.Trunc(number), "array": listed, "object": keyed, "boolean": logical}[n.Type]; !known || !is {
		add("no %s", n.Type)
	}
	if n.Minimum != nil && number < *n.Minimum || n.Pattern != "" && !regexp.MustCompile(n.Pattern).MatchString(text) {
		add("%#v", v)
	}
	for _, name := range n.Required {
		if _, has := object[name]; !has {
			add("no %q", name)
		}
	}
	for name, v := range object {
		if sub := n.Properties[name]; sub != nil {
			into(sub, "/"+name, v)
		} else if n.Additional != nil && !*n.Additional {
			add("unknown %q", name)
		}
	}
	for i, v := range list {
		into(n.Items, fmt.Sprintf("/%d", i), v)
	}
	return wrong
}

// words are the names of a type's fields in JSON.
func words(t reflect.Type) (out []string) {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			out = append(out, words(f.Type)...)
		} else if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "-" {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}
