package attack

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
)

// TestMonitorLogsWhatEnforceWouldDeny: what enforce would deny works and is logged with both
// verdicts; what no policy opens stays denied; and what is suggested afterwards
// is enough for enforce.
func TestMonitorLogsWhatEnforceWouldDeny(t *testing.T) {
	l := newLab(t)
	l.DNS.SetAddrs("git.test", "45.30.0.77")
	l.DNS.SetAddrs("loop.test", "127.0.0.1")
	l.DNS.SetAddrs("meta.test", "169.254.169.254")
	l.DNS.SetAddrs("inner.test", "10.44.0.7")
	const list = "ok.test\n!ok2.test\n"
	w := startIn(t, l, list, lab.BoxOptions{}, "agent-init", "run", "--mode", "monitor", "--", "sleep", "infinity")
	w.ready()
	if !strings.Contains(w.agent.Stderr(), "THE NETWORK IS NOT CONFINED") {
		t.Errorf("it does not say so at the start: %s", w.agent.Stderr())
	}
	s, code := w.status()
	if code == 0 || !strings.Contains(fmt.Sprint(s["why"]), "NOT CONFINED: monitor mode") {
		t.Errorf("the status is %d, %v", code, s["why"])
	}
	if r := w.root("agent-init", "status"); !strings.HasPrefix(r.Stdout, "NOT CONFINED\n") {
		t.Errorf("the status is %s", r)
	}
	// So does the prompt of a shell.
	if r := w.root("agent-init", "exec", "--", "sh", "-i", "-c", `echo "$PS1|$debian_chroot"`); r.Stdout != "[NOT CONFINED: monitor] $ |NOT CONFINED: monitor\n" {
		t.Errorf("the prompt is %s", r)
	}
	honest := func(w *world) {
		t.Helper()
		w.works("http", "https://ok.test/")
		w.works("http", "https://evil.test/")
		w.works("http", "http://evil.test/")
		w.works("tcp", "-send", "hello", "45.30.9.9:8443")
		w.works("udp", "45.30.9.9:4433")
		w.works("resolve", "git.test")
		w.works("tcp", "-send", "hello", "45.30.0.77:22")
		w.works("http", "http://inner.test/")
	}
	honest(w)
	w.works("http", "https://ok2.test/") // denied by a rule
	ok4, _ := named("ok.test")
	w.works("http", "-addr", ok4.String()+":443", "-insecure", "https://other.test/") // another name at a leased address
	for _, args := range [][]string{{"tcp", "169.254.169.254:80"}, {"ping", "1.1.1.1"}, {"resolve", "loop.test"}, {"resolve", "meta.test"},
		{"dns", "1.1.1.1:53", "evil.test", "TXT"}, {"socket", "packet", "raw", "768"}} {
		w.blocked(args...)
	}
	for what, want := range map[string]func(event) bool{
		"a name":            func(e event) bool { return e.Kind == "dns" && e.Name == "evil.test" },
		"a denied name":     func(e event) bool { return e.Kind == "dns" && e.Name == "ok2.test" && e.Rule == "allowlist.txt:2" },
		"a private address": func(e event) bool { return e.Kind == "dns" && e.Name == "inner.test" && e.IP == "10.44.0.7" },
		"an address": func(e event) bool {
			return e.Kind == "drop" && e.IP == "45.30.9.9" && e.Port == 8443 && e.Proto == "tcp"
		},
		"an address over UDP": func(e event) bool {
			return e.Kind == "drop" && e.IP == "45.30.9.9" && e.Port == 4433 && e.Proto == "udp"
		},
		"a name at another's address": func(e event) bool { return e.Kind == "connect" && e.Name == "other.test" },
	} {
		w.audited(what, func(e event) bool {
			return want(e) && e.Verdict == "allow" && e.Enforce == "deny" && strings.HasPrefix(e.Reason, "monitor: ")
		})
	}
	if t.Failed() {
		t.Log(w.did("log"))
	}
	w.audited("what stays denied", func(e event) bool {
		return e.Kind == "drop" && e.IP == "169.254.169.254" && e.Verdict == "deny" && e.Enforce == ""
	})
	w.says([]string{"explain", "evil.test"}, "denied", "MONITOR")

	// It leaves only as it came: a reload or a grant changes nothing about it,
	// and nobody may think that it is enforced.
	w.did("allow", "evil.test")
	w.did("reload")
	w.works("tcp", "45.30.9.9:8443")
	w.refuses(71, []string{"up"}, "monitor mode")
	w.did("grants", "--end", "1")

	lines := w.did("suggest")
	for _, want := range []string{"\nevil.test ", "\n45.30.9.9:8443 ", "\n45.30.9.9:4433/udp ", "\ngit.test:22 ", "\ninner.test"} {
		if !strings.Contains(lines, want) {
			t.Errorf("not suggested: %q in\n%s", want, lines)
		}
	}
	if strings.Contains(lines, "\nok2.test") || strings.Contains(lines, "169.254") || strings.Contains(lines, "loop.test") {
		t.Errorf("suggested is\n%s", lines)
	}
	must(t, w.agent.Signal(unix.SIGTERM))
	w.agent.Wait(0)
	w = confineIn(t, l, list+strings.ReplaceAll(lines, "\ninner.test ", "\ninner.test private "), lab.BoxOptions{})
	honest(w)
	w.blocked("http", "https://ok2.test/")
	w.blocked("tcp", "45.30.9.10:8443")
	// Nor does anything but the flag lead into it.
	w.refuses(71, []string{"up", "--mode", "monitor"}, "enforce mode")
	must(t, w.box.WriteFile("/etc/agent-init/policy.yaml", []byte("mode: monitor\n"), 0o644))
	w.refuses(78, []string{"reload"}, "unknown key")
	w.blocked("tcp", "45.30.9.10:8443")
}
