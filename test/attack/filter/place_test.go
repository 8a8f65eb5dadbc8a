package filter

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/test/attack/rig"
)

// sought are the addresses that frames of the link ask a neighbour for: by ARP
// (RFC 826) and by neighbour solicitation (RFC 4861, 4.3).
func sought(packets []lab.Packet) map[netip.Addr]int {
	out := map[netip.Addr]int{}
	for _, p := range packets {
		switch {
		case p.EtherType == unix.ETH_P_ARP && len(p.Raw) >= 42 && binary.BigEndian.Uint16(p.Raw[20:]) == 1:
			out[netip.AddrFrom4([4]byte(p.Raw[38:42]))]++
		case p.Proto == unix.IPPROTO_ICMPV6 && p.ICMPType == 135 && len(p.Raw) >= 78:
			out[netip.AddrFrom16([16]byte(p.Raw[62:78]))]++
		}
	}
	return out
}

var _ = rig.Also(TestNeighbourQuestionsAreJudged, rig.Everywhere)

// TestNeighbourQuestionsAreJudged: who wants to send to a neighbour asks the whole
// link for it first. Which addresses are asked for is data too: of denied ones
// none may be.
func TestNeighbourQuestionsAreJudged(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{})
	open := w.Beside(lab.BoxOptions{})
	targets := func(b *lab.Box) (v4, v6 []netip.Addr) {
		a4, a6 := b.Addr4().As4(), b.ULA().As16()
		for i := range 20 {
			a4[3], a6[15] = byte(100+i), byte(100+i)
			v4, v6 = append(v4, netip.AddrFrom4(a4)), append(v6, netip.AddrFrom16(a6))
		}
		return v4, v6
	}
	for _, b := range []*lab.Box{open, w.Box} {
		v4, v6 := targets(b)
		b.ForgetPackets()
		run := func(args ...string) {
			t.Helper()
			rig.Verdict(t, w.AsAgent(b, args...))
		}
		for i, a := range append(v4, v6...) {
			switch i % 3 {
			case 0:
				run("udp", "-noreply", rig.At(a, 9))
			case 1:
				run("tcp", "-timeout", "200ms", rig.At(a, 443))
			default:
				run("ping", "-timeout", "100ms", a.String())
			}
		}
		found := sought(b.Packets())
		n := 0
		for _, a := range append(v4, v6...) {
			n += min(1, found[a])
		}
		if b == open && n < 20 {
			t.Fatalf("proves nothing: only %d of 40 are asked for: %v", n, found)
		}
		if b == w.Box && n > 0 {
			t.Errorf("%d of 40 neighbours are asked for: %v", n, found)
		}
	}
}

var _ = rig.Also(TestGuardsPortsCantBeTaken, rig.OverXtables)

// TestGuardsPortsCantBeTaken: while there is no guard its ports are nobody else's, by
// whatever means a port can be shared: what is redirected there must not come to
// the agent.
func TestGuardsPortsCantBeTaken(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{})
	ports := lent(w)
	if len(ports) != 6 {
		t.Errorf("the guard's sockets are %v, want DNS over UDP and TCP and the gate, of both families", ports)
	}
	thief := w.Launch(append([]string{"poke", "seize", "-for", "8s"}, ports...)...)
	for range 3 {
		w.Guard().Signal(t, unix.SIGKILL)
		w.Blocked("resolve", "evil.test")
		w.Blocked("tcp", "1.1.1.1:443")
	}
	if p := rig.Verdict(t, thief); p.OK || p.Detail["tries"].(float64) < 100 {
		t.Errorf("ports of the guard's were had: %s", p)
	}
	if p := w.Poke("seize", "-for", "100ms", "tcp:40023"); !p.OK {
		t.Errorf("proves nothing: a free port can't be had either: %s", p)
	}
	w.Recovers("three guards")
	w.Closed()
}

// lent are the sockets on loopback that others than the agent wait at.
func lent(w *rig.World) (ports []string) {
	w.Helper()
	for table, state := range map[string]string{"tcp": "0A", "tcp6": "0A", "udp": "07", "udp6": "07"} { // listening; not connected
		for line := range strings.Lines(w.Root("cat", "/proc/net/"+table).Stdout) {
			f := strings.Fields(line) // see proc_net_tcp.rst
			if len(f) < 8 || f[3] != state || f[7] == fmt.Sprint(lab.AgentUID) {
				continue
			}
			addr, port, _ := strings.Cut(f[1], ":")
			if addr == "0100007F" || addr == "00000000000000000000000001000000" {
				ports = append(ports, table+":0x"+port)
			}
		}
	}
	return ports
}

