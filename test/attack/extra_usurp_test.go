package attack

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
)

// usurped is what is shared by the attacks below: the agent has become the DNS
// server at an address of this network namespace, and says that names below
// cdn.test are at an address of its own. Whether anybody asks it is no matter; the
// guard must not believe it.
func (w *world) usurped(usurper *lab.Process, evil string) {
	w.Helper()
	for i := range 2 {
		name := fmt.Sprintf("n%d.cdn.test", i)
		if p := w.poke("resolve", name); p.OK && strings.Contains(fmt.Sprint(p.Detail["addrs"]), evil) {
			w.Errorf("%s has the address %v: the agent has answered", name, p.Detail["addrs"])
			w.poke("http", "-insecure", "-timeout", "2s", "-addr", evil+":443", "https://"+name+"/")
			break
		}
	}
	must(w.T, usurper.Signal(unix.SIGKILL))
	usurper.Wait(0)
	w.sealed(lab.ToAddr(evil))
}

// hasSaid waits until a process has printed words on its standard error.
func (w *world) hasSaid(p *lab.Process, words ...string) {
	w.Helper()
	if !eventually(time.Minute, func() bool {
		for _, word := range words {
			if !strings.Contains(p.Stderr(), word) {
				return false
			}
		}
		return true
	}) {
		w.Fatalf("it has not said %q: %s%s", words, p.Stdout(), p.Stderr())
	}
}

// TestUsurperOfEnginesAddressUnheard: the engine's DNS goes away, as it does when the engine is
// restarted or has crashed while containers live on. The agent waits for its
// ports, takes them, and answers in its place: everything the engine's rules lead
// there comes to it.
func TestUsurperOfEnginesAddressUnheard(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	l.DNS.SetAddrs("*.cdn.test", "45.30.0.20")
	w := confineIn(t, l, allowlist, lab.BoxOptions{DockerDNS: true})
	const evil = "45.31.29.1"
	w.works("resolve", "before.cdn.test")
	usurper := w.asAgent(w.box, "usurp", "-for", "3m", "127.0.0.11:0", evil)
	w.hasSaid(usurper, "watching")
	must(t, l.DNS.EndEngine())
	w.hasSaid(usurper, "seated udp", "seated tcp")
	w.usurped(usurper, evil)
}

// TestRootUsurpsTheEnginesAddress: in a sidecar's network the agent may be root, as the
// engine is, and no rule tells them apart. The guard knows the engine's sockets.
func TestRootUsurpsTheEnginesAddress(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	l.DNS.SetAddrs("*.cdn.test", "45.30.0.20")
	w := startIn(t, l, allowlist, lab.BoxOptions{DockerDNS: true}, "agent-init", "sidecar", "--user", fmt.Sprint(lab.AgentUID))
	w.mode = "sidecar"
	w.other = l.NewBox(lab.BoxOptions{Share: w.box, Caps: []string{}, NoNewPrivs: true})
	w.other.Idle()
	w.ready()
	w.box.ForgetPackets()
	const evil = "45.31.29.2"
	w.works("resolve", "before.cdn.test")
	usurper := w.other.ExecStart(lab.Cmd{Args: []string{"poke", "usurp", "-for", "3m", "127.0.0.11:0", evil}})
	w.hasSaid(usurper, "watching")
	must(t, l.DNS.EndEngine())
	w.hasSaid(usurper, "seated udp", "seated tcp")
	w.usurped(usurper, evil)
}

// TestAgentsOwnDNSServerUnasked: resolv.conf names servers that are addresses of this
// network namespace, where nobody listens: the agent does.
func TestAgentsOwnDNSServerUnasked(t *testing.T) {
	lab.Require(t)
	const evil, ownAddr = "45.31.30.1", "172.30.0.2" // of a lab's first box
	for _, server := range []string{"127.0.0.53", "::1", "127.0.0.11", "own"} {
		t.Run(server, func(t *testing.T) {
			l := lab.New(t, lab.Options{})
			l.DNS.SetAddrs("*.cdn.test", "45.30.0.20")
			if server == "own" {
				server = ownAddr
			}
			w := confineIn(t, l, allowlist, lab.BoxOptions{Resolv: "nameserver " + lab.Upstream4.String() + "\nnameserver " + server + "\n"})
			if own := w.box.Addr4().String(); own != ownAddr {
				t.Fatalf("proves nothing: the box has %s, not %s", own, ownAddr)
			}
			at := netip.AddrPortFrom(netip.MustParseAddr(server), 53)
			usurper := w.asAgent(w.box, "usurp", "-for", "3m", at.String(), evil)
			w.hasSaid(usurper, "seated udp", "seated tcp")
			// The good server is gone for a while: the agent can see to that.
			l.DNS.Set("*.cdn.test", lab.Answer{Silent: true})
			w.usurped(usurper, evil)
			l.DNS.SetAddrs("*.cdn.test", "45.30.0.20")
			w.works("resolve", "after.cdn.test")
		})
	}
}
