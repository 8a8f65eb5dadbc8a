package attack

import (
	"fmt"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab"
)

const savedFile = "/var/lib/agent-init/allowlist.d/granted.txt"

// TestSaved: what a person allows or denies for good holds at once and after the next start, can be taken back, and
// is nobody's but root's.
func TestSaved(t *testing.T) {
	w := confine(t, "ok.test\n", lab.BoxOptions{Files: []lab.File{{Path: savedFile, Data: []byte("ok2.test # by hand\n!never.test\n")}},
		Env: []string{"AGENT_INIT_ALLOW=given.test, ok.test"}})
	if r := w.agentRuns("explain", "given.test"); r.Code != 0 || !strings.Contains(r.Stdout, "AGENT_INIT_ALLOW:1  given.test") {
		t.Errorf("what the start was given: %s", r)
	}
	w.works("resolve", "ok2.test")
	if g := w.grants(); len(g) != 2 || !g[0].Saved || g[0].Target != "ok2.test" || g[0].Reason != "by hand" || g[1].Kind != "deny" {
		t.Errorf("the start has read %+v", g)
	}
	w.did("grants", "--end", "1")
	w.blocked("resolve", "ok2.test")
	w.blocked("resolve", "evil.test")
	r := w.agentRuns("request", "evil.test", "--reason", "for # the linter")
	if r.Code != 0 {
		t.Fatal(r)
	}
	r = w.root("agent-init", "allow", "--request", "3", "--save")
	if r.Code != 0 || r.Stdout != "3: allowed evil.test for good\n" || !strings.Contains(r.Stderr, "-v NAME:/var/lib/agent-init") {
		t.Errorf("allow --save says %s", r)
	}
	w.works("http", "https://evil.test/")
	w.audited("what is saved", func(e event) bool {
		return e.Kind == "dns" && e.Name == "evil.test" && e.Verdict == "allow" && strings.HasPrefix(e.Rule, savedFile+":")
	})
	w.did("deny", "ok.test", "--save", "--reason", "enough")
	w.blocked("resolve", "ok.test")
	text, err := w.box.ReadFile(savedFile)
	if err != nil || !strings.Contains(string(text), "for # the linter") || !strings.Contains(string(text), "\n!ok.test ") {
		t.Errorf("the file is %q, %v", text, err)
	}
	// A grant for a time takes nothing from it.
	w.did("deny", "evil.test", "--for", "1h")
	w.blocked("resolve", "evil.test")
	if g := w.grants(); len(g) != 5 || !g[0].Saved || !g[1].Saved || !g[2].Saved || g[3].Number != 5 || g[3].Saved {
		t.Errorf("the grants are %+v", g)
	}
	w.did("grants", "--end", "5")
	w.works("resolve", "evil.test")

	// Broken files elsewhere are no hindrance, and stay the fault that they were.
	w.did("allow", "ok.test", "--save") // the last word counts
	w.works("resolve", "ok.test")
	must(t, w.box.WriteFile("/etc/agent-init/allowlist.txt", []byte("*.com\n"), 0o644))
	w.refuses(78, []string{"reload"}, "allowlist.txt:1")
	w.did("deny", "ok.test", "--save")
	w.blocked("resolve", "ok.test")
	if s, _ := w.status(); !strings.Contains(fmt.Sprint(s["policy"]), "allowlist.txt:1") {
		t.Errorf("the fault of the files is forgotten: %v", s["policy"])
	}
	must(t, w.box.WriteFile("/etc/agent-init/allowlist.txt", []byte("ok.test\n"), 0o644))
	w.did("reload")
	w.blocked("resolve", "ok.test")

	// A file that the agent could write is refused, and what was in force stays.
	if r := w.root("chmod", "666", savedFile); r.Code != 0 {
		t.Fatal(r)
	}
	w.refuses(78, []string{"reload"}, savedFile, "writable by everyone")
	w.refuses(78, []string{"check"}, savedFile, "writable by everyone")
	if r := w.root("agent-init", "doctor"); r.Code == 0 || !strings.Contains(r.Stdout, savedFile) {
		t.Errorf("doctor does not know: %s", r)
	}
	w.refuses(1, []string{"allow", "ok2.test", "--save"}, "was not saved", "--for start")
	w.blocked("resolve", "ok2.test")
	w.works("resolve", "evil.test")
	w.refuses(1, []string{"deny", "evil.test", "--save"}, "denied until agent-init ends", "was not saved")
	w.blocked("resolve", "evil.test")
}

// TestUnusedLinesAreNamed: the lines that nobody has used are named; one whose connection is still open, of which the
// log has nothing yet, is none of them.
func TestUnusedLinesAreNamed(t *testing.T) {
	l := newLab(t)
	s := newStreams()
	l.Web.Handle("ok.test", s)
	w := confineIn(t, l, "ok.test\nok2.test\n*.wild.test # a comment\n45.30.9.9:8443\n!no.test\n", lab.BoxOptions{
		Files: []lab.File{{Path: savedFile, Data: []byte("evil.test # by hand\n")}}, Env: []string{"AGENT_INIT_ALLOW=given.test"}})
	running := w.follow(s, "https://ok.test")
	for who, run := range map[string]func(...string) lab.Result{
		"root":      func(args ...string) lab.Result { return w.root(append([]string{"agent-init"}, args...)...) },
		"the agent": w.agentRuns,
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
	w.lives(s, "https://ok.test", running["https://ok.test"])
	w.works("http", "https://evil.test/")
	w.audited("the connection", func(e event) bool { return e.Kind == "connect" && e.Name == "evil.test" })
	if r := w.agentRuns("suggest", "--unused"); strings.Contains(r.Stdout, "\nevil.test") {
		t.Errorf("what was used is named: %s", r)
	}
	w.refuses(64, []string{"suggest", "--unused", "--write", "/tmp/x"}, "--unused")
}

// TestSavedVolume: an empty volume that everybody may write, as an engine makes some, is made root's alone before the
// agent is there; without a volume, nothing is saved on a root that is only read, and nothing is allowed.
func TestSavedVolume(t *testing.T) {
	tmpfs := []string{"/run:mode=755", "/var/log/agent-init:mode=755", "/tmp"}
	t.Run("empty", func(t *testing.T) {
		w := confine(t, "ok.test\n", lab.BoxOptions{ReadOnly: true, Tmpfs: append(tmpfs, "/var/lib/agent-init")})
		if r := w.root("agent-init", "allow", "evil.test", "--save"); r.Code != 0 || r.Stderr != "" {
			t.Errorf("on a volume: %s", r)
		}
		w.works("resolve", "evil.test")
		if r := w.root("stat", "-c", "%u %a", "/var/lib/agent-init", "/var/lib/agent-init/allowlist.d", savedFile); r.Stdout != "0 755\n0 755\n0 644\n" {
			t.Errorf("whose it is: %s", r)
		}
		for _, path := range []string{"/var/lib/agent-init/x", "/var/lib/agent-init/allowlist.d/x.txt", savedFile} {
			w.blocked("write", "-data", "*.test", path)
		}
	})
	t.Run("none", func(t *testing.T) {
		w := confine(t, "ok.test\n", lab.BoxOptions{ReadOnly: true, Tmpfs: tmpfs})
		w.refuses(1, []string{"allow", "evil.test", "--save"}, "was not saved", "read-only file system", "-v NAME:/var/lib/agent-init", "--for start")
		w.blocked("resolve", "evil.test")
		if g := w.grants(); len(g) != 0 {
			t.Errorf("the grants are %+v", g)
		}
		w.did("allow", "evil.test", "--for", "start")
		w.works("resolve", "evil.test")
	})
}
