package lab_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/agent-init/agent-init/internal/lab"
	"github.com/agent-init/agent-init/internal/lab/fakellm"
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

func TestKernelEveryAddressAnswers(t *testing.T) {
	l, b := open(t, lab.BoxOptions{})
	for _, addr := range []string{"1.1.1.1", "8.8.8.8", "169.254.169.254", "203.0.113.9", "168.63.129.16", "10.1.2.3",
		b.Gateway4().String(), b.Neighbor4().String(), "2606:4700::1111", "fd00:ec2::254", "64:ff9b::a9fe:a9fe",
		b.Gateway6().String(), b.Neighbor6().String(), "fe80::1%eth0"} {
		host := addr
		if strings.Contains(addr, ":") {
			host = "[" + addr + "]"
		}
		for _, port := range []int{22, 80, 443, 853, 8443, 65535} {
			args := []string{"tcp", fmt.Sprintf("%s:%d", host, port)}
			if port != 80 && port != 443 {
				args = []string{"tcp", "-send", "echo me", args[1]}
			}
			if p := b.Poke(lab.AgentUID, args...); !p.OK {
				t.Errorf("%s port %d: %s", addr, port, p)
			}
		}
		if p := b.Poke(lab.AgentUID, "udp", "-send", "ping", host+":4433"); p.Detail["received"] != "ping" {
			t.Errorf("%s udp: %s", addr, p)
		}
		if p := b.Poke(lab.AgentUID, "dns", host+":53", "ok.test", "A"); !p.OK {
			t.Errorf("%s dns: %s", addr, p)
		}
		if p := b.Poke(lab.AgentUID, "ping", addr); !p.OK {
			t.Errorf("%s ping: %s", addr, p)
		}
	}
	var seen []string
	for _, c := range l.Conns() {
		if c.Dst.Port() == 8443 {
			seen = append(seen, c.Dst.String()+" "+string(c.Received))
		}
	}
	for _, want := range []string{"169.254.169.254:8443 echo me", "[fd00:ec2::254]:8443 echo me"} {
		if !strings.Contains(strings.Join(seen, "\n"), want) {
			t.Errorf("no record of %q in %q", want, seen)
		}
	}
}

func TestKernelNames(t *testing.T) {
	l, b := open(t, lab.BoxOptions{})
	for _, name := range []string{"ok.test", "evil.test", "api.anthropic.com"} {
		p := b.Poke(lab.AgentUID, "resolve", name)
		if got, want := fmt.Sprint(p.Detail["addrs"]), lab.Names()[name]; !strings.Contains(got, want[0].String()) || !strings.Contains(got, want[1].String()) {
			t.Errorf("%s: %s", name, p)
		}
		for _, addr := range lab.Names()[name] {
			p := b.Poke(lab.AgentUID, "http", "-addr", netip.AddrPortFrom(addr, 443).String(), "https://"+name+"/api/hello")
			if !p.OK || p.Detail["proto"] != "HTTP/2.0" {
				t.Errorf("%s at %s: %s", name, addr, p)
			}
		}
	}
	if q := l.Queries("OK.test"); len(q) < 2 || q[0].Server != lab.Upstream4 && q[0].Server != lab.Upstream6 {
		t.Errorf("queries: %v", q)
	}
	if r := l.Web.Requests("ok.test"); len(r) != 2 || r[0].SNI != "ok.test" || !r[0].TLS || r[0].Dst.Port() != 443 {
		t.Errorf("requests: %+v", r)
	}
	if p := b.Poke(lab.AgentUID, "http", "-addr", "45.30.0.10:443", "-sni", "ok.test", "-host", "evil.test", "https://ok.test/x"); !p.OK {
		t.Errorf("fronting: %s", p)
	}
	if r := l.Web.Requests("evil.test"); len(r) == 0 || r[len(r)-1].SNI != "ok.test" {
		t.Errorf("fronting: %+v", r)
	}
	if p := b.Poke(lab.AgentUID, "http", "http://ok2.test/y"); !p.OK || !strings.Contains(p.Detail["body"].(string), "GET ok2.test /y") {
		t.Errorf("http: %s", p)
	}
}

