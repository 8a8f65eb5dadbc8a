package faults

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/test/attack/rig"
)

// xtTampering is what somebody with NET_ADMIN could try at iptables and ipsets.
func xtTampering() map[string]func() error {
	run := func(args ...string) func() error {
		return func() error {
			if args[0] != "ipset" {
				args = append([]string{args[0] + "legacy", "-w"}, args[1:]...)
			}
			_, err := rig.Program(args[0], args[1:]...)
			return err
		}
	}
	return map[string]func() error{
		"flush the filter":     run("iptables-", "-F"),
		"flush a chain":        run("ip6tables-", "-F", "agent-init-output"),
		"let a chain accept":   run("iptables-", "-P", "OUTPUT", "ACCEPT"),
		"go ahead of the jump": run("iptables-", "-I", "OUTPUT", "-j", "ACCEPT"),
		"insert a rule":        run("iptables-", "-I", "agent-init-output", "-j", "ACCEPT"),
		"stop the redirection": run("iptables-", "-t", "nat", "-F", "agent-init-to-guard"),
		"add a lease":          run("ipset", "add", "agent-init-lease4", "1.1.1.1,tcp:443", "timeout", "3600"),
		"empty what is denied": func() error {
			text, err := rig.Program("ipset", "list", "-n")
			for name := range strings.FieldsSeq(text) {
				if err == nil && strings.HasPrefix(name, "agent-init-deny4") {
					_, err = rig.Program("ipset", "flush", name)
				}
			}
			return err
		},
	}
}

// footprint is what the keeper, or the guard, takes of the machine.
type footprint struct {
	what  string
	kib   int // resident
	files int // descriptors
}

func (f footprint) String() string {
	return fmt.Sprintf("%s %.1f MiB, %d descriptors", f.what, float64(f.kib)/1024, f.files)
}

// footprints are those of keeper and guard.
func footprints(w *rig.World) [2]footprint {
	w.Helper()
	return [2]footprint{footprintOf(w, "keeper", w.Agent.Pid()), footprintOf(w, "guard", w.Guard().Host)}
}

func footprintOf(w *rig.World, what string, host int) footprint {
	w.Helper()
	f := footprint{what: what}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", host))
	rig.Must(w.T, err)
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "RssAnon:" {
			f.kib, err = strconv.Atoi(fields[1])
			rig.Must(w.T, err)
		}
	}
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", host))
	rig.Must(w.T, err)
	f.files = len(files)
	return f
}

// flat fails the test if keeper or guard have grown by more than so much since
// before, and do not shrink again.
func flat(w *rig.World, before [2]footprint, kib, files int) {
	w.Helper()
	var now [2]footprint
	if !rig.Eventually(30*time.Second, func() bool {
		now = footprints(w)
		return !slices.ContainsFunc([]int{0, 1}, func(i int) bool {
			return now[i].kib > before[i].kib+kib || now[i].files > before[i].files+files
		})
	}) {
		w.Errorf("has grown from %v to %v", before, now)
	}
	w.Logf("from %v to %v", before, now)
}

// quietly runs a test's load: what it says is of no interest.
func quietly(t *testing.T, w *rig.World, script string) (stop func()) {
	t.Helper()
	p := w.Root("sh", "-c", "umask 0; : >/tmp/load")
	if p.Code != 0 {
		t.Fatal(p)
	}
	load := w.Box.ExecStart(rig.LabCmd("agent-init", "exec", "--", "sh", "-c", "while [ -e /tmp/load ]; do "+script+"; done >/dev/null 2>&1"))
	return func() {
		w.Root("rm", "-f", "/tmp/load")
		load.Wait(time.Minute)
	}
}
