package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestDocsPicture: the picture of the processes is well-formed, has a description and
// colours for a dark page, and the README says in words what it names.
func TestDocsPicture(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(root, "docs/processes.svg"))
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, beside, ok := strings.Cut(string(readme), "(docs/processes.svg)")
	beside, _, _ = strings.Cut(beside, "\n## ")
	if !ok {
		t.Fatal("README.md does not show docs/processes.svg")
	}
	if !bytes.Contains(data, []byte("prefers-color-scheme: dark")) {
		t.Error("the picture has no colours for a dark page")
	}
	for _, name := range picturedNames(t, data) {
		if !strings.Contains(strings.ToLower(beside), "**the "+name+"**") && name != "you" {
			t.Errorf("README.md says nothing of %q, which its picture names", name)
		}
	}
}

// picturedNames are the texts of a picture that name something, one at least.
func picturedNames(t *testing.T, data []byte) (names []string) {
	t.Helper()
	named := false
	for d := xml.NewDecoder(bytes.NewReader(data)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("the picture: %v", err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			named = token.Name.Local == "text" && slices.ContainsFunc(token.Attr, func(a xml.Attr) bool { return a.Name.Local == "class" && a.Value == "name" })
		case xml.CharData:
			if named {
				names = append(names, strings.TrimSpace(string(token)))
			}
		case xml.EndElement:
			named = false
		}
	}
	if len(names) < 5 || !bytes.Contains(data, []byte("<desc ")) {
		t.Errorf("the picture names %q, and should have a description", names)
	}
	return names
}
