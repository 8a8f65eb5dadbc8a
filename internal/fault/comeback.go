package fault

import (
	"os"
	"strings"
)

// outside is how a command is run in this container from outside of it, by the marks that
// engines leave in theirs; empty where there are none.
func outside(env map[string]string, hostname string, exists func(path string) bool) string {
	id := "CONTAINER"
	if len(hostname) == 12 && strings.Trim(hostname, "0123456789abcdef") == "" { // the engine's choice
		id = hostname
	}
	switch {
	case env["KUBERNETES_SERVICE_HOST"] != "" && hostname != "": // a pod's name is its host's
		return "kubectl exec -it " + hostname + " -- "
	case exists("/run/.containerenv"):
		return "podman exec -it " + id + " "
	case exists("/.dockerenv"):
		return "docker exec -it " + id + " "
	}
	return ""
}

// AttachFromOutside is the command that attaches from outside of the container. It
// names this program by its path: an engine would look its name up on PATH, as root.
func AttachFromOutside(env map[string]string) string {
	hostname, _ := os.Hostname()
	how := outside(env, hostname, func(path string) bool { _, err := os.Lstat(path); return err == nil })
	self, err := os.Executable()
	if how == "" || err != nil {
		self = Program
	}
	return how + self + " attach"
}

// ComeBack is the command that attaches again, for who has left: a process whose parent
// is in no namespace of ours was started from outside, and there its person is now.
func ComeBack(env map[string]string, parent int) string {
	if parent == 0 {
		return AttachFromOutside(env)
	}
	return Program + " attach"
}

// Program is what this program is called.
const Program = "agent-init"
