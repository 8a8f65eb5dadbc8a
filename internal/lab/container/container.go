// Package container makes one process look at the machine as if it ran in a
// container. It is the part of the lab that runs inside: cmd/labbox calls Init
// as PID 1 of new namespaces, which ends by becoming the command. A command
// beside it is started from a thread that has entered them, and called Assume.
//
// Descriptors of Init: 3 carries the Spec in JSON, 4 receives one line of error
// text if the command can't be started, 5 is the network namespace.
package container

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// Descriptors that the parent hands over.
const (
	SpecFD   = 3
	StatusFD = 4
	NetFD    = 5
)

// ToolDir is where the lab's own binaries are mounted inside.
const ToolDir = "/.lab"

// Spec says how the process shall see the world.
type Spec struct {
	Root     string   // empty directory of the machine on which the root is put together
	Hostname string   //
	Files    []File   // written into the root
	Mounted  []File   // written elsewhere and bind-mounted, as an engine does with resolv.conf
	Binds    []Bind   //
	Tmpfs    []string // further writable tmpfs; options of the mount may follow, after a colon
	ReadOnly bool     // root filesystem read-only
	SysctlRW bool     // /proc/sys writable

	Process
}

// Process says who the command is and what it may do.
type Process struct {
	Args       []string
	Env        []string
	Dir        string
	UID, GID   uint32
	Groups     []uint32
	Caps       []uint64 // numbers of the capabilities in the bounding set
	NoNewPrivs bool
	TTY        bool // standard input is a terminal: make it the controlling one
}

// File is a file, a directory if Dir is set, or a symbolic link to Link.
type File struct {
	Path     string
	Data     []byte
	Mode     uint32
	UID, GID int
	Dir      bool
	Link     string
}

// Bind makes Source of the machine visible at Target.
type Bind struct {
	Source, Target string
	Writable       bool
}

// Init sets the container up and becomes its command. The caller must be PID 1
// of new pid and mount namespaces. It returns only on failure.
func Init() error {
	return report(func() error {
		var spec Spec
		if err := readSpec(&spec); err != nil {
			return err
		}
		if err := unix.Setns(NetFD, unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter network namespace: %w", err)
		}
		if err := setupRoot(&spec); err != nil {
			return err
		}
		if err := unix.Sethostname([]byte(spec.Hostname)); err != nil {
			return fmt.Errorf("set hostname: %w", err)
		}
		return become(&spec.Process)
	})
}

func readSpec(v any) error {
	f := os.NewFile(SpecFD, "spec")
	defer f.Close()
	if err := json.NewDecoder(f).Decode(v); err != nil {
		return fmt.Errorf("read spec: %w", err)
	}
	return nil
}

// report tells the parent why the command could not be started.
func report(fn func() error) error {
	runtime.LockOSThread()
	// Ours, and whatever the lab's process inherited from who started it.
	err := unix.CloseRange(SpecFD, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
	if err == nil {
		err = fn()
	}
	if err != nil {
		msg := err.Error()
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
			msg = "command not found: " + msg
		}
		_, _ = unix.Write(StatusFD, []byte(msg))
	}
	return err
}
