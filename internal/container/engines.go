package container

import (
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/privdrop"
)

// engineSockets are the names of sockets behind which somebody starts containers.
var engineSockets = [...]string{"docker.sock", "podman.sock", "containerd.sock", "crio.sock", "buildkitd.sock"}

// IsEngineSocket says whether a file is called as the sockets of engines are.
func IsEngineSocket(file string) bool { return slices.Contains(engineSockets[:], path.Base(file)) }

// wellKnownSockets are where engines are found without a mount of their own.
var wellKnownSockets = [...]string{"/var/run/docker.sock", "/run/docker.sock", "/run/podman/podman.sock", "/run/containerd/containerd.sock", "/run/crio/crio.sock"}

// MountedSockets are the sockets that were mounted from outside.
func MountedSockets(mountinfo string, env map[string]string) []string {
	paths := slices.Clone(wellKnownSockets[:])
	for _, name := range []string{"SSH_AUTH_SOCK", "DOCKER_HOST"} {
		if s := strings.TrimPrefix(env[name], "unix://"); strings.HasPrefix(s, "/") {
			paths = append(paths, s)
		}
	}
	mounts, _ := privdrop.Mounts(mountinfo) // as far as it can be read
	for _, m := range mounts {
		paths = append(paths, m.Point)
	}
	var out []string
	seen := map[[2]uint64]bool{}
	for _, path := range paths {
		var st unix.Stat_t
		if unix.Stat(path, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK || seen[[2]uint64{st.Dev, st.Ino}] {
			continue
		}
		seen[[2]uint64{st.Dev, st.Ino}] = true
		out = append(out, path)
	}
	return out
}
