package main

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// describe notes what the figures were taken on: no name and no path, only what
// bears on them.
func (r *report) describe(b *bench) {
	add := func(format string, args ...any) { r.machine = append(r.machine, fmt.Sprintf(format, args...)) }
	add("%d CPUs (%s), %s", runtime.NumCPU(), cpuModel(), runtime.GOARCH)
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		b.Fatalf("uname: %v", err)
	}
	kernel, _, _ := strings.Cut(unix.ByteSliceToString(u.Release[:]), "-") // the rest is the builder's
	own, err := exec.Command(b.binary, "version").Output()
	if err != nil {
		b.Fatalf("%s version: %v", b.binary, err)
	}
	add("Linux %s, %s", kernel, strings.TrimSpace(string(own)))
	tools := []string{version("dnsmasq", "-v"), version("dnsperf", "-h"), version("iptables", "-V")}
	add("%s", strings.Join(slices.DeleteFunc(tools, func(t string) bool { return t == "" }), "; "))
	add("load of the machine at the end, which includes the benchmark's own: %s", load())
	add("%s, in %.0f s", r.began.UTC().Format(time.DateOnly), time.Since(r.began).Seconds())
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

// version is the tool's name and number, from whatever it prints about itself; it is empty where there is no such tool.
func version(tool string, arg string) string {
	out, err := exec.Command(tool, arg).CombinedOutput() // dnsperf -h exits with an error
	if errors.Is(err, exec.ErrNotFound) {
		return ""
	}
	words := append(strings.Fields(string(out)), "")
	for i, word := range words[:len(words)-1] {
		if v := strings.TrimPrefix(word, "v"); strings.Contains(v, ".") && strings.Trim(v, "0123456789.") == "" {
			if variant := words[i+1]; strings.HasPrefix(variant, "(") { // iptables (nf_tables)
				v += " " + variant
			}
			return tool + " " + v
		}
	}
	return tool
}

// stripped says whether an executable has no symbol table.
func stripped(path string) (bool, error) {
	f, err := elf.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	return f.Section(".symtab") == nil, nil
}
