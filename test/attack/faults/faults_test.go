package faults

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// repairs is how often the keeper had to restore the rules.
func repairs(w *rig.World) int {
	w.Helper()
	s, _ := w.Status()
	f, _ := s["firewall"].(map[string]any)
	n, _ := f["repairs"].(float64)
	return int(n)
}

// within fails the test if a lease is not one of those addresses.
func within(w *rig.World, allowed ...netip.Addr) {
	w.Helper()
	for _, e := range rig.Leased(w.T, w.Box) {
		if !slices.Contains(allowed, e.Addr()) || e.Port() != 443 && e.Port() != 80 {
			w.Errorf("a lease outside of the policy: %s", e)
		}
	}
}

var _ = rig.Also(TestFaultGuardKilled, rig.Everywhere|rig.UnderStress)

// TestFaultGuardKilled: three boxes under load, whose guards are killed seven
// times each: the rules stay, nothing but the policy's is ever open, and
// each time there is another guard, later and later.
func TestFaultGuardKilled(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	rig.EvilZone(l)
	var worlds []*rig.World
	for range 3 {
		worlds = append(worlds, rig.StartIn(t, l, rig.Allowlist, lab.BoxOptions{}, "agent-init", "run", "--", "sleep", "infinity"))
	}
	for _, w := range worlds {
		w.Ready()
		w.Box.ForgetPackets()
		w.Box.ExecStart(lab.Cmd{Args: []string{"agent-init", "exec", "--", "sh", "-c", `
			while :; do
				poke tcp -timeout 100ms 1.1.1.1:443; poke udp -noreply 1.1.1.1:9
				poke loop -timeout 500ms -n 50 -c 4 -name ok.test :443
				poke dns -timeout 200ms -n 50 -c 4 8.8.8.8:53 x{n}.evil.test A
				sleep 0.2
			done >/dev/null 2>&1`}})
	}
	for round := range 8 {
		var before []int
		for _, w := range worlds {
			g := w.Guard()
			before = append(before, g.Host)
			g.Signal(t, unix.SIGKILL)
		}
		if round == 7 { // by now the next one takes its time: five seconds
			w := worlds[0]
			if !rig.Eventually(2*time.Second, func() bool { return len(rig.Guards(t, w.Agent)) == 0 }) {
				t.Error("the guard is there at once, without back-off")
			}
			if !rig.Eventually(2*time.Second, func() bool { _, code := w.Status(); return code != 0 }) {
				t.Error("healthy without a guard")
			}
			ok4, _ := rig.Named("ok.test")
			if p := w.Blocked("tcp", "-all", ok4.String()+":443"); p.Errno != unix.ErrnoName(unix.ECONNRESET) { // there is no gate
				t.Errorf("not reset at once: %s", p)
			}
			w.Blocked("tcp", "1.1.1.1:443")
			w.Blocked("dns", "-timeout", "200ms", "8.8.8.8:53", "evil.test", "A")
			w.Blocked("dns", "-timeout", "200ms", "8.8.8.8:53", "new.cdn.test", "A")
		}
		for i, w := range worlds {
			if !rig.Eventually(20*time.Second, func() bool { _, code := w.Status(); return code == 0 && w.Restarts() == round+1 }) {
				s, _ := w.Status()
				t.Fatalf("not healthy again after %d kills: %v", round+1, s["why"])
			}
			if g := w.Guard(); g.Host == before[i] {
				t.Errorf("still the same guard: %+v", g)
			}
		}
	}
	ok4, ok6 := rig.Named("ok.test")
	cdn4, cdn6 := rig.Named("cdn.test")
	for _, w := range worlds {
		w.Works("http", "https://ok.test/")
		within(w, ok4, ok6, cdn4, cdn6)
		w.UpstreamOnlyOr("ok.test")
		log := w.Reasons("guard")
		if strings.Count(log, "guard ended") < 5 || !strings.Contains(log, "serves again") {
			t.Errorf("the audit log of guards says: %s", log)
		}
		w.Box.Kill()
	}
	l.DNS.Forget()
}

var _ = rig.Also(TestFaultGuardStopped, rig.Everywhere|rig.UnderStress)

