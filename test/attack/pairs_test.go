package attack

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
)

// Two attacks at a time: what one of them takes away is what holds the other back.

// TestPairForgedWhileGuardsEnd: the agent forges answers of the engine's DNS (X01)
// while guard after guard is killed (X23), so that each new one asks from new ports.
// Beside a sidecar the agent is root, as the engine is.
func TestPairForgedWhileGuardsEnd(t *testing.T) {
	lab.Require(t)
	for what, start := range map[string]func(*testing.T, *lab.Lab) (*world, uint32){
		"run": func(t *testing.T, l *lab.Lab) (*world, uint32) {
			return startIn(t, l, allowlist, lab.BoxOptions{DockerDNS: true}, "agent-init", "run", "--", "sleep", "infinity"), lab.AgentUID
		},
		"sidecar": func(t *testing.T, l *lab.Lab) (*world, uint32) {
			w := startIn(t, l, allowlist, lab.BoxOptions{DockerDNS: true}, "agent-init", "sidecar", "--user", fmt.Sprint(lab.AgentUID))
			w.other = l.NewBox(lab.BoxOptions{Share: w.box, Caps: []string{}, NoNewPrivs: true})
			w.other.Idle()
			return w, 0
		},
	} {
		t.Run(what, func(t *testing.T) {
			l := lab.New(t, lab.Options{})
			l.DNS.SetAddrs("*.cdn.test", "45.30.0.20")
			w, uid := start(t, l)
			w.ready()
			agent := w.box
			if w.other != nil {
				agent = w.other
			}
			w.box.ForgetPackets()
			const evil = "45.31.90.1"
			forging := agent.ExecStart(lab.Cmd{UID: uid, Args: []string{"poke", "forge", "-for", "2m", "127.0.0.11:53", evil}})
			for i := range 4 {
				g := w.guard()
				g.signal(t, unix.SIGKILL)
				if !eventually(time.Minute, func() bool { // asked from its first moment on
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
			must(t, forging.Signal(unix.SIGKILL))
			forging.Wait(0)
			w.sealed(lab.ToAddr(evil))
		})
	}
}

// TestPairDeniedWhileAsked: the agent asks for the name all the time and holds a
// flow that is answered (X36), while root denies the name and takes that back, again
// and again. No answer that is under way opens the address after a denial.
func TestPairDeniedWhileAsked(t *testing.T) {
	w := confine(t, "ok.test:8443\n*.cdn.test\n", lab.BoxOptions{})
	ok4, _ := named("ok.test")
	to := netip.AddrPortFrom(ok4, 8443)
	asking := w.launch("sh", "-c", "while :; do poke dns -n 200 -c 4 -timeout 1s "+at(lab.Upstream4, 53)+" ok.test A; done")
	for range 4 {
		if !eventually(time.Minute, func() bool { return w.poke("tcp", "-timeout", "1s", "-send", "x", to.String()).OK }) {
			t.Fatal("proves nothing: it can't be reached before")
		}
		w.streaming(to)
		began := time.Now()
		w.did("deny", "ok.test")
		w.ended(to, began)
		w.blocked("tcp", "-timeout", "500ms", to.String())
		for a, left := range w.leases() {
			if a == ok4 {
				t.Errorf("leased for %v after the denial", left)
			}
		}
		for _, g := range w.grants() {
			w.did("grants", "--end", fmt.Sprint(g.Number))
		}
	}
	must(t, asking.Signal(unix.SIGKILL))
}

// TestPairRequestsWhileDenied: the agent takes all that the request socket serves,
// and sends proposals as fast as it can, while root denies a name whose flow goes on
// and a person attaches.
func TestPairRequestsWhileDenied(t *testing.T) {
	lab.Require(t)
	w := startIn(t, lab.New(t, lab.Options{}), "ok.test:8443\n", lab.BoxOptions{}, "agent-init", "run", "--session", "always", "--", "sleep", "infinity")
	w.inSession()
	w.works("resolve", "ok.test")
	ok4, _ := named("ok.test")
	to := netip.AddrPortFrom(ok4, 8443)
	w.streaming(to)
	const socket, sessions = "/run/agent-init/request.sock", "/run/agent-init/session.sock"
	floods := []*lab.Process{
		w.launch("poke", "hoard", "-n", "500", "-hold", "60s", "-esc", "{", socket),
		w.launch("poke", "hoard", "-n", "500", "-hold", "60s", "-esc", `\x00`, sessions),
		w.launch("sh", "-c", "i=0; while :; do agent-init request x$i.evil.test --reason more >/dev/null 2>&1; i=$((i+1)); done"),
	}
	for range 5 {
		if r := w.box.Exec(lab.Cmd{Args: []string{"agent-init", "sessions"}, Timeout: lab.Patience}); r.Code != 0 {
			t.Errorf("a person is kept out: %s", r)
		}
	}
	began := time.Now()
	w.did("deny", "ok.test")
	w.ended(to, began)
	w.blocked("tcp", "-timeout", "1s", to.String())
	for _, f := range floods {
		must(t, f.Signal(unix.SIGKILL))
	}
	w.unasked("evil.test")
}

// TestPairBudgetWhileReloaded: the agent uses a wildcard's budget up (X33) while the
// policy is read again and again and a guard ends: none of these gives it a new one.
func TestPairBudgetWhileReloaded(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	l.DNS.SetAddrs("*.cdn.test", "45.30.0.20")
	w := confineIn(t, l, allowlist, lab.BoxOptions{})
	begun := time.Now()
	asking := w.launch("sh", "-c", "for i in 1 2 3 4 5 6; do poke dns -n 300 -c 8 -timeout 500ms "+at(lab.Upstream4, 53)+" g${i}n{n}.cdn.test A; done")
	for i := range 6 {
		w.setPolicy(allowlist + fmt.Sprintf("more%d.test\n", i))
		if i == 3 {
			w.guard().signal(t, unix.SIGKILL)
		}
	}
	asking.Wait(2 * time.Minute)
	names := map[string]bool{}
	for _, q := range l.Queries("cdn.test") {
		names[q.Name] = true
	}
	took := time.Since(begun)
	most := 120 + int(took.Minutes()*120) + 5
	t.Logf("%d new names in %v, at most %d", len(names), took.Round(time.Second), most)
	if len(names) > most || len(names) < 30 {
		t.Errorf("%d new names were asked for, and there may be %d", len(names), most)
	}
}

// TestPairGrantEndsInForkBomb: a grant ends on time although the agent has left no
// room for a process and no time of the processors.
func TestPairGrantEndsInForkBomb(t *testing.T) {
	lab.Require(t)
	w := startIn(t, newLab(t), allowlist, lab.BoxOptions{}, "agent-init", "run", "--session", "always", "--", "sleep", "infinity")
	w.inSession()
	w.guard()
	granted := netip.MustParseAddrPort("45.30.9.20:8443")
	w.did("allow", granted.String(), "--for", "20s")
	given := time.Now()
	w.streaming(granted)
	w.limit("pids", 80)
	w.limit("cpu", 50000)
	if r := w.root("agent-init", "new", "bomb", "--", "sh", "-c", `trap "" HUP TERM; while :; do (while :; do sleep 1000 & done) 2>/dev/null; done`); r.Code != 0 {
		t.Fatal(r)
	}
	time.Sleep(time.Until(given.Add(24 * time.Second))) // the end, and what a clock of the kernel's may be off
	last := time.Time{}
	late := given.Add(23 * time.Second)
	for _, p := range w.box.Packets(lab.Routed, lab.ToAddr(granted.Addr().String())) {
		if p.Time.After(last) {
			last = p.Time
		}
	}
	t.Logf("the last packet left %v after the grant", last.Sub(given))
	if last.After(late) || last.IsZero() {
		t.Errorf("the last packet left %v after a grant of 20 s", last.Sub(given))
	}
}

var _ = also(TestPairPortsInFullTable, underStress)

// TestPairPortsInFullTable: the agent sends to the DNS servers from every port
// (X37), ICMP among it, while it fills the table of flows (X26).
func TestPairPortsInFullTable(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	l.DNS.SetAddrs("*.cdn.test", "45.30.0.20")
	w := confineIn(t, l, allowlist, lab.BoxOptions{})
	var floods []*lab.Process
	for i := range often(1, 4) { // four fill it
		floods = append(floods, w.launch("poke", "flood", "-n", "80000", "-spread", "80000", fmt.Sprintf("127.%d.0.1:9", 10+2*i)))
	}
	floods = append(floods, w.launch("poke", "prime", at(lab.Upstream4, 53)))
	most := 0
	for i := range often(6, 20) {
		most = max(most, w.flows())
		w.poke("resolve", "-timeout", "2s", fmt.Sprintf("n%d.cdn.test", i))
		for _, kind := range []string{"3", "4", "5", "8", "11"} {
			w.poke("ping", "-timeout", "100ms", "-type", kind, lab.Upstream4.String())
		}
		w.blocked("udp", "-timeout", "100ms", lab.Upstream4.String()+":54")
		w.blocked("tcp", "-timeout", "200ms", "1.1.1.1:443")
	}
	for _, f := range floods {
		f.Wait(2 * time.Minute)
	}
	t.Logf("%d flows at once", most)
	w.sealed(func(p *lab.Packet) bool { return bytes.Contains(p.Payload, []byte("from the agent")) })
	w.sealed(func(p *lab.Packet) bool { return p.Proto == unix.IPPROTO_ICMP })
	w.sealed(lab.ToAddr("1.1.1.1"))
	w.recovers("both")
}

// TestPairDeniedWhileGuardStands: the guard stands still with the agent's
// connections through the gate, and the agent's data in it, while their name is
// denied; then it goes on.
func TestPairDeniedWhileGuardStands(t *testing.T) {
	w := confine(t, "api.anthropic.com\nok.test\n", lab.BoxOptions{})
	w.works("resolve", "ok.test")
	ok4, _ := named("ok.test")
	upload := w.launch("sh", "-c", "while :; do poke http -insecure -h1 -method POST -size 200000000 -timeout 60s -addr "+at(ok4, 443)+" https://ok.test/up; done")
	if !eventually(20*time.Second, func() bool { return len(w.box.Packets(lab.ToAddr(ok4.String()))) > 20 }) {
		t.Fatalf("proves nothing: no upload: %s %s", upload.Stdout(), upload.Stderr())
	}
	g := w.guard()
	g.signal(t, unix.SIGSTOP)
	began := time.Now()
	w.root("agent-init", "deny", "ok.test")
	returned := time.Now()
	g.signal(t, unix.SIGCONT)
	time.Sleep(2 * time.Second)
	var late []string
	for _, p := range w.box.Packets(lab.Routed, lab.ToAddr(ok4.String())) {
		if p.Time.After(returned) && p.TCPFlags&4 == 0 {
			late = append(late, p.String())
		}
	}
	t.Logf("deny took %v; %d packets after it", returned.Sub(began), len(late))
	if len(late) > 0 {
		t.Errorf("the first of them %s", late[0])
	}
	must(t, upload.Signal(unix.SIGKILL))
}

// TestPairKeeperKilledWhileFlowsLive: in up, the keeper is killed while a flow goes
// on and the agent takes what it leaves; a new one with a smaller policy cuts the flow.
func TestPairKeeperKilledWhileFlowsLive(t *testing.T) {
	lab.Require(t)
	w := keepUp(t, "ok.test:8443\nok2.test\n", lab.BoxOptions{})
	ok4, _ := named("ok.test")
	to := netip.AddrPortFrom(ok4, 8443)
	if p := w.box.Poke(lab.AgentUID, "resolve", "ok.test"); !p.OK {
		t.Fatal(p)
	}
	w.streaming(to)
	ports := w.ownPorts()
	keeper := w.keeper()
	var seize []string
	for _, p := range ports {
		seize = append(seize, fmt.Sprintf("udp:%d", p), fmt.Sprintf("tcp:%d", p))
	}
	seizing := w.box.ExecStart(lab.Cmd{UID: lab.AgentUID, Args: slices.Concat([]string{"poke", "seize", "-for", "5s"}, seize)})
	keeper.signal(t, unix.SIGKILL)
	must(t, w.box.WriteFile("/etc/agent-init/allowlist.txt", []byte("ok2.test\n"), 0o644))
	time.Sleep(time.Second)
	if p := w.box.Poke(lab.AgentUID, "tcp", "-timeout", "1s", "1.1.1.1:443"); p.OK {
		t.Error(p)
	}
	if r := w.root("agent-init", "up"); r.Code != 0 { // it takes other ports, or waits for these
		t.Errorf("up: %s", r)
	}
	w.ended(to, time.Now())
	if p, err := lab.ParsePoke(seizing.Wait(time.Minute).Stdout); err != nil || !p.OK {
		t.Errorf("proves nothing: the agent had no port: %s %v", p, err)
	}
	w.sealed(lab.ToAddr("1.1.1.1"))
}
