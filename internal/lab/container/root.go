package container

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// setupRoot builds the container's filesystem and makes it the root.
func setupRoot(spec *Spec) error {
	if err := mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := mount("tmpfs", spec.Root, "tmpfs", 0, "mode=0755"); err != nil {
		return err
	}
	in := func(name string) string { return filepath.Join(spec.Root, name) }
	for _, d := range []string{"upper", "work", "root", "mounted"} {
		if err := os.Mkdir(in(d), 0o755); err != nil {
			return err
		}
	}
	root := in("root")
	opts := "lowerdir=/,upperdir=" + in("upper") + ",workdir=" + in("work")
	if err := mount("overlay", root, "overlay", 0, opts); err != nil {
		return err
	}
	// The machine's own state is not the image's: hide it.
	for _, d := range hidden() {
		if err := mountNew(root, d, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, tmpfsMode(d)); err != nil {
			return err
		}
	}
	if err := kernelMounts(root, spec.SysctlRW); err != nil {
		return err
	}
	for _, d := range spec.Tmpfs {
		d, opts, _ := strings.Cut(d, ":")
		if err := mountNew(root, d, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=1777,"+opts); err != nil {
			return err
		}
	}
	for _, f := range spec.Files {
		if err := writeFile(filepath.Join(root, f.Path), f); err != nil {
			return err
		}
	}
	for i, f := range spec.Mounted {
		src := in(fmt.Sprintf("mounted/%d", i))
		if err := writeFile(src, f); err != nil {
			return err
		}
		if err := bind(Bind{Source: src, Target: f.Path, Writable: true}, root); err != nil {
			return err
		}
	}
	for _, b := range spec.Binds {
		if err := bind(b, root); err != nil {
			return err
		}
	}
	if spec.ReadOnly {
		for _, d := range append(hidden(), ".") {
			if slices.ContainsFunc(spec.Tmpfs, func(t string) bool { return t == "/"+d || strings.HasPrefix(t, "/"+d+":") }) {
				continue
			}
			if err := mount("", filepath.Join(root, d), "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
				return err
			}
		}
	}
	return pivot(root)
}

// hidden are directories that an image has empty.
func hidden() []string {
	return []string{"tmp", "run", "var/log", "var/tmp", "home", "root", "mnt", "media"}
}

func tmpfsMode(dir string) string {
	switch dir {
	case "tmp", "var/tmp":
		return "mode=1777"
	case "root":
		return "mode=0700"
	}
	return "mode=0755"
}

// kernelMounts adds /proc, /sys and /dev as an engine does.
func kernelMounts(root string, sysctlRW bool) error {
	const guarded = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	steps := []struct {
		dir, fstype string
		flags       uintptr
		data        string
	}{
		{"proc", "proc", guarded, ""},
		{"sys", "sysfs", guarded | unix.MS_RDONLY, ""},
		{"dev", "tmpfs", unix.MS_NOSUID, "mode=0755"},
		{"dev/pts", "devpts", unix.MS_NOSUID | unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620,gid=5"},
		{"dev/shm", "tmpfs", guarded, "mode=1777"},
	}
	for _, s := range steps {
		if err := mountNew(root, s.dir, s.fstype, s.flags, s.data); err != nil {
			return err
		}
	}
	for _, d := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		if err := bind(Bind{Source: "/dev/" + d, Target: "/dev/" + d, Writable: true}, root); err != nil {
			return err
		}
	}
	links := map[string]string{"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1",
		"stderr": "/proc/self/fd/2", "ptmx": "pts/ptmx"}
	for name, target := range links {
		if err := os.Symlink(target, filepath.Join(root, "dev", name)); err != nil {
			return err
		}
	}
	readOnly := []string{"bus", "fs", "irq", "sysrq-trigger"}
	if !sysctlRW {
		readOnly = append(readOnly, "sys")
	}
	for _, d := range readOnly {
		path := filepath.Join(root, "proc", d)
		if _, err := os.Stat(path); err != nil {
			continue // not every kernel has each of them
		}
		if err := mount(path, path, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return err
		}
		if err := mount("", path, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|guarded, ""); err != nil {
			return err
		}
	}
	return nil
}

// bind mounts a file or directory, and makes the mount point if it is missing.
func bind(b Bind, root string) error {
	st, err := os.Stat(b.Source)
	if err != nil {
		return fmt.Errorf("bind mount: %w", err)
	}
	target := filepath.Join(root, b.Target)
	if _, err := os.Stat(target); err != nil {
		if err := writeFile(target, File{Dir: st.IsDir()}); err != nil {
			return err
		}
	}
	if err := mount(b.Source, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	if b.Writable {
		return nil
	}
	return mount("", target, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, "")
}

func writeFile(path string, f File) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if f.Link != "" {
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			return err
		}
		if err := os.Symlink(f.Link, path); err != nil {
			return err
		}
		return os.Lchown(path, f.UID, f.GID)
	}
	mode := os.FileMode(f.Mode)
	if f.Dir {
		if mode == 0 {
			mode = 0o755
		}
		if err := os.MkdirAll(path, mode); err != nil {
			return err
		}
	} else {
		if mode == 0 {
			mode = 0o644
		}
		// A symbolic link of the image is replaced, not followed out of it.
		if st, err := os.Lstat(path); err == nil && st.Mode()&os.ModeSymlink != 0 {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
		if err := os.WriteFile(path, f.Data, mode); err != nil {
			return err
		}
	}
	if err := os.Chown(path, f.UID, f.GID); err != nil {
		return err
	}
	return unix.Chmod(path, uint32(mode)) // after chown, which clears setuid; and past the umask
}

func mountNew(root, dir, fstype string, flags uintptr, data string) error {
	target := filepath.Join(root, dir)
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	return mount(fstype, target, fstype, flags, data)
}

func mount(source, target, fstype string, flags uintptr, data string) error {
	if err := unix.Mount(source, target, fstype, flags, data); err != nil {
		return fmt.Errorf("mount %s on %s: %w", fstype, target, err)
	}
	return nil
}

// pivot swaps the root for dir and lets go of the old one (pivot_root(2),
// "pivot_root(".", ".")").
func pivot(dir string) error {
	if err := unix.Chdir(dir); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("detach old root: %w", err)
	}
	return unix.Chdir("/")
}
