package lab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/netns"
)

// setupInternet makes every address local ("AnyIP"): a local route for
// everything, in the main table so that the routes to the boxes come first.
func setupInternet() error {
	if err := sysctls(map[string]string{
		"net/ipv4/conf/all/rp_filter":         "0",
		"net/ipv4/conf/default/rp_filter":     "0",
		"net/ipv6/conf/all/disable_ipv6":      "0",
		"net/ipv6/conf/default/disable_ipv6":  "0",
		"net/ipv6/conf/default/accept_dad":    "0",
		"net/ipv6/conf/default/addr_gen_mode": "1",
		"net/ipv6/ip_nonlocal_bind":           "1", // AnyIP isn't enough to answer from an address
		"net/ipv4/icmp_ratelimit":             "0",
	}); err != nil {
		return err
	}
	lo, err := linkUp("lo")
	if err != nil {
		return err
	}
	for _, all := range []string{"0.0.0.0/0", "::/0"} {
		route := &netlink.Route{LinkIndex: lo.Attrs().Index, Dst: ipnet(netip.MustParsePrefix(all)),
			Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_MAIN, Scope: netlink.SCOPE_HOST}
		if err := netlink.RouteAdd(route); err != nil {
			return fmt.Errorf("make %s local: %w", all, err)
		}
	}
	return nil
}

// plug is one box's connection to the internet.
type plug struct {
	index    int
	ipv6     bool
	host     string // name of the internet's end
	addr     []netip.Prefix
	gateway  []netip.Addr
	neighbor []netip.Addr
}

func newPlug(index int, ipv6 bool) plug {
	p := plug{index: index, ipv6: ipv6, host: fmt.Sprintf("veth%d", index)}
	p.add(fmt.Sprintf("172.30.%d.", index), 24)
	if ipv6 {
		p.add(fmt.Sprintf("fd00:30:%x::", index), 64)
		p.add(fmt.Sprintf("2001:db8:30:%x::", index), 64)
	}
	return p
}

func (p *plug) add(net string, bits int) {
	p.gateway = append(p.gateway, netip.MustParseAddr(net+"1"))
	p.addr = append(p.addr, netip.PrefixFrom(netip.MustParseAddr(net+"2"), bits))
	p.neighbor = append(p.neighbor, netip.MustParseAddr(net+"3"))
}

// connect makes the veth pair, from the internet's side, and routes to it.
func (p *plug) connect(internet, box *netns.NS) error {
	if err := box.Do(func() error { return boxSysctls(p.ipv6) }); err != nil {
		return err
	}
	if err := internet.Do(func() error { return p.setupHost(box.FD()) }); err != nil {
		return err
	}
	if err := box.Do(p.setupBox); err != nil {
		return err
	}
	// Until the kernel has noticed the carrier, the far end sends nothing.
	return errors.Join(internet.Do(func() error { return waitUp(p.host) }), box.Do(func() error { return waitUp("eth0") }))
}

func waitUp(name string) error {
	for deadline := time.Now().Add(Patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return fmt.Errorf("find link %s: %w", name, err)
		}
		if link.Attrs().OperState == netlink.OperUp {
			return netns.Settle(name, Patience)
		}
	}
	return fmt.Errorf("link %s doesn't come up", name)
}

// boxSysctls are those that an engine sets, and what makes addresses usable at once.
func boxSysctls(ipv6 bool) error {
	off := "1"
	if ipv6 {
		off = "0"
	}
	return sysctls(map[string]string{
		"net/ipv4/ping_group_range":           "0 2147483647",
		"net/ipv4/ip_unprivileged_port_start": "0",
		"net/ipv6/conf/all/disable_ipv6":      off,
		"net/ipv6/conf/default/disable_ipv6":  off,
		"net/ipv6/conf/default/accept_dad":    "0",
		"net/ipv6/conf/default/accept_ra":     "0",
		// The kernel's own link-local address comes when it likes: ours is there at once.
		"net/ipv6/conf/default/addr_gen_mode": "1",
	})
}

func (p *plug) setupHost(boxNS int) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = p.host
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(boxNS)}
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("add veth pair: %w", err)
	}
	link, err := linkUp(p.host)
	if err != nil {
		return err
	}
	// Assigned, not only AnyIP: neighbour discovery answers for nothing else.
	for _, a := range append(append([]netip.Addr{}, p.gateway...), p.neighbor...) {
		if err := addAddr(link, netip.PrefixFrom(a, a.BitLen())); err != nil {
			return err
		}
	}
	if p.ipv6 {
		if err := addAddr(link, netip.MustParsePrefix("fe80::1/64")); err != nil {
			return err
		}
	}
	for i, a := range p.addr {
		route := &netlink.Route{LinkIndex: link.Attrs().Index, Scope: netlink.SCOPE_LINK,
			Dst: ipnet(netip.PrefixFrom(a.Addr(), a.Addr().BitLen())), Src: p.gateway[i].AsSlice()}
		if err := netlink.RouteAdd(route); err != nil {
			return fmt.Errorf("route to %s: %w", a.Addr(), err)
		}
	}
	return nil
}

func (p *plug) setupBox() error {
	if _, err := linkUp("lo"); err != nil {
		return err
	}
	link, err := linkUp("eth0")
	if err != nil {
		return err
	}
	for _, a := range p.addr {
		if err := addAddr(link, a); err != nil {
			return err
		}
	}
	if p.ipv6 {
		if err := addAddr(link, netip.MustParsePrefix("fe80::2/64")); err != nil {
			return err
		}
	}
	for i, gw := range p.gateway {
		if i > 1 {
			break // one default route per family
		}
		route := &netlink.Route{LinkIndex: link.Attrs().Index, Gw: gw.AsSlice()}
		if err := netlink.RouteAdd(route); err != nil {
			return fmt.Errorf("default route via %s: %w", gw, err)
		}
	}
	return nil
}

func linkUp(name string) (netlink.Link, error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("find link %s: %w", name, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return nil, fmt.Errorf("set link %s up: %w", name, err)
	}
	return link, nil
}

func addAddr(link netlink.Link, p netip.Prefix) error {
	addr := &netlink.Addr{IPNet: ipnet(p)}
	addr.IP = p.Addr().AsSlice()
	if p.Addr().Is6() {
		addr.Flags = unix.IFA_F_NODAD
	}
	if err := netlink.AddrAdd(link, addr); err != nil {
		return fmt.Errorf("add address %s: %w", p, err)
	}
	return nil
}

func ipnet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Masked().Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// sysctls writes values of the thread's network namespace.
func sysctls(values map[string]string) error {
	for name, value := range values {
		err := os.WriteFile("/proc/sys/"+name, []byte(value), 0o644)
		if err != nil && !errors.Is(err, os.ErrNotExist) { // a kernel without IPv6 has fewer
			return fmt.Errorf("set sysctl: %w", err)
		}
	}
	return nil
}
