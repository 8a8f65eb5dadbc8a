package text

import (
	"encoding/json"
	"io"
	"maps"
	"strings"
	"testing"
)

// TestCounted: one is not said as if it were many.
func TestCounted(t *testing.T) {
	for got, want := range map[string]string{
		Counted(0, "name", "names"):            "0 names",
		Counted(1, "query", "queries"):         "1 query",
		Counted(uint64(2), "query", "queries"): "2 queries",
		Times(1):                               "once",
		Times(uint64(3)):                       "3 times",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestJSON: what is written for programs does nothing on a terminal, and reads back as it was.
func TestJSON(t *testing.T) {
	hostile := map[string]string{"\u202eb": "\u009b2J\x1b]0;x\x07 \u200b\x7f\U000e0001 <ü世🙂>\n"}
	for _, write := range []func(io.Writer, any) error{JSON, JSONLine} {
		var b strings.Builder
		if err := write(&b, hostile); err != nil {
			t.Fatal(err)
		}
		if got := strings.ReplaceAll(b.String(), "\n", ""); Clean(got) != got {
			t.Errorf("%q", b.String())
		}
		var back map[string]string
		if err := json.Unmarshal([]byte(b.String()), &back); err != nil || !maps.Equal(back, hostile) {
			t.Errorf("%q, %v", back, err)
		}
	}
}
