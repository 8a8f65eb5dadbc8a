package launch

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"strings"
)

// nameFor is what an agent's container is called: the same for each start in a directory, and another for each directory,
// so that its volumes are found again.
func nameFor(agent, dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return agent + "-" + tidy(filepath.Base(dir)) + "-" + hex.EncodeToString(sum[:2])
}

// tidy is what of a text the name of a container may have.
func tidy(s string) string {
	s = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' {
			return r
		}
		return '-'
	}, s)
	return strings.Trim(s[:min(len(s), 40)], "-.")
}

// volumeFor is what a volume of an agent's state is called, as the agents' pages have it.
func volumeFor(agent, dir string) string {
	name := "agent-" + agent
	switch {
	case strings.Contains(dir, "/.config/"):
		return name + "-config"
	case strings.Contains(dir, "/.cache/"):
		return name + "-cache"
	case strings.Contains(dir, "/.local/state/"):
		return name + "-state"
	}
	return name
}
