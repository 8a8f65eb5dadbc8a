package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// urgent sends a byte in the midst of others as urgent data (RFC 9293, 3.8.5), which
// one end may read in its place, and the other not.
func urgent(args []string) (detail, error) {
	var o options
	fs := flags("urgent")
	o.register(fs, "")
	at := fs.Int("at", 0, "offset of the urgent byte")
	a, err := parse(fs, args, 1)
	if err != nil {
		return nil, err
	}
	if *at < 0 || *at >= len(o.send) {
		return nil, usage("there is no byte %d to send", *at)
	}
	d := o.dialer()
	c, err := d.Dial("tcp", a[0])
	if err != nil {
		return nil, err
	}
	defer c.Close()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return nil, err
	}
	for i, part := range []string{o.send[:*at], o.send[*at : *at+1], o.send[*at+1:]} {
		var serr error
		if err := raw.Control(func(fd uintptr) {
			serr = unix.Sendto(int(fd), []byte(part), map[int]int{1: unix.MSG_OOB}[i], nil)
		}); err != nil || serr != nil {
			return nil, fmt.Errorf("part %d: %v: %w", i, err, serr)
		}
		time.Sleep(20 * time.Millisecond) // else the kernel would gather them
	}
	out := detail{}
	if err := c.SetDeadline(time.Now().Add(o.timeout)); err != nil {
		return out, err
	}
	return out, receive(c, out)
}

// fastOpen sends data with the very first packet of a connection (RFC 7413), and
// needs no cookie for that (TCP_FASTOPEN_NO_COOKIE of tcp(7)).
func fastOpen(args []string) (detail, error) {
	var o options
	fs := flags("fastopen")
	o.register(fs, "poke")
	a, err := parse(fs, args, 1)
	if err != nil {
		return nil, err
	}
	to, err := netip.ParseAddrPort(a[0])
	if err != nil {
		return nil, usage("%v", err)
	}
	family, sa := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()})
	if to.Addr().Is4() {
		family, sa = unix.AF_INET, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	const noCookie = 34
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, noCookie, 1); err != nil {
		return nil, os.NewSyscallError("setsockopt", err)
	}
	timeout := unix.NsecToTimeval(o.timeout.Nanoseconds())
	for _, opt := range []int{unix.SO_SNDTIMEO, unix.SO_RCVTIMEO} {
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, opt, &timeout); err != nil {
			return nil, os.NewSyscallError("setsockopt", err)
		}
	}
	if err := unix.Sendto(fd, []byte(o.send), unix.MSG_FASTOPEN, sa); err != nil {
		return nil, os.NewSyscallError("sendto", err)
	}
	buf := make([]byte, 4096)
	n, err := unix.Read(fd, buf)
	if err != nil {
		return nil, os.NewSyscallError("read", err)
	}
	return detail{"received": string(buf[:n])}, answer(buf[:n])
}

// seize tries for a while to bind what others have bound, by every means to share
// a port (socket(7)).
func seize(args []string) (detail, error) {
	fs := flags("seize")
	period := fs.Duration("for", 2*time.Second, "how long")
	a, err := parse(fs, args, 1)
	if err != nil {
		return nil, err
	}
	type place struct {
		sa   unix.Sockaddr
		kind int
	}
	places := map[string]place{}
	for _, s := range a {
		table, text, _ := strings.Cut(s, ":")
		port, err := number(text)
		if err != nil {
			return nil, err
		}
		kind := unix.SOCK_STREAM
		if strings.HasPrefix(table, "udp") {
			kind = unix.SOCK_DGRAM
		}
		if strings.HasSuffix(table, "6") {
			places[s+" any"] = place{&unix.SockaddrInet6{Port: port}, kind}
			places[s+" loopback"] = place{&unix.SockaddrInet6{Port: port, Addr: netip.IPv6Loopback().As16()}, kind}
		} else {
			places[s+" any"] = place{&unix.SockaddrInet4{Port: port}, kind}
			places[s+" loopback"] = place{&unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}, kind}
		}
	}
	taken, tries := map[string]int{}, 0
	var last error
	for end := time.Now().Add(*period); time.Now().Before(end); {
		for what, p := range places {
			tries++
			if err := bindShared(p.sa, p.kind); err != nil {
				last = err
			} else {
				taken[what]++
			}
		}
	}
	if len(taken) == 0 {
		return detail{"tries": tries}, last
	}
	return detail{"tries": tries, "taken": taken}, nil
}

