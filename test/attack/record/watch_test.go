package record

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// TestWatch: changed files are taken over by themselves, those of a volume
// whose links are swapped too; a bad one changes nothing but the status.
func TestWatch(t *testing.T) {
	l := rig.NewLab(t)
	s := rig.NewStreams()
	l.Web.Handle("ok.test", s)
	w := rig.StartIn(t, l, "ok.test\n", lab.BoxOptions{Files: []lab.File{
		{Path: "/conf", Dir: true}, {Path: "/conf/..1", Dir: true}, {Path: "/conf/..2", Dir: true}, {Path: "/conf/..3", Dir: true},
		{Path: "/conf/..1/allowlist.txt", Data: []byte("ok.test\n")},
		{Path: "/conf/..2/allowlist.txt", Data: []byte("ok2.test\n")},
		{Path: "/conf/..3/allowlist.txt", Data: []byte("*.com\n")},
		{Path: "/conf/..data", Link: "..1"},
		{Path: "/conf/allowlist.txt", Link: "..data/allowlist.txt"},
	}}, "agent-init", "run", "--config", "/conf", "--", "sleep", "infinity")
	w.Ready()
	swap := func(to string) {
		t.Helper()
		if r := w.Root("sh", "-c", "ln -s "+to+" /conf/..new && mv -T /conf/..new /conf/..data"); r.Code != 0 {
			t.Fatal(r)
		}
	}
	running := w.Follow(s, "https://ok.test")
	swap("..2")
	if !rig.Eventually(20*time.Second, func() bool { return w.Poke("http", "https://ok2.test/").OK }) {
		t.Fatal("the swap is not noticed")
	}
	w.Cut(s, "https://ok.test", running["https://ok.test"], time.Now())
	w.Blocked("resolve", "ok.test")
	reloaded := func(e rig.Event) bool { return e.Kind == "policy" && strings.HasPrefix(e.Reason, "policy reloaded") }
	w.Audited("the reload", reloaded)
	swap("..3")
	if !rig.Eventually(20*time.Second, func() bool { _, code := w.Status(); return code != 0 }) {
		t.Fatal("the bad policy does not show")
	}
	if s, _ := w.Status(); !strings.Contains(fmt.Sprint(s["why"]), "*.com") {
		t.Errorf("the status does not say why: %v", s["why"])
	}
	if r := w.Root("agent-init", "status"); !strings.HasPrefix(r.Stdout, "confined, but degraded\n") {
		t.Errorf("the status is %s", r)
	}
	w.Audited("the refusal", func(e rig.Event) bool {
		return e.Kind == "policy" && e.Verdict == "fault" && strings.Contains(e.Reason, "*.com")
	})
	w.Works("http", "https://ok2.test/")
	swap("..1")
	if !rig.Eventually(20*time.Second, func() bool { _, code := w.Status(); return code == 0 }) {
		t.Fatal("the good policy does not heal it")
	}
	w.Works("http", "https://ok.test/")
	w.Blocked("resolve", "ok2.test")
	w.Audited("the second reload", func(e rig.Event) bool { return reloaded(e) && len(w.Audit(reloaded)) > 1 })
	if n := len(w.Audit(reloaded)); n != 2 {
		t.Errorf("reloaded %d times", n)
	}
}

// TestWatchSaysTheSame: a file that is written anew with what it had, as a kubelet
// does with /etc/hosts, is no change of the policy; one with something else is named.
func TestWatchSaysTheSame(t *testing.T) {
	w := rig.Confine(t, "ok.test\n", lab.BoxOptions{})
	changed := func(e rig.Event) bool { return e.Kind == "policy" && strings.HasPrefix(e.Reason, "changed: ") }
	for _, file := range []string{"/etc/hosts", "/etc/agent-init/allowlist.txt"} {
		if r := w.Root("sh", "-c", "cp "+file+" /tmp/same && sleep 1 && cat /tmp/same >"+file); r.Code != 0 {
			t.Fatal(r)
		}
	}
	// The order of the looks tells: this change comes after, and is the only one.
	if r := w.Root("sh", "-c", "sleep 4 && echo '45.30.0.1 host.test' >>/etc/hosts"); r.Code != 0 {
		t.Fatal(r)
	}
	w.Audited("the change", changed)
	w.Audited("the reload", func(e rig.Event) bool { return e.Kind == "policy" && strings.HasPrefix(e.Reason, "policy reloaded") })
	if all := w.Audit(changed); len(all) != 1 || all[0].Reason != "changed: hosts" {
		t.Errorf("changes: %+v", all)
	}
}
