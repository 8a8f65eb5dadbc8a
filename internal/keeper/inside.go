package keeper

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/state"
	"github.com/agent-init/agent-init/pkg/firewall"
)

// Gateway is what a start as a gateway is told. It is nil in any other.
type Gateway struct {
	Inside []string // interfaces or networks
	Answer string   // names are answered with: real addresses, or the gateway's own
}

// AnswerWords are what Gateway.Answer may be.
func AnswerWords() []string { return []string{"real", "own"} }

// inside is where a gateway's agents are.
type inside struct {
	name     string // of the interface
	link     int
	networks []netip.Prefix
	own      []netip.Addr // of the gateway there: one of each family at most
	onward   bool         // packets are forwarded; else names are answered with own
	shared   bool         // the way out is by the same interface
	caveats  []string
}

// findInside looks for the network of a gateway's agents. It is nil where this is no gateway.
func (b *base) findInside() (*inside, error) {
	if b.config.Gateway == nil {
		return nil, nil
	}
	links, err := linksHere()
	if err != nil {
		return nil, fault.New(fault.Rules, "let netlink sockets be opened in the container (socket(2), AF_NETLINK)", "list this container's interfaces: %w", err)
	}
	in, err := insideOf(links, b.config.Gateway.Inside)
	if err != nil {
		return nil, fault.New(fault.Usage, "name the agents' interface or network: agent-init gateway --inside 172.30.5.0/24", "--inside: %w; there are %s", err, described(links))
	}
	outs, err := firewall.WaysOut()
	if err == nil {
		err = b.wayFrom(in, outs)
	}
	if err != nil {
		return nil, err
	}
	if in.caveats, err = forwardable(in); err != nil {
		return nil, err
	}
	b.update(func(s *state.State) {
		s.Gateway = &state.Gateway{Interface: in.name, Networks: in.networks, Addresses: in.own, Answer: b.config.Gateway.Answer}
	})
	return in, nil
}

// wayFrom finds how agents that are behind in get out, where default routes lead by outs.
func (b *base) wayFrom(in *inside, outs []int) error {
	in.onward, in.shared = b.config.Gateway.Answer != "own", slices.Contains(outs, in.link)
	switch {
	case in.onward && in.shared:
		return fault.New(fault.Usage, "give the gateway a second network for its way out, or use --answer own", "the agents' interface, %s, is this container's way out as well", in.name)
	case !in.onward && b.config.Monitor:
		return fault.New(fault.Usage, "leave --answer own out, and make the gateway the agents' route", "--mode monitor lets addresses through, and with --answer own there is no way for them")
	}
	return nil
}

// link is an interface with its addresses.
type link struct {
	name  string
	index int
	addrs []netip.Prefix
}

func linksHere() (out []link, err error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	for _, i := range all {
		if i.Flags&net.FlagLoopback != 0 {
			continue
		}
		addrs, err := i.Addrs()
		if err != nil {
			return nil, err
		}
		l := link{name: i.Name, index: i.Index}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil && !p.Addr().IsLinkLocalUnicast() {
				l.addrs = append(l.addrs, p)
			}
		}
		out = append(out, l)
	}
	return out, nil
}

func described(links []link) string {
	var out []string
	for _, l := range links {
		out = append(out, fmt.Sprintf("%s with %v", l.name, l.addrs))
	}
	return strings.Join(out, "; ")
}

// insideOf finds the one interface that words lead to, and the agents' networks behind it: all of an interface's, or
// those that are named.
func insideOf(links []link, words []string) (*inside, error) {
	var in *inside
	for _, word := range words {
		l, networks, err := network(links, word)
		switch {
		case err != nil:
			return nil, err
		case in == nil:
			in = &inside{name: l.name, link: l.index}
		case in.link != l.index:
			return nil, fmt.Errorf("%s and %s are behind two interfaces, and a gateway has the agents of one", in.name, l.name)
		}
		in.networks = append(in.networks, networks...)
		for _, a := range l.addrs {
			in.answerAt(a.Addr())
		}
	}
	if in == nil {
		return nil, errors.New("nothing is named")
	}
	slices.SortFunc(in.networks, func(a, b netip.Prefix) int { return strings.Compare(a.String(), b.String()) })
	in.networks = slices.Compact(in.networks)
	return in, nil
}

// answerAt takes an address of the gateway's, if it is the first of its family in the agents' networks.
func (in *inside) answerAt(a netip.Addr) {
	among := slices.ContainsFunc(in.networks, func(p netip.Prefix) bool { return p.Contains(a) })
	if among && !slices.ContainsFunc(in.own, func(o netip.Addr) bool { return o.Is4() == a.Is4() }) {
		in.own = append(in.own, a)
	}
}

