package lab

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/agent-init/agent-init/internal/netns"
)

// hub is the network behind a gateway: a bridge in a namespace of its own, as on the host of an engine whose network is
// internal. It has no address, and no other way out than the gateway.
type hub struct {
	ns    *netns.NS
	index int // of the gateway
	ports int
}

// newHub makes the network behind a box, which gets eth1 there.
func (b *Box) newHub(index int) (err error) {
	h := &hub{index: index}
	if h.ns, err = netns.New(); err != nil {
		return err
	}
	b.lab.onClose(h.ns.Close)
	b.hub = h
	err = h.ns.Do(func() error {
		if err := sysctls(map[string]string{"net/ipv6/conf/all/disable_ipv6": "1", "net/ipv6/conf/default/disable_ipv6": "1"}); err != nil {
			return err
		}
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "hub"
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
			return fmt.Errorf("add bridge: %w", err)
		}
		_, err := linkUp("hub")
		return err
	})
	if err != nil {
		return err
	}
	forward := "0"
	if b.opts.Forwards {
		forward = "1"
	}
	err = b.Net.Do(func() error {
		return sysctls(map[string]string{"net/ipv4/ip_forward": forward, "net/ipv6/conf/all/forwarding": forward})
	})
	if err != nil {
		return err
	}
	p, err := h.join(b.Net, "eth1", !b.opts.NoIPv6)
	b.inside = p.addr
	return err
}

// join plugs a namespace in, by a link of that name. The first is the gateway, and the route of the others.
func (h *hub) join(ns *netns.NS, name string, ipv6 bool) (plug, error) {
	h.ports++
	p := plug{index: h.index, ipv6: ipv6, host: fmt.Sprintf("port%d", h.ports)}
	nets := []string{fmt.Sprintf("172.31.%d.", h.index)}
	bits := []int{24}
	if ipv6 {
		nets, bits = append(nets, fmt.Sprintf("fd00:31:%x::", h.index), fmt.Sprintf("2001:db8:31:%x::", h.index)), []int{24, 64, 64}
	}
	for i, net := range nets {
		p.gateway = append(p.gateway, netip.MustParseAddr(net+"1"))
		p.addr = append(p.addr, netip.PrefixFrom(netip.MustParseAddr(fmt.Sprint(net, h.ports)), bits[i]))
		p.neighbor = append(p.neighbor, netip.MustParseAddr(net+"2"))
	}
	err := h.ns.Do(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = p.host
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: name, PeerNamespace: netlink.NsFd(ns.FD())}); err != nil {
			return fmt.Errorf("add veth pair: %w", err)
		}
		port, err := linkUp(p.host)
		if err != nil {
			return err
		}
		hub, err := netlink.LinkByName("hub")
		if err == nil {
			err = netlink.LinkSetMaster(port, hub)
		}
		return err
	})
	if err != nil {
		return p, err
	}
	if err := ns.Do(func() error { return p.plugIn(name, h.ports > 1) }); err != nil {
		return p, err
	}
	return p, errors.Join(h.ns.Do(func() error { return waitUp(p.host) }), ns.Do(func() error { return waitUp(name) }))
}

// plugIn has the addresses of p at a link, and the gateway as the route to everywhere if it is to be.
func (p *plug) plugIn(name string, routed bool) error {
	if _, err := linkUp("lo"); err != nil {
		return err
	}
	link, err := linkUp(name)
	if err != nil {
		return err
	}
	for _, a := range p.addr {
		if err := addAddr(link, a); err != nil {
			return err
		}
	}
	last := p.addr[0].Addr().AsSlice()
	if p.ipv6 { // the kernel's own comes when it likes
		if err := addAddr(link, netip.PrefixFrom(netip.MustParseAddr(fmt.Sprintf("fe80::%x", last[len(last)-1])), 64)); err != nil {
			return err
		}
	}
	if !routed {
		return nil
	}
	for i, gw := range p.gateway {
		if i > 1 {
			break // one default route per family
		}
		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: gw.AsSlice()}); err != nil {
			return fmt.Errorf("default route via %s: %w", gw, err)
		}
	}
	return nil
}

// startBehind plugs b in behind its gateway.
func (b *Box) startBehind() (err error) {
	h := b.opts.Behind.hub
	if h == nil {
		return errors.New("no network is behind that box: see BoxOptions.Gateway")
	}
	if err := b.Net.Do(func() error { return boxSysctls(!b.opts.NoIPv6) }); err != nil {
		return err
	}
	if b.plug, err = h.join(b.Net, "eth0", !b.opts.NoIPv6); err != nil {
		return err
	}
	if b.capture, err = startCapture(h.ns, b.Net, b.plug.host); err != nil {
		return fmt.Errorf("capture: %w", err)
	}
	b.lab.onClose(b.capture.close)
	return nil
}

// Inside4 and Inside6 are the addresses of a gateway in the network behind it.
func (b *Box) Inside4() netip.Addr { return b.inside[0].Addr() }

// Inside6 is the global-looking IPv6 one.
func (b *Box) Inside6() netip.Addr { return b.inside[2].Addr() }
