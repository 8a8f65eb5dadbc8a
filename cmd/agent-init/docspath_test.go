package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDocsCallByPath: nothing that this repository says, or ships, has an engine or
// sudo look agent-init up on PATH, as root. An image may have a directory first on it
// that the agent can write.
func TestDocsCallByPath(t *testing.T) {
	kinds := []string{".md", ".yaml", ".yml", ".json", ".sh", ".1", "Makefile", "Dockerfile", "Dockerfile.base", "sudoers"}
	files := 0
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{".git", "bin", "vendor", "testdata", "node_modules"}, d.Name()):
			return fs.SkipDir
		case d.IsDir() || !slices.ContainsFunc(kinds, func(k string) bool { return d.Name() == k || filepath.Ext(d.Name()) == k }):
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files++
		for _, bad := range foundByName(string(data)) {
			t.Errorf("%s: root would look agent-init up on PATH: %s", path, bad)
		}
		return nil
	})
	if err != nil || files < 60 {
		t.Fatalf("%d files: %v", files, err)
	}
}

// TestDocsCallByPathNotices shows what is found, and what is not.
func TestDocsCallByPathNotices(t *testing.T) {
	for _, bad := range []string{
		"docker exec -it C agent-init attach", "`kubectl exec POD -c agent-init -- agent-init status`", "docker compose -f x.yaml exec agent agent-init attach # it",
		"podman exec C agent-init status --quiet", "docker run --rm --entrypoint agent-init -v x:/p image check /p", "devcontainer exec --workspace-folder . agent-init new",
		"docker run -d image agent-init run -- claude", "sudo -n agent-init up", `ENTRYPOINT ["agent-init", "run", "--"]`, `HEALTHCHECK --interval=30s CMD ["agent-init", "status"]`,
		"HEALTHCHECK CMD agent-init status", "entrypoint: [agent-init, sidecar]", "      test: [CMD, agent-init, status]", "          command: [agent-init, status, --quiet]",
		"command:\n  - agent-init\n  - sidecar", `"postStartCommand": "agent-init wait"`, `"onCreateCommand": ["agent-init", "wait"]`, "docker exec C \\\n  agent-init attach", `"entrypoint": "agent-init up || exit"`, "user ALL = (root) NOPASSWD: agent-init up",
	} {
		if len(foundByName(bad)) == 0 {
			t.Errorf("not noticed: %s", bad)
		}
	}
	for _, good := range []string{
		"docker exec -it C /usr/local/bin/agent-init attach", "In `docker exec`, as `agent-init status` says", "kubectl exec POD -c agent-init -- /usr/local/bin/agent-init status",
		"    agent-init allow x", "docker run … # or: agent-init run --mode monitor", "- name: agent-init", `ENTRYPOINT ["/usr/local/bin/agent-init"]`,
		"test: [CMD, /usr/local/bin/agent-init, status]", "| `agent-init exec -- CMD` | as the agent |", "  - agent-init.org/confined",
		// Nobody's agent has run where an image is built.
		"RUN agent-init detect npm >x", "docker build -t agent-init .", "a command that agent-init runs", "| test | agent-init | tini |",
	} {
		if found := foundByName(good); len(found) > 0 {
			t.Errorf("noticed %q in: %s", found, good)
		}
	}
}

// byName are the ways in which files have root run a program by its name.
var byName = []*regexp.Regexp{
	// A command line of an engine, of what drives one, or of sudo.
	regexp.MustCompile("\\b(docker|podman|nerdctl|kubectl|compose|devcontainer|sudo)\\s[^`#\n]*[\\s\"'=]agent-init[\"']?\\s+(?:[a-z]+\\b|-v\\b)"),
	// A key, or an instruction, that holds a command.
	regexp.MustCompile(`(?m)^\s*-?\s*["']?([A-Za-z]*[cC]ommand|entrypoint|test)["']?:\s*[\["']*(CMD, *|CMD-SHELL, *)?["']?agent-init["']?[\s,\]]`),
	regexp.MustCompile(`(?m)^\s*(ENTRYPOINT|CMD|HEALTHCHECK\b.*\bCMD)\s+[\["]*agent-init\b`),
	regexp.MustCompile(`(?m)^\s*- ["']?agent-init["']?$`),
	regexp.MustCompile(`NOPASSWD:\s*agent-init\b`),
}

var joined = regexp.MustCompile(`\\\n\s*`)

// foundByName returns each line that has one, with what a line is joined with.
func foundByName(text string) (found []string) {
	text = joined.ReplaceAllString(text, " ")
	// What is found by its path is of no interest.
	text = regexp.MustCompile(`(/[A-Za-z0-9_.$*-]+)+/agent-init\b`).ReplaceAllString(text, "PATH")
	for _, re := range byName {
		for _, at := range re.FindAllStringIndex(text, -1) {
			found = append(found, strings.TrimSpace(text[at[0]:at[1]]))
		}
	}
	return found
}
