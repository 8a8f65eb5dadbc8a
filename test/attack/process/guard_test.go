package process

import (
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

var _ = rig.Also(TestGuardsUIDIsNobodyElses, rig.OverXtables)

// TestGuardsUIDIsNobodyElses: a container that shares the network of a sidecar runs as the
// uid that rules know the guard by, as a pod may say in advance (runAsUser), in the
// groups that can be said in advance. It asks the DNS servers for a name that is not
// allowed, and sends to a leased address what the gate would refuse. With the guard's
// group as well, all of that arrives: but its number is drawn anew at each start.
func TestGuardsUIDIsNobodyElses(t *testing.T) {
	for name, opts := range map[string]lab.BoxOptions{"upstream": {}, "engine": {DockerDNS: true}} {
		t.Run(name, func(t *testing.T) { guardsUID(t, opts) })
	}
}

func guardsUID(t *testing.T, opts lab.BoxOptions) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	leased4, leased6 := netip.MustParseAddr("45.30.70.1"), netip.MustParseAddr("2a00:30:70::1")
	l.DNS.SetAddrs("tapped.test", leased4.String(), leased6.String())
	sidecar := []string{"agent-init", "sidecar", "--user", fmt.Sprint(lab.AgentUID)}
	w := rig.StartIn(t, l, "ok.test\ntapped.test\n", opts, sidecar...)
	agent := l.NewBox(lab.BoxOptions{Share: w.Box, Caps: []string{}, NoNewPrivs: true})
	agent.Idle()
	w.Ready()
	taps := []*rig.Tap{w.Tap(leased4, 443, "", rig.Echoed), w.Tap(leased6, 443, "", rig.Echoed)}

	server := lab.Upstream4.String() + ":53"
	if opts.DockerDNS {
		server = "127.0.0.11:53"
	}
	// try is all of it, and says what has arrived.
	try := func(uid, gid uint32, groups ...uint32) string {
		t.Helper()
		l.DNS.Forget()
		for _, tap := range taps {
			tap.Forget()
		}
		for _, args := range [][]string{
			{"dns", "-timeout", "2s", server, "evil.test", "A"}, {"dns", "-tcp", "-timeout", "2s", server, "evil.test", "A"},
			{"tcp", "-timeout", "2s", "-send", "leak", rig.At(leased4, 443)}, {"tcp", "-timeout", "2s", "-send", "leak", rig.At(leased6, 443)},
		} {
			r := agent.Exec(lab.Cmd{UID: uid, GID: gid, Groups: groups, Args: append([]string{"poke"}, args...)})
			if _, err := lab.ParsePoke(r.Stdout); err != nil {
				t.Fatalf("%v: %s", args, r)
			}
		}
		var out []string
		for _, q := range l.Queries("evil.test") {
			out = append(out, "question over "+q.Network)
		}
		for i, tap := range taps {
			if strings.Contains(tap.String(), "leak") {
				out = append(out, fmt.Sprintf("leak to %v", []netip.Addr{leased4, leased6}[i]))
			}
		}
		return strings.Join(out, ", ")
	}
	open := func() { // the leases, as an honest program has them opened
		t.Helper()
		if p := agent.Poke(lab.AgentUID, "resolve", "tapped.test"); !p.OK {
			t.Fatalf("proves nothing: %s", p)
		}
	}
	impostors := func(when string, guard rig.Inmate, known uint32) {
		t.Helper()
		open()
		for who, got := range map[string]string{
			"the uid, as its own group":                 try(guard.Uid, guard.Uid),
			"the uid, in the agent's group":             try(guard.Uid, lab.AgentUID),
			"the uid, with the number as another group": try(guard.Uid, guard.Uid, guard.Gid),
			"the uid, in the group of an earlier start": try(guard.Uid, known),
			"the agent, in the guard's group":           try(lab.AgentUID, guard.Gid),
			"root, in the guard's group":                try(0, guard.Gid),
		} {
			if got != "" {
				t.Errorf("%s: %s: %s", when, who, got)
			}
		}
		if p := agent.Poke(lab.AgentUID, "http", "https://ok.test/"); !p.OK {
			t.Errorf("%s: what is allowed: %s", when, p)
		}
	}

	first := w.Guard()
	if first.Gid == 0 || first.Gid == first.Uid || first.Gid == lab.AgentUID {
		t.Errorf("the guard is in group %d", first.Gid)
	}
	impostors("at first", first, first.Uid+1)
	w.Audited("who passed for the guard", func(e rig.Event) bool { return e.Verdict == "deny" && e.UID != nil && *e.UID == int64(first.Uid) })
	if got := try(first.Uid, first.Gid); strings.Count(got, "question") < 2 || strings.Count(got, "leak") != 2 {
		t.Errorf("proves nothing: with both of the guard's ids, there arrived: %s", got)
	}
	secret(w, first.Gid)

	// The guard's end changes nothing.
	first.Signal(t, unix.SIGKILL)
	if !rig.Eventually(20*time.Second, func() bool { return agent.Poke(lab.AgentUID, "resolve", "-timeout", "500ms", "ok.test").OK }) {
		t.Fatal("the guard does not come again")
	}
	if again := w.Guard(); again.Gid != first.Gid || again.Uid != first.Uid || again.Host == first.Host {
		t.Errorf("the next guard is %+v, after %+v", again, first)
	}
	impostors("after the guard's end", first, first.Uid+1)

	// The next start draws anew, while a socket with the old ids is still there.
	hold := agent.ExecStart(lab.Cmd{UID: first.Uid, GID: first.Gid, Args: []string{"poke", "listen", "-for", "1m", "127.0.0.1:7777"}})
	if !rig.Eventually(20*time.Second, func() bool { return agent.Poke(0, "tcp", "127.0.0.1:7777").OK }) {
		t.Fatal("nobody listens")
	}
	rig.Must(t, w.Agent.Signal(unix.SIGTERM))
	w.Agent.Wait(0)
	w.Agent = w.Box.Start(lab.Cmd{Args: sidecar})
	w.Ready()
	next := w.Guard()
	if next.Gid == first.Gid || next.Uid == first.Uid {
		t.Errorf("the guard of the next start is %+v, after %+v", next, first)
	}
	impostors("after another start", next, first.Gid)
	if got := try(first.Uid, first.Gid); got != "" {
		t.Errorf("with both ids of the guard before: %s", got)
	}
	rig.Must(t, hold.Signal(unix.SIGKILL))
}

