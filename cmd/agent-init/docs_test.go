package main

import (
	"encoding/json"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// What the pages say of the program and of the tree is held by the tests of this
// file and of docscommands_test.go, as far as a machine can tell.

const root = "../.."

// page is a page of the docs, taken apart.
type page struct {
	path   string   // from the root
	text   string   // as it is
	prose  string   // without blocks of code
	spans  []string // of code, within the prose
	blocks []string // lines of the blocks of code
}

var (
	fence = regexp.MustCompile("(?ms)^ *```[a-z]*\n(.*?)^ *```$")
	span  = regexp.MustCompile("`([^`]+)`")
)

func parsePage(name, text string) page {
	p := page{path: name, text: text}
	text = fence.ReplaceAllStringFunc(text, func(block string) string {
		p.blocks = append(p.blocks, strings.Split(fence.FindStringSubmatch(block)[1], "\n")...)
		return ""
	})
	var prose strings.Builder
	blank := true
	for line := range strings.Lines(text) {
		code := strings.HasPrefix(line, "    ") && blank
		if code {
			p.blocks = append(p.blocks, strings.TrimSpace(line))
			continue
		}
		blank = strings.TrimSpace(line) == ""
		prose.WriteString(line)
	}
	p.prose = prose.String()
	for _, m := range span.FindAllStringSubmatch(p.prose, -1) {
		p.spans = append(p.spans, strings.Join(strings.Fields(m[1]), " "))
	}
	return p
}

// code is all that a page has of code.
func (p page) code() []string { return slices.Concat(p.blocks, p.spans) }

// tree lists the files below the root, but for what is built or fetched.
func tree(t *testing.T) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		if d.IsDir() && slices.Contains([]string{".git", ".cache", "bin", "node_modules"}, d.Name()) {
			return filepath.SkipDir
		}
		if rel != "." {
			files = append(files, filepath.ToSlash(rel))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// pages are all pages of the tree.
func pages(t *testing.T) []page {
	t.Helper()
	var all []page
	for _, f := range tree(t) {
		if !strings.HasSuffix(f, ".md") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(root, f))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, parsePage(f, string(data)))
	}
	if len(all) < 25 {
		t.Fatalf("found only %d pages", len(all))
	}
	return all
}

// anchors are the fragments that a page's headings can be linked by.
func (p page) anchors() map[string]bool {
	found := map[string]bool{}
	for line := range strings.Lines(p.prose) {
		title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " ")
		if !ok || !strings.HasPrefix(line, "#") {
			continue
		}
		slug := regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(strings.TrimSpace(title)), "")
		found[strings.ReplaceAll(slug, " ", "-")] = true
	}
	return found
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// brokenLinks are the links within the tree that lead nowhere.
func brokenLinks(all []page, files []string) []string {
	headings := map[string]map[string]bool{}
	for _, p := range all {
		headings[p.path] = p.anchors()
	}
	var broken []string
	for _, p := range all {
		for _, m := range link.FindAllStringSubmatch(p.prose, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			target, anchor, _ := strings.Cut(m[1], "#")
			if target == "" {
				target = p.path
			} else {
				target = path.Join(path.Dir(p.path), target)
			}
			if !slices.Contains(files, target) || anchor != "" && !headings[target][anchor] {
				broken = append(broken, p.path+": "+m[1])
			}
		}
	}
	return broken
}

// TestDocsLinks: every link within the tree leads to a file, and to a heading of it.
func TestDocsLinks(t *testing.T) {
	if broken := brokenLinks(pages(t), tree(t)); len(broken) > 0 {
		t.Errorf("lead nowhere:\n%s", strings.Join(broken, "\n"))
	}
}

var (
	pathLike = regexp.MustCompile(`^(\.\./)*((?:cmd|pkg|internal|docs|images|deploy|test|allowlist\.d|\.github|\.ci)/[A-Za-z0-9_.*/-]*[A-Za-z0-9_*])/?$`)
	fileLike = regexp.MustCompile(`^[a-zA-Z0-9_.-]+\.(go|sh|py)$|^Dockerfile\.[a-z]+$`)
)

// missingFiles are the files of the tree that pages name, and that are not there.
func missingFiles(all []page, files []string) []string {
	has := func(pattern string) bool {
		return slices.ContainsFunc(files, func(f string) bool { ok, _ := path.Match(pattern, f); return ok })
	}
	var missing []string
	for _, p := range all {
		for _, code := range p.code() {
			for _, word := range strings.FieldsFunc(code, func(r rune) bool { return strings.ContainsRune(" \"'`,;:|()[]{}=<>…", r) }) {
				if m := pathLike.FindStringSubmatch(word); m != nil && !has(m[2]) && !has(path.Join(path.Dir(p.path), word)) {
					missing = append(missing, p.path+": "+word)
				}
				if fileLike.MatchString(word) && !has(word) && !slices.ContainsFunc(files, func(f string) bool { return path.Base(f) == word }) {
					missing = append(missing, p.path+": "+word)
				}
			}
		}
	}
	return missing
}

// TestDocsFiles: every file of this tree that a page names is there.
func TestDocsFiles(t *testing.T) {
	if missing := missingFiles(pages(t), tree(t)); len(missing) > 0 {
		t.Errorf("are not there:\n%s", strings.Join(missing, "\n"))
	}
}

// TestDocsJSON: what a page shows as JSON is, line by line or as a whole.
func TestDocsJSON(t *testing.T) {
	blocks := 0
	for _, p := range pages(t) {
		for _, m := range regexp.MustCompile("(?s)```json\n(.*?)```").FindAllStringSubmatch(p.text, -1) {
			if blocks++; !json.Valid([]byte(m[1])) {
				t.Errorf("%s: not JSON:\n%s", p.path, m[1])
			}
		}
	}
	if blocks < 3 {
		t.Errorf("found only %d blocks", blocks)
	}
}

// TestDocsNotices shows that the tests of links and files can fail.
func TestDocsNotices(t *testing.T) {
	files := []string{"docs/a.md", "docs/b.md", "cmd/x/main.go"}
	all := []page{
		parsePage("docs/a.md", "# `A`, and b\n[b](b.md) [c](c.md) [h](b.md#two-words) [i](b.md#no) [s](#a-and-b)\n`main.go` `gone.go` `cmd/x/main.go`\n\n    cat cmd/x/gone.go\n"),
		parsePage("docs/b.md", "## Two words\n"),
	}
	if got, want := strings.Join(brokenLinks(all, files), ", "), "docs/a.md: c.md, docs/a.md: b.md#no"; got != want {
		t.Errorf("broken: %s, want %s", got, want)
	}
	if got, want := strings.Join(missingFiles(all, files), ", "), "docs/a.md: cmd/x/gone.go, docs/a.md: gone.go"; got != want {
		t.Errorf("missing: %s, want %s", got, want)
	}
}
