package lab

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

// newNS makes an empty namespace.
func newNS() (*NS, error) {
	ns := &NS{fd: -1}
	err := onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("unshare network namespace: %w", err)
		}
		fd, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("open network namespace: %w", err)
		}
		ns.fd = fd
		return nil
	})
	if err != nil {
		return nil, err
	}
	return ns, nil
}

// onThread runs fn on an operating system thread that nothing else has used
// and nothing else will: whatever fn does to the thread dies with it.
func onThread(fn func() error) error {
	errc := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// The main thread can't end; while it is held here, the next
			// goroutine is sure to get another one.
			errc <- onThread(fn)
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
	return onThread(func() error {
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

// file returns another descriptor of the namespace.
func (ns *NS) file() (*os.File, error) {
	fd, err := unix.FcntlInt(uintptr(ns.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("duplicate network namespace: %w", err)
	}
	return os.NewFile(uintptr(fd), "netns"), nil
}

func (ns *NS) close() error {
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