// secret fails the test if the guard's group can be read anywhere but in /proc and in
// the rules: from what agent-init publishes, logs, says or was started with.
func secret(w *rig.World, gid uint32) {
	w.Helper()
	number := regexp.MustCompile(fmt.Sprintf(`\b%d\b`, gid))
	found := func(where, text string) {
		if number.MatchString(text) {
			w.Errorf("%s tells the guard's group: %s", where, text)
		}
	}
	r := w.Root("sh", "-c", "cat $(find /run/agent-init /var/log/agent-init -type f)")
	if !strings.Contains(r.Stdout, `"guard"`) {
		w.Fatalf("proves nothing: %s", r)
	}
	found("a file", r.Stdout)
	for _, args := range [][]string{{"status"}, {"status", "--json"}, {"doctor"}, {"log"}} {
		r := w.Root(append([]string{"agent-init"}, args...)...)
		found(args[0], r.Stdout+r.Stderr)
	}
	found("what agent-init said", w.Agent.Stdout()+w.Agent.Stderr())
	for _, p := range rig.Inmates(w.T, w.Agent) {
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.Host))
		if err != nil && !os.IsNotExist(err) {
			w.Errorf("environment of %s: %v", p.Args, err)
		}
		found("an argument", p.Args)
		found("an environment", string(env))
	}
}
