package launch

import (
	"bytes"
	"encoding/pem"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab/issuer"
	"github.com/agent-init/agent-init/internal/text"
)

const (
	key      = "sk-ant-secret-0123456789"
	otherKey = "sk-other-secret"
)

func write(t *testing.T, path, data string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func newRepository(t *testing.T, dir string) {
	t.Helper()
	settings := write(t, filepath.Join(t.TempDir(), "gitconfig"), "[user]\n\tname = Ada L'ovelace\n\temail = ada@x.example\n")
	t.Setenv("GIT_CONFIG_GLOBAL", settings) // a person's own
	for _, args := range [][]string{
		{"init", "-q", "-b", "main", dir},
		{"-C", dir, "commit", "-q", "--allow-empty", "-m", "one"},
	} {
		if out, err := exec.Command("git", args...).CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
	}
}

// TestPrintIsWhatRuns: a shell that is given what --print shows asks the engine for the same, word for word, as agent-init
// does by itself, and gives it the same keys. No line is wider than a terminal of 80 columns, and none has a key.
func TestPrintIsWhatRuns(t *testing.T) {
	top := t.TempDir()
	odd := filepath.Join(top, `it's a "repo", $(touch `+"`x`"+`) \ with: a path that is a good deal wider than any terminal of 80 columns, and ünïcode 世界世界世界`)
	plain := filepath.Join(top, "repo")
	for _, dir := range []string{odd, plain} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		newRepository(t, dir)
	}
	file := write(t, filepath.Join(top, "keys of mine", "openai's.key"), otherKey+"\r\n")
	ca := write(t, filepath.Join(top, "corp's ca.pem"), string(issuer.New("corp", nil).PEM()))
	env := map[string]string{"ANTHROPIC_API_KEY": key, "HOME": top, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
	host := Host{Env: env, UID: 1234, GID: 100, Zone: "Europe/Berlin"}
	for name, o := range map[string]Options{
		"plain":     {Agent: "claude", Dir: plain},
		"odd":       {Agent: "claude", Dir: odd},
		"command":   {Agent: "claude", Dir: plain, Command: []string{"claude", "-p", `say "hello", it's $HOME\n`, "", "*", "-v", "x"}},
		"key":       {Agent: "claude", Dir: plain, Secrets: []string{"anthropic=" + file}},
		"keys":      {Agent: "claude", Dir: plain, Secrets: []string{"openai=" + file}, Authority: ca},
		"worktree":  {Agent: "claude", Dir: plain, Worktree: "fix"},
		"again":     {Agent: "claude", Dir: plain, Worktree: "there"},
		"ports":     {Agent: "claude", Dir: odd, Inbound: []string{"3000", "8080"}, Allow: []string{"example.com", "*.x.example:8443 private"}},
		"model":     {Agent: "claude", Dir: plain, ModelFromHost: "11434", Env: []string{"A=b c'd"}},
		"long word": {Agent: "claude", Dir: plain, Env: []string{"A=" + strings.Repeat("'", 90), "B=" + strings.Repeat("x", 200), "C=" + strings.Repeat("世 ", 70)}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, "docker")
			f.image(t, "sha", "claude", "anthropic", "agent-claude:latest")
			for k, v := range env {
				t.Setenv(k, v)
			}
			if name == "again" {
				if out, err := exec.Command("git", "-C", plain, "worktree", "add", "-q", plain+"-there").CombinedOutput(); err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
			}
			o.Detach = true
			p, err := f.Plan(t.Context(), o, host)
			if err != nil {
				t.Fatal(err)
			}
			var printed bytes.Buffer
			if err := p.Print(&printed); err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(printed.String()) {
				if n := text.Columns(strings.TrimRight(line, "\n")); n > columns {
					t.Errorf("%d columns: %s", n, line)
				}
			}
			if out, err := exec.Command("sh", "-eu", "-c", printed.String()).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s\n%s", err, out, printed.String())
			}
			want := f.calls(t)
			if name == "worktree" { // make it afresh
				if err := os.Remove(plain + "-fix"); err != nil {
					t.Fatal(err)
				}
			}
			if err := p.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := f.calls(t); got != want {
				t.Errorf("what is printed does\n%s\nand what is run\n%s", want, got)
			}
			for part := range strings.SplitSeq(want, "--- ") {
				for _, k := range []string{key, otherKey} {
					if strings.Contains(printed.String(), k) || !strings.HasPrefix(part, "reads\n") && strings.Contains(part, k) {
						t.Errorf("a key stands in a command")
					}
				}
			}
			if wanted := name != "model"; wanted != strings.Contains(want, " "+otherKey+"\n") && wanted != strings.Contains(want, "anthropic "+key+"\n") {
				t.Errorf("the engine read\n%s", want)
			}
		})
	}
}

