package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// nested runs another operation as a child from the calling thread.
func nested(args []string, attr *syscall.SysProcAttr) (detail, error) {
	if len(args) == 0 || ops()[args[0]] == nil {
		return nil, usage("no operation to run")
	}
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.SysProcAttr = attr
	cmd.Stderr = os.Stderr
	cmd.WaitDelay = time.Second
	raw, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	var result any
	if err := json.Unmarshal(raw, &result); err != nil {
		return nil, err
	}
	return detail{"result": result}, nil
}

func as(args []string) (detail, error) {
	a, err := parse(flags("as"), args, 2)
	if err != nil {
		return nil, err
	}
	uid, gid, both := strings.Cut(a[0], ":")
	if !both {
		gid = uid
	}
	u, err := number(uid)
	if err != nil {
		return nil, err
	}
	g, err := number(gid)
	if err != nil {
		return nil, err
	}
	return nested(a[1:], &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(u), Gid: uint32(g)}})
}

func unshare(args []string) (detail, error) {
	a, err := parse(flags("unshare"), args, 2)
	if err != nil {
		return nil, err
	}
	known := map[string]uintptr{"user": unix.CLONE_NEWUSER, "net": unix.CLONE_NEWNET, "mount": unix.CLONE_NEWNS,
		"pid": unix.CLONE_NEWPID, "ipc": unix.CLONE_NEWIPC, "uts": unix.CLONE_NEWUTS, "cgroup": unix.CLONE_NEWCGROUP}
	attr := &syscall.SysProcAttr{}
	for f := range strings.SplitSeq(a[0], ",") {
		if known[f] == 0 {
			return nil, usage("unknown namespace %q", f)
		}
		attr.Cloneflags |= known[f]
		if f == "user" {
			attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
			attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
		}
	}
	return nested(a[1:], attr)
}

func setns(args []string) (detail, error) {
	a, err := parse(flags("setns"), args, 2)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Open(a[0], unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("open", err)
	}
	defer unix.Close(fd)
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_FS); err != nil { // lets the mount namespace be entered, see setns(2)
		return nil, os.NewSyscallError("unshare", err)
	}
	if err := unix.Setns(fd, 0); err != nil {
		return nil, os.NewSyscallError("setns", err)
	}
	return nested(a[1:], nil)
}

// traceless are operations that leave nothing in the process that has done them: they close what they open.
var traceless = map[string]bool{"tcp": true, "udp": true, "connect": true, "socket": true, "resolve": true, "dns": true, "http": true,
	"urgent": true, "fastopen": true, "ping": true}

// obey does each operation that standard input names. What leaves something in its process is done by a child: that doesn't
// matter to the next.
func obey() {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	began := resolverFiles()
	for in.Scan() {
		var args []string
		err := json.Unmarshal(in.Bytes(), &args)
		if err != nil || len(args) == 0 {
			fmt.Fprintln(os.Stderr, "poke: obey:", err)
			os.Exit(2)
		}
		name := args[0]
		if name == "-patient" && len(args) > 1 {
			name = args[1]
		}
		if traceless[name] && resolverFiles() == began {
			err = try(args)
		} else {
			err = child(args)
		}
		if err != nil {
			fmt.Printf("{\"op\":%q,\"err\":%q}\n", name, err.Error()) // one line for each, whatever happens
		}
	}
}

// child does one operation in a process of its own, of this program's name.
func child(args []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

// resolverFiles identifies the files that the resolver and the verifier of a process read once, or every few seconds.
func resolverFiles() (all [3]string) {
	for i, path := range []string{"/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs/ca-certificates.crt"} {
		if info, err := os.Stat(path); err == nil {
			all[i] = fmt.Sprint(info.Sys().(*syscall.Stat_t).Ino, info.Size(), info.ModTime())
		}
	}
	return all
}

// program runs another program; it did what was wanted if it ended with 0.
func program(args []string) (detail, error) {
	a, err := parse(flags("run"), args, 1)
	if err != nil {
		return nil, err
	}
	limit := 10 * time.Second
	if patient() {
		limit = time.Minute
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, a[0], a[1:]...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	return detail{"output": string(out[:min(len(out), 4096)])}, err
}
