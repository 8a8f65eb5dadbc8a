package process

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// upstreamOnly fails the test if anything but questions to the DNS servers of
// resolv.conf left the box.
func upstreamOnly(w *rig.World) {
	w.Helper()
	w.Sealed(rig.NotToUpstreams)
}

// shut fails the test if root, from outside of the box's processes, can send
// anything out of its network namespace.
func shut(w *rig.World) {
	w.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	for _, network := range []string{"tcp", "udp"} {
		for _, addr := range []string{"1.1.1.1:443", "[2606:4700:4700::1111]:443"} {
			c, err := w.Box.Net.Dial(ctx, network, addr, netip.AddrPort{})
			if err != nil {
				continue
			}
			_, err = c.Write([]byte("leak"))
			c.Close()
			if network == "tcp" && err == nil {
				w.Errorf("the network is open: %s %s", network, addr)
			}
		}
	}
	w.Sealed(lab.ToAddr("1.1.1.1"))
	w.Sealed(lab.ToAddr("2606:4700:4700::1111"))
}

// hammer sends to a host that no policy allows, for as long as it lives.
const hammer = `trap "" TERM INT HUP; while :; do poke udp -noreply 1.1.1.1:9; poke tcp -timeout 100ms 1.1.1.1:443; done >/dev/null 2>&1`

var _ = rig.Also(TestNothingLeavesBeforeTheSeal, rig.OverXtables)

// TestNothingLeavesBeforeTheSeal: from the container's start on, nothing leaves but the
// guard's questions, whoever tries; and nobody is served before the proof.
func TestNothingLeavesBeforeTheSeal(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	// A long time between the seal and the rules, and again between these and
	// the agent.
	list := &strings.Builder{}
	list.WriteString("ok.test required\n")
	for i := range 200_000 {
		fmt.Fprintf(list, "!host%d.evil.test\n", i)
	}
	l.DNS.SetLatency(300 * time.Millisecond)
	w := rig.StartIn(t, l, list.String(), lab.BoxOptions{}, "agent-init", "run", "--", "sh", "-c", "touch /workspace/started; "+hammer)
	sealed := func() bool {
		_, err := w.Box.ReadFile("/run/agent-init/status.json")
		return err == nil
	}
	if !rig.Eventually(10*time.Second, sealed) {
		t.Fatalf("does not start: %s", w.Agent.Stderr())
	}
	started := func() bool { _, err := w.Box.ReadFile("/workspace/started"); return err == nil }
	ruled := func() bool { // the names of the allowlist have a set to be leased in
		var r string
		err := w.Box.Net.Do(func() (err error) { r, err = rig.Ruleset(); return })
		return err != nil || strings.Contains(r, "set agent-init lease4")
	}
	if ruled() {
		t.Error("proves less: the rules were there as soon as the seal")
	}
	for uid, ops := range map[uint32][][]string{
		0:            {{"tcp", "1.1.1.1:443"}, {"udp", "1.1.1.1:443"}, {"tcp", "[2606:4700:4700::1111]:443"}, {"ping", "1.1.1.1"}},
		lab.AgentUID: {{"tcp", "1.1.1.1:443"}, {"udp", "1.1.1.1:443"}, {"tcp", "45.30.0.1:443"}},
	} {
		for _, op := range ops {
			if p := w.Box.Poke(uid, op...); p.OK {
				t.Errorf("got through before the start, as uid %d: %v: %s", uid, op, p)
			}
		}
	}
	if started() {
		t.Error("proves nothing, the agent had started already")
	}
	if !rig.Eventually(10*time.Second, ruled) {
		t.Error("no rules")
	}
	if p := w.Box.Poke(lab.AgentUID, "tcp", "1.1.1.1:443"); p.OK {
		t.Errorf("got through before the proof: %s", p)
	}
	w.Ready()
	if !rig.Eventually(10*time.Second, started) {
		t.Error("the agent was not started")
	}
	w.UpstreamOnlyOr("ok.test") // which the self-test has to reach
	if q := l.Queries(); len(q) == 0 {
		t.Error("proves nothing, the guard asked nothing either")
	}
	for _, q := range l.Queries() {
		if q.Name != "ok.test" {
			t.Errorf("a server was asked for %s", q.Name)
		}
	}
}

var _ = rig.Also(TestAgentIsConfinedFromItsFirstMoment, rig.OverXtables)

