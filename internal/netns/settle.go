package netns

import (
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Settle waits, in the thread's namespace, until packets to each IPv6 address of a link are
// taken in. The kernel sees to that some time after it has let the address be added, from a
// work queue (addrconf.c, addrconf_dad_work), and until then loses them in silence.
func Settle(link string, patience time.Duration) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		missing, err := unsettled(link)
		if err != nil {
			return fmt.Errorf("look at the addresses of %s: %w", link, err)
		}
		if missing == "" {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s is no address of %s yet, after %s", missing, link, patience)
		}
	}
}

// unsettled returns an address without a local route, if there is one.
func unsettled(name string) (string, error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return "", err
	}
	addrs, err := Whole(func() ([]netlink.Addr, error) { return netlink.AddrList(link, netlink.FAMILY_V6) })
	if err != nil {
		return "", err
	}
	routes, err := Whole(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(netlink.FAMILY_V6, &netlink.Route{Table: unix.RT_TABLE_LOCAL}, netlink.RT_FILTER_TABLE)
	})
	if err != nil {
		return "", err
	}
	local := map[string]bool{}
	for _, r := range routes {
		if r.Dst != nil && r.Type == unix.RTN_LOCAL {
			local[r.Dst.String()] = true
		}
	}
	for _, a := range addrs {
		if !local[a.IP.String()+"/128"] {
			return a.IP.String(), nil
		}
	}
	return "", nil
}

// Whole lists again what has changed while the kernel listed it.
func Whole[T any](list func() ([]T, error)) ([]T, error) {
	for {
		if all, err := list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return all, err
		}
	}
}
