package attack

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
)

var _ = also(TestAllowedWorksAndNothingElse, everywhere)

// TestAllowedWorksAndNothingElse is the promise in one test: what is allowed works, what is not
// does not leave, and the record says so.
func TestAllowedWorksAndNothingElse(t *testing.T) {
	w := confine(t, allowlist, lab.BoxOptions{})
	w.lab.DNS.SetAddrs("a.cdn.test", "45.30.0.20", "2a0f:30::20")
	w.works("http", "https://ok.test/")
	w.works("http", "http://a.cdn.test/")
	evil4, _ := named("evil.test")
	for _, target := range []string{evil4.String() + ":443", "1.1.1.1:443", "169.254.169.254:80"} {
		if p := w.blocked("tcp", target); !refusedAtOnce(p.Errno) {
			t.Errorf("%s: not refused at once: %s", target, p)
		}
	}
	w.blocked("resolve", "evil.test")
	w.unasked("evil.test")
	w.sealed(lab.ToAddr(evil4.String()))
	w.sealed(lab.ToAddr("1.1.1.1"))
	w.audited("the denied name", func(e event) bool { return e.Kind == "dns" && e.Verdict == "deny" && e.Name == "evil.test" })
	// Of one destination, five are told of at once. The self-test has just tried the other two.
	w.audited("the refused packet", func(e event) bool {
		return e.Kind == "drop" && e.IP == evil4.String() && e.Port == 443 && e.UID != nil && *e.UID == lab.AgentUID
	})
	if s, code := w.status(); code != 0 {
		t.Errorf("not healthy: %v", s["why"])
	}
	if w.mode != "" {
		return // agent-init does not end with the agent
	}
	if err := w.agent.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if r := w.agent.Wait(0); r.Code != 143 {
		t.Errorf("ended with %d, want 143: %s", r.Code, r)
	}
}

var _ = also(TestAgentsStatusIsTheContainers, overXtables)

// TestAgentsStatusIsTheContainers: the agent's status is the container's.
func TestAgentsStatusIsTheContainers(t *testing.T) {
	w := start(t, "", lab.BoxOptions{}, "agent-init", "run", "--", "sh", "-c", "echo from the agent; exit 42")
	r := w.agent.Wait(0)
	if r.Code != 42 || !strings.Contains(r.Stdout, "from the agent") {
		t.Errorf("got %s", r)
	}
}