// TestLockedFilesHoldNothingUp: whoever may read a file may lock it, lease it and watch
// it. Nothing of agent-init's waits for those who do.
func TestLockedFilesHoldNothingUp(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{})
	files := strings.Fields(w.Root("sh", "-c", "find /run/agent-init /var/log/agent-init /etc/agent-init -type f -o -type d; echo /etc/hosts /etc/resolv.conf /etc/passwd /etc").Stdout)
	if r := w.Script("touch /workspace/leased"); r.Code != 0 {
		t.Fatal(r)
	}
	files = append(files, "/workspace/leased")
	locker := w.Launch(append([]string{"poke", "lock", "-hold", "10m"}, files...)...)
	locked := func() bool { // flocks are known to all
		data, err := os.ReadFile("/proc/locks")
		return err == nil && strings.Count(string(data), fmt.Sprintf(" %d ", lockOwner(w, "lock"))) > 5
	}
	if !rig.Eventually(20*time.Second, locked) {
		t.Fatal("proves nothing: nothing is locked")
	}
	for _, cmd := range [][]string{{"status"}, {"reload"}, {"allow", "other.test", "--for", "10m"}, {"deny", "other.test"}, {"grants"}, {"log"}, {"suggest"},
		{"selftest"}, {"explain", "evil.test"}, {"exec", "--", "true"}} {
		r := w.Box.Exec(lab.Cmd{Args: append([]string{"agent-init"}, cmd...), Timeout: lab.Patience})
		if r.TimedOut || r.Code != 0 && cmd[0] != "explain" {
			t.Errorf("%v: %s", cmd, r)
		}
	}
	// It is waited for as long as /proc/sys/fs/lease-break-time, unless one doesn't.
	if r := w.Box.Exec(lab.Cmd{Args: []string{"agent-init", "suggest", "--write", "/workspace/leased"}, Timeout: lab.Patience}); r.TimedOut {
		t.Errorf("a lease of the agent's is waited for: %s", r)
	}
	w.Guard().Signal(t, unix.SIGKILL)
	w.Recovers("a guard's end, with all files locked")
	if r := w.SetPolicy("ok.test\n"); r.Code != 0 {
		t.Errorf("reload: %s", r)
	}
	w.Blocked("tcp", "45.30.9.9:8443")
	w.Poke("resolve", "x24.evil.test")
	w.Audited("what was refused meanwhile", func(e rig.Event) bool { return e.Name == "x24.evil.test" })
	rig.Must(t, locker.Signal(unix.SIGKILL))
}

// lockOwner is the process of the box that runs an operation of poke, by its
// number on the machine.
func lockOwner(w *rig.World, op string) int {
	w.Helper()
	for _, p := range rig.Inmates(w.T, w.Agent) {
		if strings.HasPrefix(p.Args, "poke "+op+" ") {
			return p.Host
		}
	}
	return -1
}

// TestLinksAcrossRefused: who is root in a namespace of its own can make links
// there, but none whose other end is in the container's network.
func TestLinksAcrossRefused(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{})
	open := w.Lab.NewBox(lab.BoxOptions{Caps: []string{"NET_ADMIN", "SYS_ADMIN"}})
	open.Idle()
	if p := open.Poke(0, "unshare", "net", "link", "1"); !strings.Contains(fmt.Sprint(p.Detail), "made:") {
		t.Fatalf("proves nothing: nobody can: %s", p)
	}
	links := func() string { return w.Root("cat", "/proc/net/dev").Stdout }
	names := func(text string) (out []string) {
		for line := range strings.Lines(text) {
			if name, _, ok := strings.Cut(line, ":"); ok {
				out = append(out, strings.TrimSpace(name))
			}
		}
		return out
	}
	before := fmt.Sprint(names(links()))
	for _, flags := range []string{"user", "user,net", "user,net,mount"} {
		p := w.Poke("unshare", flags, "link", "1")
		if strings.Contains(fmt.Sprint(p.Detail), "made:") {
			t.Errorf("%s: %s", flags, p)
		}
	}
	for _, op := range [][]string{{"link", "1"}, {"socket", "44", "raw", "0"}, {"read", "/dev/net/tun"}} { // 44 is AF_XDP
		w.Blocked(op...)
	}
	w.Poke("unshare", "user,net", "socket", "44", "raw", "0") // in a network without a way out it may
	if after := fmt.Sprint(names(links())); after != before {
		t.Errorf("the container had the links %s and has %s", before, after)
	}
	w.Closed()
}

var _ = rig.Also(TestFullFlowTableRefuses, rig.Everywhere)

// TestFullFlowTableRefuses: the agent fills the table of flows by what it may send, to
// loopback. What is full refuses: nothing opens, and afterwards all is well.
func TestFullFlowTableRefuses(t *testing.T) {
	w := rig.Confine(t, rig.Allowlist, lab.BoxOptions{})
	count := func() (n int) {
		_, err := fmt.Sscan(w.Root("cat", "/proc/sys/net/netfilter/nf_conntrack_count").Stdout, &n)
		rig.Must(t, err)
		return n
	}
	var floods []*lab.Process
	for i := range 4 {
		floods = append(floods, w.Launch("poke", "flood", "-n", "80000", "-spread", "80000", fmt.Sprintf("127.%d.0.1:9", 10+2*i)))
	}
	most := 0
	for _, f := range floods {
		for flooding := true; flooding; {
			select {
			case <-f.Done():
				flooding = false
			default:
			}
			most = max(most, count())
			w.Blocked("tcp", "-timeout", "1s", "1.1.1.1:443")
			w.Blocked("udp", "-timeout", "100ms", "1.1.1.1:443")
		}
	}
	t.Logf("%d flows at once, of %s", most, w.Root("cat", "/proc/sys/net/netfilter/nf_conntrack_max").Stdout)
	if most < 10000 {
		t.Errorf("proves nothing: only %d flows", most)
	}
	w.Recovers("a flood of flows")
	w.Closed()
}