func TestPlanHasWhatItIsTold(t *testing.T) {
	f := newFake(t, "docker")
	f.image(t, "sha", "claude", "anthropic openai", "agent-claude:latest")
	dir := t.TempDir()
	newRepository(t, dir)
	host := Host{Env: map[string]string{}, UID: 1234, GID: 100, Zone: "Europe/Berlin"}
	name := nameFor("claude", dir)
	for what, c := range map[string]struct {
		o    Options
		h    Host
		e    string
		has  []string
		hasn []string
		fill bool // the volume of the keys
	}{
		"by default": {h: host, has: []string{
			"-it", "--rm", "--name=" + name, "--cap-drop=ALL", "--cap-add=NET_ADMIN", "--cap-add=SETUID", "--cap-add=SETGID", "--cap-add=SETPCAP", "--cap-add=CHOWN",
			"--security-opt=no-new-privileges", "HOST_UID=1234", "HOST_GID=100", "TZ=Europe/Berlin", "GIT_AUTHOR_NAME=Ada L'ovelace", "GIT_COMMITTER_EMAIL=ada@x.example",
			"agent-claude:/home/agent/.claude", name + "-grants:/var/lib/agent-init", dir + ":/workspace", "agent-claude:latest",
		}, hasn: []string{"--privileged", "AGENT_INIT"}},
		"uid 1000":      {h: Host{UID: 1000, GID: 1000}, has: []string{"HOST_UID=1000"}, hasn: []string{"CHOWN", "TZ"}},
		"root":          {h: Host{UID: 0, GID: 0}, hasn: []string{"CHOWN", "HOST_UID"}},
		"no owner":      {h: Host{UID: -1, GID: -1}, hasn: []string{"CHOWN", "HOST_UID"}},
		"rootless":      {h: Host{UID: 1234, GID: 100, Rootless: true}, hasn: []string{"CHOWN", "HOST_UID", "userns"}},
		"podman's":      {h: Host{UID: 1234, GID: 100, Rootless: true}, e: "podman", has: []string{"--userns=keep-id:uid=1000,gid=1000", "--user=0:0"}, hasn: []string{"CHOWN", "HOST_UID"}},
		"in background": {o: Options{Detach: true}, h: host, has: []string{"-d", "AGENT_INIT_SESSION=always"}, hasn: []string{"-it", "TERM="}},
		"a pipe":        {o: Options{Plain: true}, h: host, has: []string{"-i"}, hasn: []string{"-it"}},
		"a port":        {o: Options{Inbound: []string{"3000"}}, h: host, has: []string{"127.0.0.1:3000:3000", "AGENT_INIT_INBOUND=3000"}},
		"requests":      {o: Options{Allow: []string{"a.example GET,HEAD /v1", "b.example"}}, h: host, has: []string{"AGENT_INIT_ALLOW=a.example GET,HEAD /v1\nb.example"}},
		"entries":       {o: Options{Allow: []string{"a.example", "b.example:22"}}, h: host, has: []string{"AGENT_INIT_ALLOW=a.example,b.example:22"}},
		"a model": {o: Options{ModelFromHost: "11434"}, h: Host{UID: -1, Env: map[string]string{"OPENAI_API_KEY": key}}, has: []string{
			"--add-host=host.docker.internal:host-gateway", "AGENT_INIT_ALLOW=host.docker.internal:11434",
			"ANTHROPIC_BASE_URL=http://host.docker.internal:11434", "OPENAI_BASE_URL=http://host.docker.internal:11434/v1",
		}, hasn: []string{"-keys:", key}},
		"a key":           {h: Host{UID: -1, Env: map[string]string{"OPENAI_API_KEY": key}}, has: []string{"agent-claude-keys:/run/secrets:ro"}, hasn: []string{key}, fill: true},
		"another's key":   {h: Host{UID: -1, Env: map[string]string{"MISTRAL_API_KEY": key}}, hasn: []string{key}},
		"an odd terminal": {h: Host{UID: -1, Env: map[string]string{"TERM": "xterm-kitty", "COLORTERM": "x"}}, hasn: []string{"TERM="}},
		"a terminal":      {h: Host{UID: -1, Env: map[string]string{"TERM": "xterm-256color", "COLORTERM": "truecolor"}}, has: []string{"TERM=xterm-256color", "COLORTERM=truecolor"}},
	} {
		t.Run(what, func(t *testing.T) {
			e := f
			if c.e != "" {
				e = newFake(t, c.e)
				e.image(t, "sha", "claude", "anthropic", "localhost/agent-claude:latest")
			}
			c.o.Agent, c.o.Dir = "claude", dir
			p, err := e.Plan(t.Context(), c.o, c.h)
			if err != nil {
				t.Fatal(err)
			}
			words := p.last.words
			if (len(p.steps) > 0) != c.fill {
				t.Errorf("before it: %v, of %q", p.steps, words)
			}
			for _, w := range c.has {
				if !slices.Contains(words, w) {
					t.Errorf("there is no %q in %q", w, words)
				}
			}
			for _, w := range c.hasn {
				if strings.Contains(strings.Join(words, "\n"), w) {
					t.Errorf("there is %q in %q", w, words)
				}
			}
		})
	}
}

