package ui

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
)

// TestXtermIsAsPublished compares what is embedded with the files of npm's @xterm/xterm 6.0.0 and @xterm/addon-fit
// 0.11.0.
func TestXtermIsAsPublished(t *testing.T) {
	for name, want := range map[string]string{
		"xterm.mjs":     "b336ec65a086c056d4804b3d4c2347da5663d3f23c3f25be866467bd8857ad59", // lib/xterm.mjs
		"xterm.css":     "854a7c0fb70e8b1a083c16797ab827299fb18744f5ad34f227b48337e33293c6", // css/xterm.css
		"addon-fit.mjs": "2d87e1bddc73be9111de8beee5370c3bb7aac9c94e18e6f245f02ca741ef1769", // lib/addon-fit.mjs
	} {
		z, err := gzip.NewReader(bytes.NewReader(read("xterm/" + name + ".gz")))
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.New()
		if _, err := io.Copy(sum, z); err != nil {
			t.Fatal(err)
		}
		if got := hex.EncodeToString(sum.Sum(nil)); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
	for _, name := range []string{"LICENSE.xterm", "LICENSE.addon-fit"} {
		if text, err := os.ReadFile("xterm/" + name); err != nil || !strings.Contains(string(text), "Permission is hereby granted") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestThePageHasNothingInside: its policy lets no script, style or handler stand in a document, and the page's own
// scripts make no markup of text.
func TestThePageHasNothingInside(t *testing.T) {
	list, err := tree.ReadDir("page")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		text := string(read("page/" + f.Name()))
		for _, bad := range []string{
			"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "javascript:", "style=",
			"<style", "onclick=\"", "onload=", "https://", "srcdoc",
		} {
			if strings.Contains(text, bad) {
				t.Errorf("%s has %s", f.Name(), bad)
			}
		}
		if strings.HasSuffix(f.Name(), ".html") && strings.Count(text, "<script") != strings.Count(text, `<script type="module" src="/`) {
			t.Errorf("%s has a script inside", f.Name())
		}
	}
}

// TestFilesAreServed as they are embedded, zipped or not.
func TestFilesAreServed(t *testing.T) {
	r := newRig(t)
	for pattern, f := range allFiles() {
		path := strings.TrimSuffix(pattern, "{$}")
		a := r.send(r.request("GET", path, ""))
		if a.status != http.StatusOK || (a.header.Get("Content-Encoding") == "gzip") != f.zipped || a.body == "" || a.body != string(f.data) {
			t.Errorf("%s: %d %v", path, a.status, a.header)
		}
	}
}
