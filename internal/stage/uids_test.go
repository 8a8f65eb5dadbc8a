package stage

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func TestOwnGroup(t *testing.T) {
	for name, c := range map[string]struct {
		ids  []idRange
		want uint32
	}{
		"all":                    {[]idRange{{0, 1<<32 - 1}}, 64901},
		"root's and the agent's": {[]idRange{{0, 1}, {1000, 1}}, 1000},
		"one more":               {[]idRange{{0, 1}, {1000, 2}}, 1001},
		"a thousand":             {[]idRange{{0, 1000}}, 1},
		"root's":                 {[]idRange{{0, 1}}, 1000}, // which can't be taken on: the start ends there
	} {
		if got := ownGroup(c.ids, 64901, 1000); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestMappedIDs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "gid_map")
	for text, want := range map[string]string{
		"         0          0 4294967295\n":                  "[{0 4294967295}]",
		"         0       1000          1\n 1 100000 65536\n": "[{0 1} {1 65536}]",
		"":      "[]",
		"0 1\n": "",
	} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		got, err := mappedIDs(file)
		if (err == nil) != (want != "") || err == nil && fmt.Sprint(got) != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	if got, err := mappedIDs(file + ".no"); err != nil || fmt.Sprint(got) != "[{0 4294967295}]" {
		t.Errorf("without namespaces: %v, %v", got, err)
	}
}
