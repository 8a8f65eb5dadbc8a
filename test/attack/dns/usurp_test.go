package dns

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// usurped is what is shared by the attacks below: the agent has become the DNS
// server at an address of this network namespace, and says that names below
// cdn.test are at an address of its own. Whether anybody asks it is no matter; the
// guard must not believe it.
func usurped(w *rig.World, usurper *lab.Process, evil string) {
	w.Helper()
	for i := range 2 {
		name := fmt.Sprintf("n%d.cdn.test", i)
		if p := w.Poke("resolve", name); p.OK && strings.Contains(fmt.Sprint(p.Detail["addrs"]), evil) {
			w.Errorf("%s has the address %v: the agent has answered", name, p.Detail["addrs"])
			w.Poke("http", "-insecure", "-timeout", "2s", "-addr", evil+":443", "https://"+name+"/")
			break
		}
	}
	rig.Must(w.T, usurper.Signal(unix.SIGKILL))
	usurper.Wait(0)
	w.Sealed(lab.ToAddr(evil))
}

// TestUsurperOfEnginesAddressUnheard: the engine's DNS goes away, as it does when the engine is
// restarted or has crashed while containers live on. The agent waits for its
// ports, takes them, and answers in its place: everything the engine's rules lead
// there comes to it.
func TestUsurperOfEnginesAddressUnheard(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	l.DNS.SetAddrs("*.cdn.test", "45.30.0.20")
	w := rig.ConfineIn(t, l, rig.Allowlist, lab.BoxOptions{DockerDNS: true})
	const evil = "45.31.29.1"
	w.Works("resolve", "before.cdn.test")
	usurper := w.AsAgent(w.Box, "usurp", "-for", "3m", "127.0.0.11:0", evil)
	w.HasSaid(usurper, "watching")
	rig.Must(t, l.DNS.EndEngine())
	w.HasSaid(usurper, "seated udp", "seated tcp")
	usurped(w, usurper, evil)
}

// TestRootUsurpsTheEnginesAddress: in a sidecar's network the agent may be root, as the
// engine is, and no rule tells them apart. The guard knows the engine's sockets.
func TestRootUsurpsTheEnginesAddress(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	l.DNS.SetAddrs("*.cdn.test", "45.30.0.20")
	w := rig.StartIn(t, l, rig.Allowlist, lab.BoxOptions{DockerDNS: true}, "agent-init", "sidecar", "--user", fmt.Sprint(lab.AgentUID))
	w.Mode = "sidecar"
	w.Other = l.NewBox(lab.BoxOptions{Share: w.Box, Caps: []string{}, NoNewPrivs: true})
	w.Other.Idle()
	w.Ready()
	w.Box.ForgetPackets()
	const evil = "45.31.29.2"
	w.Works("resolve", "before.cdn.test")
	usurper := w.Other.ExecStart(lab.Cmd{Args: []string{"poke", "usurp", "-for", "3m", "127.0.0.11:0", evil}})
	w.HasSaid(usurper, "watching")
	rig.Must(t, l.DNS.EndEngine())
	w.HasSaid(usurper, "seated udp", "seated tcp")
	usurped(w, usurper, evil)
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
			w := rig.ConfineIn(t, l, rig.Allowlist, lab.BoxOptions{Resolv: "nameserver " + lab.Upstream4.String() + "\nnameserver " + server + "\n"})
			if own := w.Box.Addr4().String(); own != ownAddr {
				t.Fatalf("proves nothing: the box has %s, not %s", own, ownAddr)
			}
			at := netip.AddrPortFrom(netip.MustParseAddr(server), 53)
			usurper := w.AsAgent(w.Box, "usurp", "-for", "3m", at.String(), evil)
			w.HasSaid(usurper, "seated udp", "seated tcp")
			// The good server is gone for a while: the agent can see to that.
			l.DNS.Set("*.cdn.test", lab.Answer{Silent: true})
			usurped(w, usurper, evil)
			l.DNS.SetAddrs("*.cdn.test", "45.30.0.20")
			w.Works("resolve", "after.cdn.test")
		})
	}
}