// TestFaultGuardStopped: a guard that lives and does nothing is found and
// replaced, by a keeper that may signal everybody and by one that may not.
func TestFaultGuardStopped(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	worlds := map[string]*rig.World{
		"default capabilities": rig.StartIn(t, l, rig.Allowlist, lab.BoxOptions{}, "agent-init", "run", "--", "sleep", "infinity"),
		"with KILL":            rig.StartIn(t, l, rig.Allowlist, lab.BoxOptions{Caps: append(lab.DefaultCaps(), "KILL")}, "agent-init", "run", "--", "sleep", "infinity"),
	}
	stopped := map[string]rig.Inmate{}
	for who, w := range worlds {
		w.Ready()
		w.Works("http", "https://ok.test/")
		stopped[who] = w.Guard()
		stopped[who].Stop(t)
	}
	for _, w := range worlds {
		w.Blocked("dns", "-timeout", "300ms", "8.8.8.8:53", "evil.test", "A")
		w.Blocked("tcp", "1.1.1.1:443")
		ok4, _ := rig.Named("ok.test")
		w.Works("tcp", ok4.String()+":443")
	}
	for who, w := range worlds {
		replaced := func() bool {
			g := rig.Guards(t, w.Agent)
			return len(g) == 1 && g[0].Host != stopped[who].Host
		}
		if !rig.Eventually(30*time.Second, replaced) {
			t.Fatalf("%s: the guard was not replaced: %+v", who, rig.Guards(t, w.Agent))
		}
		if !rig.Eventually(10*time.Second, func() bool { _, code := w.Status(); return code == 0 }) {
			s, _ := w.Status()
			t.Errorf("%s: not healthy again: %v", who, s["why"])
		}
		w.Works("resolve", "ok.test")
		if log := w.Reasons("guard"); !strings.Contains(log, "did not answer") || !strings.Contains(log, "serves again") {
			t.Errorf("%s: the audit log says: %s", who, log)
		}
		w.UpstreamOnlyOr("ok.test")
	}
}

var _ = rig.Also(TestFaultGuardUID, rig.Everywhere|rig.UnderStress)

// TestFaultGuardUID: nobody but the guard gets the uid that may ask the
// upstream servers.
func TestFaultGuardUID(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{})
	uid := fmt.Sprint(w.Guard().Uid)
	w.Blocked("setuid", uid)
	w.Blocked("setgid", uid)
	w.Blocked("as", uid, "dns", lab.Upstream4.String()+":53", "evil.test", "A")
	if p := w.Poke("unshare", "user", "setuid", uid); fmt.Sprint(p.Detail["result"]) == "" || strings.Contains(fmt.Sprint(p.Detail["result"]), "ok:true") {
		t.Errorf("in a namespace of its own the agent took the uid: %s", p)
	}
	w.Blocked("dns", lab.Upstream4.String()+":53", "evil.test", "A")

	// An agent that is given that uid has it first.
	mapped := rig.StartIn(t, w.Lab, rig.Allowlist, lab.BoxOptions{Env: []string{"HOST_UID=" + uid}}, "agent-init", "run", "--", "sleep", "infinity")
	named := rig.StartIn(t, w.Lab, rig.Allowlist, lab.BoxOptions{}, "agent-init", "run", "--user", uid+":"+uid, "--", "sleep", "infinity")
	taken := w.Lab.NewBox(lab.BoxOptions{Binary: lab.Binary(t)})
	up := &rig.World{T: t, Lab: w.Lab, Box: taken}
	up.Agent = taken.Start(lab.Cmd{Args: []string{"sleep", "infinity"}})
	squatter := taken.ExecStart(lab.Cmd{Args: []string{"sleep", "infinity"}, UID: w.Guard().Uid})
	if r := up.Root("agent-init", "up"); r.Code != 0 {
		t.Fatalf("up: %s", r)
	}
	for who, w := range map[string]*rig.World{"HOST_UID": mapped, "--user": named, "a process": up} {
		w.Ready()
		if g := w.Guard(); fmt.Sprint(g.Uid) == uid {
			t.Errorf("%s: the guard runs under the same uid", who)
		}
		w.Blocked("dns", lab.Upstream4.String()+":53", "evil.test", "A")
	}
	if p := taken.Poke(w.Guard().Uid, "dns", lab.Upstream4.String()+":53", "evil.test", "A"); p.OK {
		t.Errorf("a process that had the uid before may ask: %s", p)
	}
	rig.Must(t, squatter.Signal(unix.SIGKILL))
	w.Unasked("evil.test")
}

