package main

import (
	"bufio"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/fault"
	"github.com/agent-init/agent-init/pkg/policy"
	"github.com/agent-init/agent-init/pkg/resolver"
)

// resolvConf is what resolv.conf(5) says that matters to a forwarder.
type resolvConf struct {
	servers    []netip.AddrPort
	search     []string
	passedOver []string // servers that are not asked, and why
}

// upstreams are the servers that p names, else those of resolv.conf.
func upstreams(p *policy.Policy, resolv []netip.AddrPort) ([]resolver.Upstream, error) {
	var out []resolver.Upstream
	for _, s := range p.Settings().DNS.Upstream {
		u, err := policy.ParseUpstream(s)
		if err != nil {
			return nil, fault.New(fault.Policy, "correct dns.upstream in policy.yaml", "dns.upstream: %w", err)
		}
		out = append(out, resolver.Upstream{Addr: u.Addr, TLSName: u.TLSName})
	}
	if len(out) == 0 {
		for _, a := range resolv {
			out = append(out, resolver.Upstream{Addr: a})
		}
	}
	return out, nil
}

// ephemeralPorts are the first and the last port that the kernel gives to
// sockets by itself, of both families (ip(7)). Zero if it does not say.
func ephemeralPorts() (r [2]uint16) {
	data, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return r
	}
	if _, err := fmt.Sscan(string(data), &r[0], &r[1]); err != nil {
		return [2]uint16{}
	}
	return r
}

// maxResolvConf bounds the file: it is written by the engine, but may be
// anything that a person mounted there.
const maxResolvConf = 64 << 10

// readResolvConf reads the file if only root can have written it: it says whom
// the guard may ask.
func readResolvConf(path string) (resolvConf, error) {
	f, err := os.Open(path)
	if err != nil {
		return resolvConf{}, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return resolvConf{}, err
	}
	if st.Uid != 0 || st.Mode&0o022 != 0 {
		return resolvConf{}, fmt.Errorf("%s can be written by others than root", path)
	}
	return parseResolvConf(io.LimitReader(f, maxResolvConf))
}

func parseResolvConf(r io.Reader) (resolvConf, error) {
	var c resolvConf
	sc := bufio.NewScanner(r)
	for sc.Scan() {
		fields := strings.Fields(sc.Text())
		if len(fields) < 2 {
			continue
		}
		switch fields[0] {
		case "nameserver":
			// A zone (fe80::1%eth0) stays: a link-local server can't be
			// reached without it.
			a, err := netip.ParseAddr(fields[1])
			if err != nil {
				continue
			}
			if s := netip.AddrPortFrom(a.Unmap(), 53); !slices.Contains(c.servers, s) {
				c.servers = append(c.servers, s)
			}
		case "domain", "search":
			c.search = nil // resolv.conf(5): the last instance wins
			for _, d := range fields[1:] {
				if d = strings.ToLower(strings.Trim(d, ".")); d != "" {
					c.search = append(c.search, d)
				}
			}
		}
	}
	return c, sc.Err()
}
