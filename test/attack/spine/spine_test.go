package spine

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

var _ = rig.Also(TestAllowedWorksAndNothingElse, rig.Everywhere)

// TestAllowedWorksAndNothingElse is the promise in one test: what is allowed works, what is not
// does not leave, and the record says so.
func TestAllowedWorksAndNothingElse(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{})
	w.Lab.DNS.SetAddrs("a.cdn.test", "45.30.0.20", "2a0f:30::20")
	w.Works("http", "https://ok.test/")
	w.Works("http", "http://a.cdn.test/")
	evil4, _ := rig.Named("evil.test")
	for _, target := range []string{evil4.String() + ":443", "1.1.1.1:443", "169.254.169.254:80"} {
		if p := w.Blocked("tcp", target); !rig.RefusedAtOnce(p.Errno) {
			t.Errorf("%s: not refused at once: %s", target, p)
		}
	}
	w.Blocked("resolve", "evil.test")
	w.Unasked("evil.test")
	w.Sealed(lab.ToAddr(evil4.String()))
	w.Sealed(lab.ToAddr("1.1.1.1"))
	w.Audited("the denied name", func(e rig.Event) bool { return e.Kind == "dns" && e.Verdict == "deny" && e.Name == "evil.test" })
	// Of one destination, five are told of at once. The self-test has just tried the other two.
	w.Audited("the refused packet", func(e rig.Event) bool {
		return e.Kind == "drop" && e.IP == evil4.String() && e.Port == 443 && e.UID != nil && *e.UID == lab.AgentUID
	})
	if s, code := w.Status(); code != 0 {
		t.Errorf("not healthy: %v", s["why"])
	}
	if w.Mode != "" {
		return // agent-init does not end with the agent
	}
	if err := w.Agent.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if r := w.Agent.Wait(0); r.Code != 143 {
		t.Errorf("ended with %d, want 143: %s", r.Code, r)
	}
}

var _ = rig.Also(TestAgentsStatusIsTheContainers, rig.OverXtables)

// TestAgentsStatusIsTheContainers: the agent's status is the container's.
func TestAgentsStatusIsTheContainers(t *testing.T) {
	w := rig.Start(t, "", lab.BoxOptions{}, "agent-init", "run", "--", "sh", "-c", "echo from the agent; exit 42")
	r := w.Agent.Wait(0)
	if r.Code != 42 || !strings.Contains(r.Stdout, "from the agent") {
		t.Errorf("got %s", r)
	}
}