// TestAgentIsConfinedFromItsFirstMoment: a shell that an engine starts in the same moment as
// PID 1 finds the network closed as soon as PID 1 has run for a few milliseconds.
func TestAgentIsConfinedFromItsFirstMoment(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	escaped := func(w *rig.World) []lab.Packet { return w.Box.Packets(lab.Routed, rig.NotToUpstreams) }
	for range 10 {
		w := rig.StartIn(t, l, rig.Allowlist, lab.BoxOptions{}, "agent-init", "run", "--", "sleep", "infinity")
		shell := w.Box.ExecStart(lab.Cmd{Args: []string{"sh", "-c", hammer}})
		closed := func() bool { // a listing may fail while tables come and go
			r := ""
			err := w.Box.Net.Do(func() (err error) { r, err = rig.Ruleset(); return })
			chains := 1 // of both families; iptables has one for each
			if rig.Xtables() {
				chains = 2
			}
			return err == nil && strings.Count(r, "chain agent-init output") == chains
		}
		if !rig.Eventually(10*time.Second, closed) {
			t.Fatal("not sealed")
		}
		before := escaped(w) // all that was sent until now is in
		w.Ready()
		if after := escaped(w); len(after) > len(before) {
			t.Errorf("%d packets left the box after the seal, the first of them %s", len(after)-len(before), after[len(before)])
		}
		rig.Must(t, shell.Signal(unix.SIGKILL))
		w.Box.Kill()
	}
}

var _ = rig.Also(TestFailureLeavesSealed, rig.OverXtables)

// TestFailureLeavesSealed: whatever breaks at the start, the agent is not started
// and nothing leaves.
func TestFailureLeavesSealed(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	evil := []string{"sh", "-c", "echo started; poke udp -noreply 1.1.1.1:9"}
	agent := append([]string{"agent-init", "run", "--"}, evil...)
	caps := func(without string) []string {
		return slices.DeleteFunc(lab.DefaultCaps(), func(c string) bool { return c == without })
	}
	for name, c := range map[string]struct {
		opts  lab.BoxOptions
		list  string
		args  []string
		codes []int
	}{
		"without NET_ADMIN":                  {opts: lab.BoxOptions{Caps: caps("NET_ADMIN")}, args: agent, codes: []int{77}},
		"without any capability":             {opts: lab.BoxOptions{Caps: []string{}}, args: agent, codes: []int{77}},
		"without netlink":                    {args: append([]string{"poke", "without-netlink", "all"}, agent...), codes: []int{71}},
		"without the packet filter":          {args: append([]string{"poke", "without-netlink", fmt.Sprint(unix.NETLINK_NETFILTER)}, agent...), codes: []int{71, 77}}, // 77: iptables could do, with NET_RAW
		"with a policy that can't be parsed": {list: "*.com\n", args: agent, codes: []int{78}},
		"with a required name that is not":   {list: "missing.test required\n", args: agent, codes: []int{70}},
		"without a writable directory":       {opts: lab.BoxOptions{Files: []lab.File{{Path: "/run/agent-init", Data: []byte("a file")}, {Path: "/dev/shm/agent-init", Data: []byte("a file")}}}, args: agent, codes: []int{71}},
		"without a way to run the agent":     {args: []string{"agent-init", "run", "--", "/etc/hosts"}, codes: []int{126}},
	} {
		t.Run(name, func(t *testing.T) {
			w := rig.StartIn(t, l, c.list, c.opts, c.args...)
			r := w.Agent.Wait(0)
			upstreamOnly(w)
			// iptables-legacy has sockets of its own: the reduced form, which
			// needs no sets, is a seal too.
			if name == "without the packet filter" && rig.Backend() == "xtables-legacy" && r.Code == 0 {
				if !strings.Contains(r.Stdout, `"errno":"EPERM"`) {
					t.Errorf("not refused: %s", r)
				}
				return
			}
			if !slices.Contains(c.codes, r.Code) {
				t.Errorf("ended with %d, want one of %d: %s", r.Code, c.codes, r)
			}
			refusedWith(t, r)
		})
	}
}

var _ = rig.Also(TestDeadDNSLeavesSealed, rig.OverXtables)

