package faults

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// fill leaves no room below a directory: no byte, or no inode.
func fill(w *rig.World, dir string, inodes bool) {
	w.Helper()
	script := `cat /dev/zero >"$1/fill" 2>/dev/null; true`
	if inodes {
		script = `i=0; while touch "$1/fill$i"; do i=$((i+1)); done 2>/dev/null; true`
	}
	if r := w.Root("sh", "-c", script, "sh", dir); r.Code != 0 {
		w.Fatal(r)
	}
}

func empty(w *rig.World, dir string) {
	w.Helper()
	if r := w.Root("sh", "-c", `rm -f "$1"/fill*`, "sh", dir); r.Code != 0 {
		w.Fatal(r)
	}
}

var _ = rig.Also(TestFaultLogDisk, rig.UnderStress)

// TestFaultLogDisk: a log that can't be written costs events and nothing else.
// The status says so while it is the case, and the log how many there were.
func TestFaultLogDisk(t *testing.T) {
	lab.Require(t)
	for name, inodes := range map[string]bool{"full": false, "no inodes": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{Tmpfs: []string{"/var/log:mode=0755,size=1m,nr_inodes=64"},
				Files: []lab.File{rig.Settings("log:\n  max_size: 64KiB\n")}})
			fill(w, "/var/log", inodes)
			refuse := func(n int) { // events of as many names
				t.Helper()
				w.Poke("dns", "-n", fmt.Sprint(n), "-c", "4", "8.8.8.8:53", "n{n}.evil.test", "A")
			}
			if !rig.Eventually(2*time.Minute, func() bool { // what is held back for the log is used, or it is to be rotated
				refuse(300)
				s, _ := w.Status()
				return strings.Contains(fmt.Sprint(s["why"]), "events are being lost")
			}) {
				t.Error("the status does not say that events are being lost")
			}
			w.Works("http", "https://ok.test/")
			w.Closed()
			empty(w, "/var/log")
			w.Recovers("the disk was full")
			var lost uint64
			if !rig.Eventually(20*time.Second, func() bool {
				lost = 0
				for _, e := range w.Audit(func(e rig.Event) bool { return strings.Contains(e.Reason, "events could not be written") }) {
					lost += e.Suppressed
				}
				return lost > 0
			}) {
				t.Error("the log does not tell of lost events")
			}
			t.Logf("%d events lost", lost)
			w.Blocked("dns", "8.8.8.8:53", "later.evil.test", "A")
			w.Audited("a later event", func(e rig.Event) bool { return e.Name == "later.evil.test" })
		})
	}
}

var _ = rig.Also(TestFaultRuntimeDisk, rig.UnderStress)

// TestFaultRuntimeDisk: without room for what it publishes the keeper goes on.
// What it could not publish it does when there is room.
func TestFaultRuntimeDisk(t *testing.T) {
	lab.Require(t)
	for name, inodes := range map[string]bool{"full": false, "no inodes": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := rig.NewLab(t)
			rig.EvilZone(l)
			w := rig.ConfineIn(t, l, rig.Allowlist, lab.BoxOptions{Tmpfs: []string{"/run:mode=0755,size=1m,nr_inodes=64"}})
			fill(w, "/run", inodes)
			// A new policy comes into force all the same; what was revoked is shut.
			rig.Must(t, w.Box.WriteFile("/etc/agent-init/allowlist.txt", []byte("ok.test\nok2.test\n"), 0o644))
			if !rig.Eventually(30*time.Second, func() bool { return w.Poke("http", "https://ok2.test/").OK }) {
				t.Error("the new policy does not come into force")
			}
			w.Works("http", "https://ok.test/")
			w.Blocked("tcp", "-timeout", "1s", "45.30.9.9:8443")
			w.Guard().Signal(t, 9)
			if !rig.Eventually(30*time.Second, func() bool { return w.Poke("http", "https://ok2.test/").OK }) {
				t.Error("no guard serves")
			}
			if s, code := w.Status(); code != 0 { // which has room of its own
				t.Errorf("the status is not published: %v", s["why"])
			}
			w.Closed("ok2.test")
			empty(w, "/run")
			w.Recovers("the disk was full")
			if !rig.Eventually(30*time.Second, func() bool {
				return w.Root("agent-init", "explain", "ok2.test").Code == 0
			}) {
				t.Errorf("the new policy is not published: %s", w.Root("agent-init", "explain", "ok2.test"))
			}
			if !rig.Eventually(30*time.Second, func() bool { return slices.Contains(published(w), "ok2.test") }) {
				t.Errorf("leases are published for %v only", published(w))
			}
			if r := w.SetPolicy(rig.Allowlist); r.Code != 0 {
				t.Error(r)
			}
			w.Blocked("http", "https://ok2.test/")
		})
	}
}

