package launch

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// config is an image of the fake engine's, with what its maker has put into it.
func (f fake) config(t *testing.T, changes map[string]any) {
	t.Helper()
	c := map[string]any{
		"Labels":     map[string]string{agentLabel: "my-agent", baseLabel: "debian"},
		"Entrypoint": []string{inside, "run", "--"}, "Cmd": []string{"my-agent", "--yes"},
	}
	for k, v := range changes {
		c[k] = v
	}
	f.write(t, "images", "x\n")
	f.write(t, "image-x.json", map[string]any{"Id": "x", "RepoTags": []string{"mine:1"}, "Config": c, "Healthcheck": changes["podman"]})
}

// TestOnlyOurs: whatever an image says that it starts, as whom, and with which variables, the engine is told to start
// agent-init as root; and an image that would not confine the agent is refused with a way out.
func TestOnlyOurs(t *testing.T) {
	script := []byte("#!/bin/sh\nshift 2\nexec \"$@\"\n")
	other, err := os.ReadFile("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		config  map[string]any
		program []byte // in the place of agent-init; empty: there is none
		o       Options
		runs    []string // behind the name of the image
		refused string
		remedy  string
	}{
		"as README has it":           {runs: []string{"run", "--", "my-agent", "--yes"}},
		"a command":                  {o: Options{Command: []string{"sh", "-c", "x"}}, runs: []string{"run", "--", "sh", "-c", "x"}},
		"ENTRYPOINT for CMD":         {config: map[string]any{"Entrypoint": []string{"my-agent"}, "Cmd": nil}, runs: []string{"run", "--", "my-agent"}},
		"ENTRYPOINT and CMD":         {config: map[string]any{"Entrypoint": []string{"/entry.sh"}, "Cmd": []string{"a"}}, runs: []string{"run", "--", "/entry.sh", "a"}},
		"ENTRYPOINT, and a command":  {config: map[string]any{"Entrypoint": []string{"my-agent"}}, o: Options{Command: []string{"sh"}}, runs: []string{"run", "--", "sh"}},
		"nothing to run":             {config: map[string]any{"Entrypoint": nil, "Cmd": nil}, runs: []string{"run", "--"}},
		"USER":                       {config: map[string]any{"User": "agent"}, runs: []string{"run", "--", "my-agent", "--yes"}},
		"agent-init in its own way":  {config: map[string]any{"Entrypoint": []string{inside, "run", "--mode", "monitor", "--"}}, refused: "starts agent-init in its own way", remedy: "ENV AGENT_INIT_"},
		"behind another init":        {config: map[string]any{"Entrypoint": []string{"tini", "--", inside, "run", "--"}}, refused: "starts agent-init in its own way", remedy: "-- CMD"},
		"an open network":            {config: map[string]any{"Env": []string{"PATH=/bin", "AGENT_INIT_UNSAFE_NO_FIREWALL=1"}}, refused: "sets AGENT_INIT_UNSAFE_NO_FIREWALL=1", remedy: "--env AGENT_INIT_UNSAFE_NO_FIREWALL=1"},
		"monitor mode":               {config: map[string]any{"Env": []string{"AGENT_INIT_MODE=monitor"}}, refused: "sets AGENT_INIT_MODE=monitor", remedy: "--env AGENT_INIT_MODE=monitor"},
		"no self-test":               {config: map[string]any{"Env": []string{"AGENT_INIT_SELFTEST=off"}}, refused: "sets AGENT_INIT_SELFTEST=off", remedy: "--env AGENT_INIT_SELFTEST=off"},
		"a command, and monitor":     {config: map[string]any{"Env": []string{"AGENT_INIT_MODE=monitor"}}, o: Options{Command: []string{"sh"}}, refused: "sets AGENT_INIT_MODE=monitor", remedy: "--env"},
		"monitor, by a person":       {config: map[string]any{"Env": []string{"AGENT_INIT_MODE=monitor"}}, o: Options{Env: []string{"AGENT_INIT_MODE=monitor"}}, runs: []string{"run", "--", "my-agent", "--yes"}},
		"the strict words":           {config: map[string]any{"Env": []string{"AGENT_INIT_MODE=enforce", "AGENT_INIT_SELFTEST=require"}}, runs: []string{"run", "--", "my-agent", "--yes"}},
		"debian":                     {config: map[string]any{"Labels": nil, "Entrypoint": nil, "Cmd": []string{"bash"}}, o: Options{Image: "mine:1"}, refused: "mine:1 is not made of agent-init's base (it has no label", remedy: "docker build -f Dockerfile.base"},
		"debian, with a command":     {config: map[string]any{"Labels": nil}, o: Options{Image: "mine:1", Command: []string{"sh"}}, refused: "is not made of", remedy: "docker build -f Dockerfile.base"},
		"the label alone":            {program: []byte{}, refused: "(it has no /usr/local/bin/agent-init)", remedy: "docker build"},
		"a script of that name":      {program: script, refused: "is another program", remedy: "docker build"},
		"another program of it":      {program: other, refused: "is another program", remedy: "docker build"},
		"a health check of its own":  {config: map[string]any{"Healthcheck": map[string]any{"Test": []string{"CMD-SHELL", "/workspace/health.sh"}}}, runs: []string{"run", "--", "my-agent", "--yes"}},
		"the same, as podman has it": {config: map[string]any{"podman": map[string]any{"Test": []string{"CMD", "/workspace/health.sh"}}}, runs: []string{"run", "--", "my-agent", "--yes"}},
		"the base's health check":    {config: map[string]any{"Healthcheck": map[string]any{"Test": []string{"CMD", inside, "status", "--quiet"}}}, runs: []string{"run", "--", "my-agent", "--yes"}},
		"volumes over what is ours":  {config: map[string]any{"Volumes": map[string]any{"/usr/local/bin": nil, "/etc/agent-init/": nil, "/run/secrets": nil, "/usr": nil, "/x": nil}}, runs: []string{"run", "--", "my-agent", "--yes"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t, "docker")
			f.config(t, c.config)
			if c.program != nil {
				if err := os.Remove(filepath.Join(f.dir, "agent-init")); err != nil {
					t.Fatal(err)
				}
				if len(c.program) > 0 {
					f.write(t, "agent-init", string(c.program))
				}
			}
			c.o.Agent, c.o.Dir = "my-agent", t.TempDir()
			for _, detach := range []bool{false, true} {
				c.o.Detach = detach
				p, err := f.Plan(t.Context(), c.o, Host{UID: -1})
				if c.refused != "" {
					if err == nil || !strings.Contains(err.Error(), c.refused) || !strings.Contains(remedyOf(err), c.remedy) {
						t.Errorf("%v; remedy %s", err, remedyOf(err))
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				words := p.last.words
				at := slices.Index(words, "mine:1")
				if at < 0 || !slices.Equal(words[at+1:], c.runs) {
					t.Errorf("it runs %q", words)
				}
				for _, w := range []string{"--entrypoint=" + inside, "--user=0:0"} {
					if i := slices.Index(words, w); i < 0 || i > at {
						t.Errorf("no %s in %q", w, words)
					}
				}
				own := strings.HasSuffix(name, "of its own") || strings.HasSuffix(name, "podman has it")
				if slices.Contains(words, "--no-healthcheck") != own || len(p.Notes) > 0 != own {
					t.Errorf("the health check: %q, %q", words, p.Notes)
				}
				if all := strings.Join(words, " "); strings.Contains(all, ":/usr") || strings.Contains(all, ":/etc") || strings.Contains(all, ":/run") {
					t.Errorf("an earlier container's files come before the image's: %q", words)
				}
			}
		})
	}
}

// TestDocsRunLines: no line of the docs that starts a container starts an agent without agent-init. It names an image of
// ours, whose Dockerfile leaves entrypoint, user and health check to the base, or agent-init itself, as root.
func TestDocsRunLines(t *testing.T) {
	const top = "../.."
	known := map[string]bool{"agent-base": true}
	dockerfiles, err := filepath.Glob(top + "/images/*/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range dockerfiles {
		known["agent-"+filepath.Base(filepath.Dir(file))] = true
		if m := regexp.MustCompile(`(?m)^(ENTRYPOINT|USER|HEALTHCHECK)\b.*`).FindString(readFile(t, file)); m != "" {
			t.Errorf("%s: %s", file, m)
		}
		if !regexp.MustCompile(`(?m)^ARG BASE=agent-(base|node|python)$`).MatchString(readFile(t, file)) {
			t.Errorf("%s is built on something else than a base of ours", file)
		}
	}
	base := readFile(t, top+"/Dockerfile.base")
	for want, times := range map[string]int{`(?m)^ENTRYPOINT \["` + inside + `", "run", "--"\]$`: 2, `(?m)^ENTRYPOINT`: 2, `(?m)^USER root$`: 4, `(?m)^USER`: 4, `(?m)^ +` + baseLabel + `="`: 2} {
		if n := len(regexp.MustCompile(want).FindAllString(base, -1)); n != times {
			t.Errorf("Dockerfile.base has %d of %s, want %d", n, want, times)
		}
	}
	begins := regexp.MustCompile(`\b(docker|podman|nerdctl|finch) (run|create) [^\x60]*`)
	lines := 0
	check := func(path, text string) {
		text = strings.ReplaceAll(text, "\\\n", " ")
		for line := range strings.Lines(text) {
			line = begins.FindString(line)
			line, _, _ = strings.Cut(line, "  #")
			words := strings.Fields(line)
			if !slices.Contains(words, "…") && len(words) < 5 || strings.HasSuffix(strings.TrimSpace(line), "…") || strings.Contains(line, "--network=none") {
				continue // options alone, or nothing that could be reached
			}
			lines++
			named := strings.Contains(line, "--entrypoint="+inside) || strings.Contains(line, "--entrypoint "+inside)
			if !named && !slices.ContainsFunc(words, func(w string) bool { return known[strings.TrimRight(w, `'".,;`)] }) {
				t.Errorf("%s: what does this start? %s", path, line)
			}
			if named && strings.Contains(line, "NET_ADMIN") && !strings.Contains(line, "--user=0:0") {
				t.Errorf("%s: as whom? %s", path, line)
			}
		}
	}
	check("README.md", readFile(t, top+"/README.md"))
	for _, dir := range []string{"docs", "deploy", "images"} {
		err := filepath.WalkDir(filepath.Join(top, dir), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() && slices.Contains([]string{".md", ".yaml", ".yml", ".txt", ".json", ".tpl"}, filepath.Ext(path)) {
				check(path, readFile(t, path))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if lines < 30 {
		t.Errorf("%d run lines were found", lines)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
