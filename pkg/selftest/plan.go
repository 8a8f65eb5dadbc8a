// Package selftest proves from the agent's side that what must be blocked is blocked and that what must be reachable
// is. It runs as a child process with exactly the agent's credentials, which the caller arranges, and sees the wall
// only as the agent does: by running into it. It knows nothing of how the wall is built, and shares no code with it,
// since shared code would share its blind spots.
//
// What is tried, and the name of the check:
//
//	dns-system   a denied name, asked of each server in resolv.conf (UDP: A, TCP: AAAA)
//	dns-direct   the same, asked of public resolvers whose address is built in
//	denied-name  a denied name end to end: resolved as programs do (hosts file too), then connected to
//	tcp          a TCP connection to a public resolver's HTTPS, HTTP, DoT and a high port
//	udp          a datagram that any QUIC server answers, to port 443
//	ping         an ICMP echo through a datagram socket, which needs no privilege
//	metadata     a TCP connection to the cloud's metadata services
//	raw-socket, packet-socket, vsock-socket
//	             the socket families that a packet filter does not see whole, or at all
//	net-admin    a packet mark, as proof that CAP_NET_ADMIN is absent
//	become-root  a change to uid 0
//	other-network
//	             a process of another network that the agent may look into
//	block        what the policy adds to the above
//	inspected    a request that no rule allows, to a name that the broker looks into
//	gateway      a denied name, asked for at a gateway's own addresses over TLS and HTTP, and whether it has other services
//	other-name   a denied name, asked for at the addresses of a name that must be reachable
//	required     resolved, connected to, and on 443 a verified TLS handshake
//	reach        what the policy adds to that
//
// A refusal from afar looks like one from nearby, so tcp and udp use addresses and ports that are known to answer
// wherever the way to them is open. No answer in time counts as blocked; other doubt counts as failed.
package selftest

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"
)

// Time is how long the probes may take together.
const Time = time.Minute

// Plan says what to try. It travels to the child as JSON. The caller takes out what its policy allows.
type Plan struct {
	Denied   []string         `json:"denied"`             // names that exist, and that the policy doesn't allow
	System   []netip.AddrPort `json:"system,omitempty"`   // DNS servers as programs use them; empty: those of resolv.conf
	DNS      []netip.AddrPort `json:"dns"`                // DNS servers to ask for the denied names
	TCP      []netip.AddrPort `json:"tcp"`                // must refuse a connection
	UDP      []netip.AddrPort `json:"udp"`                // must not answer a QUIC packet
	Ping     []netip.Addr     `json:"ping"`               // must not answer an echo request
	Metadata []netip.AddrPort `json:"metadata"`           // must refuse a connection
	Block    []Target         `json:"block,omitempty"`    // must refuse a connection, or not resolve
	Required []Target         `json:"required,omitempty"` // must be reachable
	Reach    []Target         `json:"reach,omitempty"`    // must be reachable

	// Inspected are asked, over TLS, what no rule allows: a request of Method for /. A certificate that Authority, as DER, has
	// signed must be shown, and the answer be a refusal.
	Inspected []Target `json:"inspected,omitempty"`
	Authority [][]byte `json:"authority,omitempty"`

	// Observed says that all is let through and logged: the plan needs no denied names, nor DNS, TCP and UDP servers.
	Observed bool `json:"observed,omitempty"`

	// Gateways are the addresses of a wall that is in another container. Then what is tried besides is what that serves, and
	// what is not tried is what this process is privileged to: it may be root.
	Gateways []netip.Addr `json:"gateways,omitempty"`

	// Relayed are TCP ports on which the wall itself may accept a connection before it refuses to pass it on. To these,
	// tcp, metadata and block say what a client of TLS or HTTP says, and must get no answer but the wall's own refusal.
	Relayed []uint16 `json:"relayed,omitempty"`

	BlockTimeout time.Duration `json:"block_timeout,omitempty"` // for an answer to what must be blocked; 0: 1 s
	ReachTimeout time.Duration `json:"reach_timeout,omitempty"` // for each of two tries at what must be reachable; 0: 10 s
}

// Method is one that no server has, and no rule names. The log cuts what is longer than 16 bytes.
const Method = "AGENT-INIT-TEST"

// Target is one end of a TCP connection.
type Target struct {
	Name string `json:"name"` // a DNS name or an address
	Port uint16 `json:"port"`
	TLS  bool   `json:"tls,omitempty"` // shake hands and verify the certificate
}

// String returns the target as host:port.
func (t Target) String() string { return net.JoinHostPort(t.Name, strconv.Itoa(int(t.Port))) }

