package judge

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/pkg/route"
)

// asked is a request that is judged as the broker does.
type asked struct {
	route, path, body string
	change            func(*route.Route) // of the route, by the policy
}

func (a asked) judge(t *testing.T, body string) (Told, *Refusal) {
	t.Helper()
	r, ok := route.Builtin(a.route)
	if !ok {
		t.Fatalf("there is no route %s", a.route)
	}
	if a.change != nil {
		a.change(&r)
	}
	path, query, _ := strings.Cut(a.path, "?")
	e, refusal := Head(&r, "POST", path, query, http.Header{"Content-Type": {"application/json"}})
	if refusal != nil {
		return Told{}, refusal
	}
	return Body(&r, e, path, []byte(body))
}

// spellings are other ways to write a body that mean the same.
func spellings(t *testing.T, body string) []string {
	t.Helper()
	var v any
	d := json.NewDecoder(strings.NewReader(body))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v in %s", err, body)
	}
	indented, err := json.MarshalIndent(v, " ", "\t")
	if err != nil {
		t.Fatal(err)
	}
	return []string{body, "\r\n " + string(indented) + "\t\n", escaped(v), padded(v)}
}

// escaped writes each character of each text and name as an escape, and members in the other order.
func escaped(v any) string {
	switch v := v.(type) {
	case string:
		var b strings.Builder
		for _, unit := range utf16s(v) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
		return `"` + b.String() + `"`
	case []any:
		var items []string
		for _, item := range v {
			items = append(items, escaped(item))
		}
		return "[" + strings.Join(items, " ,") + "]"
	case map[string]any:
		var members []string
		for name, member := range v {
			members = append(members, escaped(name)+" :"+escaped(member))
		}
		slices.Sort(members)
		slices.Reverse(members)
		return "{" + strings.Join(members, ",\n") + "}"
	}
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

// padded is a body behind and before members that say nothing.
func padded(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	inner := string(raw[1 : len(raw)-1])
	return `{"user":null,` + inner + `,"seed":null}`
}

func utf16s(s string) []uint16 {
	var units []uint16
	for _, r := range s {
		if r >= 0x10000 {
			r -= 0x10000
			units = append(units, uint16(0xd800+r>>10), uint16(0xdc00+r&0x3ff))
			continue
		}
		units = append(units, uint16(r))
	}
	return units
}

// refuses holds that a request is refused for what, however it is spelt.
func (a asked) refuses(t *testing.T, name, what string) {
	t.Helper()
	for i, body := range spellings(t, a.body) {
		if told, refusal := a.judge(t, body); refusal == nil {
			t.Errorf("%s, spelling %d: it passes as %+v: %.300s", name, i, told, body)
		} else if refusal.What != what {
			t.Errorf("%s, spelling %d: it is refused for %s (%s), and not for %s", name, i, refusal.What, refusal.Text, what)
		}
	}
}

// passes holds that a request passes, however it is spelt.
func (a asked) passes(t *testing.T, name string, want Told) {
	t.Helper()
	for i, body := range spellings(t, a.body) {
		if told, refusal := a.judge(t, body); refusal != nil {
			t.Errorf("%s, spelling %d: it is refused: %s", name, i, refusal.Text)
		} else if told != want {
			t.Errorf("%s, spelling %d: it is taken for %+v, want %+v", name, i, told, want)
		}
	}
}

// with fills the place %s of a frame.
func with(frame, inner string) string { return strings.Replace(frame, "%s", inner, 1) }

// allow is a change of a route that admits what the provider runs.
func allow(tools ...string) func(*route.Route) {
	return func(r *route.Route) { r.ProviderTools = tools }
}
