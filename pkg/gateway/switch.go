package gateway

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// upgrade takes the offer of a request to switch protocols (RFC 9110, section
// 7.8). What is not clearly one is refused: a server might see one.
func (r *request) upgrade(f fields, minor int) error {
	upgrades, settings := f.all("upgrade"), f.all("http2-settings") != nil
	option, carried := f.option("upgrade"), f.option("http2-settings")
	if len(upgrades) == 0 && !option && !carried && !settings {
		return nil
	}
	if len(upgrades) != 1 || !option || carried != settings || minor == 0 || r.target != (authority{}) {
		return refusedBadUpgrade
	}
	for _, offer := range members(upgrades[0]) {
		if name, version, versioned := strings.Cut(offer, "/"); !isTokens(name) || versioned && !isTokens(version) {
			return refusedBadUpgrade
		}
		r.offers = append(r.offers, strings.ToLower(offer))
	}
	switch {
	case settings && !slices.Contains(r.offers, "h2c"):
		return refusedBadUpgrade
	case r.length == 0:
	case r.droppable():
		r.offers = nil // the body would have to come first
	default:
		return refusedUpgradeBody
	}
	return nil
}

// offered says whether a server that answers 101 switches to what r offered.
func offered(offers []string, f fields) bool {
	upgrades := f.all("upgrade")
	return len(upgrades) == 1 && !slices.ContainsFunc(members(upgrades[0]), func(s string) bool {
		return !slices.Contains(offers, strings.ToLower(s))
	})
}

// connect finds out what a CONNECT is for (RFC 9110, section 9.3.6). Old clients of HTTP/1.0 send no Host.
func (r *request) connect(hosts []string, target string, minor int) error {
	t, ok := splitTarget(target)
	switch {
	case !ok:
		return refusedTarget
	case len(hosts) > 1:
		return refusedManyHosts
	case len(hosts) == 0 && minor > 0:
		return refusedNoHost
	case len(hosts) == 1:
		named, ok := splitTarget(hosts[0])
		if !ok { // without a port
			named, ok = splitTarget(hosts[0] + ":" + strconv.Itoa(int(t.port)))
		}
		if !ok || !strings.EqualFold(named.host, t.host) || named.port != t.port {
			return refusedHostConflict
		}
	}
	r.host, r.target = t.host, t
	return nil
}

// splitTarget takes HOST:PORT apart, where HOST may be an address.
func splitTarget(s string) (t authority, ok bool) {
	i := strings.LastIndexByte(s, ':')
	if i <= 0 {
		return t, false
	}
	host, digits := s[:i], s[i+1:]
	n, err := strconv.ParseUint(digits, 10, 16)
	if err != nil || n == 0 || digits[0] == '0' || digits[0] == '+' {
		return t, false
	}
	if inner, ok := strings.CutPrefix(host, "["); ok {
		inner, closed := strings.CutSuffix(inner, "]")
		a, err := netip.ParseAddr(inner)
		if !closed || err != nil || !a.Is6() || a.Zone() != "" {
			return t, false
		}
		return authority{a.String(), uint16(n)}, true
	}
	if strings.Trim(host, hostBytes) != "" {
		return t, false
	}
	return authority{strings.Clone(host), uint16(n)}, true
}
