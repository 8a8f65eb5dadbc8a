// Package netns makes network namespaces, and does things inside of them, for
// tests and the lab. Nothing that agent-init runs with needs it.
package netns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// NS is a network namespace without a name: it lives as long as a descriptor,
// a socket or a process in it does.
type NS struct{ fd int }

// New makes an empty namespace.
func New() (*NS, error) {
	var ns *NS
	err := OnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("unshare network namespace: %w", err)
		}
		here, err := Open(own)
		if err == nil {
			ns = here
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return ns, nil
}

// own is the namespace of the thread that opens it.
const own = "/proc/thread-self/ns/net"

// Open opens the namespace that path stands for, as in /proc/PID/ns/net.
func Open(path string) (*NS, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open network namespace %s: %w", path, err)
	}
	return &NS{fd: fd}, nil
}

// OnThread runs fn on an operating system thread that nothing else has used
// and nothing else will: whatever fn does to the thread dies with it.
func OnThread(fn func() error) error {
	errc := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// The main thread can't end; while it is held here, the next
			// goroutine is sure to get another one.
			errc <- OnThread(fn)
			runtime.UnlockOSThread()
			return
		}
		err := errors.New("function left its goroutine")
		defer func() { errc <- err }()
		err = fn()
	}()
	return <-errc
}

// Do runs fn on a thread inside the namespace. Sockets that fn opens stay
// there. fn must not start goroutines of which it expects the same.
func (ns *NS) Do(fn func() error) error {
	return OnThread(func() error {
		if err := unix.Setns(ns.fd, unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter network namespace: %w", err)
		}
		return fn()
	})
}

// Listen is net.Listen inside the namespace, without MPTCP. The port is shared
// (SO_REUSEPORT) with the lab's own listeners on the wildcard address, and a
// listener on one address takes precedence over them.
func (ns *NS) Listen(network, addr string) (net.Listener, error) {
	var l net.Listener
	err := ns.Do(func() (err error) {
		cfg := net.ListenConfig{Control: shareable}
		cfg.SetMultipathTCP(false)
		l, err = cfg.Listen(context.Background(), network, addr)
		return err
	})
	return l, err
}

// ListenPacket is net.ListenPacket inside the namespace; see Listen.
func (ns *NS) ListenPacket(network, addr string) (net.PacketConn, error) {
	var c net.PacketConn
	err := ns.Do(func() (err error) {
		cfg := net.ListenConfig{Control: shareable}
		c, err = cfg.ListenPacket(context.Background(), network, addr)
		return err
	})
	return c, err
}

// Dial connects from inside the namespace to a literal address ("ip:port").
// From the internet, local may be any address; the zero value leaves the
// choice to the kernel.
func (ns *NS) Dial(ctx context.Context, network, addr string, local netip.AddrPort) (net.Conn, error) {
	if _, err := netip.ParseAddrPort(addr); err != nil {
		return nil, fmt.Errorf("dial needs a literal address: %w", err)
	}
	var c net.Conn
	err := ns.Do(func() (err error) {
		d := net.Dialer{Control: shareable}
		d.SetMultipathTCP(false)
		if local.IsValid() {
			switch network[:3] {
			case "tcp":
				d.LocalAddr = net.TCPAddrFromAddrPort(local)
			case "udp":
				d.LocalAddr = net.UDPAddrFromAddrPort(local)
			}
		}
		c, err = d.DialContext(ctx, network, addr)
		return err
	})
	return c, err
}

// Start starts cmd inside the namespace, and in the machine's other
// namespaces. Meant for tools such as nft, or a DNS server to compare with.
func (ns *NS) Start(cmd *exec.Cmd) error {
	return ns.Do(cmd.Start)
}

// Inode identifies the namespace, as in the target of /proc/PID/ns/net.
func (ns *NS) Inode() (uint64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(ns.fd, &st); err != nil {
		return 0, fmt.Errorf("stat network namespace: %w", err)
	}
	return st.Ino, nil
}

// File returns another descriptor of the namespace.
func (ns *NS) File() (*os.File, error) {
	fd, err := unix.FcntlInt(uintptr(ns.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("duplicate network namespace: %w", err)
	}
	return os.NewFile(uintptr(fd), "netns"), nil
}

// Close lets go of the namespace, which ends once nothing else is in it. Closing
// it again, or a nil one, does nothing.
func (ns *NS) Close() error {
	if ns == nil || ns.fd < 0 {
		return nil
	}
	fd := ns.fd
	ns.fd = -1
	return unix.Close(fd)
}

func shareable(_, _ string, c syscall.RawConn) error {
	var err error
	cerr := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
		if err == nil {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
		}
	})
	return errors.Join(err, cerr)
}

// FD is the namespace's descriptor, as netlink wants it. It is the namespace's own,
// and ends with it.
func (ns *NS) FD() int { return ns.fd }
