package filter

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// Two attacks at a time: what one of them takes away is what holds the other back.

// TestPairForgedWhileGuardsEnd: the agent forges answers of the engine's DNS (X01)
// while guard after guard is killed (X23), so that each new one asks from new ports.
// Beside a sidecar the agent is root, as the engine is.
func TestPairForgedWhileGuardsEnd(t *testing.T) {
	lab.Require(t)
	for what, start := range map[string]func(*testing.T, *lab.Lab) (*rig.World, uint32){
		"run": func(t *testing.T, l *lab.Lab) (*rig.World, uint32) {
			return rig.StartIn(t, l, rig.Allowlist, lab.BoxOptions{DockerDNS: true}, "agent-init", "run", "--", "sleep", "infinity"), lab.AgentUID
		},
		"sidecar": func(t *testing.T, l *lab.Lab) (*rig.World, uint32) {
			w := rig.StartIn(t, l, rig.Allowlist, lab.BoxOptions{DockerDNS: true}, "agent-init", "sidecar", "--user", fmt.Sprint(lab.AgentUID))
			w.Other = l.NewBox(lab.BoxOptions{Share: w.Box, Caps: []string{}, NoNewPrivs: true})
			w.Other.Idle()
			return w, 0
		},
	} {
		t.Run(what, func(t *testing.T) {
			l := lab.New(t, lab.Options{})
			l.DNS.SetAddrs("*.cdn.test", "45.30.0.20")
			w, uid := start(t, l)
			w.Ready()
			agent := w.Box
			if w.Other != nil {
				agent = w.Other
			}
			w.Box.ForgetPackets()
			const evil = "45.31.90.1"
			forging := agent.ExecStart(lab.Cmd{UID: uid, Args: []string{"poke", "forge", "-for", "2m", "127.0.0.11:53", evil}})
			for i := range 4 {
				g := w.Guard()
				g.Signal(t, unix.SIGKILL)
				if !rig.Eventually(time.Minute, func() bool { // asked from its first moment on
					p := agent.Poke(uid, "resolve", "-timeout", "1s", fmt.Sprintf("n%d.cdn.test", i))
					if strings.Contains(fmt.Sprint(p.Detail["addrs"]), evil) {
						t.Errorf("guard %d believes the agent: %s", i, p)
					}
					return p.OK
				}) {
					t.Errorf("no name after guard %d", i)
				}
				agent.Poke(uid, "tcp", "-timeout", "200ms", evil+":443")
			}
			rig.Must(t, forging.Signal(unix.SIGKILL))
			forging.Wait(0)
			w.Sealed(lab.ToAddr(evil))
		})
	}
}

// TestPairDeniedWhileAsked: the agent asks for the name all the time and holds a
// flow that is answered (X36), while root denies the name and takes that back, again
// and again. No answer that is under way opens the address after a denial.
func TestPairDeniedWhileAsked(t *testing.T) {
	w := rig.Confine(t, "ok.test:8443\n*.cdn.test\n", lab.BoxOptions{})
	ok4, _ := rig.Named("ok.test")
	to := netip.AddrPortFrom(ok4, 8443)
	asking := w.Launch("sh", "-c", "while :; do poke dns -n 200 -c 4 -timeout 1s "+rig.At(lab.Upstream4, 53)+" ok.test A; done")
	for range 4 {
		if !rig.Eventually(time.Minute, func() bool { return w.Poke("tcp", "-timeout", "1s", "-send", "x", to.String()).OK }) {
			t.Fatal("proves nothing: it can't be reached before")
		}
		w.Streaming(to)
		began := time.Now()
		w.Did("deny", "ok.test")
		ended(w, to, began)
		w.Blocked("tcp", "-timeout", "500ms", to.String())
		for a, left := range w.Leases() {
			if a == ok4 {
				t.Errorf("leased for %v after the denial", left)
			}
		}
		for _, g := range w.Grants() {
			w.Did("grants", "--end", fmt.Sprint(g.Number))
		}
	}
	rig.Must(t, asking.Signal(unix.SIGKILL))
}

