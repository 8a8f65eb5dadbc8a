package lab

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"

	"github.com/agent-init/agent-init/internal/lab/container"
	"github.com/agent-init/agent-init/internal/netns"
)

// AgentUID is the uid and gid of the user "agent" in a box's passwd.
const AgentUID = 1000

// DefaultCaps are the capabilities of a box whose BoxOptions name none.
func DefaultCaps() []string { return []string{"NET_ADMIN", "SETUID", "SETGID", "SETPCAP"} }

// File is a file of a box; see BoxOptions.Files.
type File = container.File

// Bind is a path of the machine shown inside a box.
type Bind = container.Bind

// BoxOptions say what container a Box is. The zero value is
// "docker run --cap-drop=ALL" with DefaultCaps, on the default bridge.
type BoxOptions struct {
	Gateway    bool     // eth1 leads to a network that only boxes with Behind are on
	Forwards   bool     // a gateway's kernel forwards from the start
	Behind     *Box     // on the network of that gateway, and on no other
	Share      *Box     // use this box's network namespace, as containers of a pod do
	Binary     string   // shown as /usr/local/bin/agent-init; usually Binary(tb)
	Caps       []string // bounding set, without "CAP_"; nil: DefaultCaps, empty: none
	NoNewPrivs bool     // --security-opt no-new-privileges
	ReadOnly   bool     // --read-only: all but /dev/shm and Tmpfs
	SysctlRW   bool     // /proc/sys writable, as in a privileged container
	NoIPv6     bool     // no IPv6 on any link
	DockerDNS  bool     // user-defined network: resolver at 127.0.0.11 behind NAT rules
	DockerVia  string   // these made by a variant of iptables, "nft" or "legacy"; empty: without it
	Resolv     string   // content of /etc/resolv.conf; empty: Upstream4 and Upstream6
	Hosts      []string // further lines of /etc/hosts
	Files      []File   // written into the root, over what the machine has
	Binds      []Bind
	Tmpfs      []string // --tmpfs: PATH, or PATH:OPTIONS as in mount(8)
	Env        []string // environment of PID 1 and of Exec, besides PATH, HOME and HOSTNAME
}

// Box is one container: a network namespace, and a recipe for processes in it.
// Start may be called again after its PID 1 has ended: the network namespace
// stays, the filesystem starts afresh.
type Box struct {
	Net *netns.NS

	lab     *Lab
	name    string
	plug    plug
	opts    BoxOptions
	capture *capture
	group   cgroup // of all that runs in the box
	running current
	leave   func() error   // of an attached one
	hub     *hub           // behind a gateway
	inside  []netip.Prefix // its addresses there
}

// NewBox adds a box to the lab. Nothing runs in it yet.
func (l *Lab) NewBox(opts BoxOptions) *Box {
	l.tb.Helper()
	l.mu.Lock()
	index := len(l.boxes)
	b := &Box{lab: l, name: fmt.Sprintf("box%d", index), opts: opts}
	l.boxes = append(l.boxes, b)
	l.mu.Unlock()
	if err := b.start(index); err != nil {
		l.tb.Fatalf("lab: new box: %v", err)
	}
	return b
}

func (b *Box) start(index int) (err error) {
	if _, err := capNumbers(b.opts.Caps); err != nil {
		return err
	}
	if b.group, err = newCgroup(filepath.Base(b.lab.dir) + "-" + b.name); err != nil {
		return fmt.Errorf("control group: %w", err)
	}
	b.lab.onClose(b.group.remove)
	b.lab.onClose(b.kill)
	if s := b.opts.Share; s != nil {
		b.Net, b.plug, b.capture = s.Net, s.plug, s.capture
		b.opts.DockerDNS = s.opts.DockerDNS
		return nil
	}
	if b.Net, err = netns.New(); err != nil {
		return err
	}
	b.lab.onClose(b.Net.Close)
	if b.opts.Behind != nil {
		return b.startBehind()
	}
	b.plug = newPlug(index, !b.opts.NoIPv6)
	if err := b.plug.connect(b.lab.Internet, b.Net); err != nil {
		return err
	}
	if b.capture, err = startCapture(b.lab.Internet, b.Net, b.plug.host); err != nil {
		return fmt.Errorf("capture: %w", err)
	}
	b.lab.onClose(b.capture.close)
	if b.opts.Gateway {
		if err := b.newHub(index); err != nil {
			return fmt.Errorf("network behind a gateway: %w", err)
		}
	}
	if b.opts.DockerDNS {
		if err := startDockerDNS(b.Net, b.lab.DNS, b.opts.DockerVia); err != nil {
			return fmt.Errorf("embedded dns: %w", err)
		}
	}
	return nil
}

