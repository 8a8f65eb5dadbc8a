package lab_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/internal/netns"
	"golang.org/x/sys/unix"
)

// open returns a lab with one running box that nothing confines.
func open(t *testing.T, opts lab.BoxOptions) (*lab.Lab, *lab.Box) {
	t.Helper()
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	b := l.NewBox(opts)
	b.Idle()
	return l, b
}

// TestKernelConns: what was sent is on record, over IPv4 and IPv6, to a port that has a server and to one that has none.
// Attacks that arrive nowhere are told by its absence alone.
func TestKernelConns(t *testing.T) {
	l, b := open(t, lab.BoxOptions{})
	const sent = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	for _, to := range []string{"45.30.0.10:80", "[2a0f:30::10]:80", "169.254.169.254:8443", "[fd00:ec2::254]:8443"} {
		if p := b.Poke(lab.AgentUID, "tcp", "-send", sent, to); !p.OK {
			t.Errorf("%s: %s", to, p)
		}
		if !slices.ContainsFunc(l.Conns(), func(c lab.Conn) bool { return c.Dst.String() == to && string(c.Received) == sent }) {
			t.Errorf("no record of %s: %+v", to, l.Conns())
		}
	}
}

func TestKernelCapture(t *testing.T) {
	l, b := open(t, lab.BoxOptions{Caps: []string{"NET_RAW", "NET_ADMIN", "SETUID", "SETGID"}})
	b.ForgetPackets()
	if p := b.Packets(lab.Routed, lab.Not(lab.Proto(unix.IPPROTO_ICMPV6))); len(p) != 0 {
		t.Errorf("an idle box sent %v", p)
	}
	tests := []struct {
		name   string
		args   []string
		filter lab.Filter
	}{
		{"tcp", []string{"tcp", "45.30.66.6:4444"}, lab.ToPort(unix.IPPROTO_TCP, 4444)},
		{"v6", []string{"tcp", "[2a0f:30:66::6]:4445"}, lab.ToAddr("2a0f:30:66::/48")},
		{"mapped", []string{"connect", "inet6", "stream", "0", "[::ffff:45.30.66.9]:80"}, lab.ToAddr("45.30.66.9")},
		{"udp", []string{"udp", "-noreply", "45.30.66.6:443"}, lab.ToPort(unix.IPPROTO_UDP, 443)},
		{"broadcast", []string{"udp", "-noreply", "255.255.255.255:1900"}, lab.ToAddr("255.255.255.255")},
		{"multicast", []string{"udp", "-noreply", "224.0.0.251:5353"}, lab.ToAddr("224.0.0.251")},
		{"multicast v6", []string{"udp", "-noreply", "[ff02::fb%eth0]:5353"}, lab.ToAddr("ff02::fb")},
		{"ping", []string{"ping", "45.30.66.6"}, func(p *lab.Packet) bool { return p.Src.Is4() && p.ICMPType == 8 }},
		{"raw ping v6", []string{"ping", "-raw", "-size", "1024", "2a0f:30:66::6"}, func(p *lab.Packet) bool { return p.ICMPType == 128 }},
		{"gre", []string{"rawip", "gre", "45.30.66.6"}, lab.Proto(unix.IPPROTO_GRE)},
		{"sctp", []string{"rawip", "sctp", "45.30.66.6"}, lab.Proto(unix.IPPROTO_SCTP)},
		{"igmp", []string{"rawip", "igmp", "45.30.66.6"}, lab.Proto(unix.IPPROTO_IGMP)},
		{"fragments", []string{"fragudp", "45.30.66.7:99"}, func(p *lab.Packet) bool { return p.Fragment }},
		{"fragmented SYN", []string{"fragsyn", "45.30.66.8:80"}, lab.ToAddr("45.30.66.8")},
		{"frame", []string{"packet", "eth0", "ffffffffffff02000000000108004500001400000000400600000a0000012d1e42630000"}, lab.ToAddr("45.30.66.99")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if n := b.Packets(tt.filter); len(n) != 0 {
				t.Fatalf("before: %v", n)
			}
			if p := b.Poke(0, tt.args...); !p.OK {
				t.Errorf("%s", p)
			}
			if n := b.Packets(tt.filter); len(n) == 0 {
				t.Errorf("nothing captured; all: %v", b.Packets())
			}
		})
	}
	if n := b.Packets(lab.ToAddr("45.30.66.8")); len(n) < 3 || !n[0].Fragment {
		t.Errorf("fragments of a SYN: %v", n)
	}
	l.Close()
}

func waitFor(t *testing.T, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(lab.Patience); !cond(); {
		if time.Now().After(deadline) {
			t.Fatal("the condition is never met")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestKernelCloseLeavesNothing(t *testing.T) {
	lab.Require(t)
	l := lab.New(t, lab.Options{})
	b := l.NewBox(lab.BoxOptions{DockerDNS: true})
	p := b.Idle()
	b.ExecStart(lab.Cmd{Args: []string{"sh", "-c", "sleep 1000 & sleep 1000"}, UID: lab.AgentUID})
	var inodes []string
	for _, ns := range []*netns.NS{l.Internet, b.Net} {
		ino, err := ns.Inode()
		if err != nil {
			t.Fatal(err)
		}
		inodes = append(inodes, fmt.Sprintf("net:[%d]", ino))
	}
	dir := filepath.Dir(l.CAFile())
	l.Close()
	l.Close()
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", p.Pid())); err == nil {
		t.Errorf("PID 1 of the box lives")
	}
	if _, err := os.Stat(dir); err == nil {
		t.Errorf("%s is left", dir)
	}
	// The last threads in a namespace end after their goroutines.
	waitFor(t, func() bool {
		links, err := filepath.Glob("/proc/[0-9]*/task/[0-9]*/ns/net")
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range links {
			target, err := os.Readlink(l)
			if err == nil && (target == inodes[0] || target == inodes[1]) {
				return false
			}
		}
		return true
	})
	for _, pattern := range []string{"/proc/[0-9]*/mountinfo", "/proc/[0-9]*/cmdline"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if data, err := os.ReadFile(f); err == nil && strings.Contains(string(data), dir) {
				t.Errorf("%s mentions %s", f, dir)
			}
		}
	}
	names, err := os.ReadDir("/run/netns")
	if err == nil && len(names) > 0 {
		t.Logf("/run/netns has entries of others: %v", names)
	}
}
