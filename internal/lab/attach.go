package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/netns"
)

// mustBeAnotherNS refuses the machine's own namespace: a lab takes every address
// of its internet for itself.
func mustBeAnotherNS(ns *netns.NS) error {
	self, err := netns.Open("/proc/self/ns/net")
	if err != nil {
		return err
	}
	ours, oerr := self.Inode()
	theirs, terr := ns.Inode()
	if err := errors.Join(oerr, terr, self.Close()); err != nil {
		return err
	}
	if ours == theirs {
		return errors.New("this is the network namespace that we are in ourselves")
	}
	return nil
}

// setupBorrowed makes every address that has no other route local in a namespace
// that an engine has made, and leaves the engine's own links as they are.
func setupBorrowed() error {
	if err := sysctls(map[string]string{"net/ipv6/ip_nonlocal_bind": "1", "net/ipv4/icmp_ratelimit": "0"}); err != nil {
		return err
	}
	lo, err := linkUp("lo")
	if err != nil {
		return err
	}
	for _, all := range []string{"0.0.0.0/0", "::/0"} {
		route := &netlink.Route{LinkIndex: lo.Attrs().Index, Dst: ipnet(netip.MustParsePrefix(all)),
			Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_MAIN, Scope: netlink.SCOPE_HOST}
		if err := netlink.RouteReplace(route); err != nil {
			return fmt.Errorf("make %s local: %w", all, err)
		}
	}
	return dropSinkRules() // of a lab that had no time to
}

// dropSinkRules deletes the redirection to the sinks, if there is one.
func dropSinkRules() error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: sinkTable})
	c.DelTable(table)
	if err := c.Flush(); err != nil {
		return fmt.Errorf("delete the rules of the sinks: %w", err)
	}
	return nil
}

// Attach makes a Box of a container that an engine runs in the namespace of
// Options.Within, by the id of one of its processes on the machine. Nothing can
// be started in such a box by the lab; its packets, addresses and surroundings
// are there. neighbours are other hosts of its subnet, if there are any.
func (l *Lab) Attach(pid int, neighbours ...netip.Addr) *Box {
	l.tb.Helper()
	b := &Box{lab: l, name: fmt.Sprintf("process %d", pid)}
	if err := b.attach(pid, neighbours); err != nil {
		l.tb.Fatalf("lab: attach to process %d: %v", pid, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.boxes = append(l.boxes, b)
	return b
}

func (b *Box) attach(pid int, neighbours []netip.Addr) (err error) {
	if b.Net, err = netns.Open(fmt.Sprintf("/proc/%d/ns/net", pid)); err != nil {
		return err
	}
	b.leave = sync.OnceValue(func() error {
		var err error
		if b.capture != nil {
			err = b.capture.close()
		}
		return errors.Join(err, b.Net.Close())
	})
	b.lab.onClose(b.leave)
	if err := mustBeAnotherNS(b.Net); err != nil {
		return err
	}
	var peer int
	if err := b.Net.Do(func() (err error) {
		peer, err = b.plug.read()
		return err
	}); err != nil {
		return err
	}
	b.plug.neighbor = neighbours
	if err := b.lab.Internet.Do(func() error {
		link, err := netlink.LinkByIndex(peer)
		if err != nil {
			return fmt.Errorf("find the far end of its link: %w", err)
		}
		b.plug.host = link.Attrs().Name
		return nil
	}); err != nil {
		return err
	}
	if b.capture, err = startCapture(b.lab.Internet, b.Net, b.plug.host); err != nil {
		return fmt.Errorf("capture: %w", err)
	}
	return nil
}

// Detach lets a container go that Attach made a Box of, before the engine ends it.
func (b *Box) Detach() {
	b.lab.tb.Helper()
	b.lab.mu.Lock()
	b.lab.boxes = slices.DeleteFunc(b.lab.boxes, func(other *Box) bool { return other == b })
	b.lab.mu.Unlock()
	if err := b.leave(); err != nil {
		b.lab.tb.Errorf("lab: detach %s: %v", b.name, err)
	}
}

// read takes the plug of the calling thread's namespace for what it is, and
// returns the index of the far end of its link.
func (p *plug) read() (peer int, err error) {
	link, err := netlink.LinkByName("eth0")
	if err != nil {
		return 0, fmt.Errorf("find link eth0: %w", err)
	}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		addrs, err := netns.Whole(func() ([]netlink.Addr, error) { return netlink.AddrList(link, family) })
		if err != nil {
			return 0, fmt.Errorf("list addresses: %w", err)
		}
		for _, a := range addrs {
			ip, ok := netip.AddrFromSlice(a.IP)
			if ones, _ := a.Mask.Size(); ok && a.Scope == unix.RT_SCOPE_UNIVERSE {
				p.addr = append(p.addr, netip.PrefixFrom(ip.Unmap(), ones))
				p.ipv6 = p.ipv6 || family == unix.AF_INET6
			}
		}
		routes, err := netns.Whole(func() ([]netlink.Route, error) { return netlink.RouteList(link, family) })
		if err != nil {
			return 0, fmt.Errorf("list routes: %w", err)
		}
		for _, r := range routes {
			if gw, ok := netip.AddrFromSlice(r.Gw); ok {
				p.gateway = append(p.gateway, gw.Unmap())
			}
		}
	}
	if len(p.addr) == 0 || len(p.gateway) == 0 {
		return 0, errors.New("it has no address or no default route")
	}
	return link.Attrs().ParentIndex, nil
}
