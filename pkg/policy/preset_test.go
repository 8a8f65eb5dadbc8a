package policy

import (
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	allowlist "github.com/agent-init/agent-init/allowlist.d"
	"github.com/agent-init/agent-init/pkg/route"
)

// fsys makes presets of pairs of file name and content.
func fsys(pairs ...string) fs.FS {
	m := fstest.MapFS{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1])}
	}
	return m
}

// providers are presets of agents that talk to a provider of the user's choice:
// nothing in them is needed.
var providers = []string{"aider", "crush", "goose", "opencode", "pi"}

func TestPresets(t *testing.T) {
	files, err := fs.Glob(allowlist.Files, "*.txt")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("../../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	_, listed, _ := strings.Cut(string(doc), "\n### Presets\n")
	listed, _, _ = strings.Cut(listed, "`!@NAME`")
	_, listed, _ = strings.Cut(listed, "\n- ")
	var documented []string
	for _, m := range regexp.MustCompile("`([a-z0-9-]+)`").FindAllStringSubmatch(listed, -1) {
		documented = append(documented, m[1]+".txt")
	}
	agents, err := filepath.Glob("../../images/*/packages")
	if err != nil || len(agents) == 0 {
		t.Fatalf("%d agents, %v", len(agents), err)
	}
	for _, agent := range agents {
		documented = append(documented, filepath.Base(filepath.Dir(agent))+".txt")
	}
	slices.Sort(documented)
	if !slices.Equal(documented, files) {
		t.Errorf("docs/policy.md and images have the presets %q, and there are %q", documented, files)
	}
	for _, file := range files {
		name := strings.TrimSuffix(file, ".txt")
		t.Run(name, func(t *testing.T) {
			p := parse(t, "a.txt", "@"+name)
			if len(p.Static) != 0 != (name == "github-meta") || len(p.Warnings) != 0 {
				t.Errorf("%+v, warnings %v", p.Counts(), p.Warnings)
			}
			if none := len(p.Names) == 0; none != (slices.Contains(providers, name) || name == "github-meta") {
				t.Errorf("allows %d names", len(p.Names))
			}
			data, err := fs.ReadFile(allowlist.Files, file)
			if err != nil {
				t.Fatal(err)
			}
			checkPresetText(t, string(data))
			denied := parse(t, "a.txt", "@"+name+"\n!@"+name)
			for _, r := range p.Names {
				if denied.Lookup(r.Name).Allowed {
					t.Errorf("!@%s leaves %s open", name, r.Name)
				}
			}
		})
	}
	p := parse(t, "a.txt", "@claude")
	if len(p.Required) != 1 || p.Required[0].Name != "api.anthropic.com" {
		t.Errorf("claude requires %v", p.Required)
	}
}

// sourceForm is what a source of a preset may be; allowlist.d/README.md says what each means.
var sourceForm = regexp.MustCompile(`^(.+ \(read \d{4}-\d{2}(-\d{2})?\)(;.*)?|.+ \(not read\)|measured with [\d.]+|not measured: .+|` +
	`the program itself, which has every name in it: [\d.]+|the lists? of providers of .+)$`)

// checkPresetText holds the form of a preset: what it is, its sources, and then
// sections in a fixed order, active ones first, each line with its reason.
func checkPresetText(t *testing.T, text string) {
	t.Helper()
	sections := []string{"required", "sign-in", "optional", "telemetry", "update"}
	active := map[string]bool{"required": true, "sign-in": true}
	head, body, ok := strings.Cut(text, "\n\n")
	if first, rest, _ := strings.Cut(head, "\n"); !ok || !strings.HasPrefix(first, "# ") || !strings.Contains(rest, "# Source: ") {
		t.Errorf("does not begin with what it is for, and its source:\n%s", head)
	}
	unread := true // none of the sources was looked at
	for source := range strings.Lines(head) {
		if source, ok := strings.CutPrefix(strings.TrimSpace(source), "# Source: "); ok {
			if !sourceForm.MatchString(source) {
				t.Errorf("a source that doesn't say how it is known: %s", source)
			}
			if !strings.HasSuffix(source, "(not read)") && !strings.HasPrefix(source, "not measured") {
				unread = false
			}
		}
	}
	at, section, seen := -1, "", map[string]bool{}
	for i, line := range strings.Split(strings.TrimRight(body, "\n"), "\n") {
		entry, commented := strings.CutPrefix(line, "# ")
		if name, ok := strings.CutSuffix(entry, ":"); commented && ok {
			next := slices.Index(sections, name)
			if next <= at {
				t.Errorf("section %q is unknown or out of order", name)
			}
			at, section = next, name
			continue
		}
		if line == "" {
			continue
		}
		target, reason, ok := strings.Cut(entry, "  # ")
		if !ok || strings.TrimSpace(reason) == "" {
			t.Errorf("line %d of the sections gives no reason: %s", i+1, line)
		}
		if unread && !strings.HasSuffix(reason, "not confirmed") {
			t.Errorf("no source was read, and this line doesn't say that it is not confirmed: %s", line)
		}
		if section == "" || commented == active[section] {
			t.Errorf("in section %q: %s", section, line)
		}
		if target = strings.TrimSpace(target); seen[target] {
			t.Errorf("%s is there twice", target)
		}
		seen[target] = true
		parse(t, "a.txt", entry) // what is commented out can be taken in as it stands
	}
}

// TestPresetsGiveWay: with a preset, each built-in route goes without an error, and so do entries about requests to GitHub.
func TestPresetsGiveWay(t *testing.T) {
	for _, name := range route.Names() {
		r, _ := route.Builtin(name)
		var u url.URL
		if parsed, err := url.Parse(r.To); err == nil {
			u = *parsed
		}
		if u.Host == "" || strings.Contains(u.Host, "{") {
			continue
		}
		files, _ := fs.Glob(allowlist.Files, "*.txt")
		for _, file := range files {
			data := "services: [" + strings.TrimSuffix(file, ".txt") + "]\nbroker: {" + name + ": {credential: 'env:K'}}\n"
			if _, err := Parse(&Bundle{Files: []File{{Name: "p.yaml", Data: []byte(data)}}}, allowlist.Files); err != nil {
				t.Errorf("%s beside the route %s: %v", file, name, err)
			}
		}
	}
	p := parse(t, "f", "@github\n@copilot\napi.github.com GET /repos/my-org/**\n!api.github.com * /gists/**\n")
	if p.Way("api.github.com", HTTPS) != Inspected || p.Decide("api.github.com", HTTP).Allowed || p.Way("github.com", HTTPS) != Gated {
		t.Errorf("a preset beside entries about requests: %s", bare(p))
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

// TestDocumentedDefaults: the settings that docs/policy.md calls the defaults are.
func TestDocumentedDefaults(t *testing.T) {
	data, err := os.ReadFile("../../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(data), "The settings, with their defaults")
	if !ok {
		t.Fatal("there are no settings with their defaults")
	}
	example := strings.TrimPrefix(strings.Split(rest, "```")[1], "yaml\n")
	for _, key := range names(newParser(nil).keys()) {
		if entries := []string{"services", "domains", "networks", "deny", "user", "command"}; !slices.Contains(entries, key) && !strings.Contains("\n"+example, "\n"+key+":") {
			t.Errorf("%s is missing", key)
		}
	}
	if got, want := parse(t, "example.yaml", example).Settings, parse(t, "none.yaml", "").Settings; !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
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
			if len(p.rules) == 0 || len(p.Warnings) != 0 {
				t.Errorf("example %d: %d rules, warnings %v", i, len(p.rules), p.Warnings)
			}
		case "yaml":
			if p := parse(t, "example.yaml", body); len(p.Warnings) != 0 {
				t.Errorf("example %d: warnings %v", i, p.Warnings)
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
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, ok := strings.Cut(string(readme), "```\napi.anthropic.com ")
	list, _, closed := strings.Cut(list, "```")
	if p := parse(t, "readme.txt", "api.anthropic.com "+list); !ok || !closed || len(p.rules) < 10 || len(p.Warnings) != 0 {
		t.Errorf("the list of README.md: %d rules, warnings %v", len(p.rules), p.Warnings)
	}
}
