package probe

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/agent-init/agent-init/pkg/selftest"
)

// gate passes a connection on if the name inside is right, and refuses it as the wall does.
func gate(serve *tls.Config, right func(string) bool) func(net.Conn) {
	return func(c net.Conn) {
		wrong := false
		config := serve.Clone()
		config.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			if wrong = !right(h.ServerName); wrong {
				return nil, errors.New("refused")
			}
			return nil, nil
		}
		tls.Server(&muted{Conn: c, mute: &wrong}, config).Handshake()
		if wrong {
			io.WriteString(c, deniedHere)
		}
	}
}

// muted keeps back what the library would say of a refusal.
type muted struct {
	net.Conn
	mute *bool
}

func (c *muted) Write(b []byte) (int, error) {
	if *c.mute {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// Behind a gateway, each of its own services is found, and a gate that minds addresses alone; and nothing of this
// process's privileges is tried.
func TestKernelBehindGateway(t *testing.T) {
	ca := newAuthority(t)
	serve := ca.issue(t, requiredName, time.Now().Add(time.Hour))
	gateway := netip.MustParseAddr("127.0.0.2")
	p := testPlan()
	p.Gateways, p.Reach = []netip.Addr{gateway}, []selftest.Target{{Name: requiredName, Port: 443, TLS: true}, {Name: requiredAddr, Port: 443}}
	newWorld(t, p)
	serveGuard(t, p)
	for _, network := range []string{"udp", "tcp"} {
		serveDNS(t, network, netip.AddrPortFrom(gateway, 53), asGuard)
	}
	trust := ca.env(t)
	prove := func(want ...string) {
		t.Helper()
		r := runChild(t, p, nobody, trust)
		wantFailed(t, r, want...)
		for _, c := range r.Checks {
			if c.Name == "raw-socket" || c.Name == "become-root" {
				t.Errorf("tried: %+v", c)
			}
		}
	}
	prove("reach "+requiredName+":443", "reach "+requiredAddr+":443") // where nothing works, nothing is proved
	at := netip.AddrPortFrom(netip.MustParseAddr(requiredAddr), 443)
	stop := listenTCP(t, at, gate(serve, func(name string) bool { return name == requiredName }))
	prove()
	var services []string
	var stops []func()
	for _, port := range gatewayPorts() {
		service := netip.AddrPortFrom(gateway, port)
		services = append(services, "gateway "+service.String())
		stops = append(stops, listenTCP(t, service, func(c net.Conn) { io.WriteString(c, "SSH-2.0-x\r\n") }))
	}
	quic := netip.AddrPortFrom(gateway, 443)
	stops = append(stops, listenUDP(t, quic, asQUIC))
	prove(append(services, "gateway "+quic.String()+"/udp")...)
	for _, stop := range stops {
		stop()
	}
	// The gate of a gateway that answers with its own address refuses there as well.
	stopGate := listenTCP(t, quic, gate(serve, func(string) bool { return false }))
	prove()
	stopGate()
	stop()
	listenTCP(t, at, gate(serve, func(string) bool { return true }))
	prove("other-name " + deniedName + " at " + requiredName + ":443")
}
