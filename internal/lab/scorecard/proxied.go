package scorecard

import (
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// proxied are the same operation made by each of the setting's proxies, in each way in which a proxy can be asked for it:
// by a tunnel to the address; by one to the allowed name, where the address is that name's; by the name, where it is a
// question for one; and with the request sent to the proxy itself, as it is and with the whole URL in it.
func (s *Setting) proxied(args []string) (out [][]string) {
	if len(args) < 2 || slices.ContainsFunc(args, func(arg string) bool {
		return slices.Contains([]string{"-opt", "-from", "-source", "-mptcp", "-raw"}, arg) // which are about the agent's own packets
	}) {
		return nil
	}
	for _, proxy := range s.Proxies {
		by := func(op string, rest ...string) { out = append(out, append([]string{op, "-proxy", proxy}, rest...)) }
		flags, last := args[1:len(args)-1], args[len(args)-1]
		switch args[0] {
		case "http":
			by("http", args[1:]...)
			if i := slices.Index(flags, "-addr"); i >= 0 && s.named(flags[i+1]) != "" {
				named := slices.Clone(args[1:])
				named[i+1] = s.named(flags[i+1])
				by("http", named...)
			}
		case "tcp":
			by("tcp", args[1:]...)
			if name := s.named(last); name != "" {
				by("tcp", append(slices.Clone(flags), name)...)
			}
			if i := slices.Index(flags, "-esc"); i >= 0 && strings.HasSuffix(last, ":80") {
				by("tcp", append([]string{"-bare"}, args[1:]...)...)
				if whole := inFull(flags[i+1], s.Allowed); whole != "" {
					flags = slices.Clone(flags)
					flags[i+1] = whole
					by("tcp", slices.Concat([]string{"-bare"}, flags, []string{last})...)
				}
			}
		case "resolve", "dns":
			name := last
			if args[0] == "dns" {
				name = args[len(args)-2]
			}
			if s.asksRightly(name) {
				continue
			}
			name = strings.ReplaceAll(name, "{n}", "0")
			by("tcp", name+":443")
			by("http", "http://"+name+"/")
		case "run":
			if m := pseudo.FindStringSubmatch(last); m != nil {
				by("tcp", net.JoinHostPort(m[1], m[2]))
			}
		}
	}
	return out
}

// asksRightly says that a name is allowed as it is, so that a proxy rightly connects to it where the agent only asks for it.
func (s *Setting) asksRightly(name string) bool {
	_, zone, _ := strings.Cut(name, ".")
	return name == s.Allowed || s.Wildcard != "" && zone == s.Wildcard
}

// pseudo is a connection of bash's.
var pseudo = regexp.MustCompile(`/dev/tcp/([^/]+)/([0-9]+)`)

// named is a port of an address of the allowed name's as a proxy knows it; "" for another address.
func (s *Setting) named(addr string) string {
	ap, err := netip.ParseAddrPort(addr)
	v4, v6 := s.allowed()
	if err != nil || ap.Addr() != v4 && ap.Addr() != v6 {
		return ""
	}
	_, port, _ := net.SplitHostPort(addr)
	return net.JoinHostPort(s.Allowed, port)
}

var origin = regexp.MustCompile(`^([A-Z]+) /`)

// inFull is a request with the whole URL in its first line; "" if it has no path there.
func inFull(request, host string) string {
	if !origin.MatchString(request) {
		return ""
	}
	return origin.ReplaceAllString(request, "${1} http://"+host+"/")
}
