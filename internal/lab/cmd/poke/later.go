package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// spawned is the file that what was spawned under a name says its verdict in.
func spawned(name string) string { return filepath.Join(os.TempDir(), "poke-"+name+".json") }

// spawn starts an operation that outlives this process.
func spawn(args []string) (detail, error) {
	a, err := parse(flags("spawn"), args, 2)
	if err != nil {
		return nil, err
	}
	if ops()[a[1]] == nil {
		return nil, usage("no operation %q", a[1])
	}
	path := spawned(a[0])
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command("/proc/self/exe", a[1:]...)
	cmd.Stdout = out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return detail{"pid": cmd.Process.Pid}, cmd.Process.Release()
}

// collect waits for the verdict of what was spawned.
func collect(args []string) (detail, error) {
	fs := flags("collect")
	timeout := fs.Duration("timeout", 15*time.Second, "in all")
	a, err := parse(fs, args, 1)
	if err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(*timeout); ; time.Sleep(20 * time.Millisecond) {
		raw, err := os.ReadFile(spawned(a[0]))
		if err != nil {
			return nil, err
		}
		var result any
		if json.Unmarshal(raw, &result) == nil {
			return detail{"result": result}, nil
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("%s has not ended", a[0])
		}
	}
}
