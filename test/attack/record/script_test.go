package record

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// TestScripts plays what is in testdata, each file in a container of its
// own, which nothing confines at first. A script is what would be seen on a terminal:
//
//	-- /etc/agent-init/allowlist.txt       a file, up to the next line that begins so
//	-- script
//	# agent-init up                        as root; with & at its end, in the background
//	$ agent-init explain evil.test         as the agent
//	evil.test 443/tcp: denied, …           what it prints: … stands for any text,
//	…                                      and on a line of its own for any lines
//	\# a comment                           a line of output that begins like a command
//	[1]                                    how it ends, if not well
//
// Of a command whose output is not given, only how it ends counts.
func TestScripts(t *testing.T) {
	lab.Require(t)
	files, err := filepath.Glob("testdata/*.console")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".console"), func(t *testing.T) {
			text, err := os.ReadFile(f)
			rig.Must(t, err)
			play(t, string(text))
		})
	}
}

// spoken is a command of a script.
type spoken struct {
	line       int
	root       bool
	background bool
	text       string
	prints     []string
	ends       string // "" is well
}

func (c spoken) prompt() string {
	if c.root {
		return "# "
	}
	return "$ "
}

func play(t *testing.T, text string) {
	t.Helper()
	before, script, ok := strings.Cut(text, "-- script\n")
	if !ok {
		t.Fatal("no script")
	}
	w := rig.StartIn(t, rig.NewLab(t), "ok.test\n", lab.BoxOptions{Binary: lab.Binary(t)}, "sleep", "infinity")
	for section := range strings.SplitSeq("\n"+before, "\n-- ") {
		if name, data, ok := strings.Cut(section, "\n"); ok && strings.HasPrefix(name, "/") {
			if r := w.Root("mkdir", "-p", filepath.Dir(name)); r.Code != 0 {
				t.Fatal(r)
			}
			rig.Must(t, w.Box.WriteFile(name, []byte(data+"\n"), 0o644))
		}
	}
	transcript := ""
	defer func() {
		if t.Failed() || testing.Verbose() {
			t.Logf("all of it:%s", transcript)
		}
	}()
	for _, c := range commandsOf(script, 2+strings.Count(before, "\n")) {
		cmd := lab.Cmd{Args: []string{"sh", "-c", "exec 2>&1; " + c.text}, Dir: "/workspace", Timeout: lab.Patience}
		if !c.root {
			cmd.UID = lab.AgentUID
		}
		if c.background {
			w.Box.ExecStart(cmd)
			continue
		}
		r := w.Box.Exec(cmd)
		got := strings.TrimRight(r.Stdout, "\n")
		transcript += "\n" + c.prompt() + c.text + "\n" + got
		ends := ""
		if r.Code != 0 {
			ends = fmt.Sprintf("[%d]", r.Code)
		}
		if ends != c.ends || c.prints != nil && !shows(c.prints).MatchString(got+"\n") {
			t.Errorf("line %d: %s\nprints\n%s\n%s\nand should\n%s\n%s", c.line, c.text, got, ends, strings.Join(c.prints, "\n"), c.ends)
		}
	}
}

func commandsOf(script string, line int) (out []spoken) {
	for l := range strings.Lines(script) {
		l = strings.TrimRight(l, "\n")
		prompt, text, _ := strings.Cut(l, " ")
		switch {
		case prompt == "#" || prompt == "$":
			c := spoken{line: line, root: prompt == "#"}
			c.text, c.background = strings.CutSuffix(text, " &")
			out = append(out, c)
		case regexp.MustCompile(`^\[\d+\]$`).MatchString(l):
			out[len(out)-1].ends = l
		case l != "":
			out[len(out)-1].prints = append(out[len(out)-1].prints, strings.TrimPrefix(l, `\`))
		}
		line++
	}
	return out
}

// shows is a pattern of what is printed, where empty lines don't count.
func shows(lines []string) *regexp.Regexp {
	var b strings.Builder
	b.WriteString(`^\n*`)
	for _, l := range lines {
		if l == "…" {
			b.WriteString(`(?:[^\n]*\n+)*?`)
			continue
		}
		b.WriteString(strings.ReplaceAll(regexp.QuoteMeta(l), "…", `[^\n]*`) + ` *\n+`)
	}
	return regexp.MustCompile(b.String() + `$`)
}
