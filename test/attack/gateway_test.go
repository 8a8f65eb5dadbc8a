package attack

import (
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab"
)

// kept is an agent behind a gateway: a container of its own, on a network that leads to nobody else.
type kept struct {
	*world          // of the gateway
	agent  *lab.Box // whose root has what Docker gives by default
}

// dockerCaps are those that Docker gives by default.
func dockerCaps() []string {
	return strings.Fields("CHOWN DAC_OVERRIDE FSETID FOWNER MKNOD NET_RAW SETGID SETUID SETFCAP SETPCAP NET_BIND_SERVICE SYS_CHROOT KILL AUDIT_WRITE")
}

// behind starts a gateway and an agent behind it.
func behind(t *testing.T, list string, flags ...string) *kept {
	t.Helper()
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	args := append([]string{"agent-init", "gateway", "--inside", "eth1"}, flags...)
	w := startIn(t, l, list, lab.BoxOptions{Gateway: true, Forwards: true}, args...)
	w.ready()
	k := &kept{world: w}
	k.agent = k.another()
	w.box.ForgetPackets()
	l.DNS.Forget()
	l.ForgetConns()
	return k
}

// another is one more agent behind the gateway.
func (k *kept) another() *lab.Box {
	k.Helper()
	b := k.lab.NewBox(lab.BoxOptions{Behind: k.box, Caps: dockerCaps()})
	b.Idle()
	return b
}

// asRoot tries one operation as root of the agent's container.
func (k *kept) asRoot(args ...string) lab.Poke { return k.agent.Poke(0, args...) }

func (k *kept) works(args ...string) lab.Poke {
	k.Helper()
	p := k.asRoot(append([]string{"-patient"}, args...)...)
	if !p.OK {
		k.Errorf("does not work: %v: %s", args, p)
	}
	return p
}

func (k *kept) blocked(args ...string) lab.Poke {
	k.Helper()
	p := k.asRoot(args...)
	if p.OK {
		k.Errorf("got through: %v: %s", args, p)
	}
	return p
}

// TestLabGateway is the promise of a gateway in one test.
func TestLabGateway(t *testing.T) {
	k := behind(t, allowlist)
	k.lab.DNS.SetAddrs("a.cdn.test", "45.30.0.20", "2a0f:30::20")
	k.works("http", "https://ok.test/")
	k.works("http", "http://a.cdn.test/")
	k.works("tcp", "-send", "hello", "45.30.9.9:8443")
	evil4, evil6 := named("evil.test")
	for _, target := range []string{at(evil4, 443), at(evil6, 443), "1.1.1.1:443", "169.254.169.254:80"} {
		if p := k.blocked("tcp", target); !refusedAtOnce(p.Errno) {
			t.Errorf("%s: not refused at once: %s", target, p)
		}
	}
	k.blocked("resolve", "evil.test")
	k.unasked("evil.test")
	k.sealed(lab.ToAddr(evil4.String()))
	k.sealed(lab.ToAddr(evil6.String()))
	k.sealed(lab.ToAddr("1.1.1.1"))
	k.audited("the denied name", func(e event) bool { return e.Kind == "dns" && e.Verdict == "deny" && e.Name == "evil.test" })
	k.audited("the refused packet", func(e event) bool { return e.Kind == "drop" && e.IP == "1.1.1.1" && e.Port == 443 })
	if s, code := k.status(); code != 0 {
		t.Errorf("not healthy: %v", s["why"])
	}
}