func TestKernelLLM(t *testing.T) {
	_, b := open(t, lab.BoxOptions{})
	p := b.Poke(lab.AgentUID, "http", "-method", "POST", "-body", `{"model":"m","stream":true}`, "https://api.anthropic.com/v1/messages?beta=true")
	if !p.OK || !strings.Contains(p.Detail["body"].(string), `"text":"hello "`) {
		t.Errorf("messages: %s", p)
	}
	p = b.Poke(lab.AgentUID, "http", "-method", "POST", "-body", `{"model":"m"}`, "https://api.anthropic.com/v1/messages")
	if !p.OK || !strings.Contains(p.Detail["body"].(string), fakellm.Text) {
		t.Errorf("messages, whole: %s", p)
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

func TestKernelDockerDNS(t *testing.T) {
	l, b := open(t, lab.BoxOptions{DockerDNS: true})
	b.ForgetPackets()
	for _, args := range [][]string{{"resolve", "ok.test"}, {"dns", "127.0.0.11:53", "evil.test", "A"}, {"dns", "-tcp", "127.0.0.11:53", "evil.test", "A"}} {
		if p := b.Poke(lab.AgentUID, args...); !p.OK {
			t.Errorf("%v: %s", args, p)
		}
	}
	q := l.Queries("evil.test")
	if len(q) != 2 || q[0].Server.String() != "127.0.0.11" || q[1].Network != "tcp" {
		t.Errorf("queries: %v", q)
	}
	if p := b.Packets(lab.Any(lab.ToPort(unix.IPPROTO_UDP, 53), lab.ToPort(unix.IPPROTO_TCP, 53))); len(p) != 0 {
		t.Errorf("left the box: %v", p)
	}
}

func TestKernelShare(t *testing.T) {
	l, b := open(t, lab.BoxOptions{})
	other := l.NewBox(lab.BoxOptions{Share: b})
	other.Idle()
	p := b.ExecStart(lab.Cmd{Args: []string{"poke", "listen", "-for", "3s", "127.0.0.1:7000"}})
	waitFor(t, func() bool { return other.Poke(lab.AgentUID, "tcp", "-send", "x", "127.0.0.1:7000").OK })
	_ = p.Signal(9)
	if other.Addr4() != b.Addr4() {
		t.Error("addresses differ")
	}
	second := l.NewBox(lab.BoxOptions{NoIPv6: true})
	second.Idle()
	if p := second.Poke(0, "tcp", "[2606:4700::1111]:443"); p.OK {
		t.Errorf("IPv6 without IPv6: %s", p)
	}
	if p := second.Poke(0, "tcp", "1.1.1.1:443"); !p.OK || second.Addr4() == b.Addr4() {
		t.Errorf("second box: %s", p)
	}
}

func TestKernelInbound(t *testing.T) {
	l, b := open(t, lab.BoxOptions{})
	b.ExecStart(lab.Cmd{Args: []string{"poke", "listen", "-for", "10m", "0.0.0.0:3000"}, UID: lab.AgentUID})
	from := netip.MustParseAddrPort("203.0.113.77:53")
	waitFor(t, func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		c, err := l.Internet.Dial(ctx, "tcp4", netip.AddrPortFrom(b.Addr4(), 3000).String(), from)
		if err != nil {
			return false
		}
		defer c.Close()
		return c.LocalAddr().String() == from.String()
	})
	l.Claim("tcp", 9999)
	ln, err := l.Internet.Listen("tcp4", "45.30.66.6:9999")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if p := b.Poke(0, "tcp", "45.30.66.6:9999"); !p.OK {
		t.Fatal(p)
	}
	c, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
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
