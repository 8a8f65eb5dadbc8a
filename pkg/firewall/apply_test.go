package firewall

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/pkg/firewall/internal/plan"
)

// E60: rules are replaced under a flood, and no allowed packet is lost nor a
// denied one let through.
func TestKernelApplyIsAtomic(t *testing.T) {
	if !onBackends(t) {
		return
	}
	l := newLab(t)
	l.serve(443)
	l.serve(9)
	f := open(t, Options{})
	// 3000 others, so that sets are filled in more than one step.
	entries := func(third byte) []Entry {
		out := []Entry{{Prefix: single(other6), Proto: unix.IPPROTO_UDP, Port: 443}}
		for i := range 3000 {
			out = append(out, Entry{Prefix: single(netip.AddrFrom4([4]byte{10, third, byte(i >> 8), byte(i)})), Proto: unix.IPPROTO_TCP, Port: 443})
		}
		return out
	}
	configs := []Config{
		{DropGroup: group, Allow: entries(1), Inbound: []Entry{{Proto: unix.IPPROTO_TCP, Port: 3000}}},
		{DropGroup: group, Allow: entries(2)},
	}
	apply(t, f, configs[0], leaseOf(other4, unix.IPPROTO_UDP, 443, time.Hour))

	stop := make(chan struct{})
	var wg sync.WaitGroup
	flood := func(ap netip.AddrPort, each func(n uint32, err error)) {
		c, err := net.Dial("udp", ap.String())
		must(t, err)
		wg.Go(func() {
			defer c.Close()
			for n := uint32(0); ; n++ {
				select {
				case <-stop:
					return
				case <-time.After(100 * time.Microsecond):
				}
				_, err := c.Write(binary.BigEndian.AppendUint32([]byte("flood"), n))
				if errors.Is(err, unix.ECONNREFUSED) { // an answer to the one before
					n--
					continue
				}
				each(n, err)
			}
		})
	}
	sent := map[netip.Addr]int{}
	for _, a := range []netip.Addr{other4, other6} {
		flood(at(a, 443), func(n uint32, err error) {
			if err != nil {
				t.Errorf("packet %d to %v: %v", n, a, err)
			}
		})
	}
	for _, a := range []netip.Addr{far4, far6} {
		flood(at(a, 9), func(uint32, error) {})
	}
	applies := 0
	for start := time.Now(); applies < 20 || time.Since(start) < time.Second; applies++ {
		apply(t, f, configs[(applies+1)%2])
	}
	close(stop)
	wg.Wait()
	l.settle()
	for _, p := range l.wire.arrived("flood") {
		n := binary.BigEndian.Uint32(p.data[len(p.data)-4:])
		a := p.dst.Addr()
		if p.dst.Port() != 443 {
			t.Fatalf("a denied packet to %v arrived", p.dst)
		}
		if n != uint32(sent[a]) {
			t.Fatalf("%v: packet %d came after %d packets", a, n, sent[a])
		}
		sent[a]++
	}
	if sent[other4] < applies || sent[other6] < applies {
		t.Errorf("too little happened: %v packets, %d applies", sent, applies)
	}
	t.Logf("%d applies, packets arrived: %v", applies, sent)
}

// E72: 50 times the same, or in turn with another, leaves the same rules, and
// what isn't ours is as it was.
func TestKernelApplyAgain(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	ctx := context.Background()
	foreign := `table inet other {
	set s { type ipv4_addr; elements = { 10.0.0.1 }; }
	chain output {
		type filter hook output priority 10;
		counter
		ip daddr @s accept
	}
}
`
	must(t, nftScript(t, foreign+engineRules))
	list := func(args ...string) string {
		out, err := exec.Command("nft", append([]string{"-s", "-a", "list"}, args...)...).Output()
		must(t, err)
		return string(out)
	}
	before := list("table", "inet", "other") + list("table", "ip", "nat")
	f := open(t, Options{Backend: "nftables"})
	a := Config{DropGroup: group, DNSPort4: 1, Allow: []Entry{{Prefix: single(far4), Proto: unix.IPPROTO_TCP, Port: 443}}}
	b := Config{DNSPort6: 2, Deny: []Entry{{Prefix: single(far4)}}}
	apply(t, f, a, leaseOf(far6, unix.IPPROTO_TCP, 1, time.Hour))
	generation := list("ruleset")
	handles := list("table", "inet", "agent-init")
	for range 50 {
		apply(t, f, a)
	}
	if got := list("table", "inet", "agent-init"); got != handles {
		t.Errorf("applying the same plan changed rules:\n%s\nbefore:\n%s", got, handles)
	}
	for range 50 {
		apply(t, f, b)
		must(t, f.Verify(ctx))
		apply(t, f, a)
		must(t, f.Verify(ctx))
	}
	again := list("ruleset")
	if strip(again) != strip(generation) {
		t.Errorf("after 100 changes:\n%s\nbefore:\n%s", again, generation)
	}
	if !strings.Contains(again, "2001:db8::1 . tcp . 1") {
		t.Error("a lease was lost")
	}
	if got := list("table", "inet", "other") + list("table", "ip", "nat"); got != before {
		t.Errorf("foreign rules changed:\n%s\nbefore:\n%s", got, before)
	}
}