// TestPairRequestsWhileDenied: the agent takes all that the request socket serves,
// and sends proposals as fast as it can, while root denies a name whose flow goes on
// and a person attaches.
func TestPairRequestsWhileDenied(t *testing.T) {
	lab.Require(t)
	w := rig.StartIn(t, lab.New(t, lab.Options{}), "ok.test:8443\n", lab.BoxOptions{}, "agent-init", "run", "--session", "always", "--", "sleep", "infinity")
	w.InSession()
	w.Works("resolve", "ok.test")
	ok4, _ := rig.Named("ok.test")
	to := netip.AddrPortFrom(ok4, 8443)
	w.Streaming(to)
	const socket, sessions = "/run/agent-init/request.sock", "/run/agent-init/session.sock"
	floods := []*lab.Process{
		w.Launch("poke", "hoard", "-n", "500", "-hold", "60s", "-esc", "{", socket),
		w.Launch("poke", "hoard", "-n", "500", "-hold", "60s", "-esc", `\x00`, sessions),
		w.Launch("sh", "-c", "i=0; while :; do agent-init request x$i.evil.test --reason more >/dev/null 2>&1; i=$((i+1)); done"),
	}
	for range 5 {
		if r := w.Box.Exec(lab.Cmd{Args: []string{"agent-init", "sessions"}, Timeout: lab.Patience}); r.Code != 0 {
			t.Errorf("a person is kept out: %s", r)
		}
	}
	began := time.Now()
	w.Did("deny", "ok.test")
	ended(w, to, began)
	w.Blocked("tcp", "-timeout", "1s", to.String())
	for _, f := range floods {
		rig.Must(t, f.Signal(unix.SIGKILL))
	}
	w.Unasked("evil.test")
}

// TestPairBudgetWhileReloaded: the agent uses a wildcard's budget up (X33) while the
// policy is read again and again and a guard ends: none of these gives it a new one.
func TestPairBudgetWhileReloaded(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	l.DNS.SetAddrs("*.cdn.test", "45.30.0.20")
	w := rig.ConfineIn(t, l, rig.Allowlist, lab.BoxOptions{})
	begun := time.Now()
	ask := func(rounds string) *lab.Process {
		return w.Launch("sh", "-c", "for i in "+rounds+"; do poke dns -n 300 -c 8 -timeout 500ms "+rig.At(lab.Upstream4, 53)+" g${i}n{n}.cdn.test A; done")
	}
	names := map[string]bool{}
	asked := func() int {
		for _, q := range l.Queries("cdn.test") {
			names[q.Name] = true
		}
		return len(names)
	}
	early := ask("1 2 3 4 5 6")
	for i := range 6 {
		w.SetPolicy(rig.Allowlist + fmt.Sprintf("more%d.test\n", i))
		if i == 3 {
			w.Guard().Signal(t, unix.SIGKILL)
		}
	}
	// While there was no guard, questions were over at once.
	early.Wait(0)
	rig.Eventually(0, func() bool { ask("7 8 9").Wait(0); return asked() >= 30 })
	took := time.Since(begun)
	most := 120 + int(took.Minutes()*120) + 5
	t.Logf("%d new names in %v, at most %d", asked(), took.Round(time.Second), most)
	if len(names) > most || len(names) < 30 {
		t.Errorf("%d new names were asked for, and there may be %d", len(names), most)
	}
}

// TestPairGrantEndsInForkBomb: a grant ends on time although the agent has left no
// room for a process and no time of the processors.
func TestPairGrantEndsInForkBomb(t *testing.T) {
	lab.Require(t)
	w := rig.StartIn(t, rig.NewLab(t), rig.Allowlist, lab.BoxOptions{}, "agent-init", "run", "--session", "always", "--", "sleep", "infinity")
	w.InSession()
	w.Guard()
	granted := netip.MustParseAddrPort("45.30.9.20:8443")
	w.Did("allow", granted.String(), "--for", "20s")
	given := time.Now()
	w.Streaming(granted)
	w.Limit("pids", 80)
	w.Limit("cpu", 50000)
	if r := w.Root("agent-init", "new", "bomb", "--", "sh", "-c", `trap "" HUP TERM; while :; do (while :; do sleep 1000 & done) 2>/dev/null; done`); r.Code != 0 {
		t.Fatal(r)
	}
	time.Sleep(time.Until(given.Add(24 * time.Second))) // the end, and what a clock of the kernel's may be off
	last := time.Time{}
	late := given.Add(23 * time.Second)
	for _, p := range w.Box.Packets(lab.Routed, lab.ToAddr(granted.Addr().String())) {
		if p.Time.After(last) {
			last = p.Time
		}
	}
	t.Logf("the last packet left %v after the grant", last.Sub(given))
	if last.After(late) || last.IsZero() {
		t.Errorf("the last packet left %v after a grant of 20 s", last.Sub(given))
	}
}

var _ = rig.Also(TestPairPortsInFullTable, rig.UnderStress)

