package main

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/agent-init/agent-init/pkg/audit"
)

// full has something in every field.
func full() audit.Event {
	var e audit.Event
	v := reflect.ValueOf(&e).Elem()
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.String:
			f.SetString("text of " + v.Type().Field(i).Name)
		case reflect.Uint64, reflect.Uint16:
			f.SetUint(uint64(1000 + i))
		case reflect.Int:
			f.SetInt(int64(1000 + i))
		}
	}
	uid := uint32(1234)
	e.UID, e.Time, e.Kind, e.Verdict = &uid, time.Unix(1_800_000_000, 5), audit.HTTP, audit.Deny
	return e
}

// TestFields: no field of an event is left out, each attribute has one name, and docs/telemetry.md has all of them.
func TestFields(t *testing.T) {
	page, err := os.ReadFile("../../docs/telemetry.md")
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := []string{"Time", "Reason"} // in the record's own fields
	typ := reflect.TypeFor[audit.Event]()
	for i := range typ.NumField() {
		f := typ.Field(i)
		if !slices.Contains(elsewhere, f.Name) && !slices.ContainsFunc(attrs, func(a attr) bool { return a.of == f.Name }) {
			t.Errorf("%s is not sent", f.Name)
		}
	}
	rows := map[string]string{} // by the field in the log
	for line := range strings.Lines(string(page)) {
		if cells := strings.Split(line, "|"); len(cells) > 3 && strings.HasPrefix(line, "| `") {
			rows[strings.Trim(cells[1], " `")] += cells[2]
		}
	}
	for _, a := range attrs {
		f, ok := typ.FieldByName(a.of)
		if !ok {
			t.Errorf("there is no field %s", a.of)
			continue
		}
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		for _, e := range []audit.Event{{Kind: audit.HTTP}, {Kind: audit.DNS}, {Kind: audit.Grant}, {Kind: audit.Drop, Asker: audit.ByOutside}} {
			if name := a.name(&e); !strings.Contains(rows[key], "`"+name+"`") {
				t.Errorf("docs/telemetry.md does not have %s beside %s", name, key)
			}
		}
	}
	e := full()
	r := newRecords(map[string]string{"service.name": "x"})
	made := r.of([]item{{Event: e}})
	if len(made) != 1 {
		t.Fatalf("%d records", len(made))
	}
	got := map[string]attribute.Value{}
	for _, a := range attributesOf(made[0]) {
		if _, twice := got[string(a.Key)]; twice {
			t.Errorf("%s is there twice", a.Key)
		}
		got[string(a.Key)] = a.Value
	}
	if len(got) != len(attrs) {
		t.Errorf("%d attributes of %d: %v", len(got), len(attrs), got)
	}
	if got["metadata.sequence"].AsInt64() != int64(e.Seq) || got["dst_endpoint.hostname"].AsString() != e.Name || got["actor.user.uid"].AsString() != "1234" ||
		got["class_uid"].AsInt64() != 4002 || got["disposition_id"].AsInt64() != 2 || got["count"].AsInt64() != int64(1+e.Suppressed) {
		t.Errorf("%v", got)
	}
	if made[0].Body().AsString() != e.Reason || !made[0].Timestamp().Equal(e.Time) || made[0].EventName() != "agent_init.http" {
		t.Errorf("%+v", made[0])
	}
	if again := r.of([]item{{Event: audit.Event{Seq: 7, Kind: audit.DNS, Name: "a.example"}}}); len(again) != 1 || len(attributesOf(again[0])) != 4 {
		t.Errorf("an event with little in it: %v", attributesOf(again[0]))
	}
}

// TestWords: what the agent made up is no line of its own for whoever shows it.
func TestWords(t *testing.T) {
	for text, want := range map[string]string{"a\nb": "a?b", "\x1b[2J": "?[2J", "a\xffb": "a?b", "a\u202eb": "a?b", "a b é": "a b é"} {
		if got := words(text).AsString(); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
