package record

import (
	"bufio"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// TestExplain: the agent learns why, from what everyone can read.
func TestExplain(t *testing.T) {
	w := rig.Confine(t, "ok.test\n!ok2.test\n", lab.BoxOptions{})
	w.Works("http", "https://ok.test/")
	ok4, _ := rig.Named("ok.test")
	if !rig.Eventually(10*time.Second, func() bool { return strings.Contains(w.AgentRuns("explain", "ok.test").Stdout, ok4.String()) }) {
		t.Error("the lease is not shown")
	}
	w.Says([]string{"explain", "https://ok.test/x"}, "ok.test 443/tcp: allowed", "allowlist.txt:1  ok.test", ok4.String()+" on 80/tcp 443/tcp")
	w.Blocked("resolve", "evil.test")
	w.Audited("the denied name", func(e rig.Event) bool { return e.Kind == "dns" && e.Name == "evil.test" })
	w.Says([]string{"explain", "https://evil.test/"}, "evil.test 443/tcp: denied, not in the allowlist", "since", "add this line to /etc/agent-init/allowlist.txt:\n  evil.test\n")
	w.Says([]string{"explain", "ok2.test"}, "allowlist.txt:2  !ok2.test")
	w.Says([]string{"log", "--denied"}, "evil.test", "not in the allowlist")
	w.Says([]string{"suggest"}, "\nevil.test  ")
	w.Says([]string{"suggest", "--write", "/tmp/list"}, "evil.test\n")
	if r := w.AgentRuns("check", "/tmp/list"); r.Code != 0 {
		t.Errorf("what was suggested is no list: %s", r)
	}
	readme, err := w.Box.ReadFile("/run/agent-init/README.md")
	if err != nil || !strings.Contains(string(readme), "ok.test") || strings.Contains(string(readme), "evil.test") {
		t.Errorf("README.md: %v\n%s", err, readme)
	}
	// All of them follow a change at once.
	w.Did("allow", "evil.test")
	w.Says([]string{"explain", "evil.test"}, "443/tcp: allowed", "grant-1:1  evil.test")
	if readme, err := w.Box.ReadFile("/run/agent-init/README.md"); err != nil || !strings.Contains(string(readme), "`evil.test` is allowed until") {
		t.Errorf("README.md: %v\n%s", err, readme)
	}
	if r := w.SetPolicy("ok.test\nshared.test\n"); r.Code != 0 {
		t.Fatal(r)
	}
	w.Says([]string{"explain", "shared.test"}, "443/tcp: allowed")
	w.Says([]string{"explain", "ok2.test"}, "not in the allowlist")
	// The same in DNS and on port 80.
	const hint = "not in the allowlist: agent-init explain other.test"
	w.Lab.DNS.SetAddrs("other.test", ok4.String())
	if p := w.Poke("dns", lab.Upstream4.String()+":53", "other.test", "A"); !strings.Contains(fmt.Sprint(p.Detail), hint) {
		t.Errorf("DNS says %s", p)
	}
	w.Works("resolve", "ok.test")
	if p := w.Poke("http", "-addr", ok4.String()+":80", "http://other.test/"); !strings.Contains(fmt.Sprint(p.Detail["body"]), "hint: "+hint) {
		t.Errorf("port 80 says %s", p)
	}
}

// TestLogFollow: a live view shows each line once, from the past to the
// present.
func TestLogFollow(t *testing.T) {
	w := rig.Confine(t, "ok.test\n", lab.BoxOptions{})
	w.Blocked("resolve", "before.test")
	w.Audited("the first", func(e rig.Event) bool { return e.Name == "before.test" })
	p := w.Box.ExecStart(lab.Cmd{Args: []string{"agent-init", "log", "-f", "--denied", "--json", "--since", "start"}})
	if !rig.Eventually(10*time.Second, func() bool { return strings.Contains(p.Stdout(), "before.test") }) {
		t.Fatalf("the past is not shown: %s%s", p.Stdout(), p.Stderr())
	}
	w.Blocked("resolve", "after.test")
	if !rig.Eventually(10*time.Second, func() bool { return strings.Contains(p.Stdout(), "after.test") }) {
		t.Errorf("what is new is not shown: %s", p.Stdout())
	}
	rig.Must(t, p.Signal(unix.SIGTERM))
	ctx, cancel := context.WithTimeout(t.Context(), lab.Patience)
	defer cancel()
	select {
	case <-p.Done():
	case <-ctx.Done():
		t.Error("it does not end")
	}
	seen := map[string]int{}
	for s := bufio.NewScanner(strings.NewReader(p.Stdout())); s.Scan(); {
		if seen[s.Text()]++; seen[s.Text()] > 1 {
			t.Errorf("twice: %s", s.Text())
		}
	}
}
