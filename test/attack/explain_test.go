package attack

import (
	"bufio"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
)

// says runs agent-init as the agent and fails the test unless it succeeds and
// says all of texts.
func (w *world) says(args []string, texts ...string) string {
	w.Helper()
	r := w.agentRuns(args...)
	if r.Code != 0 {
		w.Errorf("agent-init %v: %s", args, r)
	}
	for _, text := range texts {
		if !strings.Contains(r.Stdout, text) {
			w.Errorf("agent-init %v: want %q in\n%s", args, text, r.Stdout)
		}
	}
	return r.Stdout
}

// TestExplain: the agent learns why, from what everyone can read.
func TestExplain(t *testing.T) {
	w := confine(t, "ok.test\n!ok2.test\n", lab.BoxOptions{})
	w.works("http", "https://ok.test/")
	ok4, _ := named("ok.test")
	if !eventually(10*time.Second, func() bool { return strings.Contains(w.agentRuns("explain", "ok.test").Stdout, ok4.String()) }) {
		t.Error("the lease is not shown")
	}
	w.says([]string{"explain", "https://ok.test/x"}, "ok.test 443/tcp: allowed", "allowlist.txt:1  ok.test", ok4.String()+" on 80/tcp 443/tcp")
	w.blocked("resolve", "evil.test")
	w.audited("the denied name", func(e event) bool { return e.Kind == "dns" && e.Name == "evil.test" })
	w.says([]string{"explain", "https://evil.test/"}, "evil.test 443/tcp: denied, not in the allowlist", "since", "add this line to /etc/agent-init/allowlist.txt:\n  evil.test\n")
	w.says([]string{"explain", "ok2.test"}, "allowlist.txt:2  !ok2.test")
	w.says([]string{"log", "--denied"}, "evil.test", "not in the allowlist")
	w.says([]string{"suggest"}, "\nevil.test  ")
	w.says([]string{"suggest", "--write", "/tmp/list"}, "evil.test\n")
	if r := w.agentRuns("check", "/tmp/list"); r.Code != 0 {
		t.Errorf("what was suggested is no list: %s", r)
	}
	readme, err := w.box.ReadFile("/run/agent-init/README.md")
	if err != nil || !strings.Contains(string(readme), "ok.test") || strings.Contains(string(readme), "evil.test") {
		t.Errorf("README.md: %v\n%s", err, readme)
	}
	// All of them follow a change at once.
	w.did("allow", "evil.test")
	w.says([]string{"explain", "evil.test"}, "443/tcp: allowed", "grant-1:1  evil.test")
	if readme, err := w.box.ReadFile("/run/agent-init/README.md"); err != nil || !strings.Contains(string(readme), "`evil.test` is allowed until") {
		t.Errorf("README.md: %v\n%s", err, readme)
	}
	if r := w.setPolicy("ok.test\nshared.test\n"); r.Code != 0 {
		t.Fatal(r)
	}
	w.says([]string{"explain", "shared.test"}, "443/tcp: allowed")
	w.says([]string{"explain", "ok2.test"}, "not in the allowlist")
	// The same in DNS and on port 80.
	const hint = "not in the allowlist: agent-init explain other.test"
	w.lab.DNS.SetAddrs("other.test", ok4.String())
	if p := w.poke("dns", lab.Upstream4.String()+":53", "other.test", "A"); !strings.Contains(fmt.Sprint(p.Detail), hint) {
		t.Errorf("DNS says %s", p)
	}
	w.works("resolve", "ok.test")
	if p := w.poke("http", "-addr", ok4.String()+":80", "http://other.test/"); !strings.Contains(fmt.Sprint(p.Detail["body"]), "hint: "+hint) {
		t.Errorf("port 80 says %s", p)
	}
}

// TestLogFollow: a live view shows each line once, from the past to the
// present.
func TestLogFollow(t *testing.T) {
	w := confine(t, "ok.test\n", lab.BoxOptions{})
	w.blocked("resolve", "before.test")
	w.audited("the first", func(e event) bool { return e.Name == "before.test" })
	p := w.box.ExecStart(lab.Cmd{Args: []string{"agent-init", "log", "-f", "--denied", "--json", "--since", "start"}})
	if !eventually(10*time.Second, func() bool { return strings.Contains(p.Stdout(), "before.test") }) {
		t.Fatalf("the past is not shown: %s%s", p.Stdout(), p.Stderr())
	}
	w.blocked("resolve", "after.test")
	if !eventually(10*time.Second, func() bool { return strings.Contains(p.Stdout(), "after.test") }) {
		t.Errorf("what is new is not shown: %s", p.Stdout())
	}
	must(t, p.Signal(unix.SIGTERM))
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