func bindShared(sa unix.Sockaddr, kind int) error {
	family := unix.AF_INET
	if _, is := sa.(*unix.SockaddrInet6); is {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	for _, opt := range []int{unix.SO_REUSEADDR, unix.SO_REUSEPORT} {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, opt, 1); err != nil {
			return os.NewSyscallError("setsockopt", err)
		}
	}
	if err := unix.Bind(fd, sa); err != nil {
		return os.NewSyscallError("bind", err)
	}
	if kind == unix.SOCK_DGRAM {
		return nil
	}
	return os.NewSyscallError("listen", unix.Listen(fd, 1))
}

// lock locks files in every way, and looks on, for a while.
func lock(args []string) (detail, error) {
	fs := flags("lock")
	hold := fs.Duration("hold", 5*time.Second, "how long")
	a, err := parse(fs, args, 1)
	if err != nil {
		return nil, err
	}
	locked := 0
	watch, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("inotify_init", err)
	}
	defer unix.Close(watch)
	for _, path := range a {
		if own, err := os.OpenFile(path, os.O_RDWR, 0); err == nil { // one's own can be leased, so that others wait
			defer own.Close()
			if _, err := unix.FcntlInt(own.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err == nil {
				locked++
			}
			continue
		}
		f, err := os.Open(path)
		if err != nil {
			continue
		}
		defer f.Close()
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			locked++
		}
		whole := unix.Flock_t{Type: unix.F_RDLCK}
		_ = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &whole)
		_, _ = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
		_, _ = unix.InotifyAddWatch(watch, path, unix.IN_ALL_EVENTS)
		_, _ = unix.Mmap(int(f.Fd()), 0, 1, unix.PROT_READ, unix.MAP_SHARED) // until the end of the process
	}
	time.Sleep(*hold)
	if locked == 0 {
		return detail{"locked": 0}, fmt.Errorf("none of %d files can be locked", len(a))
	}
	return detail{"locked": locked}, nil
}

// link makes network links that reach from this network namespace into that of
// another process; ok if any could be made.
func link(args []string) (detail, error) {
	a, err := parse(flags("link"), args, 1)
	if err != nil {
		return nil, err
	}
	pid, err := number(a[0])
	if err != nil {
		return nil, err
	}
	name := func(s string) netlink.LinkAttrs {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = s
		return attrs
	}
	kit := &netlink.Netkit{LinkAttrs: name("x1"), Mode: netlink.NETKIT_MODE_L3}
	peer := name("x2")
	peer.Namespace = netlink.NsPid(pid)
	kit.SetPeerAttrs(&peer)
	dummy := &netlink.Dummy{LinkAttrs: name("x3")}
	tun := &netlink.Tuntap{LinkAttrs: name("x4"), Mode: netlink.TUNTAP_MODE_TUN}
	made, failed := []string{}, []error{}
	for what, try := range map[string]func() error{
		"veth": func() error {
			return netlink.LinkAdd(&netlink.Veth{LinkAttrs: name("x0"), PeerName: "y0", PeerNamespace: netlink.NsPid(pid)})
		},
		"netkit": func() error { return netlink.LinkAdd(kit) },
		"moved": func() error {
			if err := netlink.LinkAdd(dummy); err != nil {
				return err
			}
			return netlink.LinkSetNsPid(dummy, pid)
		},
		"tun": func() error {
			if err := netlink.LinkAdd(tun); err != nil {
				return err
			}
			return netlink.LinkSetNsPid(tun, pid)
		},
	} {
		if err := try(); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", what, err))
		} else {
			made = append(made, what)
		}
	}
	if len(made) == 0 {
		return nil, errors.Join(failed...)
	}
	return detail{"made": made}, nil
}

// harry sends a signal to every process of agent-init's that it may send one to,
// as soon as there is one; ok if there was any.
func harry(args []string) (detail, error) {
	fs := flags("harry")
	period := fs.Duration("for", 5*time.Second, "how long")
	a, err := parse(fs, args, 1)
	if err != nil {
		return nil, err
	}
	sig := unix.SignalNum("SIG" + a[0])
	if sig == 0 {
		return nil, usage("unknown signal %q", a[0])
	}
	hit := map[int]bool{}
	for end := time.Now().Add(*period); time.Now().Before(end); {
		entries, err := os.ReadDir("/proc")
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			pid, err := number(e.Name())
			if err != nil || pid == 1 || hit[pid] {
				continue
			}
			line, err := os.ReadFile("/proc/" + e.Name() + "/cmdline")
			if name, _, _ := strings.Cut(string(line), "\x00"); err != nil || !strings.Contains(name, "agent-init") && !strings.HasPrefix(name, "/proc/self/") {
				continue
			}
			if unix.Kill(pid, sig) == nil {
				hit[pid] = true
			}
		}
	}
	if len(hit) == 0 {
		return nil, errors.New("there was none")
	}
	return detail{"hit": len(hit)}, nil
}
