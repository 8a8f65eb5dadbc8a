package container

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/pkg/policy"
)

// An engine looks the programs of an entrypoint, a health check, a probe and an "exec" up on the image's PATH, as root.
// So whoever can put a program called agent-init into a directory that comes before ours is root at the next of them.

const (
	// systemPath is what engines set where an image says nothing.
	systemPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	PathRemedy = "put the system's directories first: ENV PATH=" + systemPath + ":$PATH in the image;" +
		" a directory that has to come first for the agent goes into PATH below env in policy.yaml"
)

// ProgramPathFault judges this program's file, the given PATH, and that of the container's start.
func ProgramPathFault(path string) error {
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return fault.New(fault.Policy, "mount /proc in the container", "find this program's own file: %w", err)
	}
	if err := policy.CheckProgram(self); err != nil {
		return fault.New(fault.Policy, "install it where only root can write: chown root:root "+self+" && chmod go-w "+self,
			"others than root could replace this program: %s", programCause(err))
	}
	for _, path := range []string{path, containerPath("/proc/1")} {
		if err := judgePath(path); err != nil {
			return err
		}
	}
	return nil
}

// judgePath judges each directory of a PATH, up to the one that has agent-init.
func judgePath(path string) error {
	for _, dir := range filepath.SplitList(cmp.Or(path, systemPath)) {
		if !filepath.IsAbs(dir) {
			return fault.New(fault.Policy, PathRemedy, "PATH has the relative directory %q before that of agent-init", dir)
		}
		err := policy.CheckProgram(filepath.Join(dir, fault.Program))
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, fs.ErrNotExist):
			return fault.New(fault.Policy, PathRemedy, "others than root can put a program named agent-init into %s, where an engine looks first: %s", dir, programCause(err))
		}
	}
	return nil
}

// programCause is what is wrong, without the path that it was asked for.
func programCause(err error) string {
	if file, ok := errors.AsType[*policy.FileError](err); ok {
		return file.Cause
	}
	return err.Error()
}

// containerPath is the PATH that the process at proc was started with, "" if it
// isn't known, or if that process has another root: its directories are not ours.
func containerPath(proc string) string {
	if same, _ := sameFile("/", proc+"/root"); !same {
		return ""
	}
	environ, _ := os.ReadFile(proc + "/environ")
	for v := range strings.SplitSeq(string(environ), "\x00") {
		if path, ok := strings.CutPrefix(v, "PATH="); ok {
			return path
		}
	}
	return ""
}