var _ = rig.Also(TestFaultTampering, rig.OverXtables|rig.UnderStress)

// TestFaultTampering: where root can change the rules, that is recorded
// and undone.
func TestFaultTampering(t *testing.T) {
	w := rig.KeepUp(t, rig.Allowlist, lab.BoxOptions{})
	before := rig.Rules(t, w.Box)
	tries := xtTampering()
	if !rig.Xtables() {
		tries = map[string]func() error{}
		for what, try := range rig.Tampering() {
			tries[what] = func() error {
				c, err := nftables.New()
				if err != nil {
					return err
				}
				return try(c, rig.AgentTable())
			}
		}
	}
	for what, try := range tries {
		seen := repairs(w)
		rig.Must(t, w.Box.Net.Do(try))
		mended := func() bool { // a listing may fail while it is being mended
			var now string
			err := w.Box.Net.Do(func() (err error) { now, err = rig.Ruleset(); return })
			// What isn't ours, and now comes behind ours, stays.
			return err == nil && strings.ReplaceAll(now, "rule -A OUTPUT -j ACCEPT\n", "") == before
		}
		if !rig.Eventually(20*time.Second, mended) {
			t.Fatalf("%s: not undone: %s", what, rig.Rules(t, w.Box))
		}
		if !rig.Eventually(20*time.Second, func() bool { return !w.Poke("tcp", "1.1.1.1:443").OK }) {
			t.Errorf("%s: opened the network for good", what)
		}
		if !rig.Eventually(20*time.Second, func() bool { return repairs(w) > seen }) {
			t.Errorf("%s: not noticed", what)
		}
		if !rig.Eventually(20*time.Second, func() bool { _, code := w.Status(); return code == 0 }) {
			s, _ := w.Status()
			t.Errorf("%s: not healthy after it was undone: %v", what, s["why"])
		}
	}
	// Of one kind of fault a minute shows five, and counts the others.
	if log := w.Reasons("guard"); strings.Count(log, "rules changed") < 5 || !strings.Contains(log, "rules repaired") {
		t.Errorf("the audit log says: %s", log)
	}
	w.Box.ForgetPackets()
	w.Works("http", "https://ok.test/")
	w.Blocked("tcp", "1.1.1.1:443")
	w.Sealed(lab.ToAddr("1.1.1.1"))
}

var _ = rig.Also(TestFaultHijack, rig.InModes|rig.UnderStress)

// TestFaultHijack: somebody takes the table away so that it can't be undone:
// the status says so for as long as that is the case, and not after.
func TestFaultHijack(t *testing.T) {
	w := rig.KeepUp(t, rig.Allowlist, lab.BoxOptions{})
	before := rig.Rules(t, w.Box)
	var once sync.Once
	var thief *nftables.Conn
	rig.Must(t, w.Box.Net.Do(func() (err error) {
		if thief, err = nftables.New(nftables.AsLasting()); err != nil {
			return err
		}
		thief.DelTable(rig.AgentTable())
		table := rig.AgentTable()
		table.Flags = nftables.TableFlagOwner
		thief.AddTable(table)
		return thief.Flush()
	}))
	release := func() { once.Do(func() { rig.Must(t, thief.CloseLasting()) }) }
	defer release()
	if !rig.Eventually(30*time.Second, func() bool { _, code := w.Status(); return code != 0 }) {
		t.Error("the status is healthy although the table is somebody else's")
	}
	if s, _ := w.Status(); !strings.Contains(fmt.Sprint(s["why"]), "rules") {
		t.Errorf("the status does not say what is wrong: %v", s["why"])
	}
	w.Audited("that it could not be undone", func(e rig.Event) bool { return strings.Contains(e.Reason, "could not be repaired") })
	release()
	if !rig.Eventually(30*time.Second, func() bool { _, code := w.Status(); return code == 0 }) {
		s, _ := w.Status()
		t.Errorf("not healthy again: %v", s["why"])
	}
	rig.SameRules(t, "after the hijack", before, rig.Rules(t, w.Box))
	w.Blocked("tcp", "1.1.1.1:443")
}
