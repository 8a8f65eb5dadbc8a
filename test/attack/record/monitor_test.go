package record

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// TestMonitorLogsWhatEnforceWouldDeny: what enforce would deny works and is logged with both
// verdicts; what no policy opens stays denied; and what is suggested afterwards
// is enough for enforce.
func TestMonitorLogsWhatEnforceWouldDeny(t *testing.T) {
	l := rig.NewLab(t)
	l.DNS.SetAddrs("git.test", "45.30.0.77")
	l.DNS.SetAddrs("loop.test", "127.0.0.1")
	l.DNS.SetAddrs("meta.test", "169.254.169.254")
	l.DNS.SetAddrs("inner.test", "10.44.0.7")
	const list = "ok.test\n!ok2.test\n"
	w := rig.StartIn(t, l, list, lab.BoxOptions{}, "agent-init", "run", "--mode", "monitor", "--", "sleep", "infinity")
	w.Ready()
	if !strings.Contains(w.Agent.Stderr(), "THE NETWORK IS NOT CONFINED") {
		t.Errorf("it does not say so at the start: %s", w.Agent.Stderr())
	}
	s, code := w.Status()
	if code == 0 || !strings.Contains(fmt.Sprint(s["why"]), "NOT CONFINED: monitor mode") {
		t.Errorf("the status is %d, %v", code, s["why"])
	}
	if r := w.Root("agent-init", "status"); !strings.HasPrefix(r.Stdout, "NOT CONFINED\n") {
		t.Errorf("the status is %s", r)
	}
	// So does the prompt of a shell.
	if r := w.Root("agent-init", "exec", "--", "sh", "-i", "-c", `echo "$PS1|$debian_chroot"`); r.Stdout != "[NOT CONFINED: monitor] $ |NOT CONFINED: monitor\n" {
		t.Errorf("the prompt is %s", r)
	}
	honest := func(w *rig.World) {
		t.Helper()
		w.Works("http", "https://ok.test/")
		w.Works("http", "https://evil.test/")
		w.Works("http", "http://evil.test/")
		w.Works("tcp", "-send", "hello", "45.30.9.9:8443")
		w.Works("udp", "45.30.9.9:4433")
		w.Works("resolve", "git.test")
		w.Works("tcp", "-send", "hello", "45.30.0.77:22")
		w.Works("http", "http://inner.test/")
	}
	honest(w)
	w.Works("http", "https://ok2.test/") // denied by a rule
	ok4, _ := rig.Named("ok.test")
	w.Works("http", "-addr", ok4.String()+":443", "-insecure", "https://other.test/") // another name at a leased address
	for _, args := range [][]string{{"tcp", "169.254.169.254:80"}, {"ping", "1.1.1.1"}, {"resolve", "loop.test"}, {"resolve", "meta.test"},
		{"dns", "1.1.1.1:53", "evil.test", "TXT"}, {"socket", "packet", "raw", "768"}} {
		w.Blocked(args...)
	}
	for what, want := range map[string]func(rig.Event) bool{
		"a name":            func(e rig.Event) bool { return e.Kind == "dns" && e.Name == "evil.test" },
		"a denied name":     func(e rig.Event) bool { return e.Kind == "dns" && e.Name == "ok2.test" && e.Rule == "allowlist.txt:2" },
		"a private address": func(e rig.Event) bool { return e.Kind == "dns" && e.Name == "inner.test" && e.IP == "10.44.0.7" },
		"an address": func(e rig.Event) bool {
			return e.Kind == "drop" && e.IP == "45.30.9.9" && e.Port == 8443 && e.Proto == "tcp"
		},
		"an address over UDP": func(e rig.Event) bool {
			return e.Kind == "drop" && e.IP == "45.30.9.9" && e.Port == 4433 && e.Proto == "udp"
		},
		"a name at another's address": func(e rig.Event) bool { return e.Kind == "connect" && e.Name == "other.test" },
	} {
		w.Audited(what, func(e rig.Event) bool {
			return want(e) && e.Verdict == "allow" && e.Enforce == "deny" && strings.HasPrefix(e.Reason, "monitor: ")
		})
	}
	if t.Failed() {
		t.Log(w.Did("log"))
	}
	w.Audited("what stays denied", func(e rig.Event) bool {
		return e.Kind == "drop" && e.IP == "169.254.169.254" && e.Verdict == "deny" && e.Enforce == ""
	})
	w.Says([]string{"explain", "evil.test"}, "denied", "MONITOR")

	// It leaves only as it came: a reload or a grant changes nothing about it,
	// and nobody may think that it is enforced.
	w.Did("allow", "evil.test")
	w.Did("reload")
	w.Works("tcp", "45.30.9.9:8443")
	w.Refuses(71, []string{"up"}, "monitor mode")
	w.Did("grants", "--end", "1")

	lines := w.Did("suggest")
	for _, want := range []string{"\nevil.test ", "\n45.30.9.9:8443 ", "\n45.30.9.9:4433/udp ", "\ngit.test:22 ", "\ninner.test"} {
		if !strings.Contains(lines, want) {
			t.Errorf("not suggested: %q in\n%s", want, lines)
		}
	}
	if strings.Contains(lines, "\nok2.test") || strings.Contains(lines, "169.254") || strings.Contains(lines, "loop.test") {
		t.Errorf("suggested is\n%s", lines)
	}
	rig.Must(t, w.Agent.Signal(unix.SIGTERM))
	w.Agent.Wait(0)
	w = rig.ConfineIn(t, l, list+strings.ReplaceAll(lines, "\ninner.test ", "\ninner.test private "), lab.BoxOptions{})
	honest(w)
	w.Blocked("http", "https://ok2.test/")
	w.Blocked("tcp", "45.30.9.10:8443")
	// Nor does anything but the flag lead into it.
	w.Refuses(71, []string{"up", "--mode", "monitor"}, "enforce mode")
	rig.Must(t, w.Box.WriteFile("/etc/agent-init/policy.yaml", []byte("mode: monitor\n"), 0o644))
	w.Refuses(78, []string{"reload"}, "unknown key")
	w.Blocked("tcp", "45.30.9.10:8443")
}