// Addr4 and the others are addresses of the box and its surroundings; the IPv6
// ones are the zero Addr if the box has none.
func (b *Box) Addr4() netip.Addr { return b.plug.addr[0].Addr() }

// Addr6 is the box's global-looking IPv6 address.
func (b *Box) Addr6() netip.Addr { return b.nth(b.prefixes(), 2) }

// ULA is the box's unique local IPv6 address.
func (b *Box) ULA() netip.Addr { return b.nth(b.prefixes(), 1) }

// Gateway4 is the host end of the box's link, and its default route.
func (b *Box) Gateway4() netip.Addr { return b.nth(b.plug.gateway, 0) }

// Gateway6 is the same for IPv6.
func (b *Box) Gateway6() netip.Addr { return b.nth(b.plug.gateway, 1) }

// Neighbor4 is another host of the box's own subnet.
func (b *Box) Neighbor4() netip.Addr { return b.nth(b.plug.neighbor, 0) }

// Neighbor6 is the same for IPv6.
func (b *Box) Neighbor6() netip.Addr { return b.nth(b.plug.neighbor, 2) }

func (b *Box) prefixes() []netip.Addr {
	var addrs []netip.Addr
	for _, p := range b.plug.addr {
		addrs = append(addrs, p.Addr())
	}
	return addrs
}

func (b *Box) nth(addrs []netip.Addr, i int) netip.Addr {
	if i >= len(addrs) {
		return netip.Addr{}
	}
	return addrs[i]
}

// etc returns the files that an engine mounts over those of the image.
func (b *Box) etc() []File {
	resolv := b.opts.Resolv
	switch {
	case resolv != "":
	case b.opts.Behind != nil:
		resolv = "nameserver " + b.opts.Behind.Inside4().String() + "\n"
	case b.opts.DockerDNS:
		resolv = "nameserver 127.0.0.11\noptions ndots:0\n"
	default:
		resolv = "nameserver " + Upstream4.String() + "\n"
		if b.plug.ipv6 {
			resolv += "nameserver " + Upstream6.String() + "\n"
		}
	}
	hosts := "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n" +
		b.Addr4().String() + "\t" + b.name + "\n"
	for _, line := range b.opts.Hosts {
		hosts += strings.TrimSuffix(line, "\n") + "\n"
	}
	return []File{
		{Path: "/etc/resolv.conf", Data: []byte(resolv)},
		{Path: "/etc/hosts", Data: []byte(hosts)},
		{Path: "/etc/hostname", Data: []byte(b.name + "\n")},
	}
}

const (
	passwd = "root:x:0:0:root:/root:/bin/sh\n" +
		"daemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n" +
		"agent:x:1000:1000:agent:/home/agent:/bin/sh\n" +
		"nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
	group = "root:x:0:\ndaemon:x:1:\ntty:x:5:\nagent:x:1000:\nnogroup:x:65534:\n"
)

// image returns the files that make the root look like our image's.
func (b *Box) image() []File {
	files := []File{
		{Path: "/etc/passwd", Data: []byte(passwd)},
		{Path: "/etc/group", Data: []byte(group)},
		{Path: "/etc/nsswitch.conf", Data: []byte("passwd: files\ngroup: files\nhosts: files dns\n")},
		{Path: "/etc/ssl/certs/ca-certificates.crt", Data: b.lab.CA.PEM},
		{Path: "/home/agent", Dir: true, UID: AgentUID, GID: AgentUID, Mode: 0o750},
		{Path: "/workspace", Dir: true, UID: AgentUID, GID: AgentUID},
	}
	return append(files, b.opts.Files...)
}
