// Package upstream says which DNS servers the guard may ask: the policy's, or resolv.conf's that are not the agent.
package upstream

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/internal/text"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/sockowner"
)

// File is where a container's DNS servers are.
const File = "/etc/resolv.conf"

const maxFile = 64 << 10

// Of are the servers that p names, else those of resolv.conf.
func Of(p *policy.Policy) ([]policy.Upstream, error) {
	var out []policy.Upstream
	for _, s := range p.Settings.DNS.Upstream {
		u, err := policy.ParseUpstream(s)
		if err != nil {
			return nil, fault.New(fault.Policy, "correct dns.upstream in policy.yaml", "dns.upstream: %w", err)
		}
		out = append(out, u)
	}
	if len(out) == 0 {
		for _, a := range p.Resolv.Servers {
			out = append(out, policy.Upstream{Addr: a})
		}
	}
	return out, nil
}

// Read reads the file if only root can have written it: it says whom the guard may ask. One that is not there, or not
// to be trusted, names nobody.
func Read(path string) policy.Resolv {
	data, err := policy.ReadTrusted(path)
	if file, ok := errors.AsType[*policy.FileError](err); ok {
		return policy.Resolv{Fault: file.What() + ": " + file.Remedy}
	}
	if err != nil {
		return policy.Resolv{Fault: fmt.Sprintf("%s: %v", path, text.CauseOf(err))}
	}
	if len(data) > maxFile {
		return policy.Resolv{Fault: fmt.Sprintf("%s: larger than %d KiB", path, maxFile>>10)}
	}
	return parse(string(data))
}

// maxNdots is what the C libraries take for a larger number.
const maxNdots = 15

func parse(data string) (c policy.Resolv) {
	c.Ndots = 1
	for line := range strings.Lines(data) {
		fields := strings.Fields(line)
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
		case "options":
			for _, word := range fields[1:] {
				if text, is := strings.CutPrefix(word, "ndots:"); is {
					n, _ := strconv.Atoi(text) // what is no number is 0, as for the C libraries
					c.Ndots = min(max(n, 0), maxNdots)
				}
			}
		}
	}
	return c
}

// PassOver moves servers of c that are addresses of this namespace to PassedOver. Engine says
// why the engine's is one of them, empty if it is not.
func PassOver(c *policy.Resolv, own map[netip.Addr]bool, engine string) {
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
