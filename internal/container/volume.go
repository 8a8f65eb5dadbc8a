package container

import (
	"path/filepath"
	"strings"

	"github.com/agent-init/agent-init/pkg/privdrop"
)

// NoVolume says that what is saved at path is gone with the container, if nothing is mounted there or above it.
func NoVolume(path string) []string {
	mounts, err := privdrop.Mounts("/proc/self/mountinfo")
	if err != nil { // then nobody knows
		return nil
	}
	return noVolume(path, mounts)
}

func noVolume(path string, mounts []privdrop.Mount) []string {
	for _, m := range mounts {
		if m.Point != "/" && (path == m.Point || strings.HasPrefix(path, m.Point+"/")) {
			return nil
		}
	}
	home := filepath.Dir(filepath.Dir(path))
	return []string{"it is gone with this container: there is no volume at " + home + " (docker run -v NAME:" + home + ")"}
}
