package attack

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
)

// crowd are agents behind one gateway. One container has the addresses of all, since it is the gateway that is looked at.
type crowd struct {
	*kept
	took  time.Duration // until all were ready
	addrs []netip.Addr
}

// keepsMany starts a gateway with n agents, all of one policy.
func keepsMany(t *testing.T, n int) *crowd {
	t.Helper()
	lab.Require(t)
	m := &crowd{}
	var lines []string
	for i := range n {
		m.addrs = append(m.addrs, netip.AddrFrom4([4]byte{172, 31, 0, byte(10 + i)}))
		lines = append(lines, fmt.Sprintf("name: agent-%d, address: %s, policy: all", i, m.addrs[i]))
	}
	opts := lab.BoxOptions{Gateway: true, Forwards: true, Files: []lab.File{{Path: agentsFile, Data: []byte(listOf(lines...))}, ofAgent("all", "ok.test\n45.30.9.9:9000/udp\n")}}
	begun := time.Now()
	w := startIn(t, lab.New(t, lab.Options{}), "", opts, "agent-init", "gateway", "--inside", "eth1")
	if r := w.root("agent-init", "wait", "--timeout", "5m"); r.Code != 0 {
		t.Fatalf("not ready: %s\n%s", r, w.agent.Stderr())
	}
	m.took, m.kept = time.Since(begun), &kept{world: w}
	m.agent = m.another()
	must(t, m.agent.Net.Do(func() error {
		l, err := netlink.LinkByName("eth0")
		for _, a := range m.addrs {
			if err == nil {
				err = netlink.AddrReplace(l, &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(24, 32)}})
			}
		}
		return err
	}))
	return m
}

// from is a socket of one agent's.
func (m *crowd) from(i int, to netip.AddrPort) (c *net.UDPConn) {
	m.Helper()
	must(m.T, m.agent.Net.Do(func() (err error) {
		c, err = net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(m.addrs[i], 0)), net.UDPAddrFromAddrPort(to))
		return err
	}))
	m.Cleanup(func() { c.Close() })
	return c
}

// ask has each agent ask for a name n times, every 500 ms, and returns how long answers took, in order, and how many did
// not come.
func (m *crowd) ask(name string, n int) (took []time.Duration, lost int) {
	m.Helper()
	question := dnsmessage.Message{
		Header:    dnsmessage.Header{RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name + "."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}},
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range m.addrs {
		c := m.from(i, netip.AddrPortFrom(m.box.Inside4(), 53))
		all.Go(func() {
			time.Sleep(time.Duration(i) * 500 * time.Millisecond / time.Duration(len(m.addrs))) // not all in one instant
			q, answer := question, make([]byte, 512)
			for range time.Tick(500 * time.Millisecond) {
				if q.ID++; int(q.ID) > n {
					return
				}
				raw, err := q.Pack()
				begun := time.Now()
				if err == nil {
					_, err = c.Write(raw)
				}
				for n := 0; err == nil && (n < 2 || answer[0] != raw[0] || answer[1] != raw[1]); {
					c.SetReadDeadline(begun.Add(lab.Patience))
					n, err = c.Read(answer)
				}
				mu.Lock()
				if err != nil || answer[3]&15 != 0 || answer[7] == 0 {
					lost++
				} else {
					took = append(took, time.Since(begun))
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	slices.Sort(took)
	return took, lost
}

// packet is how long the sender of one packet is at it, which the kernel carries to the far side meanwhile. All processes
// of the gateway stand still, since it is the rules' cost that counts.
func (m *crowd) packet(i, n int) time.Duration {
	m.Helper()
	all := inmates(m.T, m.world.agent)
	for _, p := range all {
		p.signal(m.T, unix.SIGSTOP)
		defer p.signal(m.T, unix.SIGCONT)
	}
	to := netip.MustParseAddrPort("45.30.9.9:9000")
	c := m.from(i, to)
	best := time.Hour
	for range 5 {
		m.box.ForgetPackets()
		begun := time.Now()
		for range n {
			if _, err := c.Write([]byte("hello")); err != nil {
				m.Fatal(err)
			}
		}
		took := time.Since(begun) / time.Duration(n)
		if got := len(m.box.Packets(lab.ToAddr(to.Addr().String()), lab.ToPort(unix.IPPROTO_UDP, to.Port()))); got < often(1, n*9/10) { // a machine that is busy loses some
			m.Errorf("%d of %d packets arrive", got, n)
		}
		best = min(best, took)
	}
	m.box.ForgetPackets()
	return best
}

// spent is the processor time of all processes of the gateway.
func (m *crowd) spent() (sum time.Duration) {
	for _, p := range inmates(m.T, m.world.agent) {
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", p.host))
		for _, name := range tasks {
			var ns int64
			if data, err := os.ReadFile(name); err == nil { // else it has just ended
				fmt.Sscan(string(data), &ns)
			}
			sum += time.Duration(ns)
		}
	}
	return sum
}

// own are the KiB of memory of its own that the processes of a kind have, in the middle of them.
func (m *crowd) own(kind string) int {
	m.Helper()
	var each []int
	for _, p := range inmates(m.T, m.world.agent) {
		if strings.Contains(p.args, kind) {
			each = append(each, m.footprint(kind, p.host).kib)
		}
	}
	if slices.Sort(each); len(each) < len(m.addrs) {
		m.Fatalf("%d processes %s for %d agents", len(each), kind, len(m.addrs))
	}
	return each[len(each)/2]
}

// TestLabGatewayManyAgents: many agents are kept as two are, also while the list of them changes each second. Under stress
// it tells what docs/gateway.md has.
func TestLabGatewayManyAgents(t *testing.T) {
	for _, n := range often([]int{12}, []int{2, 20, 200}) {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			m := keepsMany(t, n)
			m.ask("ok.test", 1) // each guard has resolved it then
			before, begun := m.spent(), time.Now()
			time.Sleep(often(0, 30*time.Second))
			rest := float64(m.spent()-before) / float64(max(time.Since(begun), time.Second))
			took, lost := m.ask("ok.test", often(2, 40))
			load, err := os.ReadFile("/proc/loadavg")
			must(t, err)
			at := func(percent int) time.Duration { return took[(len(took)-1)*percent/100].Round(10 * time.Microsecond) }
			if lost > len(took)/100 {
				t.Fatalf("%d of %d questions have no answer", lost, lost+len(took))
			}
			t.Logf("%d agents: ready in %v; keeper %.1f MiB, guard %.1f MiB; %.2f processors at rest; answers: p50 %v, p99 %v, %d of %d lost; a packet %v; load %s",
				n, m.took.Round(10*time.Millisecond), float64(m.own("__cell"))/1024, float64(m.own("guard"))/1024, rest, at(50), at(99), lost, lost+len(took), m.packet(n-1, often(2000, 20000)), load)
		})
	}
}