// strip leaves out how long a lease still lives, the kernel's numbers, and in
// what order it lists sets and their elements.
func strip(s string) string {
	var out []string
	for _, line := range strings.Split(s, "\n") {
		line, _, _ = strings.Cut(line, " # handle ")
		line, _, _ = strings.Cut(line, " timeout ")
		line = strings.TrimRight(strings.TrimPrefix(strings.TrimSpace(line), "elements = { "), ", }")
		out = append(out, line)
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// A block that is newly denied ends flows to it; one of another host's to an
// inbound port may go on.
func TestKernelDenyAndInbound(t *testing.T) {
	if !onBackends(t) {
		return
	}
	l := newLab(t)
	l.serve(443)
	f := open(t, Options{})
	c := Config{
		Allow:   []Entry{{Prefix: netip.MustParsePrefix("192.0.2.0/24"), Proto: unix.IPPROTO_TCP, Port: 443}, {Prefix: netip.MustParsePrefix("2001:db8::/32"), Proto: unix.IPPROTO_TCP, Port: 443}},
		Inbound: []Entry{{Proto: unix.IPPROTO_TCP, Port: 3000}},
	}
	apply(t, f, c)
	var flows []net.Conn
	for _, a := range []netip.Addr{far4, far6} {
		conn, err := net.Dial("tcp", at(a, 443).String())
		must(t, err)
		defer conn.Close()
		if _, err := ping(conn, "x"); err != nil {
			t.Fatal(err)
		}
		flows = append(flows, conn)
	}
	c.Deny = []Entry{{Prefix: single(far4)}, {Prefix: single(far6)}}
	apply(t, f, c)
	for _, conn := range flows {
		if _, err := ping(conn, "denied"); err == nil {
			t.Errorf("the flow to %v goes on", conn.RemoteAddr())
		}
	}
	l.nowhere("denied")
	for _, a := range []netip.Addr{near4, near6} {
		echo(t, at(a, 3000), "")
		echo(t, at(a, 3001), "")
	}
	l.onPeer(func() {
		for _, a := range []netip.Addr{near4, near6} {
			for port, open := range map[uint16]bool{3000: true, 3001: false} {
				limit := 500 * time.Millisecond // where nobody answers
				if open {
					limit = answerTime
				}
				conn, err := net.DialTimeout("tcp", at(a, port).String(), limit)
				if err == nil {
					_, err = ping(conn, "inbound")
					conn.Close()
				}
				if open != (err == nil) {
					t.Errorf("from outside to %v: %v", at(a, port), err)
				}
			}
			conn, err := net.Dial("udp", at(a, 3000).String())
			must(t, err)
			conn.SetDeadline(time.Now().Add(200 * time.Millisecond))
			conn.Write([]byte("x"))
			if n, err := conn.Read(make([]byte, 9)); err == nil {
				t.Errorf("UDP from outside to %v: %d bytes back", a, n)
			}
			conn.Close()
		}
	})
}

// E35–E37: no entry opens what is never open.
func TestKernelNever(t *testing.T) {
	if !onBackends(t) {
		return
	}
	l := newLab(t)
	f := open(t, Options{})
	everywhere := []Entry{}
	var ls []Lease
	aps := []netip.AddrPort{}
	sealed, err := NewPlan(Config{Sealed: true})
	must(t, err)
	var never []plan.Box
	for _, s := range sealed.Sets {
		never = append(never, s.Boxes...)
	}
	if len(never) != 12 {
		t.Errorf("never: %v", never)
	}
	for _, b := range never {
		p := b.Prefix
		if p.Addr().IsUnspecified() || p.Addr().Is4In6() {
			continue
		}
		a := p.Addr()
		if !p.IsSingleIP() {
			a = a.Next()
		}
		aps = append(aps, at(a, 80))
		everywhere = append(everywhere, Entry{Prefix: p, Proto: unix.IPPROTO_TCP, Port: 80}, Entry{Prefix: p, Proto: unix.IPPROTO_UDP, Port: 80})
		ls = append(ls, leaseOf(a, unix.IPPROTO_TCP, 80, time.Hour), leaseOf(a, unix.IPPROTO_UDP, 80, time.Hour))
	}
	apply(t, f, Config{Allow: append(everywhere, Entry{Prefix: netip.MustParsePrefix("0.0.0.0/0"), Proto: unix.IPPROTO_TCP, Port: 80}, Entry{Prefix: netip.MustParsePrefix("::/0"), Proto: unix.IPPROTO_TCP, Port: 80})}, ls...)
	l.forget()
	for _, ap := range aps {
		refused(t, "tcp", ap, agentUID)
		refused(t, "udp", ap, 0)
	}
	l.nowhere("")
}

func TestKernelManyEntries(t *testing.T) {
	if !onBackends(t) {
		return
	}
	ctx := context.Background()
	l := newLab(t)
	l.serve(443)
	f := open(t, Options{})
	var c Config
	for i := range 10000 {
		c.Allow = append(c.Allow,
			Entry{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24), Proto: unix.IPPROTO_TCP, Port: uint16(1 + i%3)},
			Entry{Prefix: single(netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 9, byte(i >> 8), byte(i)})), Proto: unix.IPPROTO_TCP, Port: 443})
	}
	c.Allow = append(c.Allow, Entry{Prefix: single(far4), Proto: unix.IPPROTO_TCP, Port: 443}, Entry{Prefix: single(other6), Proto: unix.IPPROTO_TCP, Port: 443})
	start := time.Now()
	apply(t, f, c)
	applied := time.Since(start)
	start = time.Now()
	must(t, f.Verify(ctx))
	t.Logf("20,002 entries: applied in %v, verified in %v", applied, time.Since(start))
	reached(t, "tcp", at(far4, 443), agentUID)
	reached(t, "tcp", at(other6, 443), agentUID)
	refused(t, "tcp", at(other4, 443), agentUID)
	refused(t, "tcp", at(far6, 443), agentUID)
}
