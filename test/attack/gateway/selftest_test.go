package gateway

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/pkg/selftest"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// TestGatewaySelftest: a container behind a gateway proves for itself what is closed, without a privilege, and finds
// out what is open. In an open network each kind of check fails.
func TestGatewaySelftest(t *testing.T) {
	args := func(gateways ...string) []string {
		out := []string{"agent-init", "selftest", "--json", "--reach", "ok.test", "--reach", "a.cdn.test:80"}
		for _, g := range gateways {
			out = append(out, "--gateway", g)
		}
		return out
	}
	for _, answer := range []string{"real", "own"} {
		t.Run(answer, func(t *testing.T) {
			k := keptBy(t, rig.Allowlist, "--answer", answer)
			k.Lab.DNS.SetAddrs("a.cdn.test", "45.30.0.20", "2a0f:30::20")
			k.Agent = k.Lab.NewBox(lab.BoxOptions{Behind: k.Box, Caps: []string{}, Binary: lab.Binary(t)})
			k.Agent.Idle()
			if answer == "own" {
				unroute(k)
			}
			prove := func(code int) map[string]selftest.Check {
				t.Helper()
				r := k.Agent.Exec(lab.Cmd{Args: args(k.Box.Inside4().String(), k.Box.Inside6().String()), UID: lab.AgentUID})
				if r.Code != code {
					t.Errorf("exit %d, want %d: %s", r.Code, code, r)
				}
				return failures(t, r.Stdout)
			}
			if failed := prove(0); len(failed) > 0 {
				t.Errorf("behind a gateway fails %v", failed)
			}
			k.Unasked("example.com")
			for _, a := range []string{"1.1.1.1", "9.9.9.9", "2606:4700:4700::1111", "169.254.169.254", "45.30.66.7"} {
				k.Sealed(lab.ToAddr(a))
			}
			if r := k.Root("agent-init", "allow", "example.com", "--for", "10m"); r.Code != 0 {
				t.Fatal(r)
			}
			failed := prove(70) // a name that the policy is said not to allow
			if answer == "own" {
				delete(failed, "gateway") // which is where all names are
			}
			for _, kind := range []string{"dns-system", "denied-name"} {
				if _, is := failed[kind]; !is {
					t.Errorf("%s does not fail where the name is allowed: %v", kind, failed)
				}
			}
		})
	}
	t.Run("open", func(t *testing.T) {
		lab.Require(t)
		l := lab.New(t, lab.Options{})
		l.DNS.SetAddrs("a.cdn.test", "45.30.0.20", "2a0f:30::20")
		b := l.NewBox(lab.BoxOptions{Caps: []string{}, Binary: lab.Binary(t)})
		b.Idle()
		r := b.Exec(lab.Cmd{Args: args(b.Gateway4().String()), UID: lab.AgentUID})
		failed := failures(t, r.Stdout)
		for _, kind := range []string{"dns-system", "dns-direct", "denied-name", "tcp", "udp", "metadata", "gateway", "other-name"} {
			if _, is := failed[kind]; !is || r.Code != 70 {
				t.Errorf("%s does not fail in an open network: exit %d", kind, r.Code)
			}
		}
	})
}

// failures are the checks of a report that failed, one of each kind. None may be missing from it.
func failures(t *testing.T, report string) map[string]selftest.Check {
	t.Helper()
	var r selftest.Report
	if err := json.Unmarshal([]byte(report), &r); err != nil {
		t.Fatalf("%v: %s", err, report)
	}
	out := map[string]selftest.Check{}
	var kinds []string
	for _, c := range r.Checks {
		if kinds = append(kinds, c.Name); !c.OK {
			out[c.Name] = c
		}
	}
	kinds = slices.Compact(kinds)
	if got := strings.Join(kinds, " "); got != "dns-system dns-direct denied-name tcp udp ping metadata gateway other-name reach" {
		t.Errorf("tried were: %s", got)
	}
	return out
}
