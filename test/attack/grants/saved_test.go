package grants

import (
	"fmt"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

const savedFile = "/var/lib/agent-init/allowlist.d/granted.txt"

// TestSaved: what a person allows or denies for good holds at once and after the next start, can be taken back, and
// is nobody's but root's.
func TestSaved(t *testing.T) {
	w := rig.Confine(t, "ok.test\n", lab.BoxOptions{Files: []lab.File{{Path: savedFile, Data: []byte("ok2.test # by hand\n!never.test\n")}},
		Env: []string{"AGENT_INIT_ALLOW=given.test, ok.test"}})
	if r := w.AgentRuns("explain", "given.test"); r.Code != 0 || !strings.Contains(r.Stdout, "AGENT_INIT_ALLOW:1  given.test") {
		t.Errorf("what the start was given: %s", r)
	}
	w.Works("resolve", "ok2.test")
	if g := w.Grants(); len(g) != 2 || !g[0].Saved || g[0].Target != "ok2.test" || g[0].Reason != "by hand" || g[1].Kind != "deny" {
		t.Errorf("the start has read %+v", g)
	}
	w.Did("grants", "--end", "1")
	w.Blocked("resolve", "ok2.test")
	w.Blocked("resolve", "evil.test")
	r := w.AgentRuns("request", "evil.test", "--reason", "for # the linter")
	if r.Code != 0 {
		t.Fatal(r)
	}
	r = w.Root("agent-init", "allow", "--request", "3", "--save")
	if r.Code != 0 || r.Stdout != "3: allowed evil.test for good\n" || !strings.Contains(r.Stderr, "-v NAME:/var/lib/agent-init") {
		t.Errorf("allow --save says %s", r)
	}
	w.Works("http", "https://evil.test/")
	w.Audited("what is saved", func(e rig.Event) bool {
		return e.Kind == "dns" && e.Name == "evil.test" && e.Verdict == "allow" && strings.HasPrefix(e.Rule, savedFile+":")
	})
	w.Did("deny", "ok.test", "--save", "--reason", "enough")
	w.Blocked("resolve", "ok.test")
	text, err := w.Box.ReadFile(savedFile)
	if err != nil || !strings.Contains(string(text), "for # the linter") || !strings.Contains(string(text), "\n!ok.test ") {
		t.Errorf("the file is %q, %v", text, err)
	}
	// A grant for a time takes nothing from it.
	w.Did("deny", "evil.test", "--for", "1h")
	w.Blocked("resolve", "evil.test")
	if g := w.Grants(); len(g) != 5 || !g[0].Saved || !g[1].Saved || !g[2].Saved || g[3].Number != 5 || g[3].Saved {
		t.Errorf("the grants are %+v", g)
	}
	w.Did("grants", "--end", "5")
	w.Works("resolve", "evil.test")

	// Broken files elsewhere are no hindrance, and stay the fault that they were.
	w.Did("allow", "ok.test", "--save") // the last word counts
	w.Works("resolve", "ok.test")
	rig.Must(t, w.Box.WriteFile("/etc/agent-init/allowlist.txt", []byte("*.com\n"), 0o644))
	w.Refuses(78, []string{"reload"}, "allowlist.txt:1")
	w.Did("deny", "ok.test", "--save")
	w.Blocked("resolve", "ok.test")
	if s, _ := w.Status(); !strings.Contains(fmt.Sprint(s["policy"]), "allowlist.txt:1") {
		t.Errorf("the fault of the files is forgotten: %v", s["policy"])
	}
	rig.Must(t, w.Box.WriteFile("/etc/agent-init/allowlist.txt", []byte("ok.test\n"), 0o644))
	w.Did("reload")
	w.Blocked("resolve", "ok.test")

	// A file that the agent could write is refused, and what was in force stays.
	if r := w.Root("chmod", "666", savedFile); r.Code != 0 {
		t.Fatal(r)
	}
	w.Refuses(78, []string{"reload"}, savedFile, "writable by everyone")
	w.Refuses(78, []string{"check"}, savedFile, "writable by everyone")
	if r := w.Root("agent-init", "doctor"); r.Code == 0 || !strings.Contains(r.Stdout, savedFile) {
		t.Errorf("doctor does not know: %s", r)
	}
	w.Refuses(1, []string{"allow", "ok2.test", "--save"}, "was not saved", "--for start")
	w.Blocked("resolve", "ok2.test")
	w.Works("resolve", "evil.test")
	w.Refuses(1, []string{"deny", "evil.test", "--save"}, "denied until agent-init ends", "was not saved")
	w.Blocked("resolve", "evil.test")
}

// TestUnusedLinesAreNamed: the lines that nobody has used are named; one whose connection is still open, of which the
// log has nothing yet, is none of them.
func TestUnusedLinesAreNamed(t *testing.T) {
	l := rig.NewLab(t)
	s := rig.NewStreams()
	l.Web.Handle("ok.test", s)
	w := rig.ConfineIn(t, l, "ok.test\nok2.test\n*.wild.test # a comment\n45.30.9.9:8443\n!no.test\n", lab.BoxOptions{
		Files: []lab.File{{Path: savedFile, Data: []byte("evil.test # by hand\n")}}, Env: []string{"AGENT_INIT_ALLOW=given.test"}})
	running := w.Follow(s, "https://ok.test")
	for who, run := range map[string]func(...string) lab.Result{
		"root":      func(args ...string) lab.Result { return w.Root(append([]string{"agent-init"}, args...)...) },
		"the agent": w.AgentRuns,
	} {
		r := run("suggest", "--unused")
		lines := ""
		for line := range strings.Lines(r.Stdout) {
			if entry, _, _ := strings.Cut(line, "#"); strings.TrimSpace(entry) != "" {
				lines += strings.TrimSpace(entry) + " "
			}
		}
		if r.Code != 0 || lines != "ok2.test *.wild.test evil.test given.test " ||
			!strings.Contains(r.Stdout, "/etc/agent-init/allowlist.txt\n") || !strings.Contains(r.Stdout, "agent-init grants --end 1") || !strings.Contains(r.Stdout, "1 entry passes by address") {
			t.Errorf("%s is told: %s", who, r)
		}
	}
	w.Lives(s, "https://ok.test", running["https://ok.test"])
	w.Works("http", "https://evil.test/")
	w.Audited("the connection", func(e rig.Event) bool { return e.Kind == "connect" && e.Name == "evil.test" })
	if r := w.AgentRuns("suggest", "--unused"); strings.Contains(r.Stdout, "\nevil.test") {
		t.Errorf("what was used is named: %s", r)
	}
	w.Refuses(64, []string{"suggest", "--unused", "--write", "/tmp/x"}, "--unused")
}

// TestSavedVolume: an empty volume that everybody may write, as an engine makes some, is made root's alone before the
// agent is there; without a volume, nothing is saved on a root that is only read, and nothing is allowed.
func TestSavedVolume(t *testing.T) {
	tmpfs := []string{"/run:mode=755", "/var/log/agent-init:mode=755", "/tmp"}
	t.Run("empty", func(t *testing.T) {
		w := rig.Confine(t, "ok.test\n", lab.BoxOptions{ReadOnly: true, Tmpfs: append(tmpfs, "/var/lib/agent-init")})
		if r := w.Root("agent-init", "allow", "evil.test", "--save"); r.Code != 0 || r.Stderr != "" {
			t.Errorf("on a volume: %s", r)
		}
		w.Works("resolve", "evil.test")
		if r := w.Root("stat", "-c", "%u %a", "/var/lib/agent-init", "/var/lib/agent-init/allowlist.d", savedFile); r.Stdout != "0 755\n0 755\n0 644\n" {
			t.Errorf("whose it is: %s", r)
		}
		for _, path := range []string{"/var/lib/agent-init/x", "/var/lib/agent-init/allowlist.d/x.txt", savedFile} {
			w.Blocked("write", "-data", "*.test", path)
		}
	})
	t.Run("none", func(t *testing.T) {
		w := rig.Confine(t, "ok.test\n", lab.BoxOptions{ReadOnly: true, Tmpfs: tmpfs})
		w.Refuses(1, []string{"allow", "evil.test", "--save"}, "was not saved", "read-only file system", "-v NAME:/var/lib/agent-init", "--for start")
		w.Blocked("resolve", "evil.test")
		if g := w.Grants(); len(g) != 0 {
			t.Errorf("the grants are %+v", g)
		}
		w.Did("allow", "evil.test", "--for", "start")
		w.Works("resolve", "evil.test")
	})
}
