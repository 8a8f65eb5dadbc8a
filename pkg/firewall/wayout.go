package firewall

import (
	"fmt"

	"github.com/vishvananda/netlink"
)

// WaysOut are the indices of the interfaces that default routes lead to.
func WaysOut() (links []int, err error) {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := netlink.RouteList(nil, family)
		if err != nil {
			return nil, fmt.Errorf("list routes: %w", err)
		}
		for _, r := range routes {
			if r.Dst != nil {
				if ones, _ := r.Dst.Mask.Size(); ones > 0 {
					continue
				}
			}
			links = append(links, r.LinkIndex)
			for _, hop := range r.MultiPath {
				links = append(links, hop.LinkIndex)
			}
		}
	}
	return links, nil
}
