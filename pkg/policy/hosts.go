package policy

import (
	"net/netip"
	"slices"
)

// parseHosts reads a hosts(5) file. What is not understood is left out, as the
// C library does.
func parseHosts(data string) map[string][]netip.Addr {
	hosts := map[string][]netip.Addr{}
	eachLine(data, func(_, _ int, s string) {
		word, rest := field(s)
		a, err := netip.ParseAddr(word)
		if err != nil {
			return
		}
		a = a.WithZone("").Unmap()
		for rest != "" {
			word, rest = field(rest)
			if name, problem := canonical(word); problem == "" && !slices.Contains(hosts[name], a) {
				hosts[name] = append(hosts[name], a)
			}
		}
	})
	if len(hosts) == 0 {
		return nil
	}
	return hosts
}