// TestDeadDNSLeavesSealed: without an upstream server what is denied is denied at
// once, what is allowed fails, and a required name keeps the agent from being started.
func TestDeadDNSLeavesSealed(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	for _, name := range []string{"ok.test", "evil.test", "*"} {
		l.DNS.Set(name, lab.Answer{Silent: true})
	}
	w := rig.StartIn(t, l, rig.Allowlist, lab.BoxOptions{}, "agent-init", "run", "--", "sleep", "infinity")
	required := rig.StartIn(t, l, "ok.test required\n", lab.BoxOptions{}, "agent-init", "run", "--", "echo", "started")
	// Who waits for the start is told what that waits for, and how long at most.
	const waits = "prove the confinement: waits for ok.test:443, at most 1m"
	if !rig.Eventually(0, func() bool {
		return strings.Contains(required.Root("agent-init", "wait", "--timeout", "100ms").Stderr, waits)
	}) {
		t.Errorf("wait does not say that it %s: %s", waits, required.Root("agent-init", "status"))
	}
	w.Ready()
	if p := w.Blocked("dns", "8.8.8.8:53", "evil.test", "A"); p.Detail["rcode"] != "NXDOMAIN" {
		t.Errorf("a denied name: %s", p)
	}
	if p := w.Blocked("dns", "-timeout", "15s", "8.8.8.8:53", "ok.test", "A"); p.Detail["rcode"] != "SERVFAIL" {
		t.Errorf("an allowed name: %s", p)
	}
	w.Blocked("tcp", "1.1.1.1:443")
	w.Unasked("evil.test")
	upstreamOnly(w)
	r := required.Agent.Wait(time.Minute)
	rig.Refused(t, r, 70, "ok.test")
	if !strings.Contains(r.Stderr, "the start takes its time") || !strings.Contains(r.Stderr, waits) {
		t.Errorf("without a terminal, the start does not say that it %s: %s", waits, r)
	}
	upstreamOnly(required)
}

var _ = rig.Also(TestEndOpensNothing, rig.OverXtables)

// TestEndOpensNothing: on the way out nothing opens, though the agent goes on
// for as long as it can.
func TestEndOpensNothing(t *testing.T) {
	lab.Require(t)
	for name, end := range map[string]func(w *rig.World) int{
		"asked to end": func(w *rig.World) int {
			rig.Must(w.T, w.Agent.Signal(unix.SIGTERM))
			return 137
		},
		"killed": func(w *rig.World) int {
			rig.Must(w.T, w.Agent.Signal(unix.SIGKILL))
			return 137
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := rig.StartIn(t, lab.New(t, lab.Options{}), rig.Allowlist, lab.BoxOptions{}, "agent-init", "run", "--grace", "1s", "--", "sh", "-c", `trap "" TERM; echo started; `+hammer)
			w.Ready()
			if !w.Agent.WaitOutput("started", 10*time.Second) {
				t.Fatal("the agent was not started")
			}
			before := rig.Rules(t, w.Box)
			code := end(w)
			if r := w.Agent.Wait(0); r.Code != code {
				t.Errorf("ended with %d, want %d: %s", r.Code, code, r)
			}
			// The table may have lost its owner, not what it holds.
			rig.SameRules(t, name, withoutFlags(before), withoutFlags(rig.Rules(t, w.Box)))
			shut(w)
			upstreamOnly(w)
		})
	}
}

// withoutFlags is a ruleset without the flags of its tables.
func withoutFlags(rules string) string {
	var out []string
	for line := range strings.Lines(rules) {
		if strings.HasPrefix(line, "table ") {
			line = line[:strings.LastIndexByte(strings.TrimSpace(line), ' ')]
		}
		out = append(out, strings.TrimSpace(line))
	}
	return strings.Join(out, "\n")
}

var _ = rig.Also(TestKilledKeeperOpensNothing, rig.OverXtables)

// TestKilledKeeperOpensNothing: where the keeper is not PID 1, and so can be killed
// alone, its end opens nothing either.
func TestKilledKeeperOpensNothing(t *testing.T) {
	lab.Require(t)
	for name, args := range map[string][]string{
		"run below another init": {"sh", "-c", "agent-init run -- sh -c '" + hammer + "' & sleep infinity"},
		"up":                     {"sh", "-c", "agent-init up; " + hammer},
		"sidecar":                {"sh", "-c", "agent-init sidecar & " + hammer},
	} {
		t.Run(name, func(t *testing.T) {
			w := rig.StartIn(t, lab.New(t, lab.Options{}), rig.Allowlist, lab.BoxOptions{}, args...)
			w.Ready()
			w.Box.ForgetPackets() // where something runs before, its packets are its own affair
			before := rig.Rules(t, w.Box)
			s, _ := w.Status()
			keeper, _ := s["keeper"].(map[string]any)
			pid := int(keeper["pid"].(float64))
			all := rig.Inmates(t, w.Agent)
			i := slices.IndexFunc(all, func(p rig.Inmate) bool { return p.Pid == pid })
			if i < 0 || pid == 1 {
				t.Fatalf("no keeper beside PID 1: %v", keeper)
			}
			all[i].Signal(t, unix.SIGKILL)
			if !rig.Eventually(10*time.Second, func() bool { return len(rig.Guards(t, w.Agent)) == 0 }) {
				t.Errorf("the guard outlives its keeper: %+v", rig.Inmates(t, w.Agent))
			}
			if s, code := w.Status(); code == 0 {
				t.Errorf("healthy without a keeper: %v", s)
			}
			rig.SameRules(t, name, withoutFlags(before), withoutFlags(rig.Rules(t, w.Box)))
			shut(w)
			upstreamOnly(w)
		})
	}
}

