package grants

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/internal/lab/signing"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// ceilings are files of a volume as a kubelet makes them: each version in a directory, and a link to one of them.
func ceilings(versions ...string) []lab.File {
	const dir = "/etc/agent-init/ceiling.d"
	files := []lab.File{{Path: dir, Dir: true}}
	for i, text := range versions {
		at := fmt.Sprintf("%s/..%d", dir, i+1)
		files = append(files, lab.File{Path: at, Dir: true}, lab.File{Path: at + "/org.txt", Data: []byte(text)})
	}
	return append(files, lab.File{Path: dir + "/..data", Link: "..1"}, lab.File{Path: dir + "/org.txt", Link: "..data/org.txt"})
}

// raise has another version of the ceiling in place, as a kubelet does.
func raise(w *rig.World, version int) {
	w.Helper()
	if r := w.Root("sh", "-c", fmt.Sprintf("cd /etc/agent-init/ceiling.d && ln -s ..%d ..new && mv -T ..new ..data", version)); r.Code != 0 {
		w.Fatal(r)
	}
}

var _ = rig.Also(TestCeiling, rig.InModes)

// TestCeiling: nothing that any source allows is above the ceiling, and one that is lowered ends what it no longer
// admits: connections, flows and grants, also below a policy that is broken by then.
func TestCeiling(t *testing.T) {
	l := rig.NewLab(t)
	s := rig.NewStreams()
	for _, host := range []string{"ok.test", "ok2.test", "evil.test"} {
		l.Web.Handle(host, s)
	}
	w := rig.ConfineIn(t, l, "ok.test\nevil.test\n@github\n", lab.BoxOptions{
		Files: append(ceilings("ok.test\nok2.test\n45.30.9.9:8443\n", "ok.test\n", "ok2.test:443\n", "*.com\n"),
			lab.File{Path: savedFile, Data: []byte("stay.test\n")},
			lab.File{Path: "/etc/agent-init/allowlist.d/more.txt", Data: []byte("*.test:443\n45.30.0.0/16:8443\n")}),
		Env: []string{"AGENT_INIT_ALLOW=late.test"},
	})

	// Each source is above it.
	for _, name := range []string{"evil.test", "stay.test", "late.test", "api.github.com", "other.test"} {
		w.Blocked("resolve", name)
		if r := w.AgentRuns("explain", name); !strings.Contains(r.Stdout, "above the ceiling: no line of it admits this") {
			t.Errorf("explain %s: %s", name, r)
		}
	}
	if r := w.AgentRuns("explain", "evil.test"); !strings.Contains(r.Stdout, "allowlist.txt:2  evil.test") {
		t.Errorf("explain does not name the entry: %s", r)
	}
	if r := w.AgentRuns("explain", "45.30.9.9:8080"); !strings.Contains(r.Stdout, "it admits 45.30.9.9:8443 alone (ceiling.d/org.txt:3)") {
		t.Errorf("explain does not name the line: %s", r)
	}
	if r := w.AgentRuns("suggest"); !strings.Contains(r.Stdout, "# evil.test ") || !strings.Contains(r.Stdout, "above the ceiling") {
		t.Errorf("suggest: %s", r)
	}
	if r := w.Root("agent-init", "doctor"); !strings.Contains(r.Stdout, "allowlist.txt:2: evil.test is above the ceiling") {
		t.Errorf("doctor: %s", r)
	}
	for _, args := range [][]string{{"allow", "evil.test"}, {"allow", "evil.test", "--save"}, {"allow", "*.test"}, {"allow", "45.30.0.0/16:8443"}, {"allow", "ok.test:22"}, {"allow", "ok.test private"}} {
		w.Refuses(64, args, "above the ceiling")
	}
	if r := w.AgentRuns("request", "evil.test"); r.Code == 0 || !strings.Contains(r.Stderr, "above the ceiling") {
		t.Errorf("a request is taken: %s", r)
	}
	w.Blocked("resolve", "evil.test")
	w.Blocked("tcp", "45.30.9.8:8443")
	w.Unasked("evil.test", "stay.test", "late.test", "api.github.com", "other.test")
	w.Sealed(lab.ToAddr("45.30.9.8"))
	if r := w.Root("agent-init", "check"); !strings.Contains(r.Stderr, "allowlist.txt:2:1: above the ceiling") || !strings.Contains(r.Stderr, "allowlist.d/more.txt:1:1: above the ceiling: it admits less (ceiling.d/org.txt:") {
		t.Errorf("check says %s", r)
	}
	if r := w.Root("agent-init", "status"); !strings.Contains(r.Stdout, "ceiling    not signed; it stopped") {
		t.Errorf("status says %s", r)
	}
	w.Audited("what it stopped", func(e rig.Event) bool {
		return e.Kind == "policy" && strings.Contains(e.Reason, "allowlist.txt:2: evil.test is above the ceiling")
	})

	// What it admits can be granted, and ends with it.
	w.Did("allow", "ok2.test")
	if r := w.AgentRuns("request", "ok2.test:443", "--reason", "x"); r.Code != 0 {
		t.Error(r)
	}
	running := w.Follow(s, "https://ok.test", "https://ok2.test", "http://ok2.test")
	hold := w.AsAgent(w.Box, "tcp", "-hold", "10m", "45.30.9.9:8443")
	if !rig.Eventually(time.Minute, func() bool { return len(w.Box.Packets(lab.ToAddr("45.30.9.9"))) > 3 }) {
		t.Fatalf("the address is not open: %s", hold.Stdout())
	}
	raise(w, 2)
	w.Audited("the change", func(e rig.Event) bool {
		return e.Kind == "policy" && strings.Contains(e.Reason, "changed: ceiling.d/org.txt")
	})
	for _, u := range []string{"https://ok2.test", "http://ok2.test"} {
		w.Cut(s, u, running[u], time.Now())
	}
	select {
	case <-hold.Done():
	case <-time.After(lab.Patience):
		t.Error("the flow outlives its ceiling")
	}
	w.Lives(s, "https://ok.test", running["https://ok.test"])
	w.Blocked("resolve", "ok2.test")
	for _, g := range w.Grants() {
		if g.Target == "ok2.test" || g.Outcome == "" && g.Kind == "request" {
			t.Errorf("above the ceiling, it goes on: %+v", g)
		}
	}
	w.Audited("the end of the grant", func(e rig.Event) bool {
		return e.Kind == "grant" && e.Name == "ok2.test" && strings.Contains(e.Reason, "ended, above the ceiling")
	})
	w.Refuses(64, []string{"allow", "ok2.test"}, "above the ceiling")

	// A mistake in the policy does not hold it back.
	rig.Must(t, w.Box.WriteFile("/etc/agent-init/allowlist.txt", []byte("ok.test\n*.com\n"), 0o644))
	if !rig.Eventually(time.Minute, func() bool { _, code := w.Status(); return code != 0 }) {
		t.Fatal("the bad policy does not show")
	}
	w.Lives(s, "https://ok.test", running["https://ok.test"])
	raise(w, 3)
	w.Cut(s, "https://ok.test", running["https://ok.test"], time.Now())
	w.Blocked("resolve", "ok.test")
	if s, code := w.Status(); code == 0 || !strings.Contains(fmt.Sprint(s["why"]), "allowlist.txt:2") {
		t.Errorf("the mistake is forgotten: %v", s["why"])
	}

	// A mistake in the ceiling holds all back, and so does its end.
	rig.Must(t, w.Box.WriteFile("/etc/agent-init/allowlist.txt", []byte("ok.test\n"), 0o644))
	raise(w, 4)
	if !rig.Eventually(time.Minute, func() bool { s, _ := w.Status(); return strings.Contains(fmt.Sprint(s["why"]), "ceiling.d/org.txt:1") }) {
		t.Error("the mistake in the ceiling does not show")
	}
	w.Refuses(78, []string{"reload"}, "the ceiling has errors")
	w.Blocked("resolve", "ok.test")
	if r := w.Root("mv", "/etc/agent-init/ceiling.d", "/etc/agent-init/gone.d"); r.Code != 0 {
		t.Fatal(r)
	}
	w.Refuses(78, []string{"reload"}, "the ceiling is gone")
	w.Blocked("resolve", "ok.test")
	if r := w.Root("mv", "/etc/agent-init/gone.d", "/etc/agent-init/ceiling.d"); r.Code != 0 {
		t.Fatal(r)
	}
	raise(w, 1)
	if !rig.Eventually(time.Minute, func() bool { _, code := w.Status(); return code == 0 }) {
		t.Fatal("the good ceiling does not heal it")
	}
	w.Works("resolve", "ok.test")
	w.Unasked("evil.test", "stay.test", "late.test", "api.github.com", "other.test")
}

