package container

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// become turns the calling thread, and by exec the process, into the command,
// which dies with the process that started the container.
func become(p *Process) error {
	if p.TTY {
		if _, err := unix.Setsid(); err != nil {
			return fmt.Errorf("start a terminal session: %w", err)
		}
		if err := unix.IoctlSetInt(0, unix.TIOCSCTTY, 0); err != nil {
			return fmt.Errorf("take the terminal: %w", err)
		}
	}
	path, err := Assume(p)
	if err != nil {
		return err
	}
	// After the change of identity, which would clear it.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return fmt.Errorf("set parent death signal: %w", err)
	}
	return fmt.Errorf("exec %s: %w", path, syscall.Exec(path, p.Args, p.Env))
}

// Assume has the calling thread, which is in the container's namespaces and
// shares its filesystem context with no other, be who p says. A process that
// it starts or becomes has the identity, capabilities, directory and umask of
// p. It returns the path of the command; terminal and environment are the
// caller's to set. Nothing of this can be undone.
func Assume(p *Process) (path string, err error) {
	last, err := lastCap()
	if err != nil {
		return "", err
	}
	var mask uint64
	for c := uint64(0); c <= last; c++ {
		if slices.Contains(p.Caps, c) {
			mask |= 1 << c
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0); err != nil {
			return "", fmt.Errorf("drop capability %d from the bounding set: %w", c, err)
		}
	}
	if err := setIdentity(p); err != nil {
		return "", err
	}
	if err := setCaps(p.UID, mask); err != nil {
		return "", err
	}
	if p.NoNewPrivs {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return "", fmt.Errorf("set no_new_privs: %w", err)
		}
	}
	if p.Dir != "" {
		if err := unix.Chdir(p.Dir); err != nil {
			return "", fmt.Errorf("change to %s: %w", p.Dir, err)
		}
	}
	unix.Umask(0o022)
	return lookPath(p.Args[0], p.Env)
}

// setIdentity uses raw system calls: only this thread is to change.
func setIdentity(p *Process) error {
	if err := unix.Prctl(unix.PR_SET_KEEPCAPS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("keep capabilities: %w", err)
	}
	groups := p.Groups
	if err := rawSetgroups(groups); err != nil {
		return fmt.Errorf("set groups: %w", err)
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESGID, uintptr(p.GID), uintptr(p.GID), uintptr(p.GID)); e != 0 {
		return fmt.Errorf("set gid %d: %w", p.GID, e)
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(p.UID), uintptr(p.UID), uintptr(p.UID)); e != 0 {
		return fmt.Errorf("set uid %d: %w", p.UID, e)
	}
	return nil
}

// setCaps gives root what the bounding set has, and others nothing, as an
// engine does; the inheritable set stays empty (CVE-2022-24769).
func setCaps(uid uint32, mask uint64) error {
	if uid != 0 {
		mask = 0
	}
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := [2]unix.CapUserData{
		{Effective: uint32(mask), Permitted: uint32(mask)},
		{Effective: uint32(mask >> 32), Permitted: uint32(mask >> 32)},
	}
	if err := unix.Capset(&hdr, &data[0]); err != nil {
		return fmt.Errorf("set capabilities: %w", err)
	}
	return nil
}

// lastCap asks the kernel for the highest capability number it knows.
func lastCap() (uint64, error) {
	for c := uint64(0); c < 64; c++ {
		if _, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0); err != nil {
			if c == 0 {
				return 0, fmt.Errorf("read bounding set: %w", err)
			}
			return c - 1, nil
		}
	}
	return 63, nil
}

// lookPath searches the PATH of env, not our own.
func lookPath(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, kv := range env {
		if dirs, ok := strings.CutPrefix(kv, "PATH="); ok {
			for _, d := range strings.Split(dirs, ":") {
				path := d + "/" + name
				if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
					return path, nil
				}
			}
		}
	}
	return "", &exec.Error{Name: name, Err: exec.ErrNotFound}
}