// published are the names of leases.json.
func published(w *rig.World) (names []string) {
	w.Helper()
	data, err := w.Box.ReadFile("/run/agent-init/leases.json")
	rig.Must(w.T, err)
	var r struct{ Names []struct{ Name string } }
	rig.Must(w.T, json.Unmarshal(data, &r))
	for _, n := range r.Names {
		names = append(names, n.Name)
	}
	return names
}

var _ = rig.Also(TestFaultAgentFillsDisk, rig.UnderStress)

// TestFaultAgentFillsDisk: the agent, which shares the disk, can neither stop
// the guard's successor nor open anything by leaving no room.
func TestFaultAgentFillsDisk(t *testing.T) {
	lab.Require(t)
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{ReadOnly: true})
	if s, _ := w.Status(); !strings.Contains(fmt.Sprint(s["audit"]), "/dev/shm/") {
		t.Fatalf("proves nothing, the agent can't write where the log is: %v", s["audit"])
	}
	r := w.Root("mount", "-o", "remount,size=1m", "/dev/shm")
	if r.Code == 0 {
		t.Fatal("root of the box may mount")
	}
	rig.Must(t, w.Box.Remount("/dev/shm", "size=2m"))
	w.Root("agent-init", "exec", "--", "sh", "-c", "cat /dev/zero >/dev/shm/fill")
	w.Guard().Signal(t, 9)
	if !rig.Eventually(30*time.Second, func() bool { return w.Poke("http", "https://ok.test/").OK }) {
		t.Error("no guard serves")
	}
	w.Closed()
	w.Root("agent-init", "exec", "--", "rm", "/dev/shm/fill")
	w.Recovers("the agent had filled the disk")
	w.Closed()
}

var _ = rig.Also(TestFaultLogRemoved, rig.UnderStress)

// TestFaultLogRemoved: the log goes on under its name, whatever a person does
// to the file.
func TestFaultLogRemoved(t *testing.T) {
	lab.Require(t)
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{})
	for i, do := range []string{
		"rm /var/log/agent-init/audit.jsonl", "mv /var/log/agent-init/audit.jsonl /var/log/agent-init/mine",
		": >/var/log/agent-init/audit.jsonl", "rm -r /var/log/agent-init",
		"mv /var/log/agent-init /var/log/mine; mkdir /var/log/agent-init",
		"cp /var/log/agent-init/audit.jsonl /var/log/agent-init/n; mv /var/log/agent-init/n /var/log/agent-init/audit.jsonl",
	} {
		if r := w.Root("sh", "-c", do); r.Code != 0 {
			t.Fatal(r)
		}
		name := fmt.Sprintf("after%d.evil.test", i)
		w.Blocked("dns", "8.8.8.8:53", name, "A")
		if !rig.Eventually(10*time.Second, func() bool {
			data, err := w.Box.ReadFile("/var/log/agent-init/audit.jsonl")
			return err == nil && strings.Contains(string(data), name)
		}) {
			t.Errorf("not recorded after: %s", do)
		}
	}
	w.Recovers("the log was removed")
}