// network is the interface that word names, or that has an address in it, and the agents' networks there.
func network(links []link, word string) (l link, networks []netip.Prefix, err error) {
	p, perr := netip.ParsePrefix(word)
	for _, l := range links {
		switch {
		case perr == nil && slices.ContainsFunc(l.addrs, func(a netip.Prefix) bool { return p.Contains(a.Addr()) }):
			return l, []netip.Prefix{p.Masked()}, nil
		case perr != nil && l.name == word && len(l.addrs) == 0:
			return l, nil, fmt.Errorf("%s has no address", word)
		case perr != nil && l.name == word:
			for _, a := range l.addrs {
				networks = append(networks, a.Masked())
			}
			return l, networks, nil
		}
	}
	if perr == nil {
		return l, nil, fmt.Errorf("no interface has an address in %s", word)
	}
	return l, nil, fmt.Errorf("there is no interface %s", word)
}

// What has the kernel forward packets, of each family (ip-sysctl.rst).
const (
	forward4 = "/proc/sys/net/ipv4/ip_forward"
	forward6 = "/proc/sys/net/ipv6/conf/all/forwarding"
)

// forwardable says what is wrong if the kernel forwards nothing and can't be made to, and what is less than it could be.
func forwardable(in *inside) (caveats []string, err error) {
	data, err := os.ReadFile(forward4)
	if err != nil {
		return nil, err
	}
	if strings.TrimSpace(string(data)) == "1" {
		caveats = append(caveats, "between the start of this container and its sealing the kernel would have forwarded: net.ipv4.ip_forward was 1 already")
	} else if err := unix.Access(forward4, unix.W_OK); err != nil && in.onward {
		return nil, fault.New(fault.Rules, "start the container with the sysctl net.ipv4.ip_forward=1 (docker: --sysctl; compose: sysctls)",
			"the kernel forwards nothing here, and agent-init can't have it do so: %s: %w", forward4, err)
	}
	if !in.has6() || !in.onward {
		return caveats, nil
	}
	data, err = os.ReadFile(forward6)
	if err == nil && strings.TrimSpace(string(data)) != "1" && unix.Access(forward6, unix.W_OK) != nil {
		caveats = append(caveats, "the agents reach nothing by an IPv6 address: the container was started without the sysctl net.ipv6.conf.all.forwarding=1")
	}
	return caveats, nil
}

func (in *inside) has6() bool {
	return slices.ContainsFunc(in.networks, func(p netip.Prefix) bool { return p.Addr().Is6() })
}

// forward has the kernel forward packets, by rules that are in force.
func (in *inside) forward() error {
	if in == nil || !in.onward {
		return nil
	}
	files := []string{forward4}
	if in.has6() {
		files = append(files, forward6)
	}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err == nil && strings.TrimSpace(string(data)) != "1" {
			err = os.WriteFile(f, []byte("1"), 0)
		}
		if err != nil && (f == forward4 || !errors.Is(err, fs.ErrPermission) && !errors.Is(err, unix.EROFS) && !errors.Is(err, fs.ErrNotExist)) {
			return fault.New(fault.Rules, "start the container with the sysctl net.ipv4.ip_forward=1 (docker: --sysctl; compose: sysctls)", "have the kernel forward: %w", err)
		}
	}
	return nil
}

// plan is what the rules know of it, where the gateway answers at these places.
func (in *inside) plan(dns, gate, broker []netip.AddrPort) firewall.Inside {
	if in == nil {
		return firewall.Inside{}
	}
	return firewall.Inside{Link: uint32(in.link), Networks: in.networks, DNS: dns, Gate: gate, Broker: broker, Onward: in.onward, Shared: in.shared}
}

// answers are what agents' questions are answered with; none: with what was found.
func (in *inside) answers() []netip.Addr {
	if in == nil || in.onward {
		return nil
	}
	return in.own
}

// has says whether an address is in the networks of a gateway's agents.
func (in *inside) has(host string) bool {
	a, err := netip.ParseAddr(host)
	return err == nil && in != nil && slices.ContainsFunc(in.networks, func(n netip.Prefix) bool { return n.Contains(a.Unmap()) })
}

// hosts are where the gateway answers its agents; none if this is no gateway.
func (in *inside) hosts() (out []string) {
	if in != nil {
		for _, a := range in.own {
			out = append(out, a.String())
		}
	}
	return out
}
