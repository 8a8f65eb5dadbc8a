package scorecard

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
)

// Said is what an operation said of itself. It counts only where nothing else
// can.
type Said struct {
	Args []string
	lab.Poke
}

// Evidence is what there is to judge an attack by.
type Evidence struct {
	Setting *Setting
	Attack  *Attack
	Packets []lab.Packet // that left the container
	Queries []lab.Query
	Hellos  []lab.Hello
	Conns   []lab.Conn
	Said    []Said

	values map[string]string
	lacks  []string
}

// lack notes what had to work and did not.
func (e *Evidence) lack(format string, args ...any) {
	e.lacks = append(e.lacks, fmt.Sprintf(format, args...))
}

func (s *Setting) forget() {
	s.past = nil
	s.Box.ForgetPackets()
	s.Lab.DNS.Forget()
	s.Lab.Web.Forget()
	s.Lab.ForgetConns()
}

func (s *Setting) collect(a *Attack, values map[string]string, said []Said) *Evidence {
	return &Evidence{Setting: s, Attack: a, values: values, Said: said,
		Packets: append(slices.Clip(s.past), s.Box.Packets(lab.Routed)...), Queries: s.Lab.Queries(), Hellos: s.Lab.Web.Hellos(), Conns: s.Lab.Conns()}
}

// leaks says what of the attack arrived, or succeeded, and what lacks after it; nothing, if it was held.
func (e *Evidence) leaks() (out, lacks []string) {
	seen := map[string]bool{}
	add := func(format string, args ...any) {
		if s := fmt.Sprintf(format, args...); !seen[s] {
			seen[s] = true
			out = append(out, s)
		}
	}
	bad := e.Attack.bad()
	for _, p := range e.Packets {
		if e.complains(p) {
			continue
		}
		if p.Dst == bad.v4 || p.Dst == bad.v6 {
			add("a packet of protocol %d to port %d of an address that is not allowed", p.Proto, p.DstPort)
		}
		for _, w := range e.Attack.Watch {
			if w, missing := fill(w, e.values); missing == "" && watched(w, p) {
				add("a packet to %s", w)
			}
		}
	}
	for _, q := range e.Queries {
		for _, name := range questions(q) {
			if below(bad.name, name) || below(bad.other, name) {
				add("a DNS question for %s", name)
			}
		}
	}
	for _, h := range e.Hellos {
		if h.SNI == bad.name || h.SNI == bad.other {
			add("a TLS handshake with the server name %s", h.SNI)
		}
	}
	for _, c := range e.Conns {
		if c.Dst.Addr() == bad.v4 || c.Dst.Addr() == bad.v6 {
			add("a connection to port %d of an address that is not allowed", c.Dst.Port())
		}
		if bytes.Contains(c.Received, []byte(bad.name)) || bytes.Contains(c.Received, []byte(bad.other)) {
			add("bytes that name %s", bad.name)
		}
	}
	for _, r := range e.Setting.Lab.Web.Requests(bad.name, bad.other) {
		add("a request for %s", r.Host)
	}
	if e.Attack.Won && !(e.Setting.Apart && e.Attack.Own) {
		for _, p := range e.Said {
			if succeeded(p.Poke) {
				add("%q succeeded", strings.Join(p.Args[:min(len(p.Args), 4)], " "))
			}
		}
	}
	if e.Attack.Judge != nil {
		for _, s := range e.Attack.Judge(e) {
			add("%s", s)
		}
	}
	return out, e.lacks
}

// complains says that a packet is the kernel's own answer to what the attack had sent from outside, for which nobody listened.
func (e *Evidence) complains(p lab.Packet) bool {
	return p.Proto == unix.IPPROTO_ICMP && slices.ContainsFunc(e.Attack.Try, func(line string) bool { return strings.HasPrefix(line, "@send ") })
}

// remember keeps what has left the container until now, whose end is near.
func (s *Setting) remember() { s.past = append(s.past, s.Box.Packets(lab.Routed)...) }

// succeeded is the verdict of an operation, or of the one that it was made around.
func succeeded(p lab.Poke) bool {
	if result, around := p.Detail["result"].(map[string]any); around {
		return result["ok"] == true
	}
	return p.OK
}

func below(zone, name string) bool {
	return dns.IsSubDomain(dns.CanonicalName(zone), dns.CanonicalName(name))
}

// questions are all names that a query asks for, also of one that isn't well
// formed.
func questions(q lab.Query) []string {
	if q.Msg == nil {
		return nil
	}
	var names []string
	for _, question := range q.Msg.Question {
		names = append(names, question.Name)
	}
	return names
}

// watched says whether a packet went to what Watch means: ADDRESS or
// PROTO/ADDRESS/PORT.
func watched(w string, p lab.Packet) bool {
	proto, rest, full := strings.Cut(w, "/")
	if !full {
		return p.Dst == netip.MustParseAddr(w)
	}
	addr, port, _ := strings.Cut(rest, "/")
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		panic(fmt.Sprintf("scorecard: %q is nothing to watch", w))
	}
	want := map[string]uint8{"tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP}[proto]
	return p.Dst == netip.MustParseAddr(addr) && p.Proto == want && p.DstPort == uint16(number)
}