// TestCeilingStart: what no start may do below a ceiling, and which ceiling no start takes.
func TestCeilingStart(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	const dir = "/etc/agent-init/"
	key := signing.New()
	file := func(name, text string) lab.File { return lab.File{Path: dir + name, Data: []byte(text)} }
	text := "domains: [ok.test]\nselftest: warn\n"
	plain := []lab.File{file("ceiling.d/c.yaml", text)}
	signed := func(signedText, comment string) []lab.File {
		return []lab.File{{Path: dir + "ceiling.pub", Data: key.Public()}, file("ceiling.d/ceiling.yaml", text),
			{Path: dir + "ceiling.d/ceiling.yaml.minisig", Data: key.Sign([]byte(signedText), comment)}}
	}
	for name, c := range map[string]struct {
		files []lab.File
		flags []string
		env   []string
		says  string
	}{
		"monitor":        {files: plain, flags: []string{"--mode", "monitor"}, says: "--mode monitor is above the ceiling"},
		"by environment": {files: plain, env: []string{"AGENT_INIT_MODE=monitor"}, says: "above the ceiling (ceiling.d/c.yaml)"},
		"no self-test":   {files: plain, flags: []string{"--selftest", "off"}, says: "--selftest off is above the ceiling (ceiling.d/c.yaml:2)"},
		"no firewall":    {files: plain, flags: []string{"--unsafe-no-firewall"}, says: "--unsafe-no-firewall is above the ceiling"},
		"a mistake":      {files: []lab.File{file("ceiling.d/c.txt", "*.com\n")}, says: "ceiling.d/c.txt:1"},
		"the agent's":    {files: []lab.File{{Path: dir + "ceiling.d/c.txt", Data: []byte("ok.test\n"), UID: lab.AgentUID, GID: lab.AgentUID}}, says: "belongs to"},
		"of nothing":     {files: []lab.File{{Path: dir + "ceiling.d", Dir: true}}, says: "it has 0 files"},
		"elsewhere":      {files: append([]lab.File{{Path: "/conf", Dir: true}}, file("ceiling.d/c.txt", "*.com\n")), flags: []string{"--config", "/conf"}, says: "ceiling.d/c.txt:1"},
		"not there":      {files: signed(text, "timestamp:1")[:1], says: "it is missing"},
		"altered":        {files: signed(text+"\n", "timestamp:1"), says: "the signature is not of this file"},
		"expired":        {files: signed(text, "timestamp:1 expires:2020-01-01"), says: "it has expired"},
		"older":          {files: append(signed(text, "timestamp:1"), lab.File{Path: "/var/lib/agent-init/ceiling/seen", Data: []byte("2\n")}), says: "it is older (1)"},
	} {
		t.Run(name, func(t *testing.T) {
			box := l.NewBox(lab.BoxOptions{Binary: lab.Binary(t), Files: append(c.files, file("allowlist.txt", "ok.test\n")), Env: c.env})
			r := box.Start(lab.Cmd{Args: append(append([]string{"agent-init", "run"}, c.flags...), "--", "echo", "started")}).Wait(0)
			rig.Refused(t, r, 78, c.says)
		})
	}

	// One that is right is remembered, and no older one is taken while it is in force.
	w := rig.StartIn(t, l, "ok.test\nevil.test\n", lab.BoxOptions{Files: signed(text, "timestamp:5\tfile:ceiling.yaml\thashed")}, "agent-init", "run", "--selftest", "warn", "--", "sleep", "infinity")
	w.Ready()
	w.Works("resolve", "ok.test")
	w.Blocked("resolve", "evil.test")
	if seen, err := w.Box.ReadFile("/var/lib/agent-init/ceiling/seen"); err != nil || string(seen) != "5\n" {
		t.Errorf("remembered is %q, %v", seen, err)
	}
	put := func(number int, text string) {
		rig.Must(t, w.Box.WriteFile(dir+"ceiling.d/ceiling.yaml", []byte(text), 0o644))
		rig.Must(t, w.Box.WriteFile(dir+"ceiling.d/ceiling.yaml.minisig", key.Sign([]byte(text), fmt.Sprintf("serial:%d", number)), 0o644))
	}
	put(4, "domains: [ok.test, evil.test]\n")
	w.Refuses(78, []string{"reload"}, "it is older (4)")
	w.Blocked("resolve", "evil.test")
	put(6, "domains: [ok.test, evil.test]\n")
	w.Did("reload")
	w.Works("resolve", "evil.test")
}

