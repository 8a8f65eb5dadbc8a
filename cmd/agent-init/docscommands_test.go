package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/lab/man"
	"github.com/agent-init/agent-init/internal/launch/cli"
	"github.com/agent-init/agent-init/pkg/audit"
)

// foreignFlags are those of other programs that pages name by themselves.
var foreignFlags = strings.Fields(`--add-host --allow-domains-file --auth-type --auto --build-arg --cap-add --cap-drop --config
	--disable-client-telemetry --feature-gates --http2 --init --ipset --net-raw --network --privileged --read-only --runtime --security-opt --tmpfs --version`)

// commandFlags is what the program knows: the flags of each command for people.
func commandFlags() map[string]map[string]bool {
	all := map[string]map[string]bool{}
	for _, c := range visible() {
		all[c.name] = map[string]bool{"--help": true, "-h": true}
		fs := c.flagSet(new(environment))
		fs.VisitAll(func(f *flag.Flag) { all[c.name][cli.Dashes(f.Name)] = true })
	}
	return all
}

var (
	commandLine = regexp.MustCompile(`(^|[\s"'(&/])agent-init ([^|;)&]+)`)
	option      = regexp.MustCompile(`^\[?(--?[a-z][a-z0-9-]*)`)
	verb        = regexp.MustCompile(`^[a-z_]+$`)
)

// wrongCommands are the command lines in code that the program would refuse, by
// a command or a flag that it doesn't have.
func wrongCommands(code []string, known map[string]map[string]bool) []string {
	var wrong []string
	judge := func(where, name, rest string) {
		for _, word := range strings.Fields(rest) {
			if word == "--" || word == "#" || strings.Contains(word, "…") && !strings.HasPrefix(word, "-") {
				return
			}
			if m := option.FindStringSubmatch(word); m != nil && !known[name][m[1]] {
				wrong = append(wrong, fmt.Sprintf("%s: %s has no %s", where, name, m[1]))
			}
		}
	}
	hidden := map[string]bool{}
	for _, c := range commands() {
		hidden[c.name] = c.group == ""
	}
	var everyFlag []string
	for _, flags := range known {
		for f := range flags {
			everyFlag = append(everyFlag, f)
		}
	}
	for _, line := range code {
		line = strings.ReplaceAll(line, `\|`, "/") // of a table
		for _, m := range commandLine.FindAllStringSubmatch(line, -1) {
			name, rest, _ := strings.Cut(m[2], " ")
			name = strings.Trim(name, `'"`)
			switch {
			case !verb.MatchString(name) || hidden[name]:
			case known[name] == nil:
				wrong = append(wrong, fmt.Sprintf("%s: there is no %s", line, name))
			default:
				judge(line, name, rest)
			}
		}
		// A command by itself, with what it takes: `run --record FILE`.
		if name, rest, ok := strings.Cut(line, " "); ok && known[name] != nil {
			judge(line, name, rest)
		}
		// A flag by itself: `--grace 10s`.
		if m := option.FindStringSubmatch(line); m != nil && strings.HasPrefix(m[1], "--") &&
			!slices.Contains(everyFlag, m[1]) && !slices.Contains(foreignFlags, m[1]) {
			wrong = append(wrong, fmt.Sprintf("%s: no command has it", line))
		}
	}
	return wrong
}

// TestDocsCommands: every command and flag of agent-init's that a page names is one.
func TestDocsCommands(t *testing.T) {
	for _, p := range pages(t) {
		for _, w := range wrongCommands(p.code(), commandFlags()) {
			t.Errorf("%s: %s", p.path, w)
		}
	}
}

