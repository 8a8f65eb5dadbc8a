package rig

import (
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/agent-init/agent-init/internal/lab"
)

// Through is a proxy that does what it is asked for.
func Through(t *testing.T, l *lab.Lab) func(net.Conn, *http.Request) {
	return func(c net.Conn, r *http.Request) {
		to, err := l.Internet.Dial(t.Context(), "tcp", r.Host, netip.AddrPort{})
		if err != nil {
			return
		}
		defer to.Close()
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
		go func() { _, _ = io.Copy(to, c); to.Close() }()
		_, _ = io.Copy(c, to)
	}
}

// Kept is an agent behind a gateway: a container of its own, on a network that leads to nobody else.
type Kept struct {
	*World          // of the gateway
	Agent  *lab.Box // whose root has what Docker gives by default
}

// dockerCaps are those that Docker gives by default.
func dockerCaps() []string {
	return strings.Fields("CHOWN DAC_OVERRIDE FSETID FOWNER MKNOD NET_RAW SETGID SETUID SETFCAP SETPCAP NET_BIND_SERVICE SYS_CHROOT KILL AUDIT_WRITE")
}

// Another is one more agent behind the gateway.
func (k *Kept) Another() *lab.Box {
	k.Helper()
	b := k.Lab.NewBox(lab.BoxOptions{Behind: k.Box, Caps: dockerCaps()})
	b.Idle()
	return b
}

// AsRoot tries one operation as root of the agent's container.
func (k *Kept) AsRoot(args ...string) lab.Poke { return k.Agent.Poke(0, args...) }

func (k *Kept) Works(args ...string) lab.Poke {
	k.Helper()
	p := k.AsRoot(append([]string{"-patient"}, args...)...)
	if !p.OK {
		k.Errorf("does not work: %v: %s", args, p)
	}
	return p
}

func (k *Kept) Blocked(args ...string) lab.Poke {
	k.Helper()
	p := k.AsRoot(args...)
	if p.OK {
		k.Errorf("got through: %v: %s", args, p)
	}
	return p
}