// TestEntriesArriveWhole: what --allow is given reaches the container as one entry, with the commas of its methods and its
// path; a list is none.
func TestEntriesArriveWhole(t *testing.T) {
	for entry, taken := range map[string]bool{
		"a.example": true, "a.example:8443 private": true, "a.example GET,HEAD /v1/a,b": true, "a.example,b.example": false, "a.example, b.example private": false, "": false,
	} {
		var o Options
		fs := flag.NewFlagSet("", flag.ContinueOnError)
		fs.SetOutput(io.Discard)
		o.Flags(fs)
		if err := fs.Parse([]string{"--allow", entry}); (err == nil) != taken {
			t.Errorf("%q: %v", entry, err)
		}
	}
}

// TestRefused: what can't be meant is refused before the engine does anything, and no error has a key.
func TestRefused(t *testing.T) {
	f := newFake(t, "docker")
	f.image(t, "sha", "claude", "anthropic", "agent-claude:latest")
	f.image(t, "one", "twice", "", "registry.example/one:1", "registry.example/one:2")
	f.image(t, "two", "twice", "", "elsewhere.example:5000/two:1")
	dir := t.TempDir()
	newRepository(t, dir)
	write(t, filepath.Join(dir+"-taken", "x"), "")
	file := func(data string) string { return write(t, filepath.Join(t.TempDir(), "f"), data) }
	server := issuer.New("corp", nil).Issue(time.Now().Add(time.Hour), "corp.example").Certificate[0]
	leaf := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server}))
	env := map[string]string{"ANTHROPIC_API_KEY": "two words of " + key}
	for want, o := range map[string]Options{
		`"-x" can't be the name of an agent`:                 {Agent: "-x"},
		`no image with the label org.agent-init.agent=other`: {Agent: "other"},
		`several images say that they are twice's`:           {Agent: "twice"},
		`is no directory`:                              {Dir: filepath.Join(dir, "none")},
		`has a character that can't be shown`:          {Dir: dir + "\x1b[2J"},
		`"a/b" can't be the name of a worktree`:        {Worktree: "a/b"},
		`-taken is there already, and is no worktree`:  {Worktree: "taken"},
		`--secret anthropic: no such file`:             {Secrets: []string{"anthropic=" + key}},
		`--secret anthropic was given twice`:           {Secrets: []string{"anthropic=" + file(key), "anthropic=" + file(key)}},
		`--secret anthropic: it is no regular file`:    {Secrets: []string{"anthropic=" + dir}},
		`there is no key in $ANTHROPIC_API_KEY`:        {},
		`there is no key in ` + "/":                    {Secrets: []string{"anthropic=" + file("two\nlines of "+key)}},
		`--env: ANTHROPIC_API_KEY is a key`:            {Env: []string{"ANTHROPIC_API_KEY=" + key}},
		`--env names no variable`:                      {Env: []string{key}},
		`"--privileged" can't be the name of an image`: {Image: "--privileged"},
		`there is no certificate in`:                   {Authority: file("x")},
		`is no authority`:                              {Authority: file(leaf)},
		`has a PRIVATE KEY in it`:                      {Authority: file(string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte(key)})))},
		`is larger than 1024 KiB`:                      {Authority: file(strings.Repeat(string(issuer.New("corp", nil).PEM()), 3000))},
		`agent-init.agent=gone`:                        {Agent: "gone"},
	} {
		if o.Agent == "" {
			o.Agent = "claude"
		}
		if o.Dir == "" {
			o.Dir = dir
		}
		p, err := f.Plan(t.Context(), o, Host{Env: env, UID: -1})
		if err == nil {
			err = p.Start(t.Context())
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), key) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := os.Stat(filepath.Join(f.dir, "calls")); err == nil {
		t.Errorf("the engine was asked to do\n%s", f.calls(t))
	}
}

