package lab

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/netns"
)

// embeddedDNS is the address of the resolver of a user-defined network.
var embeddedDNS = netip.MustParseAddr("127.0.0.11")

// startDockerDNS imitates Docker's resolver: it listens within the container's
// network namespace on random ports, behind NAT rules that the engine wrote.
// It knows the lab's names by itself, so a query to it leaves no packet; the
// log says Server 127.0.0.11. It ends with the DNS.
func startDockerDNS(ns *netns.NS, zone *DNS, via string) error {
	pc, err := ns.ListenPacket("udp4", embeddedDNS.String()+":0")
	if err != nil {
		return err
	}
	u := pc.(*net.UDPConn)
	l, err := ns.Listen("tcp4", embeddedDNS.String()+":0")
	if err != nil {
		return errors.Join(err, u.Close())
	}
	zone.serveEmbedded(u, l)
	if err := ns.Do(func() error {
		udp, tcp := addrPort(u.LocalAddr()).Port(), addrPort(l.Addr()).Port()
		if via != "" {
			return dockerRulesVia(via, udp, tcp)
		}
		return dockerRules(udp, tcp)
	}); err != nil {
		return fmt.Errorf("write nat rules: %w", err)
	}
	return nil
}

// serveEmbedded serves a box's sockets until the DNS is closed.
func (d *DNS) serveEmbedded(u *net.UDPConn, l net.Listener) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.embedded = append(d.embedded, u, l)
	d.wait.Go(func() { d.serveUDP(u, embeddedDNS) })
	d.wait.Go(func() { d.serveTCP(l, embeddedDNS) })
}

// EndEngine closes the sockets of the engines' DNS within boxes, as the kernel does
// when an engine ends. Their rules stay.
func (d *DNS) EndEngine() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for _, c := range d.embedded {
		errs = append(errs, c.Close())
	}
	d.embedded = nil
	return errors.Join(errs...)
}

// dockerRulesVia writes these chains as Docker does, by a variant of iptables.
func dockerRulesVia(via string, udp, tcp uint16) error {
	cmd := exec.Command("iptables-"+via+"-restore", "--noflush", "-w")
	cmd.Stdin = strings.NewReader(fmt.Sprintf(`*nat
:DOCKER_OUTPUT - [0:0]
:DOCKER_POSTROUTING - [0:0]
-I OUTPUT -d 127.0.0.11/32 -j DOCKER_OUTPUT
-I POSTROUTING -d 127.0.0.11/32 -j DOCKER_POSTROUTING
-A DOCKER_OUTPUT -d 127.0.0.11/32 -p tcp -m tcp --dport 53 -j DNAT --to-destination 127.0.0.11:%[2]d
-A DOCKER_OUTPUT -d 127.0.0.11/32 -p udp -m udp --dport 53 -j DNAT --to-destination 127.0.0.11:%[1]d
-A DOCKER_POSTROUTING -s 127.0.0.11/32 -p tcp -m tcp --sport %[2]d -j SNAT --to-source :53
-A DOCKER_POSTROUTING -s 127.0.0.11/32 -p udp -m udp --sport %[1]d -j SNAT --to-source :53
COMMIT
`, udp, tcp))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", cmd.Path, err, out)
	}
	return nil
}

// dockerRules writes the chains that Docker writes, in the table and under the
// names it uses.
func dockerRules(udp, tcp uint16) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "nat"})
	accept := nftables.ChainPolicyAccept
	base := func(name string, hook *nftables.ChainHook, prio *nftables.ChainPriority) *nftables.Chain {
		return c.AddChain(&nftables.Chain{Table: table, Name: name, Type: nftables.ChainTypeNAT,
			Hooknum: hook, Priority: prio, Policy: &accept})
	}
	output := base("OUTPUT", nftables.ChainHookOutput, nftables.ChainPriorityNATDest)
	post := base("POSTROUTING", nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource)
	dnat := c.AddChain(&nftables.Chain{Table: table, Name: "DOCKER_OUTPUT"})
	snat := c.AddChain(&nftables.Chain{Table: table, Name: "DOCKER_POSTROUTING"})
	rule := func(chain *nftables.Chain, parts ...[]expr.Any) {
		var all []expr.Any
		for _, p := range parts {
			all = append(all, p...)
		}
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: all})
	}
	toEmbedded, fromEmbedded := matchAddr(16), matchAddr(12)
	rule(output, toEmbedded, jump("DOCKER_OUTPUT"))
	rule(post, toEmbedded, jump("DOCKER_POSTROUTING"))
	for _, p := range []struct {
		proto byte
		port  uint16
	}{{unix.IPPROTO_TCP, tcp}, {unix.IPPROTO_UDP, udp}} {
		rule(dnat, toEmbedded, matchPort(p.proto, 2, 53), []expr.Any{
			&expr.Immediate{Register: 1, Data: embeddedDNS.AsSlice()},
			&expr.Immediate{Register: 2, Data: binaryutil.BigEndian.PutUint16(p.port)},
			&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 1, RegProtoMin: 2, Specified: true}})
		rule(snat, fromEmbedded, matchPort(p.proto, 0, p.port), []expr.Any{
			&expr.Immediate{Register: 1, Data: binaryutil.BigEndian.PutUint16(53)},
			&expr.NAT{Type: expr.NATTypeSourceNAT, Family: unix.NFPROTO_IPV4, RegProtoMin: 1, Specified: true}})
	}
	return c.Flush()
}

// matchAddr matches the embedded resolver at an offset of the IPv4 header.
func matchAddr(offset uint32) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: 4},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: embeddedDNS.AsSlice()},
	}
}

// matchPort matches a protocol and a port at an offset of its header.
func matchPort(proto byte, offset uint32, port uint16) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{proto}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binary.BigEndian.AppendUint16(nil, port)},
	}
}

func jump(chain string) []expr.Any {
	return []expr.Any{&expr.Verdict{Kind: expr.VerdictJump, Chain: chain}}
}