// TestCeilingUnusable: a ceiling that wants what takes another start closes everything, grants included.
func TestCeilingUnusable(t *testing.T) {
	w := rig.ConfineIn(t, rig.NewLab(t), "ok.test\n", lab.BoxOptions{})
	w.Did("allow", "ok2.test")
	for _, name := range []string{"ok.test", "ok2.test"} {
		w.Works("http", "https://"+name+"/")
	}
	if r := w.Root("mkdir", "-p", "/etc/agent-init/ceiling.d"); r.Code != 0 {
		t.Fatal(r)
	}
	rig.Must(t, w.Box.WriteFile("/etc/agent-init/ceiling.d/org.yaml", []byte("domains: [ok.test, ok2.test]\nupstream_proxy: http://45.30.9.9:3128\n"), 0o644))
	if r := w.Root("agent-init", "reload"); r.Code == 0 || !strings.Contains(r.Stderr, "upstream_proxy: ") {
		t.Errorf("reload says %s", r)
	}
	for _, name := range []string{"ok.test", "ok2.test"} {
		w.Blocked("http", "https://"+name+"/")
	}
	if _, code := w.Status(); code == 0 {
		t.Error("all is well, and the ceiling can't be had")
	}
}

var _ = rig.Also(TestCeilingMany, rig.UnderStress)

