// Package container is what a start can see of its container: whose processes there are,
// who could replace the program, which limits hold.
package container

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/pkg/policy"
)

// Environ is an environment by its names.
func Environ(list []string) map[string]string {
	m := make(map[string]string, len(list))
	for _, kv := range list {
		if k, v, ok := strings.Cut(kv, "="); ok {
			m[k] = v
		}
	}
	return m
}

// HostsFile is the hosts file that counts in a mode. Containers that share a network are
// given one file by a kubelet, and by Docker's option container, which root of any of
// them writes. The agent may be root beside a sidecar, so that none counts there.
func HostsFile(mode string) string {
	if mode == "sidecar" {
		return ""
	}
	return "/etc/hosts"
}

// ReadFault is the fault of a policy that can't be read, or trusted.
func ReadFault(err error) error {
	if file, ok := errors.AsType[*policy.FileError](err); ok {
		return fault.New(fault.Policy, file.Remedy, "%s", file.What())
	}
	if ceiling, ok := errors.AsType[*policy.CeilingError](err); ok {
		return fault.New(fault.Policy, "correct the ceiling, or ask whoever made it: docs/ceiling.md", "the ceiling has errors\n%w", ceiling)
	}
	return fault.New(fault.Policy, "check the path", "read the policy: %w", err)
}

// sameFile says whether two paths lead to one file, if both lead to any.
func sameFile(a, b string) (same, known bool) {
	var x, y unix.Stat_t
	if unix.Stat(a, &x) != nil || unix.Stat(b, &y) != nil {
		return false, false
	}
	return x.Dev == y.Dev && x.Ino == y.Ino, true
}