func TestDocsCommandsNotices(t *testing.T) {
	commands := map[string]map[string]bool{"run": {"--grace": true}, "log": {"-f": true, "--denied": true}}
	code := []string{
		"agent-init run --grace 10s -- cmd --no", "agent-init rum", "docker exec C agent-init log -f --deny", "log --since 1h", "--nope",
		"run: [a, --b]", "--cap-add=NET_ADMIN", "$(agent-init log --x)", "agent-init run [--grace TIME]", "USER=agent-init x-y",
	}
	got := strings.Join(wrongCommands(code, commands), "\n")
	want := "agent-init rum: there is no rum\ndocker exec C agent-init log -f --deny: log has no --deny\n" +
		"log --since 1h: log has no --since\n--nope: no command has it\n$(agent-init log --x): log has no --x"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestDocsEnvironment: every variable AGENT_INIT_… that a page names is a flag, or read
// by something in this tree.
func TestDocsEnvironment(t *testing.T) {
	var sources strings.Builder
	for _, f := range tree(t) {
		if !strings.HasSuffix(f, ".go") && !strings.HasSuffix(f, ".sh") && f != "Makefile" {
			continue
		}
		data, err := os.ReadFile(filepath.Join(root, f))
		if err != nil {
			t.Fatal(err)
		}
		sources.Write(data)
	}
	flags := map[string]bool{}
	for _, c := range visible() {
		c.eachFlag(func(name, _, _ string) {
			flags[fault.EnvPrefix+strings.ToUpper(strings.ReplaceAll(name, "-", "_"))] = true
		})
	}
	for _, p := range pages(t) {
		for _, code := range p.code() {
			for _, name := range regexp.MustCompile(`AGENT_INIT_[A-Z_]*[A-Z]`).FindAllString(code, -1) {
				if !flags[name] && !strings.Contains(sources.String(), name) {
					t.Errorf("%s: nothing reads %s", p.path, name)
				}
			}
		}
	}
}

// TestDocsMake: every target of make that a page names is one.
func TestDocsMake(t *testing.T) {
	read := func(f string) string {
		data, err := os.ReadFile(filepath.Join(root, f))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	targets := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^([a-z][a-zA-Z$() -]*):`).FindAllStringSubmatch(read("Makefile"), -1) {
		for _, target := range strings.Fields(m[1]) {
			targets[target] = true
		}
	}
	for line := range strings.Lines(read("images/variants")) {
		targets["image-"+strings.Fields(line)[0]] = true
	}
	for _, f := range tree(t) {
		if m := regexp.MustCompile(`^images/([a-z]+)/packages$`).FindStringSubmatch(f); m != nil {
			targets["image-"+m[1]] = true
		}
	}
	named := 0
	for _, p := range pages(t) {
		for _, code := range p.code() {
			words := strings.Fields(code)
			if len(words) < 2 || words[0] != "make" {
				continue
			}
			for _, w := range words[1:] {
				if strings.ContainsAny(w, "ABCDEFGHIJKLMNOPQRSTUVWXYZ=#&") {
					break
				}
				if named++; !targets[w] {
					t.Errorf("%s: %s: make has no target %s", p.path, code, w)
				}
			}
		}
	}
	if named < 30 {
		t.Errorf("found only %d targets", named)
	}
}

// table returns the first cells of the table of a page that has this header.
func table(t *testing.T, file, header string) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(data), "\n| "+header+" |")
	if !ok {
		t.Fatalf("%s has no table of %s", file, header)
	}
	var cells []string
	for i, line := range strings.Split(rest, "\n") {
		if i < 2 {
			continue
		}
		if !strings.HasPrefix(line, "|") {
			break
		}
		cells = append(cells, strings.TrimSpace(strings.Split(strings.ReplaceAll(line[1:], `\|`, "/"), " |")[0]))
	}
	return cells
}

// TestDocsExitCodes: the README has every exit code, and no other.
func TestDocsExitCodes(t *testing.T) {
	numbers := func(text []string) []string {
		found := regexp.MustCompile(`\d+`).FindAllString(strings.Join(text, " "), -1)
		slices.Sort(found)
		return found
	}
	var want []string
	for _, m := range man.ExitCodes() {
		want = append(want, m[0])
	}
	if got := numbers(table(t, "README.md", "exit code")); !slices.Equal(got, numbers(want)) {
		t.Errorf("README.md has %v, and the program %v", got, numbers(want))
	}
}

// TestDocsEveryCommand: the README's table has every command.
func TestDocsEveryCommand(t *testing.T) {
	cells := strings.Join(table(t, "README.md", "command"), " ")
	for _, c := range visible() {
		if !regexp.MustCompile("`(agent-init )?" + c.name + "[ `]").MatchString(cells) {
			t.Errorf("README.md has no %s", c.name)
		}
	}
}

// TestDocsEvents: operating.md has every field and kind of the audit log, and no other.
func TestDocsEvents(t *testing.T) {
	var want []string
	for _, f := range eventFields() {
		want = append(want, "`"+f+"`")
	}
	if got := strings.Split(strings.Join(table(t, "docs/operating.md", "field"), ", "), ", "); !slices.Equal(got, want) {
		t.Errorf("docs/operating.md has the fields %v, and a line of the log %v", got, want)
	}
	data, err := os.ReadFile(filepath.Join(root, "pkg/audit/event.go"))
	if err != nil {
		t.Fatal(err)
	}
	want = nil
	for _, m := range regexp.MustCompile(`(?m)^\t\w+ +Kind += "(\w+)"`).FindAllSubmatch(data, -1) {
		want = append(want, "`"+string(m[1])+"`")
	}
	if len(want) < 9 {
		t.Errorf("only %d events were found", len(want))
	}
	if got := table(t, "docs/operating.md", "`event`"); !slices.Equal(got, want) {
		t.Errorf("docs/operating.md has the events %v, and the log %v", got, want)
	}
}

// eventFields are the names of an audit line's fields, in their order.
func eventFields() []string {
	var names []string
	for i, typ := 0, reflect.TypeFor[audit.Event](); i < typ.NumField(); i++ {
		name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}
