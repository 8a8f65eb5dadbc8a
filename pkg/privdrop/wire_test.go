package privdrop

import (
	"encoding/json"
	"reflect"
	"testing"
)

// What is not UTF-8 reaches the command as it is.
func TestSpecSurvivesJSON(t *testing.T) {
	want := Spec{
		Identity: Identity{UID: 7, GID: 8, Groups: []uint32{9}, Name: "n", Home: "/h", Shell: "/s"},
		Argv:     []string{"a\xff\xfe", "", "<&>\n"}, Env: []string{"A=\x80", "B="}, Dir: "/w\xe9",
		Umask: 0o77, DenyUserNS: true, KeepFDs: 3, ParentPID: 5,
	}
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got Spec
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nbecame %+v", want, got)
	}
	if err := json.Unmarshal([]byte(`{"argv":["not base64!"]}`), &got); err == nil {
		t.Error("what it never wrote was accepted")
	}
}
