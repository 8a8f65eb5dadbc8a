package judge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// asAny is a value as encoding/json would give it.
func asAny(v value) any {
	switch v.kind() {
	case object:
		m := map[string]any{}
		for name, member := range v.members() {
			m[string(name)] = asAny(member)
		}
		return m
	case array:
		l := []any{}
		for item := range v.items() {
			l = append(l, asAny(item))
		}
		return l
	case text:
		return string(v.str())
	case number:
		return json.Number(v.raw())
	case 't', 'f':
		return v.kind() == 't'
	}
	return nil
}

// second reads a document by encoding/json, which is laxer.
func second(t *testing.T, body []byte) any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("encoding/json does not read %q: %v", body, err)
	}
	return v
}

func TestParse(t *testing.T) {
	for _, body := range []string{
		`{}`, ` [ ] `, `null`, `"a"`, `-1.5e3`, `true`, "\t{\"a\" :\r\n[1,{\"b\":[[],{}]},\"\"],\"\":null}\n",
		`{"\u0061":"\ud83d\ude00\n\/","b":{"a":1,"b":{"a":2}},"c":[[1,[2,[3]]],4]}`,
		`"` + strings.Repeat("x", 1<<16) + `"`,
		`{` + manyNames(1000) + `"n":1}`,
		strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth),
		strings.Repeat(`{"a":`, maxDepth) + "1" + strings.Repeat("}", maxDepth),
		`[` + strings.Repeat("0,", maxValues-2) + `0]`,
	} {
		kept := strings.Clone(body)
		v, err := parse([]byte(body))
		if err != nil {
			t.Errorf("%.60q: %v", body, err)
			continue
		}
		if got, want := asAny(v), second(t, []byte(body)); !reflect.DeepEqual(got, want) {
			t.Errorf("%.60q is %v, want %v", body, got, want)
		}
		if string(v.raw()) != strings.TrimSpace(kept) {
			t.Errorf("%.60q: the tree has %.60q", body, v.raw())
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for name, body := range map[string]string{
		"nothing":             "",
		"blanks":              " \n",
		"a name twice":        `{"a":1,"b":2,"a":3}`,
		"a name twice, deep":  `[{"x":{"a":1,"a":1}}]`,
		"a name by an escape": `{"tools":1,"\u0074ools":2}`,
		"an escaped slash":    `{"a/b":1,"a\/b":2}`,
		"a pair by escapes":   `{"😀":1,"\ud83d\ude00":2}`,
		"many names":          `{` + manyNames(1000) + `"n7":1}`,
		"no UTF-8":            "{\"a\":\"\xff\"}",
		"no UTF-8 in a name":  "{\"\xc0\xaf\":1}",
		"UTF-8 of surrogates": "{\"a\":\"\xed\xa0\x80\"}",
		"half a pair":         `{"a":"\ud83d"}`,
		"the other half":      `{"a":"\ude00"}`,
		"half a pair, a name": `{"\ud83d":1}`,
		"a byte order mark":   "\ufeff{}",
		"UTF-16":              "{\x00}\x00",
		"two documents":       `{}{}`,
		"a comma behind":      `{},`,
		"a comma inside":      `{"a":1,}`,
		"NUL behind":          "{}\x00",
		"NaN":                 `{"a":NaN}`,
		"Infinity":            `[-Infinity]`,
		"hexadecimal":         `[0x10]`,
		"a leading zero":      `[01]`,
		"a comment":           `{/**/}`,
		"single quotes":       `{'a':1}`,
		"a bare name":         `{a:1}`,
		"a control character": "{\"a\":\"\n\"}",
		"cut":                 `{"a":[1`,
		"crossed":             `{"a":[1}]`,
		"a long number":       `[` + strings.Repeat("1", maxNumber+1) + `]`,
		"a large number":      `[1e400]`,
		"deep":                strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1),
		"deep and cut":        strings.Repeat("[", 1<<20),
		"many values":         `[` + strings.Repeat("0,", maxValues-1) + `0]`,
	} {
		if v, err := parse([]byte(body)); err == nil {
			t.Errorf("%s: %.60q is read as %v", name, body, asAny(v))
		}
	}
}

// manyNames are n members, each with another name, and the eighth's is escaped.
func manyNames(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"n%d":1,`, i)
	}
	return strings.Replace(b.String(), `"n7"`, `"n\u0037"`, 1)
}

func TestGet(t *testing.T) {
	v, err := parse([]byte(`{"a":{"b":[1,{"c":"\u0064"}]},"e":null,"f":"g"}`))
	if err != nil {
		t.Fatal(err)
	}
	var items []value
	for item := range v.get("a").get("b").items() {
		items = append(items, item)
	}
	if len(items) != 2 || string(items[1].get("c").str()) != "d" || string(items[0].raw()) != "1" {
		t.Errorf("the list has %v", items)
	}
	if !v.get("e").none() || v.get("e").kind() != null || !v.get("x").none() || v.get("x").kind() != absent {
		t.Error("null and absent are not told apart, or not both nothing")
	}
	if v.get("f").get("x").kind() != absent || v.get("x").get("y").str() != nil || string(v.get("f").str()) != "g" {
		t.Error("what isn't there has something")
	}
}
