package plan

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Entry is a set of destinations: the addresses of Prefix, on one port of one IP protocol. In Config.Deny, Proto 0
// stands for every protocol and Port 0 for every port. In Config.Inbound, Prefix is unset.
type Entry struct {
	Prefix netip.Prefix
	Proto  uint8
	Port   uint16
}

// Grant is an Entry of Config.Allow for a time.
type Grant struct {
	Entry
	Until time.Time
}

func (c Config) checkGuard() error {
	switch {
	case c.GuardUID == 0:
		return errors.New("the guard needs a uid of its own, not 0")
	case c.GuardGID == 0 && !c.AnyGroup:
		return errors.New("the guard needs a group of its own, not 0")
	case c.GuardGID != 0 && c.AnyGroup:
		return errors.New("the guard has a group, and any is to count")
	}
	return nil
}

// Config is what New computes a Plan from.
type Config struct {
	// Sealed refuses everything but loopback; of the other fields, only DropGroup and Reduced count.
	Sealed  bool
	Reduced bool // for gVisor's kernel: see reduced.go

	// Local are the addresses of this namespace, each with its network: in a
	// Reduced plan, packets to these stay here. Others ignore it.
	Local []netip.Prefix

	// Era numbers the time in which a TCP flow of the agent's, or to it, goes on: one that began in another era ends,
	// whatever its address is by now. 0: there is one era.
	Era uint32

	AgentUID uint32 // nothing that the agent sends is the answer of a DNS server

	// AnyAgent says that the agent may have any uid, 0 too, as in a network that containers share. Then the rules can't
	// tell who answers for the engine's DNS server: whoever asks it has to.
	AnyAgent bool

	// EngineUID is what the machine's root is seen as where this user namespace has no number for it, beside 0: an
	// engine that maps its containers' root elsewhere passes questions on under that (see Forwarded). 0 is none.
	EngineUID uint32

	// GuardUID and GuardGID are the user and the group that the guard makes its sockets as; only a socket of both may
	// reach Upstreams, or go on from the gate. They must not be 0. A uid can be had by others who share this network; a
	// group that is drawn at random is known to them only if they are told.
	GuardUID, GuardGID uint32

	// AnyGroup has the guard known by GuardUID alone, for user namespaces that have
	// no group to spare. GuardGID must then be 0. Nothing implies it.
	AnyGroup bool

	// BrokerUID and BrokerGID are those of the broker, in the same way: only a socket of both may reach what is leased
	// to it, and reaches nothing else. 0: there is none. With AnyGroup, BrokerGID must be 0.
	BrokerUID, BrokerGID uint32

	// BrokerPort4 and BrokerPort6 are the ports on 127.0.0.1 and ::1 where the broker answers; 0: it does not.
	BrokerPort4, BrokerPort6 uint16

	// BrokerAllow may be reached by the broker, besides what is leased to it, over TCP; BrokerDeny never. Of Allow and
	// Deny, neither counts for it.
	BrokerAllow, BrokerDeny []Entry

	// GuardZone has the flows that the guard begins tracked apart from all others, so that nothing the agent sends can
	// be part of one; and those of the broker likewise. It needs Firewall.Zones.
	GuardZone bool

	// DNSPort4 and DNSPort6 are the ports on 127.0.0.1 and ::1 where the guard answers
	// DNS: port 53 of any address is redirected there, or refused where nothing listens (0).
	DNSPort4, DNSPort6 uint16

	// GatePort4 and GatePort6 are the ports on 127.0.0.1 and ::1 where the guard looks at the names inside connections:
	// what is leased as Gated or Inspected is redirected there, unless it is of Allow. 0 refuses it.
	GatePort4, GatePort6 uint16

	Relayed   []uint16         // of a Reduced plan, which has no leases: the TCP ports that are redirected there
	Upstreams []netip.AddrPort // the DNS servers of the guard, over UDP and TCP

	// Here are those of Upstreams that may be addresses of this namespace, besides the engine's: no process but the
	// agent's is kept from answering there. With AnyAgent there can be none.
	Here []netip.AddrPort

	Allow, Deny []Entry // Allow may be reached by everyone; Deny by no one, whatever else says. But see BrokerAllow

	// Granted may be reached by everyone until their time comes, which is the
	// kernel's to keep: what is under way then ends as well.
	Granted []Grant

	// Observe lets out over TCP and UDP what no rule allows, and logs its first packet with ObservedPrefix: to see what
	// Allow lacks. Deny holds, and so does all that is not about addresses. Nothing implies it.
	Observe bool

	Inside Inside // the agents' network, of a gateway

	Inbound   []Entry // the ports that may be connected to from outside
	DropGroup uint16  // the NFLOG group that gets what is refused; 0 means none
}

// Element is one destination: an address, an IP protocol number (6 or 17, and 6 alone where it is redirected) and a
// port. What one holder may reach, no other may for that.
type Element struct {
	Addr  netip.Addr
	Proto uint8
	Port  uint16
	For   Holder
}

// String returns, for example, "tcp 192.0.2.1:443".
func (e Element) String() string {
	out := fmt.Sprintf("%s %s", protoName(e.Proto), netip.AddrPortFrom(e.Addr, e.Port))
	if e.For != Agent {
		out += " for the " + e.For.String()
	}
	return out
}

// Lease is an Element that may be reached for TTL from now on. The kernel
// counts in milliseconds; TTL is rounded up to at least a second.
type Lease struct {
	Element
	TTL time.Duration
}

// Clean returns e as the kernel knows it, or an error if e can't be leased.
func (e Element) Clean() (Element, error) {
	e.Addr = e.Addr.Unmap().WithZone("")
	if !e.Addr.IsValid() || e.Port == 0 || !hasPorts(e.Proto) || e.For > Broker || e.Proto != unix.IPPROTO_TCP && slices.Contains(redirectedTo(), e.For) {
		return e, fmt.Errorf("%v: want an address, tcp or udp, a port, and a holder who takes it", e)
	}
	return e, nil
}
