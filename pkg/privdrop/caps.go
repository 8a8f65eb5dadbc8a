package privdrop

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// CapabilityError says that the process lacks a capability.
type CapabilityError struct {
	Capability string // as docker's --cap-add takes it: "SETPCAP"
	Doing      string // what it is needed for
}

func (e *CapabilityError) Error() string {
	return fmt.Sprintf("capability %s is missing, which is needed to %s: start the container with --cap-add=%s",
		e.Capability, e.Doing, e.Capability)
}

// capabilities are those that messages of this package can name, with what agent-init needs them for.
var capabilities = map[int]CapabilityError{
	unix.CAP_CHOWN:     {"CHOWN", "make the agent's home directory its own"},
	unix.CAP_KILL:      {"KILL", "signal the agent"},
	unix.CAP_SETGID:    {"SETGID", "set the agent's groups"},
	unix.CAP_SETUID:    {"SETUID", "set the agent's uid"},
	unix.CAP_SETPCAP:   {"SETPCAP", "take all capabilities from the agent for good"},
	unix.CAP_NET_ADMIN: {"NET_ADMIN", "confine the network"},
	unix.CAP_NET_RAW:   {"NET_RAW", "use iptables"},
}

func missing(n int) *CapabilityError {
	c, ok := capabilities[n]
	if !ok {
		c = CapabilityError{fmt.Sprintf("number %d", n), "run"}
	}
	return &c
}

// Needs says which capability an EPERM stands for.
func Needs(capability int, err error) error {
	lack := missing(capability)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EPERM):
		return lack
	}
	return fmt.Errorf("%s: %w", lack.Doing, err)
}

// capSets are what capget(2) and capset(2) take: the lower half of each set, and the upper one.
type capSets [2]unix.CapUserData

func capHeader() *unix.CapUserHeader {
	return &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
}

func getCaps() (c capSets, err error) {
	if err := unix.Capget(capHeader(), &c[0]); err != nil {
		return c, fmt.Errorf("read capabilities: %w", err)
	}
	return c, nil
}

// Require returns a *CapabilityError if the calling thread lacks a capability (a unix.CAP_… number).
func Require(c int) error {
	have, err := getCaps()
	if err == nil && have[c/32].Effective&(1<<(c%32)) == 0 {
		return missing(c)
	}
	return err
}

// ExecCapabilities are the capabilities that drop.Exec needs.
var ExecCapabilities = []int{unix.CAP_SETUID, unix.CAP_SETGID, unix.CAP_SETPCAP}

// NoCoreDumps has the calling process and its children dump no core.
func NoCoreDumps() error {
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("switch core dumps off: %w", err)
	}
	return nil
}

// OnGVisor says whether the kernel is gVisor's, by what it says of itself. It is
// for what that does differently, and never for what it is trusted with.
func OnGVisor() bool {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return false
	}
	return strings.Contains(unix.ByteSliceToString(u.Release[:]), "gvisor")
}

// Harden makes the calling process undumpable, so that no other uid can read its memory,
// environment or descriptors, has it and its children dump no core, and leaves all its threads the capabilities keep (unix.CAP_…
// numbers), as far as it holds those. It needs a binary that was built without cgo.
//
// The bounding set stays, since children that drop.Exec need it. The caller must keep
// ExecCapabilities for them: under no_new_privs, executing a file gives root nothing back.
func Harden(keep ...int) error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("become undumpable: %w", err)
	}
	if err := NoCoreDumps(); err != nil {
		return err
	}
	have, err := getCaps()
	if err != nil {
		return err
	}
	var left capSets // with the inheritable set, which is left empty, the ambient set goes by itself
	for _, c := range keep {
		held := have[c/32].Permitted & (1 << (c % 32))
		left[c/32].Permitted |= held
		left[c/32].Effective |= held
	}
	header, data := capHeader(), left
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(header)), uintptr(unsafe.Pointer(&data)), 0)
	runtime.KeepAlive(header)
	runtime.KeepAlive(&data)
	if errno == syscall.ENOTSUP {
		return errors.New("drop capabilities: this binary was built with cgo: build it with CGO_ENABLED=0")
	}
	if errno != 0 {
		return fmt.Errorf("drop capabilities: %w", errno)
	}
	if now, err := getCaps(); err != nil || now != left {
		return fmt.Errorf("drop capabilities: they are %x where %x was asked for (%v)", now, left, err)
	}
	return nil
}