var _ = rig.Also(TestRestartsOpenNothing, rig.Everywhere)

// TestRestartsOpenNothing: the network namespace may outlive the container's
// processes, in a pod for one. Fifty starts leave what one leaves.
func TestRestartsOpenNothing(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	w := rig.StartIn(t, l, rig.Allowlist, lab.BoxOptions{}, "agent-init", "run", "--", "sleep", "infinity")
	w.Ready()
	want := shape(rig.Rules(t, w.Box))
	w.Box.Kill()
	for i := range 50 {
		if i%2 == 0 {
			w.Agent = w.Box.Start(lab.Cmd{Args: []string{"agent-init", "run", "--", "true"}})
			if r := w.Agent.Wait(0); r.Code != 0 {
				t.Fatalf("start %d: %s", i, r)
			}
		} else { // killed at some moment of its start
			w.Agent = w.Box.Start(lab.Cmd{Args: []string{"agent-init", "run", "--", "sleep", "infinity"}})
			time.Sleep(time.Duration(i) * time.Millisecond)
			w.Box.Kill()
		}
		if i%10 == 9 {
			shut(w)
		}
	}
	w.Agent = w.Box.Start(lab.Cmd{Args: []string{"agent-init", "run", "--", "sleep", "infinity"}})
	w.Ready()
	rig.SameRules(t, "fifty starts", want, shape(rig.Rules(t, w.Box)))
	w.Works("http", "https://ok.test/")
	w.Blocked("tcp", "1.1.1.1:443")
	w.UpstreamOnlyOr("45.30.9.9", "ok.test")
}

// shape is a ruleset less the ports that are others with every start.
func shape(rules string) string {
	var out []string
	for line := range strings.Lines(rules) {
		f := strings.SplitN(strings.TrimSpace(line), "{", 2)
		if strings.HasPrefix(line, "rule") {
			f[0] = "rule"
		}
		out = append(out, f[0])
	}
	return strings.Join(out, "\n")
}

var _ = rig.Also(TestRestartForgetsLeases, rig.Everywhere)

// TestRestartForgetsLeases: what an earlier start had leased is not open under
// the policy of a later one.
func TestRestartForgetsLeases(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	dir := t.TempDir()
	policy := func(list string) {
		t.Helper()
		rig.Must(t, os.WriteFile(filepath.Join(dir, "allowlist.txt"), []byte(list), 0o644))
	}
	rig.Must(t, os.Chmod(dir, 0o755))
	policy("ok.test\n")
	w := &rig.World{T: t, Lab: l, Box: l.NewBox(rig.WithBackend(lab.BoxOptions{Binary: lab.Binary(t), Binds: []lab.Bind{{Source: dir, Target: "/policy"}}}))}
	start := func() {
		t.Helper()
		w.Agent = w.Box.Start(lab.Cmd{Args: []string{"agent-init", "run", "--config", "/policy", "--", "sleep", "infinity"}})
		w.Ready()
	}
	// The temporary directory is below one that everybody may write to.
	rig.Must(t, os.Chmod(filepath.Dir(dir), 0o755))
	start()
	ok4, _ := rig.Named("ok.test")
	w.Works("http", "https://ok.test/")
	if !slices.Contains(rig.Leased(t, w.Box), netip.AddrPortFrom(ok4, 443)) {
		t.Fatalf("proves nothing, ok.test is not leased: %v", rig.Leased(t, w.Box))
	}
	w.Box.Kill()
	policy("other.test\n")
	start()
	for _, e := range rig.Leased(t, w.Box) {
		t.Errorf("%s is still leased", e)
	}
	w.Box.ForgetPackets()
	w.Blocked("tcp", ok4.String()+":443")
	w.Sealed(lab.ToAddr(ok4.String()))
}
