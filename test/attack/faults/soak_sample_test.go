package faults

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/agent-init/agent-init/test/attack/rig"
)

// soakProcesses are those of agent-init that are looked at, and how their command lines end.
var soakProcesses = map[string]string{"guard": " guard", "sessions": "__sessions"}

// soakColumns are what a sample has.
func soakColumns() (out []string) {
	for _, who := range []string{"keeper", "guard", "sessions"} {
		for _, what := range []string{"private_kib", "resident_kib", "descriptors", "threads", "cpu_ms"} {
			out = append(out, who+"_"+what)
		}
	}
	return append(append(out, "leased_names", "set_elements", "flows", "log_bytes", "kills"), soakDone()...)
}

// soakDone are the columns that count what was done.
func soakDone() []string {
	return []string{"slowest_ms", "allowed", "denied", "arrived", "given", "shut", "held", "grants", "reloads", "windows", "rotations"}
}

// sample adds what is to be seen now.
func (s *soaked) sample() {
	s.Helper()
	values := map[string]float64{}
	takes(values, "keeper", s.Agent.Pid())
	for _, p := range rig.Inmates(s.T, s.Agent) {
		for who, args := range soakProcesses {
			if strings.HasSuffix(p.Args, args) {
				takes(values, who, p.Host)
			}
		}
	}
	var status struct{ Leases struct{ Names int } }
	data, err := s.Box.ReadFile("/run/agent-init/status.json")
	rig.Must(s.T, err)
	rig.Must(s.T, json.Unmarshal(data, &status))
	values["leased_names"] = float64(status.Leases.Names)
	values["set_elements"] = float64(len(rig.Leased(s.T, s.Box)))
	rig.Must(s.T, s.Box.Net.Do(func() error {
		text, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_count")
		if err == nil {
			values["flows"], err = strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
		}
		return err
	}))
	values["log_bytes"] = s.logged()
	s.mu.Lock()
	values["kills"] = float64(s.kills)
	for _, column := range soakDone() {
		values[column] = s.done[column]
	}
	s.mu.Unlock()
	s.series.Add(time.Since(s.begin), values)
}

// takes adds what a process takes of the machine, if it is still there.
func takes(values map[string]float64, who string, host int) {
	rollup, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", host))
	if err != nil {
		return
	}
	found := map[string]float64{}
	for line := range strings.Lines(string(rollup)) {
		if f := strings.Fields(line); len(f) == 3 && f[2] == "kB" {
			found[f[0]], _ = strconv.ParseFloat(f[1], 64)
		}
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", host))
	threads, err2 := os.ReadDir(fmt.Sprintf("/proc/%d/task", host))
	if err != nil || err2 != nil || found["Rss:"] == 0 { // it has just ended
		return
	}
	if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", host)); err == nil {
		_, rest, _ := strings.Cut(string(stat), ") ")
		f := append(strings.Fields(rest), make([]string, 13)...)
		user, _ := strconv.ParseFloat(f[11], 64) // see proc_pid_stat(5): ticks, of which there are 100 a second
		system, _ := strconv.ParseFloat(f[12], 64)
		values[who+"_cpu_ms"] = 10 * (user + system)
	}
	values[who+"_private_kib"], values[who+"_resident_kib"] = found["Private_Dirty:"], found["Rss:"]
	values[who+"_descriptors"], values[who+"_threads"] = float64(len(files)), float64(len(threads))
}

// logged is how large the files of the audit log are together. None may be larger than it is to be, and none more.
func (s *soaked) logged() (sum float64) {
	s.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/root/var/log/agent-init/audit.jsonl*", s.Agent.Pid()))
	rig.Must(s.T, err)
	for _, f := range files {
		if info, err := os.Stat(f); err == nil {
			sum += float64(info.Size())
			if info.Size() > soakLog {
				s.Errorf("%s has %d bytes", f, info.Size())
			}
		}
	}
	if now, err := os.Stat(fmt.Sprintf("/proc/%d/root%s", s.Agent.Pid(), rig.AuditFile)); err == nil {
		if s.log != nil && !os.SameFile(s.log, now) {
			s.count("rotations")
		}
		s.log = now
	}
	if len(files) > soakFiles {
		s.Errorf("the log has the files %v", files)
	}
	return sum
}
