package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDocsAgents: each agent's page mounts the volumes that its image has, and no
// others, and names as allowed what an active line of its preset allows.
func TestDocsAgents(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "images/*/packages"))
	if err != nil || len(files) < 10 {
		t.Fatalf("%d agents, %v", len(files), err)
	}
	read := func(parts ...string) string {
		data, err := os.ReadFile(filepath.Join(append([]string{root}, parts...)...))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	for _, f := range files {
		agent := filepath.Base(filepath.Dir(f))
		page, dockerfile, preset := read("docs/agents", agent+".md"), read("images", agent, "Dockerfile"), read("allowlist.d", agent+".txt")
		volumes := regexp.MustCompile(`"(/home/agent/[^"]+)"`).FindAllStringSubmatch(regexp.MustCompile(`(?m)^VOLUME .*$`).FindString(dockerfile), -1)
		mounts := regexp.MustCompile(`-v agent-[a-z-]+:(/home/agent/\S+)`).FindAllStringSubmatch(page, -1)
		if len(volumes) == 0 || len(volumes) != len(mounts) {
			t.Errorf("%s: the image has %d volumes, and the page mounts %d", agent, len(volumes), len(mounts))
		}
		for _, v := range volumes {
			if !strings.Contains(page, ":"+v[1]+" ") {
				t.Errorf("%s: the page does not mount %s", agent, v[1])
			}
		}
		active := map[string]bool{}
		for line := range strings.Lines(preset) {
			if words := strings.Fields(line); len(words) > 0 && !strings.HasPrefix(words[0], "#") {
				active[words[0]] = true
			}
		}
		_, allowed, ok := strings.Cut(page, "**Allowlist.** `@"+agent+"`: ")
		if !ok {
			if !strings.Contains(page, "\nmake image-"+agent+" PROVIDER=") {
				t.Errorf("%s: what the page builds allows no provider, and so can't answer", agent)
			}
			if len(active) > 0 || !strings.Contains(strings.Join(strings.Fields(page), " "), "`@"+agent+"`, a preset without an active line") {
				t.Errorf("%s: %d lines are active, and the page says something else", agent, len(active))
			}
			continue
		}
		allowed, _, _ = strings.Cut(allowed, ". ")
		for _, m := range regexp.MustCompile("`([a-z0-9.*-]+\\.[a-z]+)`").FindAllStringSubmatch(allowed, -1) {
			if !active[m[1]] {
				t.Errorf("%s: %s is not active in its preset", agent, m[1])
			}
		}
	}
}
