package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// machine is what the figures were taken on: no name and no path, only what bears on them.
type machine struct{ processors, software, load, date string }

func (b *bench) machine() machine {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		b.Fatalf("uname: %v", err)
	}
	kernel, _, _ := strings.Cut(unix.ByteSliceToString(u.Release[:]), "-") // the rest is the builder's
	own, err := exec.Command(b.binary, "version").Output()
	if err != nil {
		b.Fatalf("%s version: %v", b.binary, err)
	}
	return machine{
		fmt.Sprintf("%d CPUs (%s), %s", runtime.NumCPU(), cpuModel(), runtime.GOARCH),
		fmt.Sprintf("Linux %s, %s", kernel, strings.TrimSpace(string(own))), load(), time.Now().UTC().Format(time.DateOnly),
	}
}

func (m machine) text() string {
	return strings.Join([]string{m.processors, m.software, "load " + m.load, m.date}, "; ")
}

func cpuModel() string {
	data, _ := os.ReadFile("/proc/cpuinfo") // without it the model is not known
	for line := range strings.Lines(string(data)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
			return strings.TrimSpace(v)
		}
	}
	return "model unknown"
}

// load is the average of the last 1, 5 and 15 minutes (proc(5), loadavg).
func load() string {
	data, _ := os.ReadFile("/proc/loadavg")
	f := strings.Fields(string(data))
	if len(f) < 3 {
		return "unknown"
	}
	return strings.Join(f[:3], ", ")
}