// TestPairPortsInFullTable: the agent sends to the DNS servers from every port
// (X37), ICMP among it, while it fills the table of flows (X26).
func TestPairPortsInFullTable(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	l.DNS.SetAddrs("*.cdn.test", "45.30.0.20")
	w := rig.ConfineIn(t, l, rig.Allowlist, lab.BoxOptions{})
	var floods []*lab.Process
	for i := range rig.Often(1, 4) { // four fill it
		floods = append(floods, w.Launch("poke", "flood", "-n", "80000", "-spread", "80000", fmt.Sprintf("127.%d.0.1:9", 10+2*i)))
	}
	floods = append(floods, w.Launch("poke", "prime", rig.At(lab.Upstream4, 53)))
	most := 0
	for i := range rig.Often(6, 20) {
		most = max(most, w.Flows())
		w.Poke("resolve", "-timeout", "2s", fmt.Sprintf("n%d.cdn.test", i))
		for _, kind := range []string{"3", "4", "5", "8", "11"} {
			w.Poke("ping", "-timeout", "100ms", "-type", kind, lab.Upstream4.String())
		}
		w.Blocked("udp", "-timeout", "100ms", lab.Upstream4.String()+":54")
		w.Blocked("tcp", "-timeout", "200ms", "1.1.1.1:443")
	}
	for _, f := range floods {
		f.Wait(2 * time.Minute)
	}
	t.Logf("%d flows at once", most)
	w.Sealed(func(p *lab.Packet) bool { return bytes.Contains(p.Payload, []byte("from the agent")) })
	w.Sealed(func(p *lab.Packet) bool { return p.Proto == unix.IPPROTO_ICMP })
	w.Sealed(lab.ToAddr("1.1.1.1"))
	w.Recovers("both")
}

// TestPairDeniedWhileGuardStands: the guard stands still with the agent's
// connections through the gate, and the agent's data in it, while their name is
// denied; then it goes on.
func TestPairDeniedWhileGuardStands(t *testing.T) {
	w := rig.Confine(t, "api.anthropic.com\nok.test\n", lab.BoxOptions{})
	w.Works("resolve", "ok.test")
	ok4, _ := rig.Named("ok.test")
	upload := w.Launch("sh", "-c", "while :; do poke http -insecure -h1 -method POST -size 200000000 -timeout 60s -addr "+rig.At(ok4, 443)+" https://ok.test/up; done")
	if !rig.Eventually(20*time.Second, func() bool { return len(w.Box.Packets(lab.ToAddr(ok4.String()))) > 20 }) {
		t.Fatalf("proves nothing: no upload: %s %s", upload.Stdout(), upload.Stderr())
	}
	g := w.Guard()
	g.Signal(t, unix.SIGSTOP)
	began := time.Now()
	w.Root("agent-init", "deny", "ok.test")
	returned := time.Now()
	g.Signal(t, unix.SIGCONT)
	time.Sleep(2 * time.Second)
	var late []string
	for _, p := range w.Box.Packets(lab.Routed, lab.ToAddr(ok4.String())) {
		if p.Time.After(returned) && p.TCPFlags&4 == 0 {
			late = append(late, p.String())
		}
	}
	t.Logf("deny took %v; %d packets after it", returned.Sub(began), len(late))
	if len(late) > 0 {
		t.Errorf("the first of them %s", late[0])
	}
	rig.Must(t, upload.Signal(unix.SIGKILL))
}

// TestPairKeeperKilledWhileFlowsLive: in up, the keeper is killed while a flow goes
// on and the agent takes what it leaves; a new one with a smaller policy cuts the flow.
func TestPairKeeperKilledWhileFlowsLive(t *testing.T) {
	lab.Require(t)
	w := rig.KeepUp(t, "ok.test:8443\nok2.test\n", lab.BoxOptions{})
	ok4, _ := rig.Named("ok.test")
	to := netip.AddrPortFrom(ok4, 8443)
	if p := w.Box.Poke(lab.AgentUID, "resolve", "ok.test"); !p.OK {
		t.Fatal(p)
	}
	w.Streaming(to)
	ports := ownPorts(w)
	keeper := w.Keeper()
	var seize []string
	for _, p := range ports {
		seize = append(seize, fmt.Sprintf("udp:%d", p), fmt.Sprintf("tcp:%d", p))
	}
	seizing := w.Box.ExecStart(lab.Cmd{UID: lab.AgentUID, Args: slices.Concat([]string{"poke", "seize", "-for", "5s"}, seize)})
	keeper.Signal(t, unix.SIGKILL)
	rig.Must(t, w.Box.WriteFile("/etc/agent-init/allowlist.txt", []byte("ok2.test\n"), 0o644))
	time.Sleep(time.Second)
	if p := w.Box.Poke(lab.AgentUID, "tcp", "-timeout", "1s", "1.1.1.1:443"); p.OK {
		t.Error(p)
	}
	if r := w.Root("agent-init", "up"); r.Code != 0 { // it takes other ports, or waits for these
		t.Errorf("up: %s", r)
	}
	ended(w, to, time.Now())
	if p, err := lab.ParsePoke(seizing.Wait(time.Minute).Stdout); err != nil || !p.OK {
		t.Errorf("proves nothing: the agent had no port: %s %v", p, err)
	}
	w.Sealed(lab.ToAddr("1.1.1.1"))
}
