package dns

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// Attacks against what was built, beyond the catalogue.

var _ = rig.Also(TestForgedAnswerUnheard, rig.OverXtables|rig.InUp)

// TestForgedAnswerUnheard: the engine's DNS is at an address of loopback,
// 127.0.0.11, which every process may bind to. The agent makes flows from there
// to every port that the guard could ask from. What the guard asks would be a
// reply then, which nothing takes to the engine any more, and the agent would
// say where allowed names are.
func TestForgedAnswerUnheard(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	l.DNS.SetAddrs("*.cdn.test", "45.30.0.20")
	w := rig.ConfineIn(t, l, rig.Allowlist, lab.BoxOptions{DockerDNS: true})
	const evil = "45.31.1.1"
	forging := w.AsAgent(w.Box, "forge", "-for", "8s", "127.0.0.11:53", evil)
	for i := 0; ; i++ {
		select {
		case <-forging.Done():
		default:
			name := fmt.Sprintf("n%d.cdn.test", i%50)
			if p := w.Poke("resolve", name); p.OK && fmt.Sprint(p.Detail["addrs"]) != "[45.30.0.20]" {
				t.Errorf("%s has the address %v", name, p.Detail["addrs"])
				w.Poke("http", "-insecure", "-timeout", "2s", "-addr", evil+":443", "https://"+name+"/")
				rig.Must(t, forging.Signal(unix.SIGKILL))
			}
			continue
		}
		break
	}
	if p, err := lab.ParsePoke(forging.Wait(0).Stdout); err != nil {
		t.Error(err)
	} else if p.OK && p.Detail["asked"] != float64(0) {
		t.Errorf("the agent was asked in place of the engine's DNS: %s", p)
	}
	w.Sealed(lab.ToAddr(evil))
	// What is the engine's goes on.
	w.Works("http", "https://ok.test/")
	w.Works("tcp", "-send", "x", "45.30.9.9:8443")
}

var _ = rig.Also(TestGuessedIdentifiersEndTheEnginesWay, rig.OverXtables)

// TestGuessedIdentifiersEndTheEnginesWay: where the engine passes questions on from within
// this network, as root, whoever else is root may repeat one of the guard's. In
// a sidecar's network the agent may be root, without any capability. It has the
// guard ask, and tries all identifiers that there are, each toward a server of
// its own.
func TestGuessedIdentifiersEndTheEnginesWay(t *testing.T) {
	if rig.Xtables() { // which can't remember identifiers, as SECURITY.md says
		return
	}
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	l.DNS.SetAddrs("*.cdn.test", "45.30.0.20")
	w := rig.StartIn(t, l, rig.Allowlist, lab.BoxOptions{DockerDNS: true}, "agent-init", "sidecar", "--user", fmt.Sprint(lab.AgentUID))
	agent := l.NewBox(lab.BoxOptions{Share: w.Box, Caps: []string{}, NoNewPrivs: true})
	agent.Idle()
	w.Ready()
	w.Box.ForgetPackets()
	for i := range 8 {
		if p := agent.Poke(0, "resolve", fmt.Sprintf("n%d.cdn.test", i)); !p.OK {
			t.Fatalf("proves nothing: %s", p)
		}
	}
	// A question to the engine itself doesn't tell whether an identifier is known.
	asked := l.Queries("n7.cdn.test")
	if len(asked) == 0 {
		t.Fatal("proves nothing: the engine was not asked")
	}
	for _, id := range []uint16{asked[0].Msg.Id, asked[0].Msg.Id + 1} {
		m := new(dns.Msg).SetQuestion("n0.cdn.test.", dns.TypeA)
		m.Id = id
		raw, err := m.Pack()
		rig.Must(t, err)
		if p := agent.Poke(0, "dns", "-raw", hex.EncodeToString(raw), "127.0.0.11:53"); !p.OK {
			t.Errorf("identifier %#x is not treated as any: %s", id, p)
		}
	}
	p := agent.Poke(0, "guess", "45.31.0.0:53")
	if sent, _ := p.Detail["sent"].(float64); sent < 60000 {
		t.Errorf("proves nothing, only %v were sent: %s", sent, p)
	}
	escaped := w.Box.Packets(lab.ToAddr("45.31.0.0/16"))
	// One guess may be right before the first one that is wrong.
	if len(escaped) > 1 {
		id := binary.BigEndian.Uint16(escaped[0].Payload)
		t.Errorf("%d packets left the box, the first of them with identifier %#x: %s", len(escaped), id, escaped[0])
	}
	if n := len(w.Box.Packets(lab.ToPort(unix.IPPROTO_UDP, 53))); n > len(escaped) {
		t.Errorf("%d more packets left the box", n-len(escaped))
	}
	// After a while the engine may pass questions on again.
	if !rig.Eventually(30*time.Second, func() bool { return agent.Poke(0, "resolve", "later.cdn.test").OK }) {
		t.Error("names are not resolved any more")
	}
}

var _ = rig.Also(TestForgedBeforeUpUnheard, rig.OverXtables)

// TestForgedBeforeUpUnheard: the same flows, made before up confines the program
// that made them: up keeps those of loopback and of the engine, but not these.
func TestForgedBeforeUpUnheard(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	l.DNS.SetAddrs("*.cdn.test", "45.30.0.20")
	w := rig.StartIn(t, l, rig.Allowlist, lab.BoxOptions{DockerDNS: true}, "sleep", "infinity")
	const evil = "45.31.16.1"
	forging := w.Box.ExecStart(lab.Cmd{UID: lab.AgentUID, Args: []string{"poke", "forge", "-for", "10m", "127.0.0.11:53", evil}})
	w.Bound(w.Box, "udp", 53)
	if !rig.Eventually(10*time.Second, func() bool {
		p := w.Box.Poke(lab.AgentUID, "loop", "-n", "50", "-name", "n{n}.cdn.test", ":9") // by the engine, and by the agent
		return p.Detail["n"] != float64(0)
	}) {
		t.Fatal("proves nothing")
	}
	if r := w.Root("agent-init", "up"); r.Code != 0 {
		t.Fatalf("up: %s", r)
	}
	w.Box.ForgetPackets()
	resolved, tried := 0, 0
	if !rig.Eventually(lab.Patience, func() bool {
		p := w.Box.Poke(lab.AgentUID, "resolve", fmt.Sprintf("n%d.cdn.test", tried%50))
		tried++
		if p.OK && fmt.Sprint(p.Detail["addrs"]) != "[45.30.0.20]" {
			t.Fatalf("a name has the address %v", p.Detail["addrs"])
		}
		if p.OK {
			resolved++
		}
		return resolved == 50
	}) && resolved == 0 {
		t.Error("the guard's questions are lost in the flows of before")
	}
	t.Logf("%d of %d questions were answered beside the forger", resolved, tried)
	select {
	case <-forging.Done():
		t.Error("proves nothing: the forger has ended")
	default:
	}
	rig.Must(t, forging.Signal(unix.SIGKILL))
	forging.Wait(lab.Patience)
	w.Sealed(lab.ToAddr(evil))
	w.Works("http", "https://ok.test/")
}
