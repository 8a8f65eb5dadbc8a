package policy

import (
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	allowlist "github.com/agent-init/agent-init/allowlist.d"
)

// fsys makes presets of pairs of file name and content.
func fsys(pairs ...string) fs.FS {
	m := fstest.MapFS{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1])}
	}
	return m
}

func TestPresets(t *testing.T) {
	files, err := fs.Glob(allowlist.Files, "*.txt")
	if err != nil {
		t.Fatal(err)
	}
	have := " " + strings.Join(files, " ") + " "
	for _, name := range strings.Fields("claude github pypi crates codex gemini opencode ubuntu alpine openrouter mistral deepseek groq xai localai") {
		if !strings.Contains(have, " "+name+".txt ") {
			t.Errorf("there is no preset %s", name)
		}
	}
	for _, file := range files {
		name := strings.TrimSuffix(file, ".txt")
		p := parse(t, "a.txt", "@"+name)
		if len(p.Names()) == 0 || len(p.Static()) != 0 || len(p.Warnings()) != 0 {
			t.Errorf("%s: %+v, warnings %v", name, p.Counts(), p.Warnings())
		}
		data, err := fs.ReadFile(allowlist.Files, file)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
			if i == 0 && !strings.HasPrefix(line, "# ") {
				t.Errorf("%s does not begin with what it is for", name)
			}
			if line != "" && !strings.Contains(line, "# ") {
				t.Errorf("%s:%d gives no reason: %s", name, i+1, line)
			}
		}
		// What is commented out can be taken in as it stands.
		for _, line := range strings.Split(string(data), "\n") {
			if entry, ok := strings.CutPrefix(line, "# "); ok && strings.Contains(entry, "  # ") {
				parse(t, name, entry)
			}
		}
		denied := parse(t, "a.txt", "@"+name+"\n!@"+name)
		for _, r := range p.Names() {
			if denied.Lookup(r.Name).Allowed {
				t.Errorf("!@%s leaves %s open", name, r.Name)
			}
		}
	}
	p := parse(t, "a.txt", "@claude")
	if len(p.Required()) != 1 || p.Required()[0].Name != "api.anthropic.com" {
		t.Errorf("claude requires %v", p.Required())
	}
}

func TestPresetErrors(t *testing.T) {
	_, err := Parse(&Bundle{Files: []File{{Name: "a.txt", Data: []byte("@x\n@x\n@y\n")}}},
		fsys("x.txt", "ok.example\n  https://a.example/\n!b.example\n@y\n", "y.txt", "", "sub/z.txt", ""))
	want := join(
		`@x:2:3: an entry is a name, not a URL: "https://a.example/" (did you mean a.example?)`,
		`@x:3:1: a preset only allows, and names no other preset: "!b.example"`,
		`@x:4:1: a preset only allows, and names no other preset: "@y"`)
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

// Every example of the documentation is valid.
func TestDocumentation(t *testing.T) {
	data, err := os.ReadFile("../../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(data), "```")
	examples := 0
	for i := 1; i < len(blocks); i += 2 {
		kind, body, _ := strings.Cut(blocks[i], "\n")
		switch kind {
		case "text":
			p := parse(t, "example.txt", body)
			if len(p.rules) == 0 || len(p.Warnings()) != 0 {
				t.Errorf("example %d: %d rules, warnings %v", i, len(p.rules), p.Warnings())
			}
		case "yaml":
			if p := parse(t, "example.yaml", body); len(p.Warnings()) != 0 {
				t.Errorf("example %d: warnings %v", i, p.Warnings())
			}
		case "sh", "console":
			continue
		default:
			t.Errorf("an example of unknown kind %q", kind)
		}
		examples++
	}
	if examples < 4 {
		t.Errorf("only %d examples were found", examples)
	}
}