// TestHome: an agent does not get a person's home directory by a start in the wrong place.
func TestHome(t *testing.T) {
	f := newFake(t, "docker")
	f.image(t, "sha", "claude", "", "agent-claude:latest")
	top := t.TempDir()
	home, project := filepath.Join(top, "home/ada"), filepath.Join(top, "home/ada/app")
	if err := os.MkdirAll(project, 0o755); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(top, "link")
	if err := os.Symlink(home, link); err != nil {
		t.Fatal(err)
	}
	for dir, refused := range map[string]bool{home: true, link: true, filepath.Dir(home): true, "/": true, project: false, t.TempDir(): false} {
		_, err := f.Plan(t.Context(), Options{Agent: "claude", Dir: dir}, Host{UID: -1, Env: map[string]string{"HOME": link}})
		if (err != nil && strings.Contains(err.Error(), "your home directory")) != refused {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

// TestUnreadableKeys: a file of root's, which a person can't read, is mounted, and no volume is, since a mount in one that
// is read-only would have no place.
func TestUnreadableKeys(t *testing.T) {
	o := Options{}
	words := new(Plan).keys(o, Image{}, []secret{{route: "openai", file: "/etc/agent-keys/openai", mounted: true}}, "keys")
	if got := strings.Join(words, " "); got != "-v /etc/agent-keys/openai:/run/secrets/openai:ro" {
		t.Error(got)
	}
	words = new(Plan).keys(o, Image{}, []secret{{route: "openai", file: "/a:b", mounted: true}}, "keys")
	if got := strings.Join(words, " "); got != `--mount=type=bind,"source=/a:b",target=/run/secrets/openai,readonly` {
		t.Error(got)
	}
}

// TestNames: a container's name is the same again for the same directory, another for another, and one that engines take.
func TestNames(t *testing.T) {
	seen := map[string]string{}
	for _, dir := range []string{"/a/repo", "/b/repo", "/", "/世界", "/x/.hidden", "/x/-", "/" + strings.Repeat("long", 50), `C:\src\repo`} {
		name := nameFor("claude", dir)
		if !nameOf().MatchString(name) || len(name) > 120 || name != nameFor("claude", dir) {
			t.Errorf("%s: %s", dir, name)
		}
		if seen[name] != "" {
			t.Errorf("%s is that of %s too", name, seen[name])
		}
		seen[name] = dir
	}
}

// TestImagesSayTheirRoutes: the label of each image has the routes that it comes with, and each agent's page the volumes
// that a start gives it.
func TestImagesSayTheirRoutes(t *testing.T) {
	files, err := filepath.Glob("../../images/*/Dockerfile")
	if err != nil || len(files) < 10 {
		t.Fatalf("%q, %v", files, err)
	}
	for _, file := range files {
		agent := filepath.Base(filepath.Dir(file))
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		first := func(pattern string) string {
			m := regexp.MustCompile(pattern).FindSubmatch(data)
			if m == nil {
				return ""
			}
			return string(m[1])
		}
		routes := first(`agent\.sh routes ` + agent + ` ([a-z -]+);`)
		if label := first(`org\.agent-init\.routes="([^"]*)"`); label != routes {
			t.Errorf("%s: the label says %q, and the routes are %q", file, label, routes)
		}
		page, err := os.ReadFile("../../docs/agents/" + agent + ".md")
		if err != nil {
			t.Fatal(err)
		}
		for _, dir := range regexp.MustCompile(`"(/[^"]+)"`).FindAllStringSubmatch(first(`VOLUME (\[.*\])`), -1) {
			if line := "-v " + volumeFor(agent, dir[1]) + ":" + dir[1] + " "; !bytes.Contains(page, []byte(line)) {
				t.Errorf("docs/agents/%s.md has no %s", agent, line)
			}
		}
	}
}

// TestDocsShowWhatIsPrinted: docs/launch.md shows what a start in /home/ada/app prints.
func TestDocsShowWhatIsPrinted(t *testing.T) {
	f := newFake(t, "docker")
	f.image(t, "sha", "claude", "anthropic", "agent-claude:latest")
	dir := t.TempDir()
	newRepository(t, dir)
	t.Setenv("GIT_CONFIG_GLOBAL", write(t, filepath.Join(t.TempDir(), "gitconfig"), "[user]\n\tname = Ada\n\temail = ada@corp.example\n"))
	env := map[string]string{"ANTHROPIC_API_KEY": key, "TERM": "xterm-256color"}
	p, err := f.Plan(t.Context(), Options{Agent: "claude", Dir: dir}, Host{Env: env, UID: 1000, GID: 1000, Zone: "Europe/Berlin"})
	if err != nil {
		t.Fatal(err)
	}
	const there = "/home/ada/app"
	for i, word := range p.last.words {
		word = strings.ReplaceAll(word, p.Name, nameFor("claude", there))
		p.last.words[i] = strings.ReplaceAll(word, dir, there)
	}
	var printed bytes.Buffer
	if err := p.Print(&printed); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/launch.md")
	if err != nil {
		t.Fatal(err)
	}
	if shown := "$ agent-init launch claude --print\n" + printed.String() + "```\n"; !strings.Contains(string(page), shown) {
		t.Errorf("docs/launch.md does not show\n%s", shown)
	}
}