// DefaultPlan returns the standard plan, with denied names and nothing that is required. It covers IPv4 and IPv6;
// where a family has no route its checks say so.
func DefaultPlan(denied ...string) Plan {
	p := Plan{Denied: denied}
	// Cloudflare, Google and Quad9; Cloudflare and Google
	for _, s := range []string{"1.1.1.1", "8.8.8.8", "9.9.9.9", "2606:4700:4700::1111", "2001:4860:4860::8888"} {
		a := netip.MustParseAddr(s)
		p.DNS = append(p.DNS, netip.AddrPortFrom(a, 53))
		for _, port := range []uint16{443, 80, 853, 8443} {
			p.TCP = append(p.TCP, netip.AddrPortFrom(a, port))
		}
		p.UDP = append(p.UDP, netip.AddrPortFrom(a, 443))
		p.Ping = append(p.Ping, a)
	}
	// AWS, Azure, Google Cloud and others; AWS container credentials; Azure's host; AWS
	for _, s := range []string{"169.254.169.254", "169.254.170.2", "168.63.129.16", "fd00:ec2::254"} {
		p.Metadata = append(p.Metadata, netip.AddrPortFrom(netip.MustParseAddr(s), 80))
	}
	return p
}

// GatewayPlan returns the standard plan for an agent of a gateway's. Allowed says what the policy allows of names and
// addresses: that is not among what must be blocked.
func GatewayPlan(gateways []netip.Addr, reach []Target, allowed func(string) bool) Plan {
	var denied []string
	for _, name := range NotAllowed() {
		if !allowed(name) {
			denied = append(denied, name)
		}
	}
	p := DefaultPlan(denied...)
	allowedAt := func(a netip.AddrPort) bool { return allowed(a.Addr().String()) }
	p.TCP, p.UDP = slices.DeleteFunc(p.TCP, allowedAt), slices.DeleteFunc(p.UDP, allowedAt)
	p.Ping = slices.DeleteFunc(p.Ping, func(a netip.Addr) bool { return allowed(a.String()) })
	p.Gateways, p.Reach = gateways, reach
	return p
}

// NotAllowed are names that surely exist and that a policy seldom allows.
func NotAllowed() []string {
	return []string{"example.com", "example.net", "example.org", "www.iana.org"}
}

// Missing names what a plan can't do without: a self-test that tries nothing would pass anywhere.
func (p Plan) Missing() []string {
	var m []string
	need := func(what string, count int) {
		if count == 0 {
			m = append(m, what)
		}
	}
	if !p.Observed {
		need("denied names", len(p.Denied))
		need("DNS servers", len(p.DNS))
		need("TCP addresses", len(p.TCP))
		need("UDP addresses", len(p.UDP))
	}
	need("addresses to ping", len(p.Ping))
	need("metadata addresses", len(p.Metadata))
	if len(p.Gateways) > 0 {
		need("names to reach", len(p.Reach))
	}
	return m
}

// Answered says whether r has a check for each thing that p names, with the outcome that p wants of it. What only the
// child can know (the servers of its resolv.conf, its privileges) is in r besides.
func (p Plan) Answered(r Report) error {
	type tried struct{ name, target, want string }
	done := make(map[tried]bool, len(r.Checks))
	for _, c := range r.Checks {
		done[tried{c.Name, Clean(c.Target), c.Want}] = true
	}
	var missing []string
	must := func(name, want string, targets ...string) {
		for _, t := range targets {
			if !done[tried{name, Clean(t), want}] {
				missing = append(missing, name+" "+t)
			}
		}
	}
	for _, name := range p.Denied {
		must("denied-name", Blocked, Target{Name: name, Port: 443}.String())
		for _, s := range p.DNS {
			must("dns-direct", Blocked, s.String()+"/udp", s.String()+"/tcp")
		}
	}
	must("tcp", Blocked, written(p.TCP)...)
	must("udp", Blocked, written(p.UDP)...)
	must("ping", Blocked, written(p.Ping)...)
	must("metadata", Blocked, written(p.Metadata)...)
	must("block", Blocked, written(p.Block)...)
	must("inspected", Blocked, written(p.Inspected)...)
	must("required", Reachable, written(p.Required)...)
	must("reach", Reachable, written(p.Reach)...)
	if len(missing) > 0 {
		return fmt.Errorf("its report does not answer %d checks of the plan: %s", len(missing), missing[0])
	}
	return nil
}

func written[T fmt.Stringer](of []T) (out []string) {
	for _, t := range of {
		out = append(out, t.String())
	}
	return out
}