// TestCeilingMany: a ceiling that is changed in one place closes in many containers that have it mounted. make stress
// has two hundred of them, and says how long that takes.
func TestCeilingMany(t *testing.T) {
	l := rig.NewLab(t)
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	set := func(version string) {
		if err := os.WriteFile(dir+"/new", []byte(version), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(dir+"/new", dir+"/org.txt"); err != nil {
			t.Fatal(err)
		}
	}
	set("ok.test\n45.30.9.9:8443\n")
	worlds := make([]*rig.World, rig.Often(6, 200))
	for i := range worlds {
		worlds[i] = rig.StartIn(t, l, "ok.test\n45.30.9.9:8443\n", lab.BoxOptions{
			Binds: []lab.Bind{{Source: dir, Target: "/etc/agent-init/ceiling.d"}},
		}, "agent-init", "run", "--", "sleep", "infinity")
	}
	flows := make([]*lab.Process, len(worlds))
	for i, w := range worlds {
		w.Ready()
		flows[i] = w.AsAgent(w.Box, "tcp", "-hold", "1h", "45.30.9.9:8443")
	}
	for i, w := range worlds {
		if !rig.Eventually(lab.Patience, func() bool { return len(w.Box.Packets(lab.ToAddr("45.30.9.9"))) > 3 }) {
			t.Fatalf("the address is not open: %s", flows[i].Stdout())
		}
	}
	changed := time.Now()
	set("ok.test\n")
	for i, f := range flows {
		select {
		case <-f.Done():
		case <-time.After(lab.Patience):
			t.Fatalf("container %d: the flow outlives its ceiling", i)
		}
	}
	t.Logf("closed in %d containers within %v", len(worlds), time.Since(changed).Round(time.Millisecond))
	for _, w := range worlds {
		w.Blocked("tcp", "45.30.9.9:8443")
	}
}
