package attack

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
)

// restarts is how often the keeper had to start another guard.
func (w *world) restarts() int {
	w.Helper()
	s, _ := w.status()
	g, _ := s["guard"].(map[string]any)
	n, _ := g["restarts"].(float64)
	return int(n)
}

// repairs is how often the keeper had to restore the rules.
func (w *world) repairs() int {
	w.Helper()
	s, _ := w.status()
	f, _ := s["firewall"].(map[string]any)
	n, _ := f["repairs"].(float64)
	return int(n)
}

// reasons are the reasons of all events of a kind.
func (w *world) reasons(kind string) string {
	w.Helper()
	var out []string
	for _, e := range w.audit(func(e event) bool { return e.Kind == kind }) {
		out = append(out, e.Verdict+" "+e.Reason)
	}
	return strings.Join(out, "\n")
}

// within fails the test if a lease is not one of those addresses.
func (w *world) within(allowed ...netip.Addr) {
	w.Helper()
	for _, e := range leased(w.T, w.box) {
		if !slices.Contains(allowed, e.Addr()) || e.Port() != 443 && e.Port() != 80 {
			w.Errorf("a lease outside of the policy: %s", e)
		}
	}
}

var _ = also(TestFaultGuardKilled, everywhere|underStress)

// TestFaultGuardKilled: three boxes under load, whose guards are killed seven
// times each: the rules stay, nothing but the policy's is ever open, and
// each time there is another guard, later and later.
func TestFaultGuardKilled(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	evilZone(l)
	var worlds []*world
	for range 3 {
		worlds = append(worlds, startIn(t, l, allowlist, lab.BoxOptions{}, "agent-init", "run", "--", "sleep", "infinity"))
	}
	for _, w := range worlds {
		w.ready()
		w.box.ForgetPackets()
		w.box.ExecStart(lab.Cmd{Args: []string{"agent-init", "exec", "--", "sh", "-c", `
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
			g := w.guard()
			before = append(before, g.host)
			g.signal(t, unix.SIGKILL)
		}
		if round == 7 { // by now the next one takes its time: five seconds
			w := worlds[0]
			if !eventually(2*time.Second, func() bool { return len(guards(t, w.agent)) == 0 }) {
				t.Error("the guard is there at once, without back-off")
			}
			if !eventually(2*time.Second, func() bool { _, code := w.status(); return code != 0 }) {
				t.Error("healthy without a guard")
			}
			ok4, _ := named("ok.test")
			if p := w.blocked("tcp", "-all", ok4.String()+":443"); p.Errno != unix.ErrnoName(unix.ECONNRESET) { // there is no gate
				t.Errorf("not reset at once: %s", p)
			}
			w.blocked("tcp", "1.1.1.1:443")
			w.blocked("dns", "-timeout", "200ms", "8.8.8.8:53", "evil.test", "A")
			w.blocked("dns", "-timeout", "200ms", "8.8.8.8:53", "new.cdn.test", "A")
		}
		for i, w := range worlds {
			if !eventually(20*time.Second, func() bool { _, code := w.status(); return code == 0 && w.restarts() == round+1 }) {
				s, _ := w.status()
				t.Fatalf("not healthy again after %d kills: %v", round+1, s["why"])
			}
			if g := w.guard(); g.host == before[i] {
				t.Errorf("still the same guard: %+v", g)
			}
		}
	}
	ok4, ok6 := named("ok.test")
	cdn4, cdn6 := named("cdn.test")
	for _, w := range worlds {
		w.works("http", "https://ok.test/")
		w.within(ok4, ok6, cdn4, cdn6)
		w.upstreamOnlyOr("ok.test")
		log := w.reasons("guard")
		if strings.Count(log, "guard ended") < 5 || !strings.Contains(log, "serves again") {
			t.Errorf("the audit log of guards says: %s", log)
		}
		w.box.Kill()
	}
	l.DNS.Forget()
}

var _ = also(TestFaultGuardStopped, everywhere|underStress)

// TestFaultGuardStopped: a guard that lives and does nothing is found and
// replaced, by a keeper that may signal everybody and by one that may not.
func TestFaultGuardStopped(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	worlds := map[string]*world{
		"default capabilities": startIn(t, l, allowlist, lab.BoxOptions{}, "agent-init", "run", "--", "sleep", "infinity"),
		"with KILL":            startIn(t, l, allowlist, lab.BoxOptions{Caps: append(lab.DefaultCaps(), "KILL")}, "agent-init", "run", "--", "sleep", "infinity"),
	}
	stopped := map[string]inmate{}
	for who, w := range worlds {
		w.ready()
		w.works("http", "https://ok.test/")
		stopped[who] = w.guard()
		stopped[who].stop(t)
	}
	for _, w := range worlds {
		w.blocked("dns", "-timeout", "300ms", "8.8.8.8:53", "evil.test", "A")
		w.blocked("tcp", "1.1.1.1:443")
		ok4, _ := named("ok.test")
		w.works("tcp", ok4.String()+":443")
	}
	for who, w := range worlds {
		replaced := func() bool {
			g := guards(t, w.agent)
			return len(g) == 1 && g[0].host != stopped[who].host
		}
		if !eventually(30*time.Second, replaced) {
			t.Fatalf("%s: the guard was not replaced: %+v", who, guards(t, w.agent))
		}
		if !eventually(10*time.Second, func() bool { _, code := w.status(); return code == 0 }) {
			s, _ := w.status()
			t.Errorf("%s: not healthy again: %v", who, s["why"])
		}
		w.works("resolve", "ok.test")
		if log := w.reasons("guard"); !strings.Contains(log, "did not answer") || !strings.Contains(log, "serves again") {
			t.Errorf("%s: the audit log says: %s", who, log)
		}
		w.upstreamOnlyOr("ok.test")
	}
}

var _ = also(TestFaultGuardUID, everywhere|underStress)

// TestFaultGuardUID: nobody but the guard gets the uid that may ask the
// upstream servers.
func TestFaultGuardUID(t *testing.T) {
	w := confine(t, allowlist, lab.BoxOptions{})
	uid := fmt.Sprint(w.guard().uid)
	w.blocked("setuid", uid)
	w.blocked("setgid", uid)
	w.blocked("as", uid, "dns", lab.Upstream4.String()+":53", "evil.test", "A")
	if p := w.poke("unshare", "user", "setuid", uid); fmt.Sprint(p.Detail["result"]) == "" || strings.Contains(fmt.Sprint(p.Detail["result"]), "ok:true") {
		t.Errorf("in a namespace of its own the agent took the uid: %s", p)
	}
	w.blocked("dns", lab.Upstream4.String()+":53", "evil.test", "A")

	// An agent that is given that uid has it first.
	mapped := startIn(t, w.lab, allowlist, lab.BoxOptions{Env: []string{"HOST_UID=" + uid}}, "agent-init", "run", "--", "sleep", "infinity")
	named := startIn(t, w.lab, allowlist, lab.BoxOptions{}, "agent-init", "run", "--user", uid+":"+uid, "--", "sleep", "infinity")
	taken := w.lab.NewBox(lab.BoxOptions{Binary: lab.Binary(t)})
	up := &world{T: t, lab: w.lab, box: taken}
	up.agent = taken.Start(lab.Cmd{Args: []string{"sleep", "infinity"}})
	squatter := taken.ExecStart(lab.Cmd{Args: []string{"sleep", "infinity"}, UID: w.guard().uid})
	if r := up.root("agent-init", "up"); r.Code != 0 {
		t.Fatalf("up: %s", r)
	}
	for who, w := range map[string]*world{"HOST_UID": mapped, "--user": named, "a process": up} {
		w.ready()
		if g := w.guard(); fmt.Sprint(g.uid) == uid {
			t.Errorf("%s: the guard runs under the same uid", who)
		}
		w.blocked("dns", lab.Upstream4.String()+":53", "evil.test", "A")
	}
	if p := taken.Poke(w.guard().uid, "dns", lab.Upstream4.String()+":53", "evil.test", "A"); p.OK {
		t.Errorf("a process that had the uid before may ask: %s", p)
	}
	must(t, squatter.Signal(unix.SIGKILL))
	w.unasked("evil.test")
}

// keepUp confines a box by agent-init up, where the table has no owner.
func keepUp(t *testing.T, list string, opts lab.BoxOptions) *world {
	t.Helper()
	lab.Require(t)
	w := startIn(t, lab.New(t, lab.Options{}), list, opts, "sleep", "infinity")
	if r := w.root("agent-init", "up"); r.Code != 0 {
		t.Fatalf("up: %s", r)
	}
	return w
}

var _ = also(TestFaultTampering, overXtables|underStress)

// TestFaultTampering: where root can change the rules, that is recorded
// and undone.
func TestFaultTampering(t *testing.T) {
	w := keepUp(t, allowlist, lab.BoxOptions{})
	before := rules(t, w.box)
	tries := xtTampering()
	if !xtables() {
		tries = map[string]func() error{}
		for what, try := range tampering() {
			tries[what] = func() error {
				c, err := nftables.New()
				if err != nil {
					return err
				}
				return try(c, agentTable())
			}
		}
	}
	for what, try := range tries {
		seen := w.repairs()
		must(t, w.box.Net.Do(try))
		mended := func() bool { // a listing may fail while it is being mended
			var now string
			err := w.box.Net.Do(func() (err error) { now, err = ruleset(); return })
			// What isn't ours, and now comes behind ours, stays.
			return err == nil && strings.ReplaceAll(now, "rule -A OUTPUT -j ACCEPT\n", "") == before
		}
		if !eventually(20*time.Second, mended) {
			t.Fatalf("%s: not undone: %s", what, rules(t, w.box))
		}
		if !eventually(20*time.Second, func() bool { return !w.poke("tcp", "1.1.1.1:443").OK }) {
			t.Errorf("%s: opened the network for good", what)
		}
		if !eventually(20*time.Second, func() bool { return w.repairs() > seen }) {
			t.Errorf("%s: not noticed", what)
		}
		if !eventually(20*time.Second, func() bool { _, code := w.status(); return code == 0 }) {
			s, _ := w.status()
			t.Errorf("%s: not healthy after it was undone: %v", what, s["why"])
		}
	}
	// Of one kind of fault a minute shows five, and counts the others.
	if log := w.reasons("guard"); strings.Count(log, "rules changed") < 5 || !strings.Contains(log, "rules repaired") {
		t.Errorf("the audit log says: %s", log)
	}
	w.box.ForgetPackets()
	w.works("http", "https://ok.test/")
	w.blocked("tcp", "1.1.1.1:443")
	w.sealed(lab.ToAddr("1.1.1.1"))
}

var _ = also(TestFaultHijack, inModes|underStress)

// TestFaultHijack: somebody takes the table away so that it can't be undone:
// the status says so for as long as that is the case, and not after.
func TestFaultHijack(t *testing.T) {
	w := keepUp(t, allowlist, lab.BoxOptions{})
	before := rules(t, w.box)
	var once sync.Once
	var thief *nftables.Conn
	must(t, w.box.Net.Do(func() (err error) {
		if thief, err = nftables.New(nftables.AsLasting()); err != nil {
			return err
		}
		thief.DelTable(agentTable())
		table := agentTable()
		table.Flags = nftables.TableFlagOwner
		thief.AddTable(table)
		return thief.Flush()
	}))
	release := func() { once.Do(func() { must(t, thief.CloseLasting()) }) }
	defer release()
	if !eventually(30*time.Second, func() bool { _, code := w.status(); return code != 0 }) {
		t.Error("the status is healthy although the table is somebody else's")
	}
	if s, _ := w.status(); !strings.Contains(fmt.Sprint(s["why"]), "rules") {
		t.Errorf("the status does not say what is wrong: %v", s["why"])
	}
	w.audited("that it could not be undone", func(e event) bool { return strings.Contains(e.Reason, "could not be repaired") })
	release()
	if !eventually(30*time.Second, func() bool { _, code := w.status(); return code == 0 }) {
		s, _ := w.status()
		t.Errorf("not healthy again: %v", s["why"])
	}
	sameRules(t, "after the hijack", before, rules(t, w.box))
	w.blocked("tcp", "1.1.1.1:443")
}
