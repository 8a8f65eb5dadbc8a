package rig

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
)

// Undumpable fails the test unless the kernel soon keeps others of a process's uid
// from its memory: it gives /proc/PID to root then (proc(5)). A process sees to that
// by itself, right after it was executed; nobody else has its uid.
func (p Inmate) Undumpable(t *testing.T, who string) {
	t.Helper()
	if !Eventually(20*time.Second, func() bool {
		var st unix.Stat_t
		return unix.Stat(fmt.Sprintf("/proc/%d/environ", p.Host), &st) == nil && st.Uid == 0
	}) {
		t.Errorf("%s: can be dumped and traced by its own uid", who)
	}
}

// UpstreamOnlyOr is upstreamOnly with exceptions: addresses, names of the lab.
func (w *World) UpstreamOnlyOr(hosts ...string) {
	w.Helper()
	filters := []lab.Filter{NotToUpstreams}
	for _, h := range hosts {
		addrs := lab.Names()[h]
		if a, err := netip.ParseAddr(h); err == nil {
			addrs = []netip.Addr{a}
		}
		for _, a := range addrs {
			filters = append(filters, lab.Not(lab.ToAddr(a.String())))
		}
	}
	w.Sealed(filters...)
}

// Keeper is the process that keeps the rules, as the status has it.
func (w *World) Keeper() Inmate {
	w.Helper()
	s, _ := w.Status()
	k, _ := s["keeper"].(map[string]any)
	for _, p := range Inmates(w.T, w.Agent) {
		if fmt.Sprint(p.Pid) == fmt.Sprint(k["pid"]) {
			return p
		}
	}
	w.Fatalf("no keeper: %v", s)
	return Inmate{}
}

// Refused fails the test unless agent-init ended with code, gave one line of
// cause that says all of texts and one of remedy, and started nothing: the
// command would have said "started".
func Refused(t *testing.T, r lab.Result, code int, texts ...string) {
	t.Helper()
	if r.Code != code {
		t.Errorf("ended with %d, want %d: %s", r.Code, code, r)
	}
	if strings.Contains(r.Stdout, "started") {
		t.Errorf("the agent was started: %s", r)
	}
	cause, remedy := "", ""
	for line := range strings.Lines(r.Stderr) {
		if who, _, _ := strings.Cut(line, ": "); who == "agent-init" || strings.HasPrefix(who, "agent-init ") {
			cause += line
		}
		if strings.HasPrefix(line, "  remedy: ") {
			remedy += line
		}
	}
	if strings.Count(cause, "\n") != 1 || strings.Count(remedy, "\n") != 1 || strings.TrimSpace(remedy) == "remedy:" {
		t.Errorf("not one cause and one remedy: %s", r)
	}
	for _, text := range texts {
		if !strings.Contains(r.Stderr, text) {
			t.Errorf("does not say %q: %s", text, r)
		}
	}
}

// Canary is a command that leaves a trace if it is ever run, and the function
// that looks for it.
func Canary(t *testing.T) (lab.Bind, []string, func() bool) {
	t.Helper()
	dir := t.TempDir()
	Must(t, os.Chmod(dir, 0o777))
	return lab.Bind{Source: dir, Target: "/canary", Writable: true}, []string{"sh", "-c", "echo started; touch /canary/ran; poke udp -noreply 1.1.1.1:9"},
		func() bool { _, err := os.Stat(filepath.Join(dir, "ran")); return err == nil }
}
