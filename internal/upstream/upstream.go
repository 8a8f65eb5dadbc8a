// Package upstream says which DNS servers the guard may ask: the policy's, or resolv.conf's that are not the agent.
package upstream

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/sockowner"
)

// Conf is what resolv.conf(5) says that matters to a forwarder.
type Conf struct {
	Servers    []netip.AddrPort
	Search     []string
	PassedOver []string // servers that are not asked, and why
}

// Of are the servers that p names, else those of resolv.conf.
func Of(p *policy.Policy, resolv []netip.AddrPort) ([]policy.Upstream, error) {
	var out []policy.Upstream
	for _, s := range p.Settings.DNS.Upstream {
		u, err := policy.ParseUpstream(s)
		if err != nil {
			return nil, fault.New(fault.Policy, "correct dns.upstream in policy.yaml", "dns.upstream: %w", err)
		}
		out = append(out, u)
	}
	if len(out) == 0 {
		for _, a := range resolv {
			out = append(out, policy.Upstream{Addr: a})
		}
	}
	return out, nil
}

// ReadConf reads the file if only root can have written it: it says whom the guard may ask.
func ReadConf(path string) (Conf, error) {
	f, err := os.Open(path)
	if err != nil {
		return Conf{}, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return Conf{}, err
	}
	if st.Uid != 0 || st.Mode&0o022 != 0 {
		return Conf{}, fmt.Errorf("%s can be written by others than root", path)
	}
	return parseResolvConf(io.LimitReader(f, 64<<10))
}

func parseResolvConf(r io.Reader) (Conf, error) {
	var c Conf
	sc := bufio.NewScanner(r)
	for sc.Scan() {
		fields := strings.Fields(sc.Text())
		if len(fields) < 2 {
			continue
		}
		switch fields[0] {
		case "nameserver":
			// A zone (fe80::1%eth0) stays: without it, a link-local server can't be reached.
			a, err := netip.ParseAddr(fields[1])
			if err != nil {
				continue
			}
			if s := netip.AddrPortFrom(a.Unmap(), 53); !slices.Contains(c.Servers, s) {
				c.Servers = append(c.Servers, s)
			}
		case "domain", "search":
			c.Search = nil // resolv.conf(5): the last instance wins
			for _, d := range fields[1:] {
				if d = strings.ToLower(strings.Trim(d, ".")); d != "" {
					c.Search = append(c.Search, d)
				}
			}
		}
	}
	return c, sc.Err()
}

// PassOver moves servers that are addresses of this namespace to PassedOver. Engine says
// why the engine's is one of them, empty if it is not.
func (c *Conf) PassOver(own map[netip.Addr]bool, engine string) {
	var kept []netip.AddrPort
	for _, s := range c.Servers {
		a, why := s.Addr().Unmap().WithZone(""), ""
		switch {
		case a == policy.EngineDNS():
			why = engine
		case a.IsLoopback() || a.IsUnspecified() || own[a]:
			why = "it is this container itself, where the agent can listen too"
		}
		if why == "" {
			kept = append(kept, s)
		} else {
			c.PassedOver = append(c.PassedOver, fmt.Sprintf("%s: %s", a, why))
		}
	}
	c.Servers = kept
}

// SocketsOfEngine are the sockets of the engine's DNS server.
func SocketsOfEngine() ([]sockowner.Bound, error) {
	f, err := sockowner.Open()
	if err != nil {
		return nil, errors.New("the kernel does not tell whose it is (CONFIG_INET_UDP_DIAG), and in a sidecar's network the agent can listen too")
	}
	defer f.Close()
	bound, err := sockowner.NewFinder(f).At(policy.EngineDNS())
	if err != nil {
		return nil, fmt.Errorf("the kernel does not tell whose it is: %w", err)
	}
	seen := map[uint8]int{}
	for _, b := range bound {
		seen[b.Proto]++
	}
	for _, n := range []int{seen[uint8(policy.UDP)], seen[uint8(policy.TCP)]} {
		switch n {
		case 0:
			return nil, errors.New("nobody listens there, and in a sidecar's network the agent can")
		case 1:
		default:
			return nil, errors.New("several processes listen there, and one of them may be the agent")
		}
	}
	return bound, nil
}

// LocalAddrs are the addresses of this network namespace.
func LocalAddrs() (map[netip.Addr]bool, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list this container's addresses: %w", err)
	}
	out := map[netip.Addr]bool{}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out[p.Addr().Unmap()] = true
		}
	}
	return out, nil
}
