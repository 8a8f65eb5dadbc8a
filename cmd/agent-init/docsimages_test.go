package main

import (
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDocsTools: the table of tools in docs/images.md has what Dockerfile.base adds, by the names of both distributions.
func TestDocsTools(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(root, "Dockerfile.base"))
	if err != nil {
		t.Fatal(err)
	}
	lists := regexp.MustCompile(`(?m)^ARG TOOLS="(.*)"$`).FindAllStringSubmatch(string(data), -1)
	if len(lists) != 2 {
		t.Fatalf("Dockerfile.base has %d lists of tools", len(lists))
	}
	page, err := os.ReadFile(filepath.Join(root, "docs/images.md"))
	if err != nil {
		t.Fatal(err)
	}
	var debian, alpine []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\S+)` \\| (?:`(\\S+)` )?\\| [0-9,]+ \\|").FindAllStringSubmatch(string(page), -1) {
		debian = append(debian, row[1])
		alpine = append(alpine, cmp.Or(row[2], row[1]))
	}
	for i, documented := range [][]string{debian, alpine} {
		if installed := strings.Fields(lists[i][1]); !slices.Equal(documented, installed) {
			t.Errorf("docs/images.md has %q, and Dockerfile.base installs %q", documented, installed)
		}
	}
}

// TestBaseContext: what Dockerfile.base copies is let into a build from this tree, and into that of the tests.
func TestBaseContext(t *testing.T) {
	read := func(name string) string {
		data, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	copies := regexp.MustCompile(`(?m)^COPY ((?:images/\S+ )+)`).FindAllStringSubmatch(read("Dockerfile.base"), -1)
	if len(copies) != 2 {
		t.Fatalf("Dockerfile.base copies %q", copies)
	}
	for _, c := range copies {
		for _, file := range strings.Fields(c[1]) {
			if !slices.Contains(strings.Split(read(".dockerignore"), "\n"), "!"+file) {
				t.Errorf(".dockerignore leaves out %s", file)
			}
			for _, script := range []string{"test/with-engine.sh", "test/images.sh", "test/container/builder_test.go"} {
				if !strings.Contains(read(script), file) {
					t.Errorf("%s leaves out %s", script, file)
				}
			}
		}
	}
}
